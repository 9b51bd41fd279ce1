"""The commands of `calibrank search`."""

from pathlib import Path

from calibrank.cli import options
from calibrank.cli.options import OUTPUT, ROWS
from calibrank.cli.parse import FRACTION, PROBABILITY, REQUIRED, Option, Rule, Whole, command, path

_THRESHOLD = "Threshold"
_RUN = Option("RUN", "Run of a search system: TREC, .json, .tsv or a table.", default=REQUIRED)
_QRELS = Option(
    "QRELS ...",
    "Judgements: TREC qrels, .tsv, .json or a table. Labels of several judges are averaged.",
    default=REQUIRED,
    is_repeated=True,
)
_GRADE = Option(
    "--label",
    "What is relevant, by a rule: 'grade >= 2', or 'probability(grade)' for a judge's "
    "probabilities. Instead of --relevant. Repeated: one judge per rule and column.",
    panel=ROWS,
    metavar="RULE",
    is_repeated=True,
)
_POOL = Option(
    "--pool",
    "A run that the judged documents were pooled from. May be repeated.",
    panel=ROWS,
    metavar="RUN",
    is_repeated=True,
)
_POOL_DEPTH = Option(
    "--pool-depth",
    "How many documents of each --pool run were judged per query. Default: 100.",
    Whole(1),
    panel=ROWS,
)
_TOP_K = Option(
    "--top-k",
    "Use only the first documents of each query: those that are shown.",
    Whole(1),
    panel=ROWS,
)
_PRECISION, _RECALL = [
    Option(
        f"--{aim}",
        f"Choose the threshold that has this {aim} on held-out queries.",
        FRACTION,
        panel=_THRESHOLD,
    )
    for aim in ("precision", "recall")
]
_JUDGEMENTS = (_RUN, _QRELS, options.RELEVANT, _GRADE, _POOL, _POOL_DEPTH, _TOP_K)


@command(
    *(*_JUDGEMENTS, _PRECISION, _RECALL, options.MAP_OUT),
    Option(
        "--report",
        "Where to write a page with what the threshold keeps per query.",
        path,
        panel=OUTPUT,
    ),
    options.JSON,
    rules=[Rule("--precision --recall"), options.ONE_RULE, Rule("--pool-depth", "--pool")],
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
        "Where to write the run with probabilities: a TREC file, or by its ending .json, .jsonl, "
        ".tsv, .csv or .parquet.",
        path,
        REQUIRED,
        OUTPUT,
    ),
    Option(
        "--threshold",
        "Write only documents with at least this probability.",
        PROBABILITY,
        panel=_THRESHOLD,
    ),
    *(_PRECISION, _RECALL),
    Option(
        "--qrels",
        "Judgements of RUN: to check that its level is the map's, and to choose the threshold of "
        "--precision or --recall by.",
        panel=_THRESHOLD,
    ),
    *(_TOP_K, options.JSON),
    rules=[
        Rule("--threshold --precision --recall"),
        Rule("--precision --recall", "--qrels", ", judgements of RUN to choose the threshold by"),
    ],
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
        "--labels", "How many pairs to choose. Default: 100, or as many as --error needs.", Whole(1)
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
