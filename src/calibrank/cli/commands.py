"""All commands with their help and options.

The function that runs a command is in the module of its name, which is imported only then.
"""

import os
from dataclasses import replace
from pathlib import Path

from calibrank.cli import options
from calibrank.cli.options import MODEL, ROWS, column, columns, one_of, within
from calibrank.cli.parse import FINITE, RATE, REQUIRED, OneOf, Option, Rule, command, path, whole

# Each process holds a copy of the dataset and a model, so not one per core on large machines.
_JOBS = min(os.cpu_count() or 1, 8)


@command(Option("--version", "Print the version and exit.", bool, default=False))
def calibrank() -> None:
    """Turn any ranking model's scores into preference probabilities you can trust.

    Exit codes: 0 success, 1 a closed pipe, 2 wrong usage, 3 invalid data, 4 no fit exists,
    5 a package is missing, 6 out of memory, 7 an alarm, if asked for, 70 a bug, 130 interrupted.
    """


@command(
    Option("SOURCE", f"A table, or one of {', '.join(options.DATASETS)}.", default=REQUIRED),
    Option("--out -o", "Folder for the model and the pairs to calibrate on.", path, REQUIRED),
    Option("--model", "Base model.", one_of(*options.MODELS), "bpr"),
    options.DATA,
    Option("--split", "How positives are held out.", one_of(*options.SPLITS), "random"),
    Option(
        "--negatives",
        "Negatives per held-out positive. Default: enough to represent all unobserved pairs.",
        whole(1, 10_000),
    ),
    *(options.USER, options.ITEM, options.LABEL, options.LOG),
    column("--time", "When each interaction was, for --split time."),
    Option("--dim", "Length of the embedding vectors. Default: the paper's.", whole(1, 4096)),
    *(options.EPOCHS, options.SEED, options.DEVICE, options.JSON),
)
def train() -> None:
    """Train a base model and hold out pairs to calibrate it on.

    An interrupted run resumes. Of a log of impressions, shown pairs that were not liked are held
    out with the likes, in impressions.parquet.

    Example: calibrank train log.parquet --model lightgcn -o model
    """


@command(
    Option("MODEL", "A folder that `calibrank train` wrote.", path, REQUIRED),
    *(options.TABLE, options.TABLE_OUT, options.USER, options.ITEM),
    replace(options.NEW_COLUMN, default="score"),
    *(options.BAD_ROWS, options.JSON),
)
def score() -> None:
    """Add a column of a trained model's scores to a table of users and items.

    Example: calibrank score model pairs.parquet -o scores.parquet
    """


@command(
    *(options.TABLE, options.SCORE, options.LABEL, options.USER, options.PROPENSITY),
    *(options.ITEM_FOR_POPULARITY, options.WEIGHT, options.LOG, options.NEGATIVES_KEPT),
    columns(
        "--balance",
        "With --propensity: a column of numbers whose mean is compared with and without weights.",
    ),
    column(
        "--exposed",
        "With --propensity: 1 where a pair was shown, 0 where not. Checks the propensities.",
    ),
    options.JSON,
    rules=[Rule("--balance --exposed", "--propensity"), options.PROPENSITY_OR_ITEM],
)
def diagnose() -> None:
    """Check a table before fitting: what it identifies, and which labels to collect.

    Example: calibrank diagnose scores.parquet --item item_id
    """


@command(
    *(options.TABLE, options.SCORE, options.LABEL, options.ITEM_FOR_POPULARITY),
    *(options.USER_FOR_FOLDS, options.PROPENSITY, options.WEIGHT),
    column("--position", "Ranks from 1 at which rows were shown: users look less at low ones."),
    *(options.LOG, options.NEGATIVES_KEPT, options.BAD_ROWS, options.METHOD),
    *(options.TERM_SEGMENT, options.TERM_FEATURE, options.MAP_OUT, options.JSON),
    rules=[
        Rule("--position", "--item", ", by which it is estimated how often ranks are looked at"),
        options.PROPENSITY_OR_ITEM,
    ],
)
def fit() -> None:
    """Fit a calibration map to a table of scores and labels of any size.

    A map is a curve of the score (--method) plus terms of other columns (--segment, --feature). A
    log of interactions does not say how many pairs are liked: follow with calibrank anchor.

    Example: calibrank fit scores.parquet --item item_id --user user_id -o map.json
    """


