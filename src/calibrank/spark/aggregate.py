"""Summarize a Spark frame by native aggregation.

Grids nest: their bins are unions of the bins of any finer grid. The grid of the first rows' range
is therefore usually fine enough for the whole frame, and the driver merges its bins into those of
the true range, so that one pass is enough. Where that fails (few distinct scores, a narrow range,
later scores far outside it), a first pass finds the range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._internal.arguments import instance, whole
from calibrank.composition import refusal
from calibrank.curves import Auto, Calibrator
from calibrank.errors import DataError
from calibrank.evidence import (
    EvidenceFunction,
    evidence_function,
    impressions,
    ips,
    make_evidence,
    naive,
)
from calibrank.maps import CalibrationMap
from calibrank.model import Model
from calibrank.spark._bins import INVALID, OUT_OF_RANGE, BinSums, row_class
from calibrank.spark._by_segment import sum_by_segment
from calibrank.spark._range import FirstScores, ScoreRange
from calibrank.spark.collect import fetch
from calibrank.spark.keys import units_of, with_bins
from calibrank.spark.rows import Rows, changed_rows_error, column, level_column, require_map_column
from calibrank.summary import Summary
from calibrank.summary.bins import Masses, Table
from calibrank.summary.grid import AROUND_ZERO, CAPACITY, Grid, Keys, Placement
from calibrank.terms import Level
from calibrank.terms.rows import MOST_ROWS

# Scores may be up to 2**8 times larger than any score in the first rows.
_HEADROOM_OCTAVES = 8

# An octave has 2**bits bins. Over all octaves that the headroom allows, a finer grid could have too
# many bins for the driver.
_MOST_BITS = 12

# With more octaves the finest bins would be numbered beyond 63 bits.
_MOST_OCTAVES = 39

SAMPLE_ROWS = 1_000_000
"""Rows that the driver receives for a joint fit of terms: about 100 MB with a few columns."""


def summarize(
    frame: DataFrame,
    *,
    score: str = "score",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
    evidence: EvidenceFunction | None = None,
) -> Summary:
    """Summarize a frame: the same `Summary` as `calibrank.frames.summarize` gives for its rows.

    `evidence` is `ips`, `naive` or `impressions`; by default `ips` with a propensity column and
    `naive` without one. No Python runs on the executors. The driver receives tens of thousands of
    bins, and the first 131,072 scores.

    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(0.1, 0), (0.5, 0), (0.5, 1), (0.9, 1)], ["score", "label"])
    >>> summarize(frame)
    Summary(4 rows in 3 bins over [0.1, 0.9], positive=2, total=4, kind='naive')
    """
    return _summarize(_rows(frame, score, label, propensity, weight, evidence))


def _summarize(rows: Rows) -> Summary:
    first = FirstScores.of(rows)
    is_placed = first.continuous and first.placement(first.low, first.high) != AROUND_ZERO
    if first.continuous and not is_placed and first.grid.bits <= _MOST_BITS:
        summary = _in_one_pass(rows, first.grid)
        if summary is not None:
            return summary
    span = ScoreRange.of(rows)
    if span.rows <= CAPACITY:
        return _exact(rows, span)
    if not first.continuous and _has_few_scores(rows, span):
        return _exact(rows, span)
    placement = first.placement(span.low, span.high)
    if placement.octaves > _MOST_OCTAVES:
        return _pooled_by_root(rows, span, placement)
    return _pooled(rows, span, placement)


def _rows(
    frame: DataFrame,
    score: str,
    label: str,
    propensity: str | None,
    weight: str | None,
    evidence: EvidenceFunction | None,
    kept: Mapping[str, Column] | None = None,
) -> Rows:
    """Select the columns that the evidence of rows is made of, and those of terms."""
    function = _supported(evidence, propensity)
    if function is naive:
        propensity = None
    rows = Rows.of(frame, kept, score=score, label=label, propensity=propensity, weight=weight)
    return replace(rows, is_impressions=function is impressions)


def fit(
    model: Calibrator | Model,
    frame: DataFrame,
    *,
    score: str = "score",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
    evidence: EvidenceFunction | None = None,
    sample_rows: int = SAMPLE_ROWS,
    seed: int = 0,
) -> CalibrationMap:
    """Fit a calibrator, or a model with terms, on a frame: as on its rows on one machine.

    A calibrator is fitted on a summary of all rows, and a `Level` that is the only term on sums by
    level of all rows. Terms that are fitted jointly, and `Auto`, need rows: they are fitted on the
    driver, on a random sample of about `sample_rows`. The map's `record.rows` says how many.

    >>> from calibrank import Platt
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(-1.0, 0), (0.0, 1), (1.0, 0), (2.0, 1)], ["score", "label"])
    >>> fit(Platt(), frame) == Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    True
    """
    instance("model", model, (Calibrator, Model), 'E.g. Gaussian() + Level("country").')
    sample_rows = whole("sample_rows", sample_rows, 1, MOST_ROWS)
    kept = _columns_of(model, frame)
    rows = _rows(frame, score, label, propensity, weight, evidence, kept)
    curve = model.curve if isinstance(model, Model) else model
    is_joint = isinstance(model, Model) and model.level_alone is None
    if is_joint or isinstance(curve, Auto):
        return _fit_sample(model, rows, _supported(evidence, propensity), sample_rows, seed)
    summary = _summarize(rows)
    fitted = curve.fit_summary(summary)
    if not isinstance(model, Model):
        return fitted
    return model.fit_sums(fitted, sum_by_segment(rows, summary))


def _columns_of(model: Calibrator | Model, frame: DataFrame) -> dict[str, Column]:
    """The columns of a model's terms by name: levels as text, others as numbers."""
    if not isinstance(model, Model):
        return {}
    if model.group is not None:
        raise refusal("Group", "Spark")
    columns = {}
    for term in model.terms:
        for name in term.columns:
            require_map_column(frame, name)
            is_level = isinstance(term, Level)
            columns[name] = level_column(frame, name) if is_level else column(name)
    return columns


