"""Sum the rows of a frame by segment and bin of the score, by native aggregation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column
from pyspark.sql import functions as F

from calibrank.errors import DataError
from calibrank.maps.targets.target import nested_choices
from calibrank.spark.collect import fetch_lists, grouping_settings
from calibrank.spark.rows import Rows, changed_rows_error
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums, bin_edges


def sum_by_segment(rows: Rows, summary: Summary) -> SegmentSums:
    """Sum rows by the levels that they keep, in the bins of a summary of all of them."""
    names = rows.kept
    edges = bin_edges(summary)
    numbers = [str(number) for number in range(len(edges) + 1)]
    number = nested_choices(edges.tolist(), numbers, _choice)
    binned = rows.frame.withColumn("bin", F.expr(number))
    cells = binned.groupBy(*names, "bin").agg(*_sums(rows))
    # The text of a segment is collected once, not once per bin.
    cell = F.struct(*[F.col(name) for name in cells.columns if name not in names])
    by_segment = cells.groupBy(*names).agg(F.collect_list(cell).alias("cells"))
    with grouping_settings(by_segment):
        values, sizes, sums = fetch_lists(by_segment, names, "cells")
    _require_same_rows(sums, summary)
    count = sums["rows"].astype(np.float64)
    squares = None
    if "positive_squared" in sums:
        squares = (sums["positive_squared"], sums.get("total_squared", count), count)
    masses = (sums["positive"], sums.get("total", count), sums["moment"])
    _require_present(rows, values)
    places = np.repeat(np.arange(len(sizes)), sizes)
    return SegmentSums.of_cells(edges, values, places, sums["bin"], masses, squares)


def _choice(edge: float, below: str, above: str) -> str:
    return f"CASE WHEN score < {edge!r}D THEN {below} ELSE {above} END"


def _sums(rows: Rows) -> list[Column]:
    """Return the sums that are needed; without weights, masses are numbers of rows."""
    total = rows.total
    sums = {"rows": F.count(F.lit(1)), "positive": F.sum(rows.positive)}
    sums["moment"] = F.sum(total * F.col("score"))
    if not rows.has_unit_totals:
        sums["total"] = F.sum(total)
        sums["total_squared"] = F.sum(total * total)
    if rows.kind != "naive" or rows.has_weight:
        sums["positive_squared"] = F.sum(rows.positive * rows.positive)
    return [value.alias(name) for name, value in sums.items()]


def _require_same_rows(sums: Mapping[str, npt.NDArray[Any]], summary: Summary) -> None:
    found = float(sums.get("total", sums["rows"]).sum())
    expected = float(summary.total.sum())
    # Rounding differs with the order of rows, far less than by a row.
    if abs(found - expected) > 1e-9 * expected:
        raise changed_rows_error()


def _require_present(rows: Rows, values: list[tuple[Any, ...]]) -> None:
    """Raise a `DataError` if a row has no level: which one it is is then not known."""
    for place, name in enumerate(rows.names_kept):
        if any(row[place] is None for row in values):
            raise DataError(
                f"column {name!r}",
                "not be missing",
                "rows without a level",
                'Drop such rows, or fill them with a text, such as "missing".',
            )
