"""Segments of `calibrank fit`: the option, sums of a table by segment, and the printed result."""

from dataclasses import replace
from typing import Annotated

import typer
from rich.table import Table as RichTable

from calibrank._internal.logit import expit
from calibrank.cli.columns import segment_columns
from calibrank.cli.console import (
    UsageError,
    console,
    progress_bar,
    rules_for,
    shown,
)
from calibrank.cli.options import OnBadRows
from calibrank.curves.segments import change_by_segment
from calibrank.maps import CalibrationMap, GroupedMap
from calibrank.tabular.aggregate import Aggregate, Columns
from calibrank.tabular.by_segment import sum_by_segment
from calibrank.tabular.read import Table

# Segments that are printed; --json and the saved map have all.
_MOST_PRINTED = 20

FitSegmentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--segment",
        help="Column whose values change the map, such as country. If repeated, each is nested in "
        "the one before. With --anchor, the random pairs must have the columns.",
    ),
]


def require_no_rate(
    segment: list[str] | None,
    base_rate: float | None,
    activity: str | None,
) -> None:
    """A known rate moves the global map; what it means within a segment is not known."""
    if segment and (base_rate is not None or activity is not None):
        raise UsageError(
            "--segment must not go with --base-rate or --activity: a rate of all pairs says "
            "nothing about single segments. Use --anchor with labels of random pairs."
        )


def fit_segments(
    fitted: CalibrationMap,
    table: Table,
    columns: Columns,
    segments: tuple[str, ...],
    aggregated: Aggregate,
    on_bad_rows: OnBadRows,
) -> CalibrationMap:
    """Change a map by segment; without segments it stays as it is.

    The sums by segment are those of the first pass, unless that read another table than the one
    whose labels count.
    """
    if not segments:
        return fitted
    if aggregated.segments is not None:
        return change_by_segment(fitted, aggregated.segments, segments)
    columns = replace(columns, segments=segment_columns(table, list(segments)))
    with progress_bar(table, "Reading segments") as progress:
        sums = sum_by_segment(
            table,
            columns,
            # Rows that are skipped were counted in the first pass.
            rules_for(on_bad_rows),
            aggregated.exposure if columns.needs_exposure else None,
            progress,
        )
    return change_by_segment(fitted, sums, segments)


def print_segments(fitted: CalibrationMap) -> None:
    """Print the segments whose probabilities differ most from those of the global map."""
    if not isinstance(fitted, GroupedMap):
        return
    by = " > ".join(fitted.columns)
    count = len(fitted.segments)
    spreads = ", ".join(f"{spread:.2f}" for spread in fitted.spreads)
    console.print(
        f"[bold]Segments:[/] {count:,} by {shown(by)}; log odds differ between segments by a "
        f"standard deviation of {spreads}.",
        highlight=False,
    )
    # At the score where the global map has its mean probability.
    rate = fitted.record.positive / fitted.record.total
    middle = float(fitted.base.log_odds(_score_at(fitted, rate)))
    changes = [(each.intercept + each.slope * middle, each) for each in fitted.segments]
    changes.sort(key=lambda change: -abs(change[0] - middle))
    table = RichTable("segment", "rows", f"probability where all have {expit(middle):.3f}", "slope")
    for log_odds, segment in changes[:_MOST_PRINTED]:
        name = " > ".join(segment.key)
        table.add_row(
            shown(name), f"{segment.rows:,}", f"{expit(log_odds):.3f}", f"{segment.slope:.2f}"
        )
    console.print(table)
    if count > _MOST_PRINTED:
        console.print(f"[dim]The {_MOST_PRINTED} that differ most; the map has all.[/]")


def _score_at(fitted: GroupedMap, rate: float) -> float:
    """A score at which the global map has about this probability, by bisection."""
    low, high = fitted.span
    for _ in range(60):
        middle = (low + high) / 2
        if fitted.base.predict(middle) < rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2