@command(
    options.MAP,
    Option("[TABLE]", f"Labels of randomly shown pairs. {options.TABLE_HELP}"),
    *(options.SCORE, options.LABEL),
    column("--propensity", "The policy's probability of showing each pair, if they differ."),
    column("--group", "Users or queries: labels of one are alike, and count for less."),
    *within(
        "Labels to trust",
        Option(
            "--run FILE",
            "Instead of TABLE: the run of a search system, with --qrels. Without --qrels: the run "
            "of a model that replaced the map's.",
        ),
        Option(
            "--qrels FILE", "Judgements of that run to trust more than the map's, such as people's."
        ),
        Option("--base-rate RATE", "The fraction of all pairs that are liked, if known.", RATE),
        Option(
            "--base-rate-range LOW HIGH",
            "With --base-rate: the lowest and the highest plausible rate (a 95% interval). Labels "
            "of TABLE are weighed against it; fewer than 300 do not overrule a wrong one.",
            RATE,
        ),
    ),
    options.RELEVANT,
    Option(
        "--population TABLE",
        "Pairs that you want probabilities for, with their scores and the map's columns. Default: "
        "like those of the fit. Without labels: scores of a model that replaced the map's.",
        panel=ROWS,
    ),
    *(options.TERM_SEGMENT, options.TERM_FEATURE),
    column(
        "--rank", "Ranks in the user's list, from 1: the first five get their own curve.", "", MODEL
    ),
    replace(options.MAP_OUT, default=Path("anchored.json")),
    options.JSON,
    rules=[
        Rule("TABLE --run", reason=": labels come from one of them"),
        Rule("--qrels", "--run", ", whose documents were judged"),
        Rule("--relevant", "--qrels", ", whose grades it is about"),
        Rule("--base-rate-range", "--base-rate", ", the most plausible rate"),
        options.ONE_RULE,
    ],
)
def anchor() -> None:
    """Move a map to labels that can be trusted more, or to a known base rate.

    The labels are those of pairs shown at random (TABLE), or judgements of a search run
    (--run, --qrels). The map's log is not needed. The map may have terms, whose columns TABLE must
    have, and may be anchored already; --segment, --feature and --rank add terms. By default, terms
    are smooth functions of the columns item_popularity and user_activity, if TABLE has them.

    Example: calibrank anchor map.json random_pairs.parquet -o anchored.json
    """


@command(
    *(options.MAP, options.TABLE, options.TABLE_OUT, options.SCORE, options.NEW_COLUMN),
    *(options.BAD_ROWS, options.JSON),
)
def apply() -> None:
    """Add a column of probabilities to a table, file by file.

    The columns of the map's terms are read by their names. Each file is written atomically, and a
    rerun writes only the files that are missing or out of date. A warning says if the scores do
    not look like those of the fit, or if most levels are unknown.

    Example: calibrank apply map.json scores.parquet -o calibrated.parquet
    """


@command(
    *(options.TABLE, options.MAP_OPTION, options.PROBABILITY, options.SCORE, options.LABEL),
    *(options.USER, options.WEIGHT, options.SEGMENT),
    Option(
        "--metric METRIC ...",
        "Another metric: 'ECE(bins=20)', GAUC, 'FieldECE(\"country\")', NDCG@10.",
    ),
    *(options.BAD_ROWS, options.JSON),
    rules=options.MAP_OR_PROBABILITY,
)
def evaluate() -> None:
    """Evaluate probabilities against labels: all metrics, with intervals over users.

    Labels are treated as unbiased, so use randomly shown pairs if you have any. The columns of the
    map's terms are read by their names.

    Example: calibrank evaluate test.parquet --map map.json --user user_id
    """


@command(
    *(options.TABLE, options.SCORE, options.LABEL, options.USER, options.PROPENSITY),
    *(options.ITEM_FOR_POPULARITY, options.WEIGHT, options.LOG),
    *(options.BAD_ROWS, options.JSON),
    rules=[options.PROPENSITY_OR_ITEM],
)
def compare() -> None:
    """Compare all calibration methods by cross-validation over users.

    The method with the lowest log loss is marked. With --item, propensities are estimated from the
    whole table, held-out users included.

    Example: calibrank compare scores.parquet --user user_id --item item_id
    """


@command(
    *(options.TABLE, options.MAP_OPTION, options.PROBABILITY, options.SCORE, options.LABEL),
    options.USER,
    column("--propensity", "Logged probabilities with which pairs were shown, if they differ."),
    Option(
        "--promise PROMISE ...",
        "What lists must keep: 'Precision(0.8)' (the default), 'Recall(0.8)', or "
        "'PooledPrecision(0.8)' with --longest. Several are kept together.",
    ),
    Option(
        "--cut CUT ...",
        "Where a list ends: Threshold (the default), Rank, or Gap (to its best row). Of several, "
        "the best is chosen. Rank and Gap need all candidates as rows.",
    ),
    Option("--abstain", "Give no answer where promises cannot be kept.", bool, default=False),
    Option("--confidence", "Confidence of the promise.", FINITE, 0.95),
    Option("--longest", "Length of the longest list; the rows must be all candidates.", whole(1)),
    *(options.BAD_ROWS, options.JSON),
    rules=options.MAP_OR_PROBABILITY,
)
def control() -> None:
    """Find where lists must end to keep promises about new users, or queries.

    The rows must be all candidates of some users, with labels of all, and not those that the map
    was fitted on. Pairs shown with logged probabilities go with PooledPrecision alone.

    Example: calibrank control lists.parquet --map map.json --promise "Recall(0.8)" --cut Rank
    """


