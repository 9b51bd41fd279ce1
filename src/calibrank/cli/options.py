"""Options that several commands share; lists of valid names come from the registry."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrank.registry import CALIBRATORS, SELECTORS
from calibrank.tabular.read import ALIASES

# Panels of `--help`.
COLUMNS = "Columns of the table"
ROWS = "What the rows are"
MODEL = "The map"
OUTPUT = "Output"


def as_typed(name: str) -> str:
    """A member's name as it is typed on the command line.

    >>> as_typed("GammaGaussian"), as_typed("leave_one_out")
    ('gammagaussian', 'leave-one-out')
    """
    return name.lower().replace("_", "-")


def choice(help: str, members: Iterable[str], panel: str | None = None) -> Any:
    """An option that accepts one of the members' names, in upper or lower case."""
    # An Enum would have to repeat the registry's names, and click's Choice is out of reach where
    # typer bundles click; a parser works with every typer.
    names = [as_typed(member) for member in members]

    def parse(given: str) -> str:
        if as_typed(given) not in names:
            raise typer.BadParameter(f"must be one of {', '.join(names)}, got {given!r}.")
        return as_typed(given)

    text = f"{help} One of {', '.join(names)}."
    return typer.Option(help=text, parser=parse, metavar="NAME", rich_help_panel=panel)


def option(help: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """An option in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **settings)


def column_option(help: str, role: str | None = None, *names: str) -> Any:
    """An option that names a column; one with a role is found by its usual names, too."""
    usual = "" if role is None else f" Default: the first of {', '.join(ALIASES[role])}."
    return option(f"{help}{usual}", *names, panel=COLUMNS, metavar="COLUMN")


class Device(StrEnum):
    """Where to train."""

    cpu = "cpu"
    cuda = "cuda"


class OnBadRows(StrEnum):
    """What to do with rows that contain an invalid value."""

    error = "error"
    skip = "skip"


class LogKind(StrEnum):
    """What the rows of a table are, which only the user can know."""

    interactions = "interactions"
    impressions = "impressions"
    policy = "policy"


LARGEST_SEED = 2**32 - 1

# Texts that more than one option uses.
MAP_HELP = "A map that `calibrank fit` or `calibrank anchor` saved (JSON)."
TABLE_HELP = "A Parquet or CSV file, a folder of them, or a quoted glob."
OUTPUT_HELP = "Where to write: a file for a file, a folder for a folder or a glob."

Map = Annotated[Path, typer.Argument(metavar="MAP", help=MAP_HELP)]
Table = Annotated[str, typer.Argument(metavar="TABLE", help=TABLE_HELP)]
MapOut = Annotated[Path, option("Where to save the map (JSON).", "--out", "-o", panel=OUTPUT)]
Score = Annotated[str | None, column_option("The model's scores.", "score")]
Label = Annotated[
    str | None,
    option(
        "What is liked: a column of 0 and 1, or a rule. Rules: 'rating >= 4', "
        "'answer == \"yes\"', 'clicks / impressions' (counts), 'probability(judge)' (a judge's "
        f"probabilities). Default: the first of {', '.join(ALIASES['label'])}.",
        panel=COLUMNS,
        metavar="RULE",
    ),
]
User = Annotated[str | None, column_option("Users.", "user")]
# Naming it changes the folds, and with them the result: it is never chosen by its usual name.
UserForFolds = Annotated[
    str | None,
    column_option(
        "Users. A user's rows stay together when the method is chosen. In a log of impressions, "
        "users who were shown more count for less.",
        None,
        "--user",
    ),
]
Item = Annotated[str | None, column_option("Items.", "item")]
# Where naming the item column changes the result, it is never chosen by its usual name.
ItemForPopularity = Annotated[
    str | None,
    column_option(
        "Items. Estimates how likely a pair was seen from how often its item occurs.",
        None,
        "--item",
    ),
]
Propensity = Annotated[
    str | None,
    column_option("How likely each pair was seen, in (0, 1], if you know it. Instead of --item."),
]
Weight = Annotated[str | None, column_option("How many rows each row stands for.")]
Segment = Annotated[
    list[str] | None,
    column_option("Evaluate each value of this column by itself. May be repeated."),
]
Metric = Annotated[
    list[str] | None,
    option(
        "Another metric, with its settings: 'ECE(bins=20)', GAUC, 'FieldECE(\"country\")', "
        "NDCG@10. May be repeated.",
        "--metric",
        metavar="METRIC",
    ),
]
Method = Annotated[
    str,
    choice(
        "How the curve is fitted; auto chooses by cross-validation.",
        [*SELECTORS, *CALIBRATORS],
        MODEL,
    ),
]
Log = Annotated[
    LogKind | None,
    option(
        "What label 0 means. interactions: the pair is not in the log, and may be liked. "
        "impressions: it was shown and not liked. policy: the same, and --propensity has the "
        "logged probabilities of showing it. Default: what calibrank recorded in the table, "
        "otherwise interactions.",
        "--log",
        panel=ROWS,
        metavar="KIND",
    ),
]
NegativesKept = Annotated[
    float,
    option(
        "The fraction of all negatives that is in the table, if they were sampled.",
        panel=ROWS,
        metavar="FRACTION",
    ),
]
BadRows = Annotated[
    OnBadRows,
    option("Stop at the first invalid row, or skip invalid rows and count them.", panel=ROWS),
]
Epochs = Annotated[int, option("The largest number of passes over the data.", min=1, max=1_000_000)]
Seed = Annotated[int, option("Seed of everything random.", min=0, max=LARGEST_SEED)]
Json = Annotated[bool, option("Print one JSON object instead of text.", "--json", panel=OUTPUT)]