def _fit_sample(
    model: Calibrator | Model, rows: Rows, function: EvidenceFunction, most: int, seed: int
) -> CalibrationMap:
    """Fit on a random sample of rows, on the driver, after all scores are checked."""
    count = ScoreRange.of(rows).rows
    frame = rows.frame
    if count > most:
        frame = frame.sample(fraction=most / count, seed=seed)
    found = fetch(frame)
    labels = found["label"].astype(np.float64)
    made = make_evidence(function, labels, found.get("propensity"), found.get("weight"))
    columns = dict(zip(rows.names_kept, [found[name] for name in rows.kept], strict=True))
    return model.fit(found["score"].astype(np.float64), made, columns or None)


def _supported(evidence: EvidenceFunction | None, propensity: str | None) -> EvidenceFunction:
    function = evidence_function(evidence, propensity)
    if function not in (naive, ips, impressions):
        raise DataError(
            "evidence",
            "be naive, ips or impressions",
            function.__name__,
            "Summarize the rows on one machine.",
        )
    return function


def _in_one_pass(rows: Rows, grid: Grid) -> Summary | None:
    """Sum into the bins of the first rows' grid; None if some score is far outside its range."""
    limit = math.ldexp(1.0, grid.top + _HEADROOM_OCTAVES)
    outside = 2 * limit
    # Null becomes larger than the limit, and NaN is larger than any number to Spark. Both are then
    # out of range, and the pass for the range reports them.
    clamped = f"least(greatest(coalesce(score, {outside!r}D), {-outside!r}D), {outside!r}D)"
    binned = with_bins(rows.frame, grid, -outside, outside, clamped)
    is_outside = F.col("_units") > units_of(grid, limit)
    classes = F.when(is_outside, OUT_OF_RANGE).otherwise(row_class(rows))
    sums = BinSums.by_bin(rows, binned.withColumn("class", classes))
    if sums.has_out_of_range:
        return None
    if sums.has_invalid:
        raise rows.invalid_row_error()
    first_key = grid.keys(np.array([-outside]))
    keys, position = np.unique(sums.keys + first_key, return_inverse=True)
    masses = sums.masses.gather(position, len(keys))
    low, high = _outermost(rows, grid, keys, masses)
    means = masses.moment / masses.total
    fine = Summary(means, masses, sums.rows, low, high, rows.kind, grid, keys)
    table = Table.spanning(low, high)
    fine.add_to(table)
    return Summary.of_table(table, low, high, sums.rows, rows.kind)


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
    inner = grid.inner_edges(np.array([after_first, before_last]))
    low_edge, high_edge = inner.tolist()
    score = F.col("score")
    outer = rows.frame.where((score <= low_edge) | (score >= high_edge))
    if rows.has_weight:
        outer = outer.where(F.col("weight") > 0.0)
    low, high = outer.agg(F.min(score), F.max(score)).collect()[0]
    if low is None:
        raise changed_rows_error()
    return low + 0.0, high + 0.0