@command(
    options.MAP,
    Option("--score-at", "Print the raw score of this probability, for engines and SQL.", FINITE),
    options.JSON,
)
def inspect() -> None:
    """Describe a saved map, or find the score of a probability.

    Example: calibrank inspect map.json --score-at 0.5
    """


@command(
    options.TABLE,
    Option("--out -o", "Where to write the HTML page.", path, Path("report.html")),
    replace(options.MAP_OPTION, default=REQUIRED),
    *(options.SCORE, options.LABEL, options.USER, options.ITEM, options.PROPENSITY),
    *(options.WEIGHT, options.SEGMENT, options.LOG, options.BAD_ROWS, options.JSON),
)
def report() -> None:
    """Write an interactive HTML page on how well probabilities are calibrated.

    The page is one file and needs no network. Without --log or --propensity, labels are used as
    they are, and users and items only name groups on the page. With --json, all numbers of the
    page are also printed.

    Example: calibrank report test.parquet --map map.json --user user_id -o report.html
    """


@command(
    Option("STORE", "Folder that keeps the days. It is created if need be.", default=REQUIRED),
    replace(options.MAP_OPTION, help="The map that is deployed.", default=REQUIRED),
    Option(
        "--add TABLE", "Table of one day to add first. Rows without a label count for the scores."
    ),
    Option("--date DATE", "With --add: the date of all its rows, such as 2026-01-31."),
    Option("--out -o", "Where to write an HTML page with the time series.", path),
    Option("--refit", "Where to save a new map, fitted to the labels of the window.", path),
    Option("--window", "Days that estimates and the refit look back.", whole(1, 100_000), 28),
    options.SCORE,
    *(options.LABEL_OF_DAY, options.USER, options.WEIGHT, options.BAD_ROWS),
    Option("--fail-on-alarm", "Exit with code 7 if calibration has changed.", bool, default=False),
    options.JSON,
    rules=[
        Rule("--add", "--date", ", the date of its rows"),
        Rule("--date --score --label --user --weight --on-bad-rows", "--add"),
    ],
)
def monitor() -> None:
    """Check whether a deployed map is still right, on a store of daily summaries.

    --add sums up one day's table into the store. The check may be run every day: in a year
    without change the probability of an alarm is at most 5%. --refit fits a new map to recent
    labels.

    Example: calibrank monitor days --map map.json --add today.parquet --date 2026-01-31
    """


@command(
    options.MAP,
    Option("--to", "What to convert the map to.", one_of(*options.EXPORTERS), REQUIRED),
    Option("--dialect", "SQL dialect, for sql.", one_of(*options.DIALECTS)),
    Option(
        "--score NAME",
        "Name of the score column, for sql (default: score), or the expression of the score, for "
        "vespa (default: firstPhase) and painless (default: _score).",
    ),
    Option("--out -o", "Output file; text is printed if it is omitted.", path),
)
def export() -> None:
    """Convert a map to SQL, ONNX, a torch program, a search engine's script or JSON.

    The SQL is one expression without user-defined functions, and so are a Vespa ranking expression
    and a Painless script for Elasticsearch and OpenSearch.

    Example: calibrank export map.json --to sql --dialect duckdb --score prediction
    """


@command()
def search() -> None:
    """Probabilities of relevance for search runs: fit, apply, plan.

    Example: calibrank search fit run.trec qrels.txt --relevant 2 -o map.json
    """


@command(
    Option("[NAME]", "A folder of specs, or its name under reproduce/.", default="aaai22"),
    Option("--dataset", "What to run on.", OneOf(("synthetic", *options.DATASETS)), "synthetic"),
    options.DATA,
    Option("--seeds", "Number of repetitions.", whole(1, 10_000), 10),
    Option("--out", "Folder for result rows, tables and figures.", path, Path("results")),
    Option("--jobs", "Number of parallel processes.", whole(1, 256), _JOBS),
    Option("--spec NAME ...", "Run only this spec."),
    Option("--model NAME ...", "Run only this model."),
    *(options.EPOCHS, options.DEVICE),
    Option("--from-rows FILE ...", "Make tables and figures from this rows.parquet alone.", path),
    options.JSON,
)
def reproduce() -> None:
    """Run the experiments of a paper; finished cells are kept.

    A rerun computes only the cells that are missing.

    Example: calibrank reproduce aaai22 --dataset coat --data coat/ --seeds 10 --out results
    """


@command(
    Option("--pairs", "Number of synthetic user-item pairs.", whole(1_000, 100_000_000), 200_000),
    options.SEED,
    Option("--out", "Folder for the figures and the saved map.", path, Path("demo")),
)
def demo() -> None:
    """Compare every calibration method on synthetic data with known preferences.

    Example: calibrank demo --pairs 1000000 --out demo
    """
