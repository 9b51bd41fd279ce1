"""Summarize a Spark frame by native aggregation.

Grids nest: their bins are unions of the bins of any finer grid. The grid of the first rows' range
is therefore usually fine enough for the whole frame, and the driver merges its bins into those of
the true range, so that one pass is enough. Where that fails (few distinct scores, a narrow range,
later scores far outside it), a first pass finds the range.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.spark.rows import Rows, changed_rows_error
from calibrank.spark.sums import (
    INVALID,
    OUT_OF_RANGE,
    BinSums,
    fetch,
    row_class,
    sum_by_bin_and_cell,
    sum_by_segment,
)
from calibrank.summary import Summary
from calibrank.summary.bins import Masses, Table
from calibrank.summary.by_segment import SegmentSums, bin_edges
from calibrank.summary.grid import AROUND_ZERO, CAPACITY, Grid, Keys, Placement, look, place

# Enough rows to tell continuous scores from ratings: twice as many as a summary keeps apart. The
# driver receives 1 MB of scores.
_FIRST_ROWS = 2 * CAPACITY

# Scores may be up to 2**8 times larger than any score in the first rows.
_HEADROOM_OCTAVES = 8

# An octave has 2**bits bins. Over all octaves that the headroom allows, a finer grid could have too
# many bins for the driver.
_MOST_BITS = 12

# With more octaves the finest bins would be numbered beyond 63 bits.
_MOST_OCTAVES = 39


class ScoreRange(NamedTuple):
    """The number of rows, and the lowest and highest score of rows with nonzero weight."""

    rows: int
    low: float
    high: float

    @classmethod
    def of(cls, rows: Rows) -> ScoreRange:
        """Read the scores (and weights) of all rows; an invalid score raises an error."""
        score = F.col("score")
        weighted = F.when(F.col("weight") > 0.0, score) if rows.has_weight else score
        found = rows.frame.agg(
            F.count(F.lit(1)).alias("rows"),
            F.count(score).alias("present"),
            F.min(score).alias("lowest"),
            F.max(score).alias("highest"),
            F.min(weighted).alias("low"),
            F.max(weighted).alias("high"),
        ).collect()[0]
        if not found["rows"]:
            raise DataError("frame", "hold at least one row", "none")
        # NaN is the highest score to Spark, so it fails this check too.
        ends = np.array([found["lowest"], found["highest"]], dtype=np.float64)
        if found["present"] < found["rows"] or not COLUMN_RULES["score"].holds(ends).all():
            raise rows.invalid_row_error()
        if found["low"] is None:
            if rows.frame.where(~rows.valid).limit(1).count():
                raise rows.invalid_row_error()
            raise DataError("weights", "not all be zero", f"{found['rows']:,} rows without weight")
        # Adding 0.0 turns -0.0 into 0.0.
        return cls(found["rows"], found["low"] + 0.0, found["high"] + 0.0)


def summary_of(rows: Rows) -> Summary:
    """Summarize rows in one pass if possible, or in two."""
    first = _FirstRows.of(rows)
    binned = first.binned(rows)
    sums = None if binned is None else binned.summary(BinSums.by_bin(rows, binned.frame))
    return _in_two_passes(rows, first) if sums is None else sums


def summary_by_level(rows: Rows) -> tuple[Summary, SegmentSums]:
    """Summarize rows, and sum them by level, in one pass if possible, or in two or three.

    Levels have bins at quantiles of the first rows, or of all rows where those would not do.
    """
    first = _FirstRows.of(rows)
    binned = first.binned(rows)
    summary = by_level = None
    if binned is not None:
        sums, cells = sum_by_bin_and_cell(rows, binned.frame, first.edges)
        summary = binned.summary(sums)
        if summary is not None and cells.are_even(summary):
            by_level = cells.by_segment(rows)
    summary = summary or _in_two_passes(rows, first)
    return summary, by_level or sum_by_segment(rows, summary)


class _FirstRows(NamedTuple):
    """The first rows, without those that are invalid or have no weight."""

    scores: Floats
    total: Floats

    @classmethod
    def of(cls, rows: Rows) -> _FirstRows:
        """Read them."""
        # One task that stops early: a plain limit would shuffle that many rows from every task.
        some = rows.frame.coalesce(1).limit(_FIRST_ROWS)
        first = fetch(some.select("score", rows.total.cast("double").alias("total")))
        scores, total = [first[name].astype(np.float64) for name in ("score", "total")]
        used = COLUMN_RULES["score"].holds(scores) & (total > 0) & (total < np.inf)
        return cls(scores[used], total[used])

    @property
    def is_continuous(self) -> bool:
        """Whether there are too many scores to keep them apart."""
        return len(np.unique(self.scores)) > CAPACITY

    @property
    def edges(self) -> Floats:
        """Scores that divide the mass of these rows as the bins of levels do."""
        return bin_edges(Summary.of(self.scores, Evidence.trusted(0 * self.total, self.total, "")))

    def binned(self, rows: Rows) -> _Binned | None:
        """All rows in bins of a grid, if these show that it is fine enough for all."""
        if not self.is_continuous:
            return None
        low, high = float(self.scores.min()), float(self.scores.max())
        grid = Grid.spanning(low, high)
        if place(low, high, look(self.scores)) != AROUND_ZERO or grid.bits > _MOST_BITS:
            return None
        return _Binned.of(rows, grid)


class _Binned(NamedTuple):
    """Rows in bins of the first rows' grid, which reach far beyond the first rows."""

    rows: Rows
    grid: Grid
    outside: float
    """Scores beyond this are out of range."""
    frame: DataFrame

    @classmethod
    def of(cls, rows: Rows, grid: Grid) -> _Binned:
        """Add the columns `bin` and `class`."""
        limit = math.ldexp(1.0, grid.top + _HEADROOM_OCTAVES)
        outside = 2 * limit
        # Null becomes larger than the limit, and NaN is larger than any number to Spark. Both are
        # then out of range, and the pass for the range reports them.
        clamped = f"least(greatest(coalesce(score, {outside!r}D), {-outside!r}D), {outside!r}D)"
        binned = _with_bins(rows.frame, grid, -outside, outside, clamped)
        is_outside = F.col("_units") > int(math.ldexp(limit, grid.bits - grid.floor))
        classes = F.when(is_outside, OUT_OF_RANGE).otherwise(row_class(rows))
        return cls(rows, grid, outside, binned.withColumn("class", classes))

    def summary(self, sums: BinSums) -> Summary | None:
        """The summary of sums by bin; None if some score is far outside the first rows' range."""
        rows, grid = self.rows, self.grid
        if sums.has_out_of_range:
            return None
        if sums.has_invalid:
            raise rows.invalid_row_error()
        keys = sums.keys + grid.keys(np.array([-self.outside]))
        masses = sums.masses
        low, high = _outermost(rows, grid, keys, masses)
        means = masses.moment / masses.total
        fine = Summary(means, masses, sums.rows, low, high, rows.kind, grid, keys)
        table = Table.spanning(low, high)
        fine.add_to(table)
        return Summary.of_table(table, low, high, sums.rows, rows.kind)