def _has_few_scores(rows: Rows, span: ScoreRange) -> bool:
    """Whether a summary can keep all distinct scores apart."""
    used = _classified(rows, span).where(F.col("class") < INVALID)
    distinct = used.select("score").distinct()
    return bool(distinct.limit(CAPACITY + 1).count() <= CAPACITY)


def _exact(rows: Rows, span: ScoreRange) -> Summary:
    """Summarize with one bin per distinct score."""
    sums = BinSums.by_score(rows, _classified(rows, span))
    _require_valid(sums, rows, span)
    # Adding 0.0 turns -0.0 into 0.0, so that both share a bin.
    scores, position = np.unique(sums.keys + 0.0, return_inverse=True)
    masses = sums.masses.gather(position, len(scores))
    no_keys = np.empty(0, dtype=np.int64)
    return Summary(scores, masses, sums.rows, span.low, span.high, rows.kind, None, no_keys)


def _pooled(rows: Rows, span: ScoreRange, placement: Placement) -> Summary:
    """Summarize into the bins of the grid for a known range."""
    table = Table.spanning(span.low, span.high, placement=placement)
    origin = placement.origin
    offset = _offset(span, origin)
    binned = with_bins(
        _classified(rows, span), table.grid, span.low - origin, span.high - origin, offset
    )
    sums = BinSums.by_bin(rows, binned, origin)
    _require_valid(sums, rows, span)
    size = len(table.squares)
    if sums.keys.min() < 0 or sums.keys.max() >= size:
        raise changed_rows_error()
    masses = sums.masses.gather(sums.keys.astype(np.intp), size)
    table.add(masses, slice(None))
    return Summary.of_table(table, span.low, span.high, sums.rows, rows.kind)


def _offset(span: ScoreRange, origin: float) -> str:
    """An SQL expression for the offset of a score from the origin, within the range if null."""
    score = f"coalesce(score, {span.low!r}D)"
    return f"({score} - ({origin!r}D))" if origin else score


def _pooled_by_root(rows: Rows, span: ScoreRange, placement: Placement) -> Summary:
    """Summarize scores over so many octaves that their bins exceed Spark's integers of 63 bits.

    The fourth root of the offset has a quarter of the octaves. Spark groups by it, and the driver
    sorts the means of these bins into the grid.
    """
    ends = np.array([span.low, span.high]) - placement.origin
    low, high = (np.sign(ends) * np.sqrt(np.sqrt(np.abs(ends)))).tolist()
    # The relative width of a bin of roots is a quarter of that of the offsets in it.
    octaves = placement.octaves // 4 + 1
    roots = Grid.spanning(low, high, 4 * CAPACITY, Placement(octaves=octaves))
    offset = _offset(span, placement.origin)
    root = f"signum({offset}) * sqrt(sqrt(abs({offset})))"
    binned = with_bins(_classified(rows, span), roots, low, high, root)
    sums = BinSums.by_bin(rows, binned, placement.origin)
    _require_valid(sums, rows, span)
    keys, position = np.unique(sums.keys, return_inverse=True)
    masses = sums.masses.gather(position, len(keys))
    table = Table.spanning(span.low, span.high, placement=placement)
    table.add_in_order(masses, table.grid.keys_of_offsets(masses.moment / masses.total))
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
