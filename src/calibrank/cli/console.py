"""What commands share: options, progress, pictures in the terminal, and names for methods."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from calibrank import maps
from calibrank.errors import CalibrankError, DataError
from calibrank.maps import FitRecord
from calibrank.metrics import ECE, Brier, CalibrationInTheLarge, LogLoss, Metric, ReliabilityCurve
from calibrank.registry import EVIDENCE, find
from calibrank.tabular.aggregate import Columns
from calibrank.tabular.read import Progress as OnProgress
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

console = Console()
log = Console(stderr=True)

HEADLINE: tuple[Metric, ...] = (LogLoss(), Brier(), ECE(), CalibrationInTheLarge())
"""What is said of every fit: a proper score first."""


class Method(StrEnum):
    """Calibrators by name."""

    gaussian = "gaussian"
    gamma = "gamma"
    gammagaussian = "gammagaussian"
    platt = "platt"
    beta = "beta"
    temperature = "temperature"
    isotonic = "isotonic"
    bbq = "bbq"
    histogram = "histogram"
    minmax = "minmax"
    sigmoid = "sigmoid"


class Loss(StrEnum):
    """How labels become evidence."""

    naive = "naive"
    ips = "ips"
    positive_ips = "positive-ips"
    impressions = "impressions"


class OnBadRows(StrEnum):
    """What to do with rows that break a rule."""

    error = "error"
    skip = "skip"


TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="Parquet or CSV file, folder, or glob in quotes.")
]
ScoreOption = Annotated[
    str | None, typer.Option(help="Score column; score, prediction or rating unless named.")
]
LabelOption = Annotated[
    str | None, typer.Option(help="Label column, 0 or 1; label, liked, click ... unless named.")
]
UserOption = Annotated[
    str | None, typer.Option(help="User column; user, user_id, userID ... unless named.")
]
ItemOption = Annotated[
    str | None, typer.Option(help="Item column: propensities are guessed from its popularity.")
]
PropensityOption = Annotated[str | None, typer.Option(help="Column of P(observed), in (0, 1].")]
WeightOption = Annotated[str | None, typer.Option(help="Column of case weights.")]
BadRowsOption = Annotated[
    OnBadRows, typer.Option(help="Stop at a bad row, or leave it out and say how many.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


class UsageError(CalibrankError):
    """Options that are wrong by themselves or do not go together, whatever is in the table."""


def require_one_source(propensity: str | None, item: str | None) -> None:
    """Propensities are read or guessed."""
    if propensity is not None and item is not None:
        raise UsageError(
            "--propensity and --item must not both be given: propensities are read from a column, or guessed from "
            "popularity. Leave one out."
        )


def require_share(option: str, value: float) -> None:
    """A share of something."""
    if not 0 < value <= 1:
        raise UsageError(f"{option} must lie in (0, 1], got {value}. It is a share.")


def choose_columns(
    table: Table,
    score: str | None,
    label: str | None,
    loss: Loss,
    propensity: str | None = None,
    item: str | None = None,
    weight: str | None = None,
    user: str | None = None,
    negatives_kept: float = 1.0,
) -> Columns:
    """Names given or known by alias; every named column must be there."""
    roles = {"propensity": propensity, "item": item, "weight": weight, "user": user}
    named = {role: table.resolve(role, name) for role, name in roles.items() if name is not None}
    if loss is Loss.impressions and propensity is None:
        raise UsageError(
            "--loss impressions must have the logging policy's propensities: name their column with --propensity. "
            "If all impressions were equally likely, say --loss naive."
        )
    if loss is not Loss.naive and not {"propensity", "item"} & set(named):
        raise UsageError(
            f"--loss {loss} must have propensities: name their column with --propensity, or an item column with --item "
            "to guess them from popularity. To take the labels at their word, say --loss naive."
        )
    return Columns(
        table.resolve("score", score),
        table.resolve("label", label),
        find("loss", EVIDENCE, loss.value),
        named.get("propensity"),
        named.get("item"),
        named.get("weight"),
        named.get("user"),
        negatives_kept,
    )


def require_output(out: Path, *inputs: str | Path | None) -> None:
    """An output that can be written, and that is none of the inputs: said before any work is done."""
    if out.is_dir():
        raise DataError(f"{out} must be a file to write, got a folder. Name a file in it.")
    folder = next((parent for parent in out.parents if parent.exists()), Path())
    if not folder.is_dir():
        raise DataError(f"{out} must be in a folder, got {folder}, which is a file.")
    for given in inputs:
        if given is not None and out.exists() and Path(given).exists() and out.samefile(given):
            raise DataError(
                f"{out} must not be {given}, which is read: it would be lost. Name another output."
            )


@contextmanager
def reading(table: Table, what: str) -> Iterator[OnProgress | None]:
    """A progress bar over the bytes of a table's files; nothing where nobody watches."""
    if not log.is_terminal:
        yield None
        return
    from rich.progress import (  # noqa: PLC0415  (slow to load)
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=log, transient=True) as progress:
        task = progress.add_task(what, total=table.size)
        yield lambda done: progress.advance(task, done)


def say_skipped(rules: Rules) -> None:
    """Tell of rows left out: never silently."""
    for role, count in rules.skipped.items():
        log.print(f"left out {count:,} rows with a bad {role}", style="yellow", highlight=False)


def print_json(content: dict[str, Any]) -> None:
    """One JSON object; what is not a number becomes null."""
    print(json.dumps(_plain(content), indent=1, allow_nan=False))  # noqa: T201  (for machines, not for rich)


def describe_base_rate(record: FitRecord) -> str:
    """Where a map's base rate comes from, in yellow where nothing tells it."""
    words = maps.describe_base_rate(record)
    return words if maps.is_base_rate_known(record) else f"[yellow]{words}[/]"


def describe_sensitivity(record: FitRecord) -> str | None:
    """What the log leaves open, choice by choice."""
    doubt = record.sensitivity
    if doubt is None:
        return None
    rates = f"Base rates this log is compatible with: [bold]{doubt.low_rate:.2%} to {doubt.high_rate:.2%}[/]. "
    known = doubt.low_rate == doubt.high_rate
    lines = [("" if known else rates) + "How the answer moves with what was chosen:"]
    for choice in doubt.alternatives:
        top = "no finite fit" if choice.top_rate is None else f"top tenth {choice.top_rate:.2%}"
        lines.append(f"  {choice.name:20} mean {choice.rate:7.2%}  {top}")
    return "\n".join(lines)


def picture(curve: ReliabilityCurve, width: int = 40) -> str:
    """A reliability diagram in text: a bar for what happened, a mark where it was predicted."""
    lines = [f"[bold]predicted  observed  {'':{width + 1}}  of all[/]"]
    mass = curve.total.sum()
    for predicted, observed, total in zip(*curve, strict=True):
        bar = round(min(max(observed, 0), 1) * width)
        cells = ["█" if at < bar else "·" for at in range(width + 1)]
        cells[round(predicted * width)] = "[bold yellow]┃[/]"
        lines.append(f"{predicted:9.4f}  {observed:8.4f}  {''.join(cells)}  {total / mass:6.2%}")
    return "\n".join(
        [*lines, "[dim]bar: what happened; ┃: what was predicted. They should meet.[/]"]
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