def _in_two_passes(rows: Rows, first: _FirstRows) -> Summary:
    """Summarize rows after a pass that finds the range of their scores."""
    span = ScoreRange.of(rows)
    if span.rows <= CAPACITY or not first.is_continuous:
        sums = BinSums.by_score(rows, _classified(rows, span), CAPACITY)
        if sums is not None:
            _require_valid(sums, rows, span)
            return Summary(sums.keys, sums.masses, sums.rows, span.low, span.high, rows.kind)
    return _pooled(rows, span, place(span.low, span.high, look(first.scores)))


def _outermost(rows: Rows, grid: Grid, keys: Keys, masses: Masses) -> tuple[float, float]:
    """Return the lowest and the highest score."""
    # The outermost scores are usually alone in their bins, and then equal the bins' sums.
    total = masses.total
    moment = masses.moment
    if not rows.has_weight and total[0] == total[-1] == 1:
        return float(moment[0]) + 0.0, float(moment[-1]) + 0.0
    # Otherwise the two outermost bins are read again. Parquet's statistics skip most row groups.
    # Their inner ends: `Grid.inner_edges` gives the end of a bin that is nearest to zero.
    after_first = keys[0] + (keys[0] >= 0)
    before_last = keys[-1] - (keys[-1] < 0)
    low_edge, high_edge = grid.inner_edges(np.array([after_first, before_last])).tolist()
    score = F.col("score")
    outer = rows.frame.where((score <= low_edge) | (score >= high_edge))
    if rows.has_weight:
        outer = outer.where(F.col("weight") > 0.0)
    low, high = outer.agg(F.min(score), F.max(score)).collect()[0]
    if low is None:
        raise changed_rows_error()
    return low + 0.0, high + 0.0


