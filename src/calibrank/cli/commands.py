"""All commands with their help and options.

The function that runs a command is in the module of its name, which is imported only then.
"""

import os
from dataclasses import replace
from pathlib import Path

from calibrank.cli import options
from calibrank.cli.options import MODEL, OUTPUT, ROWS, column, one_of
from calibrank.cli.parse import REQUIRED, OneOf, Option, Whole, command, number, path

_TRUSTED = "Labels to trust"
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
    Option(
        "--data", "Folder of a named dataset's files; downloaded if its licence allows it.", path
    ),
    Option("--split", "How positives are held out.", one_of(*options.SPLITS), "random"),
    Option(
        "--negatives",
        "Negatives per held-out positive. Default: enough to represent all unobserved pairs.",
        Whole(1, 10_000),
    ),
    *(options.USER, options.ITEM, options.LABEL, options.LOG),
    Option("--time", "Time column."),
    Option("--dim", "Length of the embedding vectors. Default: the paper's.", Whole(1, 4096)),
    options.EPOCHS,
    Option("--seed", "Seed of everything random.", Whole(0, options.LARGEST_SEED), 0),
    *(options.DEVICE, options.JSON),
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
    Option(
        "--balance",
        "With --propensity: a column of numbers whose mean is compared with and without weights. "
        "May be repeated.",
        metavar="COLUMN",
        is_repeated=True,
    ),
    column(
        "--exposed",
        "With --propensity: 1 where a pair was shown, 0 where not, empty where unknown. Checks "
        "whether the propensities are calibrated.",
    ),
    options.JSON,
)
def diagnose() -> None:
    """Check a table before fitting: what it identifies, and which labels to collect.

    Example: calibrank diagnose scores.parquet --item item_id
    """


@command(
    *(options.TABLE, options.SCORE, options.LABEL, options.ITEM_FOR_POPULARITY),
    *(options.USER_FOR_FOLDS, options.PROPENSITY, options.WEIGHT),
    column(
        "--position",
        "Ranks at which rows were shown, from 1. A click needs the user to have looked at that "
        "rank; how often is estimated from items (--item) at several ranks.",
    ),
    *(options.LOG, options.NEGATIVES_KEPT, options.BAD_ROWS, options.METHOD),
    *(options.TERM_SEGMENT, options.TERM_FEATURE, options.MAP_OUT, options.JSON),
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
    column(
        "--propensity", "The exploration policy's probability of showing each pair, if they differ."
    ),
    column("--group", "Users or queries: labels of one are alike, and count for less."),
    Option(
        "--run",
        "Instead of TABLE: the run of a search system. With --qrels; without, the run of a model "
        "that replaced the map's.",
        panel=_TRUSTED,
    ),
    Option(
        "--qrels",
        "Judgements of the run to trust more than the map's, such as people's: TREC qrels, .tsv, "
        ".json or a table.",
        panel=_TRUSTED,
    ),
    options.RELEVANT,
    Option(
        "--base-rate",
        "The fraction of all pairs that are liked, if it is known from elsewhere.",
        number,
        panel=_TRUSTED,
        metavar="RATE",
    ),
    Option(
        "--base-rate-range",
        "With --base-rate: the lowest and the highest plausible rate (a 95% interval). Labels of "
        "TABLE are weighed against it; fewer than 300 do not overrule a wrong one.",
        number,
        panel=_TRUSTED,
        metavar="LOW HIGH",
        n_values=2,
    ),
    Option(
        "--population",
        "Table of the pairs that probabilities are wanted for, with scores and the map's columns. "
        "Default: scores like those of the fit, of which the map has a sketch. Without labels: "
        "scores of a model that replaced the map's.",
        panel=ROWS,
    ),
    *(options.TERM_SEGMENT, options.TERM_FEATURE),
    column(
        "--rank",
        "Position of each pair in its user's list, from 1. The first five positions get a curve "
        "of their own.",
        panel=MODEL,
    ),
    replace(options.MAP_OUT, default=Path("anchored.json")),
    options.JSON,
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
        "--metric",
        "Another metric, with its settings: 'ECE(bins=20)', GAUC, 'FieldECE(\"country\")', "
        "NDCG@10. May be repeated.",
        metavar="METRIC",
        is_repeated=True,
    ),
    *(options.BAD_ROWS, options.JSON),
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
    Option(
        "--folds", "Folds of users; each is evaluated by a fit on the others.", Whole(2, 1000), 5
    ),
    *(options.BAD_ROWS, options.JSON),
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
        "--promise",
        "What lists must keep: 'Precision(0.8)' (the default), 'Recall(0.8)', or "
        "'PooledPrecision(0.8)' with --longest. May be repeated: all are kept together.",
        is_repeated=True,
    ),
    Option(
        "--cut",
        "Where a list ends: Threshold (the default), Rank, or Gap (to its best row). May be "
        "repeated: the best is chosen. Rank and Gap need all candidates as rows.",
        is_repeated=True,
    ),
    Option(
        "--abstain",
        "Give no answer where the best probability is low, if the promises cannot be kept for all.",
        bool,
        default=False,
    ),
    Option("--confidence", "Confidence of the promise.", number, 0.95),
    Option(
        "--longest",
        "Length of the longest list: of each user's rows, which must be all candidates, only the "
        "best are shown.",
        Whole(),
    ),
    *(options.BAD_ROWS, options.JSON),
)
def control() -> None:
    """Find where lists must end to keep promises about new users, or queries.

    The rows must be pairs that were shown at random, or with logged probabilities, and not those
    that the map was fitted on.

    Example: calibrank control random.parquet --map map.json --promise "Recall(0.8)" --cut Rank
    """


