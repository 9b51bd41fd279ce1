"""Sum the rows of a frame by bin, score or level, and collect the sums on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._internal.arguments import listed
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats, is_missing
from calibrank.errors import DataError
from calibrank.maps.targets.spark import SparkTarget
from calibrank.spark.rows import LEVELS_END, Rows, changed_rows_error
from calibrank.summary import Summary
from calibrank.summary._cells import BINS
from calibrank.summary.bins import Masses
from calibrank.summary.by_segment import SegmentSums, bin_edges, improved_edges

# The class of a row is part of the grouping key. Sums over positives then need no columns of their
# own, and invalid rows are found without another pass.
NEGATIVE = 0
POSITIVE = 1
INVALID = 2
ZERO_WEIGHT = 3
OUT_OF_RANGE = 4

# The sums of `_sums` that segments need.
_BY_SEGMENT = ("rows", "positive", "moment", "total", "total_squared", "positive_squared")

_VECTORIZED_MAP = "spark.sql.codegen.aggregate.map.vectorized.enable"
# Groups beyond the capacity of the fast hash map, 2**16 by default, go to a much slower one.
_LARGE_MAP_GROUPS = 2**18
_LARGE_MAP = {"spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18"}
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

# Most levels occur among a few rows. The fraction is of all rows: it finds those of sorted tables.
_FIRST_LEVELS = 2**17
_LEVEL_SAMPLE = 0.02


Sums = Mapping[str, npt.NDArray[Any]]
"""Columns of sums by name, with one row per group."""


def fetch(frame: DataFrame) -> dict[str, npt.NDArray[Any]]:
    """Collect the columns of a small frame as arrays.

    Arrow is used where it is available: a Python object per cell is slow.
    """
    try:
        table = frame.toArrow()
    except (AttributeError, ImportError):  # pyspark before 4, or no pyarrow
        rows = frame.collect()
        table = {}
        for name in frame.columns:
            values = np.fromiter((row[name] for row in rows), dtype=object, count=len(rows))
            # Lists stay lists, even if all have one length.
            are_lists = len(values) and isinstance(values[0], list)
            table[name] = values if are_lists else np.array(values.tolist())
        return table
    return {name: table.column(name).to_numpy() for name in frame.columns}


@contextmanager
def _grouping_settings(
    frame: DataFrame, others: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Tune the session for grouping into tens of thousands of groups, then restore it.

    Other queries that are planned meanwhile in the same session give the same answers.
    """
    session = frame.sparkSession.conf
    # Spark's columnar hash map is off by default, and takes about a third less time here.
    wanted = {_VECTORIZED_MAP: "true", **others}
    # The shuffled data is small: scheduling 200 partitions, the default, would take longer than
    # adding them up.
    try:
        partitions = int(frame.sparkSession.sparkContext.defaultParallelism)
    except (AttributeError, NotImplementedError):  # not known over Spark Connect
        partitions = 200
    current = str(session.get(_SHUFFLE_PARTITIONS, None))  # "auto" on some platforms
    if current.isdigit() and partitions < int(current):
        wanted[_SHUFFLE_PARTITIONS] = str(partitions)
    before = {name: session.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.unset(name)
            else:
                session.set(name, old)


def row_class(rows: Rows) -> Column:
    """Return the class of each row with a valid score."""
    label = F.col("label")
    by_label = F.when(label == 0, NEGATIVE).when(label == 1, POSITIVE).otherwise(INVALID)
    if set(rows.names) == {"score", "label"}:
        return by_label
    if rows.has_weight:
        by_label = F.when(F.col("weight") > 0.0, by_label).otherwise(ZERO_WEIGHT)
    return F.when(rows.valid, by_label).otherwise(INVALID)


@dataclass(frozen=True, slots=True)
class BinSums:
    """Sums over the rows of each bin, on the driver."""

    keys: npt.NDArray[Any]
    """The bins, or the scores themselves, in increasing order."""
    masses: Masses
    all_rows: int
    rows: int
    """Number of valid rows with nonzero weight: the ones that are summed."""
    has_invalid: bool
    has_out_of_range: bool

    @classmethod
    def by_bin(cls, rows: Rows, binned: DataFrame, origin: float = 0.0) -> BinSums:
        """Sum by the columns `bin` and `class`; moments are of offsets from an origin."""
        sums = _sums(rows, origin)
        with _grouping_settings(binned):
            found = fetch(binned.groupBy(_bin_and_class().alias("key")).agg(*sums.values()))
        return cls.of_keys(found, found["key"])

    @classmethod
    def of_keys(cls, found: Sums, keys: npt.NDArray[Any]) -> BinSums:
        """The sums of groups by `_bin_and_class`."""
        return cls._of(found, keys >> 1, np.where(keys < 0, -keys, keys & 1))

    @classmethod
    def by_score(cls, rows: Rows, classified: DataFrame, most: int) -> BinSums | None:
        """Sum by the columns `score` and `class`; None if there are more than `most` scores."""
        # Each score may have two classes, and one row has all the invalid ones or none.
        limit = 2 * most + OUT_OF_RANGE
        found = fetch(classified.groupBy("score", "class").agg(*_sums(rows).values()).limit(limit))
        sums = cls._of(found, found["score"], found["class"])
        return sums if len(found["rows"]) < limit and len(sums.keys) <= most else None

    @classmethod
    def _of(
        cls, found: Sums, keys: npt.NDArray[Any], classes: npt.NDArray[np.integer[Any]]
    ) -> BinSums:
        used = (classes == POSITIVE) | (classes == NEGATIVE)
        # Adding 0 turns -0.0 into 0.0, so that both share a bin.
        bins, place = np.unique(keys[used] + 0, return_inverse=True)
        sums = {name: values[used].astype(np.float64) for name, values in found.items()}
        is_positive = classes[used] == POSITIVE
        # Without weights, sums over totals are numbers of rows.
        total = sums.get("total", sums["rows"])
        moment = sums["moment"]
        positive = sums.get("positive", np.where(is_positive, total, 0.0))
        masses = Masses(
            positive,
            total,
            sums.get("positive_moment", np.where(is_positive, moment, 0.0)),
            moment,
            sums["second_moment"],
            sums.get("positive_squared", positive),
            sums.get("cross", positive),
            sums.get("total_squared", total),
        )
        return cls(
            bins,
            masses.gather(place, len(bins)),
            int(found["rows"].sum()),
            int(found["rows"][used].sum()),
            bool((classes == INVALID).any()),
            bool((classes == OUT_OF_RANGE).any()),
        )


def _sums(rows: Rows, origin: float = 0.0) -> dict[str, Column]:
    """Return the sums that are needed; the others follow from them (see `BinSums`)."""
    offset = F.col("score") - origin if origin else F.col("score")
    positive = rows.positive
    total = rows.total
    sums = {"rows": F.count(F.lit(1))}
    moment = offset if rows.has_unit_totals else total * offset
    sums["moment"] = F.sum(moment)
    sums["second_moment"] = F.sum(moment * offset)
    if rows.has_weight or rows.has_propensity:
        sums["positive"] = F.sum(positive)
        sums["positive_moment"] = F.sum(positive * offset)
        sums["positive_squared"] = F.sum(positive * positive)
    if not rows.has_unit_totals:
        sums["total"] = F.sum(total)
        sums["cross"] = F.sum(positive * total)
        sums["total_squared"] = F.sum(total * total)
    return {name: value.alias(name) for name, value in sums.items()}


def _bin_and_class() -> Column:
    """The columns `bin` and `class` as one integer: grouping by it is cheaper than by two.

    Keys are consecutive, so Spark's hash map, which uses their low bits, has no collisions.
    """
    pair = F.shiftleft("bin", 1).bitwiseOR(F.col("class").cast("bigint"))
    return F.when(F.col("class") < INVALID, pair).otherwise(-F.col("class"))


def _sums_by_level(rows: Rows) -> dict[str, Column]:
    return {"positive": F.sum(rows.positive).alias("positive"), **_sums(rows)}


def _with_cells(rows: Rows, frame: DataFrame, edges: Floats) -> DataFrame:
    """Add `cell`, the level and the bin of each row as one integer; `LEVELS_END` without a level.

    Grouping by two columns takes 1.3 times as long.
    """
    target = SparkTarget(frame.columns)
    number = target.number_of(F.col("score"), edges.tolist())
    for name, expression in target.staged:
        frame = frame.withColumn(name, expression)
    shifted = F.shiftleft(number.cast("bigint"), rows.bin_shift)
    cell = F.coalesce(rows.level_id.bitwiseOR(shifted), F.lit(LEVELS_END))
    return frame.withColumn("cell", cell)


class CellSums(NamedTuple):
    """Sums by level and bin of the score, as columns with one row per group."""

    edges: Floats
    found: Sums

    def are_even(self, summary: Summary) -> bool:
        """Whether the rows of a summary are not crowded into a few bins between the edges."""
        return improved_edges(self.edges, summary.scores, summary.total) is self.edges

    def by_segment(self, rows: Rows) -> SegmentSums | None:
        """None if a level has no number: it is missing, or a very large number."""
        found = self.found
        if (found["cell"] == LEVELS_END).any():
            return None
        by_cell = {name: found[name].astype(np.float64) for name in _BY_SEGMENT if name in found}
        count = by_cell["rows"]
        masses = (by_cell["positive"], by_cell.get("total", count), by_cell["moment"])
        squares = None
        if "positive_squared" in by_cell:
            squares = (by_cell["positive_squared"], by_cell.get("total_squared", count), count)
        bins = (found["cell"] >> rows.bin_shift) % BINS
        levels, places = np.unique(found["cell"] - (bins << rows.bin_shift), return_inverse=True)
        keys = _keys_of(rows, levels.tolist())
        return SegmentSums.of_cells(self.edges, keys, places, bins, masses, squares)


def sum_by_bin_and_cell(rows: Rows, binned: DataFrame, edges: Floats) -> tuple[BinSums, CellSums]:
    """Sum by the columns `bin` and `class`, and by level and bin between edges, in one pass.

    Every row is in two groups of one hash map.
    """
    # Keys of bins follow those of levels, whose places in the hash map they leave free: those of
    # numbers are the first ones, and those of hashes have gaps.
    first = LEVELS_END + _LARGE_MAP_GROUPS
    pair = F.shiftleft(_bin_and_class(), rows.bin_shift) + first
    frame = _with_cells(rows, binned, edges).withColumn("pair", pair)
    twice = frame.unpivot(list(rows.names), ["pair", "cell"], "which", "key")
    with _grouping_settings(twice, _LARGE_MAP):
        found = fetch(twice.groupBy("key").agg(*_sums_by_level(rows).values()))
    keys = found.pop("key")
    is_cell = keys <= LEVELS_END
    by_bin = {name: values[~is_cell] for name, values in found.items()}
    by_cell = {name: values[is_cell] for name, values in found.items()}
    cells = CellSums(edges, {"cell": keys[is_cell], **by_cell})
    return BinSums.of_keys(by_bin, (keys[~is_cell] - first) >> rows.bin_shift), cells


def sum_by_segment(rows: Rows, summary: Summary) -> SegmentSums:
    """Sum rows by the levels that they keep, in the bins of a summary of all of them."""
    edges = bin_edges(summary)
    sums = _sums_by_level(rows)
    wanted = [sums[name] for name in _BY_SEGMENT if name in sums]
    groups = _with_cells(rows, rows.frame, edges).groupBy("cell").agg(*wanted)
    with _grouping_settings(groups, _LARGE_MAP):
        found = fetch(groups)
    expected = float(summary.total.sum())
    # Rounding differs with the order of rows, far less than by a row.
    if abs(float(found.get("total", found["rows"]).sum()) - expected) > 1e-9 * expected:
        raise changed_rows_error()
    by_segment = CellSums(edges, found).by_segment(rows)
    return by_segment or sum_by_segment(rows.with_levels_as_text(), summary)


def _keys_of(rows: Rows, levels: list[int]) -> list[Key]:
    """The keys of numbers of levels: of hashes, they are looked for in more and more rows."""
    if rows.level_is_number:
        return [(str(level // BINS),) for level in levels]
    found: dict[int, Key] = {}
    frame = rows.frame.select(rows.level_id.alias("level"), *rows.kept)
    for some in (frame.coalesce(1).limit(_FIRST_LEVELS), frame.sample(_LEVEL_SAMPLE, 0), frame):
        missing = [(level,) for level in levels if level not in found]
        if found and missing:
            wanted = frame.sparkSession.createDataFrame(missing, "wanted bigint")
            some = some.join(F.broadcast(wanted), F.col("level") == F.col("wanted"), "leftsemi")
        elif not missing:
            break
        table = fetch(some.distinct())
        for level, *values in zip(*[each.tolist() for each in table.values()], strict=True):
            if any(is_missing(value) for value in values):
                raise rows.missing_level_error()
            key = tuple(map(str, values))
            if found.setdefault(level, key) != key:
                raise DataError("levels", "have different hashes", listed([*found[level], *key]))
    if any(level not in found for level in levels):
        raise changed_rows_error()
    return [found[level] for level in levels]