def _pooled(rows: Rows, span: ScoreRange, placement: Placement) -> Summary:
    """Summarize into the bins of the grid for a known range."""
    table = Table.spanning(span.low, span.high, placement=placement)
    grid = table.grid
    offset = f"(coalesce(score, {span.low!r}D) - ({grid.origin!r}D))"
    ends = np.array([span.low, span.high]) - grid.origin
    by_root = placement.octaves > _MOST_OCTAVES
    if by_root:
        # Over so many octaves, bins exceed Spark's integers of 63 bits. The fourth root of the
        # offset has a quarter of the octaves, and its bins a quarter of the relative width.
        offset = f"signum({offset}) * sqrt(sqrt(abs({offset})))"
        ends = np.sign(ends) * np.sqrt(np.sqrt(np.abs(ends)))
        fewer = Placement(octaves=placement.octaves // 4 + 1)
        grid = Grid.spanning(float(ends[0]), float(ends[1]), 4 * CAPACITY, fewer)
    binned = _with_bins(_classified(rows, span), grid, float(ends[0]), float(ends[1]), offset)
    sums = BinSums.by_bin(rows, binned, table.grid.origin)
    _require_valid(sums, rows, span)
    keys = sums.keys + table.first
    if by_root:
        # The driver sorts the means of these bins into the grid.
        keys = table.grid.keys_of_offsets(sums.masses.moment / sums.masses.total)
    elif sums.keys[0] < 0 or sums.keys[-1] >= len(table):
        raise changed_rows_error()
    table.add_in_order(sums.masses, keys)
    return Summary.of_table(table, span.low, span.high, sums.rows, rows.kind)


def _classified(rows: Rows, span: ScoreRange) -> DataFrame:
    """Add the class of each row; rows that are not summed get a score within the range."""
    classified = rows.frame.withColumn("class", row_class(rows))
    if not rows.has_weight:
        return classified
    is_used = F.col("class") < INVALID
    score = F.when(is_used, F.col("score")).otherwise(span.low)
    return classified.withColumn("score", score)


def _require_valid(sums: BinSums, rows: Rows, span: ScoreRange) -> None:
    """Raise an error if a row is invalid, or if rows came or went since the first pass."""
    if sums.has_invalid:
        raise rows.invalid_row_error()
    if sums.all_rows != span.rows:
        raise changed_rows_error()


def _with_bins(frame: DataFrame, grid: Grid, low: float, high: float, score: str) -> DataFrame:
    """Add `bin`, the bin of a score counted from the bin of `low`, and `_units`, its magnitude.

    It is exactly the bin that numpy computes: multiplying by a power of two is exact, and the
    octave of a score is the bit length of an integer, so that no logarithm, rounding or condition
    is needed. `score` is an SQL expression for the offset from the grid's origin that is never null
    and lies in [low, high]. `_units` is the magnitude as an integer multiple of the width of the
    finest bins.
    """
    # Every step is a column that later steps refer to: Spark would evaluate an inlined expression
    # once for each time that it occurs. Integers are used because Spark compares doubles slowly.
    first = int(grid.keys_of_offsets(np.array([low], dtype=np.float64))[0])
    nearest, farthest = sorted((abs(low), abs(high)))
    base = 0 if low <= 0 <= high else _octave_of(grid, nearest)
    exponent = grid.bits - grid.floor - base
    steps = [f"{score} AS _score", f"floor({_scaled('abs(_score)', exponent)}) AS _units"]
    steps.append(f"shiftright(_units, {grid.bits + 1}) AS _bits_1")
    shift = 1
    # x | x >> 1 | x >> 2 ... sets every bit below the highest one, so that the number of set bits
    # is the bit length.
    while shift < _octave_of(grid, farthest) - base:
        name = f"_bits_{shift}"
        shift *= 2
        steps.append(f"{name} | shiftright({name}, {shift // 2}) AS _bits_{shift}")
    steps.append(f"bit_count(_bits_{shift}) AS _octave")
    within = f"shiftright(_units, _octave) + shiftleft(cast(_octave as bigint), {grid.bits})"
    key = f"{within} + {base << grid.bits}L"
    # Scaled down, a tiny score would become 0 and lose its sign.
    signed = "signum(_score)" if exponent < 0 else _scaled("_score", exponent)
    # XOR with -1 (all bits set) mirrors a bin to the negative side, as `Grid.keys` does.
    sign = "0L" if low >= 0 else f"shiftright(floor({signed}), 63)"
    return frame.selectExpr("*", *steps, f"(({key}) ^ {sign}) - ({first}L) AS bin")


def _octave_of(grid: Grid, magnitude: float) -> int:
    """The octave of a magnitude, counted from the floor."""
    return max(math.frexp(magnitude)[1] - 1 - grid.floor, 0) if magnitude else 0


def _scaled(value: str, exponent: int) -> str:
    """Return an expression for a value times 2**exponent, which is exact."""
    # 2.0**1023 is the largest power of two that is a float: a larger scale has two factors.
    first = min(exponent, 1000)
    factors = [math.ldexp(1.0, each) for each in (first, exponent - first)]
    return " * ".join([value, *[f"{factor!r}D" for factor in factors if factor != 1]])
