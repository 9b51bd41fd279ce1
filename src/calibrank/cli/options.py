"""Options that several commands share."""

from dataclasses import replace
from pathlib import Path

from calibrank._internal.aliases import ALIASES
from calibrank.cli.parse import (
    FINITE,
    FRACTION,
    REQUIRED,
    OneOf,
    Option,
    Rule,
    Whole,
    as_typed,
    path,
)

# Panels of `--help`.
COLUMNS = "Columns of the table"
ROWS = "What the rows are"
MODEL = "The map"
OUTPUT = "Output"


# Names of the registry, which takes longer to load than help may take; a test compares them.
METHODS = (
    *("MinMax", "Sigmoid", "Histogram", "Isotonic", "CenteredIsotonic", "BBQ", "Spline"),
    *("Temperature", "Platt", "Beta", "Gaussian", "Gamma", "GammaGaussian"),
)
MODELS = ("BPR", "NCF", "CML", "UBPR", "LightGCN")
SPLITS = ("random", "released", "time", "leave_one_out")
DATASETS = ("coat", "yahoo_r3", "kuairec", "kuairand")
EXPORTERS = ("sql", "vespa", "painless", "lucene", "onnx", "torch", "json")
DIALECTS = (
    *("spark", "duckdb", "postgresql", "sqlite", "bigquery", "snowflake", "clickhouse", "trino"),
)


def one_of(*names: str) -> OneOf:
    """One of the registry's members, as they are typed."""
    return OneOf(tuple(as_typed(name) for name in names))


def column(flag: str, help: str, role: str | None = None, panel: str = COLUMNS) -> Option:
    """An option that names a column; one with a role is found by its usual names, too."""
    usual = "" if role is None else f" Default: the first of {', '.join(ALIASES[role])}."
    return Option(flag, f"{help}{usual}", panel=panel, metavar="COLUMN")


MAP_HELP = "A map that `calibrank fit` or `calibrank anchor` saved (JSON)."
TABLE_HELP = "A Parquet or CSV file, a folder of them, or a quoted glob."

MAP = Option("MAP", MAP_HELP, path, REQUIRED, parameter="map_file")
TABLE = Option("TABLE", TABLE_HELP, default=REQUIRED)
MAP_OPTION = Option("--map", MAP_HELP, path, parameter="map_file")
MAP_OUT = Option("--out -o", "Where to save the map (JSON).", path, Path("map.json"), OUTPUT)
TABLE_OUT = Option(
    "--out -o",
    "Where to write: a file for a file, a folder for a folder or a glob.",
    path,
    REQUIRED,
    OUTPUT,
)
NEW_COLUMN = Option("--to", "Name of the new column.", str, "probability", OUTPUT)
SCORE = column("--score", "The model's scores.", "score")
LABEL = Option(
    "--label",
    "What is liked: a column of 0 and 1, or a rule. Rules: 'rating >= 4', 'answer == \"yes\"', "
    "'clicks / impressions' (counts), 'probability(judge)' (a judge's probabilities). Default: "
    f"the first of {', '.join(ALIASES['label'])}.",
    panel=COLUMNS,
    metavar="RULE",
)
USER = column("--user", "Users.", "user")
# Naming it changes the folds, and with them the result: it is never chosen by its usual name.
USER_FOR_FOLDS = column(
    "--user",
    "Users. A user's rows stay together when the method is chosen. In a log of impressions, users "
    "who were shown more count for less.",
)
ITEM = column("--item", "Items.", "item")
# Where naming the item column changes the result, it is never chosen by its usual name.
ITEM_FOR_POPULARITY = column(
    "--item", "Items. Estimates how likely a pair was seen from how often its item occurs."
)
PROPENSITY = column(
    "--propensity", "How likely each pair was seen, in (0, 1], if you know it. Instead of --item."
)
WEIGHT = column("--weight", "How many rows each row stands for.")
SEGMENT = replace(
    column("--segment", "Evaluate each value of this column by itself. May be repeated."),
    is_repeated=True,
)
PROBABILITY = column("--probability", "Without --map: the probabilities.", "probability")
MAP_OR_PROBABILITY = (Rule("--score", "--map"), Rule("--map --probability"))
METHOD = Option(
    "--method",
    "How the curve is fitted; auto chooses by cross-validation.",
    one_of("Auto", *METHODS),
    "auto",
    MODEL,
)
TERM_SEGMENT = Option(
    "--segment",
    "A column of names, such as country: each value gets a level of its own, as far as its rows "
    "support it. 'country > city' nests cities in countries. May be repeated.",
    panel=MODEL,
    metavar="COLUMN",
    is_repeated=True,
)
TERM_FEATURE = Option(
    "--feature",
    "A column that changes probabilities: numbers by a smooth function, text by a level per "
    "value. May be repeated.",
    panel=MODEL,
    metavar="COLUMN",
    is_repeated=True,
)
LOG = Option(
    "--log",
    "What label 0 means. interactions: the pair is not in the log, and may be liked. impressions: "
    "it was shown and not liked. policy: the same, and --propensity has the logged probabilities "
    "of showing it. Default: what calibrank recorded in the table, otherwise interactions.",
    OneOf(("interactions", "impressions", "policy")),
    panel=ROWS,
    metavar="KIND",
    parameter="log_kind",
)
NEGATIVES_KEPT = Option(
    "--negatives-kept",
    "The fraction of all negatives that is in the table, if they were sampled.",
    FRACTION,
    1.0,
    ROWS,
    "FRACTION",
)
BAD_ROWS = Option(
    "--on-bad-rows",
    "Stop at the first invalid row, or skip invalid rows and count them.",
    OneOf(("error", "skip")),
    "error",
    ROWS,
)
SEED = Option("--seed", "Seed of everything random.", Whole(0, 2**32 - 1), 0)
DATA = Option(
    "--data", "Folder of a named dataset's files; downloaded if its licence allows it.", path
)
EPOCHS = Option("--epochs", "The largest number of passes over the data.", Whole(1, 1_000_000), 200)
DEVICE = Option("--device", "Where to train.", OneOf(("cpu", "cuda")), "cpu")
JSON = Option("--json", "Print one JSON object instead of text.", bool, default=False, panel=OUTPUT)

RELEVANT = Option(
    "--relevant",
    "The lowest relevant grade of the judgements. Default: 1, as in trec_eval.",
    FINITE,
    panel=ROWS,
    metavar="GRADE",
)
ONE_RULE = Rule("--label --relevant", reason=": each says what is relevant")
