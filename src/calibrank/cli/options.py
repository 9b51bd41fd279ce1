"""Options that several commands share; lists of valid names come from the registry."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from calibrank.registry import CALIBRATORS, EVIDENCE, SELECTORS
from calibrank.tabular.read import ALIASES


def as_typed(name: str) -> str:
    """A member's name as it is typed on the command line.

    >>> as_typed("GammaGaussian"), as_typed("positive_ips")
    ('gammagaussian', 'positive-ips')
    """
    return name.lower().replace("_", "-")


def choice(help: str, members: Iterable[str]) -> Any:
    """An option that accepts one of the members' names, in upper or lower case."""
    # An Enum would have to repeat the registry's names, and click's Choice is out of reach where
    # typer bundles click; a parser works with every typer.
    names = [as_typed(member) for member in members]

    def parse(given: str) -> str:
        if as_typed(given) not in names:
            raise typer.BadParameter(f"must be one of {', '.join(names)}, got {given!r}.")
        return as_typed(given)

    return typer.Option(help=help, parser=parse, metavar="|".join(names))


def _column(help: str, role: str) -> Any:
    names = ", ".join(ALIASES[role])
    return typer.Option(help=f"{help} Default: the first of {names} that the table has.")


class Device(StrEnum):
    """Where to train."""

    cpu = "cpu"
    cuda = "cuda"


class OnBadRows(StrEnum):
    """What to do with rows that contain an invalid value."""

    error = "error"
    skip = "skip"


class PropensityKind(StrEnum):
    """Whether propensities are probabilities, or right only up to an unknown factor."""

    relative = "relative"
    logged = "logged"


class LogKind(StrEnum):
    """What the rows of a table are, which only the user can know."""

    positives = "positives"
    impressions = "impressions"


LARGEST_SEED = 2**32 - 1

# Texts that more than one option uses.
MAP_HELP = "A map that `calibrank fit` saved (JSON)."
OUTPUT_HELP = "Output: a file for a file, a folder for a folder or a glob."
LOSS_HELP = "How labels are weighted: naive uses them as they are, ips divides them by propensity."
_LOSS_DEFAULT = f"{LOSS_HELP} Default: impressions for such a log, otherwise ips"

_NEGATIVES_HELP = "Fraction of the negatives that TABLE contains, if they were sampled."
_BAD_ROWS_HELP = "Stop at the first invalid row, or skip invalid rows and print how many."

TableArgument = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="Parquet or CSV file, folder, or quoted glob."),
]
ScoreOption = Annotated[
    str | None,
    _column("Score column.", "score"),
]
LabelOption = Annotated[
    str | None,
    _column("Label column (0 or 1).", "label"),
]
UserOption = Annotated[
    str | None,
    _column("User column.", "user"),
]
# Naming it changes the folds, and with them the result: it is never chosen by its usual name.
UserForFoldsOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        help="User column: --method auto keeps all rows of a user in one fold, and exposure "
        "in a log of impressions depends on it.",
    ),
]
ItemOption = Annotated[
    str | None,
    _column("Item column.", "item"),
]
# Where naming the item column changes the result, it is never chosen by its usual name.
ItemForPopularityOption = Annotated[
    str | None,
    typer.Option(
        "--item",
        help="Item column: estimate propensities from item popularity, or from numbers of "
        "impressions.",
    ),
]
PropensityOption = Annotated[
    str | None,
    typer.Option(
        help="Column of propensities, P(pair was observed), in (0, 1]. Default: the one recorded "
        "by calibrank score."
    ),
]
PropensityKindOption = Annotated[
    PropensityKind,
    typer.Option(
        help="logged: the probabilities with which your system showed the pairs, which fix the "
        "base rate. relative: estimates, right up to an unknown factor."
    ),
]
WeightOption = Annotated[
    str | None,
    typer.Option(help="Column of row weights. Default: the one recorded by calibrank score."),
]
SegmentOption = Annotated[
    list[str] | None,
    typer.Option(help="Column whose values are evaluated separately; may be repeated."),
]
MethodOption = Annotated[
    str,
    choice("Calibration method. auto chooses one by cross-validation.", [*SELECTORS, *CALIBRATORS]),
]
PositiveOption = Annotated[
    str | None,
    typer.Option(help='Which rows are liked, by a graded column: "rating >= 4".'),
]
ClicksOption = Annotated[
    str | None,
    typer.Option(help="Column of numbers of clicks, with --impressions: a row stands for several."),
]
ImpressionsOption = Annotated[
    str | None,
    typer.Option(help="Column of numbers of impressions, with --clicks."),
]
SoftOption = Annotated[
    bool,
    typer.Option("--soft", help="The label column holds probabilities, such as a judge's."),
]
LogOption = Annotated[
    LogKind | None,
    typer.Option(
        "--log",
        help="What label 0 means. positives: the pair was not observed. impressions: it was shown "
        "and not liked. Default: what calibrank recorded, otherwise positives.",
    ),
]
LossOption = Annotated[
    str | None,
    choice(f"{_LOSS_DEFAULT}, which needs propensities.", EVIDENCE),
]
OptionalLossOption = Annotated[
    str | None,
    choice(f"{_LOSS_DEFAULT}, or naive without propensities.", EVIDENCE),
]
NegativesKeptOption = Annotated[
    float,
    typer.Option(help=_NEGATIVES_HELP),
]
BadRowsOption = Annotated[
    OnBadRows,
    typer.Option(help=_BAD_ROWS_HELP),
]
SeedOption = Annotated[
    int,
    typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random."),
]
EpochsOption = Annotated[
    int,
    typer.Option(min=1, max=1_000_000, help="Maximum number of training epochs."),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object instead of text."),
]
