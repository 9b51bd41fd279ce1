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
    as_typed,
    path,
    whole,
)

# Panels of `--help`.
COLUMNS = "Columns of the table"
ROWS = "What the rows are"
MODEL = "The map"
OUTPUT = "Output"


# Names of the registry, which takes longer to load than help may take; a test compares them.
METHODS = (
    *("MinMax", "Sigmoid", "Histogram", "Isotonic", "BBQ", "Spline"),
    *("Temperature", "Platt", "Beta", "Gaussian", "Gamma", "GammaGaussian"),
)
MODELS = ("BPR", "NCF", "CML", "UBPR", "LightGCN")
SPLITS = ("random", "released", "time")
DATASETS = ("coat", "yahoo_r3", "kuairec", "kuairand")
EXPORTERS = ("sql", "vespa", "painless", "onnx", "torch", "json")
DIALECTS = (
    *("spark", "duckdb", "postgresql", "sqlite", "bigquery", "snowflake", "clickhouse", "trino"),
)


def one_of(*names: str) -> OneOf:
    """One of the registry's members, as they are typed."""
    return OneOf(tuple(as_typed(name) for name in names))


def within(panel: str, *options: Option) -> tuple[Option, ...]:
    """Options under one heading of help."""
    return tuple(replace(each, panel=panel) for each in options)


def column(flag: str, help: str, role: str = "", panel: str = COLUMNS) -> Option:
    """An option that names a column; one with a role is found by its usual names, too."""
    return Option(f"{flag} COLUMN", f"{help}{_usual(role)}", panel=panel)


def _usual(role: str) -> str:
    """What help says of the names that a role is found by."""
    names = ALIASES.get(role, ())
    first = "the first of " if len(names) > 1 else ""
    return f" Default: {first}{', '.join(names)}." if names else ""


def columns(flag: str, help: str, panel: str = COLUMNS) -> Option:
    """An option that names one column each time it is given."""
    return Option(f"{flag} COLUMN ...", help, panel=panel)


MAP_HELP = "A map that `calibrank fit` or `calibrank anchor` saved (JSON)."
TABLE_HELP = "A Parquet or CSV file, a folder of them, or a quoted glob."

MAP = Option("MAP", MAP_HELP, path, REQUIRED)
TABLE = Option("TABLE", TABLE_HELP, default=REQUIRED)
MAP_OPTION = Option("--map", MAP_HELP, path)
MAP_OUT, TABLE_OUT, NEW_COLUMN, JSON = within(
    OUTPUT,
    Option("--out -o", "Where to save the map (JSON).", path, Path("map.json")),
    Option("--out -o", "Where to write: a file, or a folder for several files.", path, REQUIRED),
    Option("--to COLUMN", "Name of the new column.", str, "probability"),
    Option("--json", "Print one JSON object instead of text.", bool, default=False),
)
SCORE = column("--score", "The model's scores.", "score")
LABEL = Option(
    "--label RULE",
    "What is liked: a column of 0 and 1, or a rule. Rules: 'rating >= 4', 'answer == \"yes\"', "
    "'clicks / impressions' (counts), 'probability(judge)' (a judge's probabilities)."
    f"{_usual('label')}",
    panel=COLUMNS,
)
LABEL_OF_DAY = Option(
    "--label RULE",
    "What is liked: a column of 0 and 1, or a rule: 'rating >= 4', 'answer == \"yes\"'. A row "
    f"without a label has none yet.{_usual('label')}",
    panel=COLUMNS,
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
SEGMENT = columns("--segment", "Evaluate each value of this column by itself.")
PROBABILITY = column("--probability", "Without --map: the probabilities.", "probability")
METHOD, TERM_SEGMENT, TERM_FEATURE = within(
    MODEL,
    Option(
        "--method",
        "How the curve is fitted; auto chooses by cross-validation.",
        one_of("Auto", *METHODS),
        "auto",
    ),
    columns(
        "--segment",
        "A column of names, such as country: each value gets a level of its own, as far as its "
        "rows support it. 'country > city' nests cities in countries.",
    ),
    columns(
        "--feature",
        "A column that changes probabilities: numbers by a smooth function, text by a level each.",
    ),
)
LOG, NEGATIVES_KEPT, BAD_ROWS, RELEVANT = within(
    ROWS,
    Option(
        "--log KIND",
        "What label 0 means. interactions: the pair is not in the log, and may be liked. "
        "impressions: it was shown and not liked. policy: the same, and --propensity has the "
        "logged probabilities of showing it. Default: what calibrank recorded in the table, "
        "otherwise interactions.",
        OneOf(("interactions", "impressions", "policy")),
    ),
    Option(
        "--negatives-kept FRACTION",
        "The fraction of all negatives that is in the table, if they were sampled. Of counts: of "
        "all impressions without a click.",
        FRACTION,
        1.0,
    ),
    Option(
        "--on-bad-rows", "Stop at invalid rows, or skip them.", OneOf(("error", "skip")), "error"
    ),
    Option("--relevant GRADE", "The lowest relevant grade. Default: 1, as in trec_eval.", FINITE),
)
SEED = Option("--seed", "Seed of everything random.", whole(0, 2**32 - 1), 0)
DATA = Option("--data", "Folder of a named dataset's files.", path)
EPOCHS = Option("--epochs", "The largest number of passes over the data.", whole(1, 1_000_000), 200)
DEVICE = Option("--device", "Where to train.", OneOf(("cpu", "cuda")), "cpu")

MAP_OR_PROBABILITY = (Rule("--score", "--map"), Rule("--map --probability"))
PROPENSITY_OR_ITEM = Rule(
    "--propensity --item",
    reason=": propensities are either read from a column or estimated from item popularity",
)
ONE_RULE = Rule("--label --relevant", reason=": each says what is relevant")
