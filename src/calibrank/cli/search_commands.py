"""The commands of `calibrank search`."""

from pathlib import Path

from calibrank.cli import options
from calibrank.cli.options import OUTPUT, ROWS, within
from calibrank.cli.parse import FRACTION, PROBABILITY, REQUIRED, Option, Rule, command, path, whole

_RUN = Option("RUN", "Run of a search system: TREC, .json, .tsv or a table.", default=REQUIRED)
_QRELS = Option(
    "QRELS ...",
    "Judgements: TREC qrels, .tsv, .json or a table. Labels of several judges are averaged.",
    default=REQUIRED,
)
_GRADE, _TOP_K = within(
    ROWS,
    Option(
        "--label RULE ...",
        "What is relevant, by a rule: 'grade >= 2', or 'probability(grade)' for a judge's "
        "probabilities. Instead of --relevant. One judge per rule and column.",
    ),
    Option("--top-k", "Use only the first documents of each query: those shown.", whole(1)),
)


@command(
    *(_RUN, _QRELS, options.RELEVANT, _GRADE, _TOP_K),
    *within(
        "Threshold",
        Option("--precision", "Choose the threshold of this held-out precision.", FRACTION),
        Option("--recall", "Choose the threshold of this held-out recall.", FRACTION),
    ),
    *(options.MAP_OUT, options.JSON),
    rules=[Rule("--precision --recall"), options.ONE_RULE],
)
def search_fit() -> None:
    """Fit a map for new queries to the judged documents of a run.

    The map is evaluated on held-out queries, with intervals by query. With --precision or --recall
    a threshold is chosen on them, to be given to calibrank search apply.

    Example: calibrank search fit run.trec qrels.txt --relevant 2 --precision 0.7 -o map.json
    """


@command(
    *(options.MAP, _RUN),
    Option(
        "--out -o",
        "Where to write the run with probabilities: a TREC file, or by its ending .json, "
        ".tsv, .csv or .parquet.",
        path,
        REQUIRED,
        OUTPUT,
    ),
    Option("--threshold", "Write only documents with at least this probability.", PROBABILITY),
    Option("--qrels FILE", "Judgements of RUN, to check that its level is the map's.", panel=ROWS),
    *(_TOP_K, options.JSON),
)
def search_apply() -> None:
    """Write a run with probabilities of relevance for scores, and cut it by a threshold.

    For a query without a document that reaches the threshold, the answer is nothing. The order of
    documents does not change.

    Example: calibrank search apply map.json run.trec --threshold 0.4 -o calibrated.trec
    """


@command(
    *(options.MAP, _RUN),
    Option(
        "--labels", "How many pairs to choose. Default: 100, or as many as --error needs.", whole(1)
    ),
    Option("--error", "How far probabilities may be off on average, such as 0.05.", FRACTION),
    Option(
        "--out -o",
        "Where to write the pairs, for annotators (.csv).",
        path,
        Path("pairs.csv"),
        OUTPUT,
    ),
    *(_TOP_K, options.SEED, options.JSON),
)
def search_plan() -> None:
    """Choose which pairs of query and document people should judge, and how many.

    Pairs are spread over queries and ranks, with more where the map is unsure. Fill in the column
    grade, then anchor the map: calibrank anchor MAP --run RUN --qrels pairs.csv.

    Example: calibrank search plan judged.json run.trec --labels 100 -o pairs.csv
    """