@command(
    options.MAP,
    Option(
        "--score-at",
        "Print the raw score from which on the probability is at least this, e.g. 0.5: one per "
        "level where the map has levels. With settings for search engines and SQL.",
        number,
    ),
    Option(
        "--where",
        "With --score-at: the value of a column that the map needs, e.g. country=NL. May be "
        "repeated.",
        is_repeated=True,
    ),
    Option("--card", "Where to write a card for reviewers, .md or .html.", path, panel=OUTPUT),
    Option(
        "--metrics",
        "With --card: metrics to show, as `evaluate` or `search fit` print them with --json.",
        path,
    ),
    options.JSON,
)
def inspect() -> None:
    """Describe a saved map, find the score of a probability, or write a card.

    Example: calibrank inspect map.json --score-at 0.5
    """


@command(
    Option("TABLE", "Parquet or CSV file, folder, or quoted glob."),
    Option("--out -o", "Where to write the HTML page.", path, Path("report.html")),
    replace(
        options.MAP_OPTION,
        help="Map to evaluate; without one, Gaussian is fitted and cross-validated.",
    ),
    *(options.SCORE, options.LABEL, options.USER, options.ITEM, options.PROPENSITY),
    *(options.WEIGHT, options.SEGMENT, options.LOG, options.BAD_ROWS),
    options.JSON,
)
def report() -> None:
    """Write an interactive HTML page on how well probabilities are calibrated.

    The page is one file and needs no network. Without --log or --propensity, labels are used as
    they are, and users and items only name groups on the page. With --json, all numbers of the
    page are also printed.

    Example: calibrank report test.parquet --map map.json --user user_id -o report.html
    """


@command(
    Option("STORE", "Folder of days, or an address such as s3://bucket/days.", default=REQUIRED),
    replace(
        options.MAP_OPTION, help=f"{options.MAP_HELP} The one that is deployed.", default=REQUIRED
    ),
    Option(
        "--add",
        "Table of one day (Parquet or CSV) to add first. Rows without a label count for the "
        "scores.",
    ),
    Option("--date", "With --add: the date of all its rows, such as 2026-01-31."),
    Option("--out -o", "Where to write an HTML page with the time series.", path),
    Option(
        "--refit",
        "Where to save a new map, fitted to the labels of the window.",
        path,
        parameter="refit_to",
    ),
    Option(
        "--method",
        "With --refit: the method. Default: that of the old map.",
        one_of(*options.METHODS),
    ),
    Option(
        "--window",
        "Days that estimates, score drift and the refit look back. Default: 28.",
        Whole(1, 100_000),
    ),
    Option(
        "--half-life",
        "With --refit: days after which a label counts half. All days, unless --window is given.",
        number,
    ),
    *(options.SCORE, options.LABEL, options.USER, options.WEIGHT, options.BAD_ROWS),
    Option("--fail-on-alarm", "Exit with code 7 if calibration has changed.", bool, default=False),
    options.JSON,
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
        "--score",
        "Name of the score column, for sql (default: score), or the expression of the score, for "
        "vespa (default: firstPhase) and painless (default: _score).",
    ),
    Option(
        "--dtype",
        "What onnx and torch compute in. Default: float32.",
        OneOf(("float32", "float64")),
    ),
    Option("--out -o", "Output file; text is printed if it is omitted.", path),
)
def export() -> None:
    """Convert a map to SQL, ONNX, a torch program, a search engine's script or JSON.

    The SQL is one expression without user-defined functions, and so are a Vespa ranking expression
    and a Painless script for Elasticsearch and OpenSearch. Lucene gets alpha and beta of a sigmoid.

    Example: calibrank export map.json --to sql --dialect duckdb --score prediction
    """


@command()
def search() -> None:
    """Probabilities of relevance for search runs: fit, apply, plan.

    Example: calibrank search fit run.trec qrels.txt --relevant 2 -o map.json
    """


@command(
    Option("[NAME]", "A folder of specs, or its name under reproduce/.", default="aaai22"),
    Option("--dataset", f"One of synthetic, {', '.join(options.DATASETS)}.", default="synthetic"),
    Option("--data", "Folder of the dataset's files; downloaded if its licence allows it.", path),
    Option("--seeds", "Number of repetitions.", Whole(1, 10_000), 10),
    Option("--out", "Folder for result rows, tables and figures.", path, Path("results")),
    Option("--jobs", "Number of parallel processes.", Whole(1, 256), _JOBS),
    Option("--spec", "Run only this spec; may be repeated.", is_repeated=True),
    Option("--model", "Run only this model; may be repeated.", is_repeated=True),
    *(options.EPOCHS, options.DEVICE),
    Option(
        "--from-rows",
        "Make tables and figures from this rows.parquet, without running anything; may be "
        "repeated.",
        path,
        is_repeated=True,
    ),
    options.JSON,
)
def reproduce() -> None:
    """Run the experiments of a paper; finished cells are kept.

    A rerun computes only the cells that are missing.

    Example: calibrank reproduce aaai22 --dataset coat --data coat/ --seeds 10 --out results
    """


@command(
    Option("--pairs", "Number of synthetic user-item pairs.", Whole(1_000, 100_000_000), 200_000),
    Option("--seed", "Seed of the synthetic data.", Whole(0, options.LARGEST_SEED), 0),
    Option("--out", "Folder for the figures and the saved map.", path, Path("demo")),
)
def demo() -> None:
    """Compare every calibration method on synthetic data with known preferences.

    Example: calibrank demo --pairs 1000000 --out demo
    """
