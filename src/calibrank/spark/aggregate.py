"""From a Spark frame to a summary, by native aggregation.

A look at the first rows mostly tells bins that are fine enough whatever the range turns out to be: grids nest, so the
driver merges them into those of the range. One pass over the table is enough then. Where the look does not tell (few
scores differ, their range is narrow, others lie far beyond), another pass finds the range first.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._validation import LARGEST_SCORE, Floats
from calibrank.calibrators import Calibrator
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.spark.collect import fetch, grouping
from calibrank.spark.keys import units_of, with_places
from calibrank.spark.rows import Rows, unsteady
from calibrank.summary import Summary
from calibrank.summary.bins import Masses, Table
from calibrank.summary.grid import CAPACITY, Grid, Keys

_DISLIKED, _LIKED, _BROKEN, _UNHEARD, _BEYOND = range(5)
"""The class of a row; it is part of the key, so that sums of likes need no columns and bad rows show by themselves."""

_LOOKED_AT = 2 * CAPACITY
"""Rows that tell continuous scores from ratings; their scores reach the driver, 1 MB of them."""

_ROOM = 8
"""Octaves by which scores may outgrow those looked at."""

_FINEST = 12
"""Bits beyond which bins by the look could be too many, were the range wider."""


def summarize(
    frame: DataFrame,
    *,
    score: str = "score",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
) -> Summary:
    """Pool a Spark frame where it lies; the same summary as `calibrank.frames.summarize` gives of its rows.

    With a propensity column the evidence is `ips`, otherwise `naive`. No Python runs on the executors. What
    reaches the driver are bins, mostly tens of thousands of them, and the first 131,072 scores.

    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(0.1, 0), (0.5, 0), (0.5, 1), (0.9, 1)], ["score", "label"])
    >>> summarize(frame)
    Summary(4 rows in 3 bins over [0.1, 0.9], positive=2, total=4, kind='naive')
    """
    rows = Rows.of(frame, score=score, label=label, propensity=propensity, weight=weight)
    look = _Look.of(rows)
    found = _in_one_pass(rows, look) if look.continuous and look.grid.bits <= _FINEST else None
    if found is not None:
        return found
    ends = _Ends.of(rows)
    few = ends.rows <= CAPACITY or (not look.continuous and _few(rows, ends))
    return _exact(rows, ends) if few else _pooled(rows, ends)


def fit(
    calibrator: Calibrator,
    frame: DataFrame,
    *,
    score: str = "score",
    label: str = "label",
    propensity: str | None = None,
    weight: str | None = None,
) -> CalibrationMap:
    """Fit on a Spark frame: the same map as on its rows on one machine.

    >>> from calibrank import Platt
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(-1.0, 0), (0.0, 1), (1.0, 0), (2.0, 1)], ["score", "label"])
    >>> fit(Platt(), frame) == Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    True
    """
    return calibrator.fit_summary(
        summarize(frame, score=score, label=label, propensity=propensity, weight=weight)
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """What the first rows show: how many of their scores differ, and from where to where they go."""

    distinct: int
    low: float
    high: float

    @classmethod
    def of(cls, rows: Rows) -> "_Look":
        # One task that stops early: a plain limit would shuffle as many rows from every task.
        roles = [role for role in ("score", "weight") if role in rows.roles]
        first = fetch(rows.frame.select(*roles).coalesce(1).limit(_LOOKED_AT))
        score = first["score"].astype(np.float64)
        heard = (np.abs(score) <= LARGEST_SCORE) & (
            first.get("weight", np.ones(1)).astype(np.float64) > 0
        )
        scores = np.unique(score[heard])
        return cls(len(scores), *(scores[[0, -1]].tolist() if len(scores) else (0.0, 0.0)))

    @property
    def continuous(self) -> bool:
        """Whether more scores differ than a summary keeps apart."""
        return self.distinct > CAPACITY

    @property
    def grid(self) -> Grid:
        """Bins for the scores looked at: those of any wider range are these, merged."""
        return Grid.spanning(self.low, self.high)


@dataclass(frozen=True, slots=True)
class _Ends:
    """How many rows there are, and the lowest and highest score of those that weigh something."""

    rows: int
    low: float
    high: float

    @classmethod
    def of(cls, rows: Rows) -> "_Ends":
        score = F.col("score")
        sums = [F.count(F.lit(1)), F.count(score), F.min(score), F.max(score)]
        if "weight" in rows.roles:
            heard = F.when(F.col("weight") > 0.0, score)
            sums += [F.min(heard), F.max(heard)]
        found = rows.frame.agg(*sums).collect()[0]
        count, present, lowest, highest = found[:4]
        if not count:
            raise DataError("frame must hold at least one row, got none.")
        # NaN is the highest of all to Spark, so it fails here too.
        if present < count or not (lowest >= -LARGEST_SCORE and highest <= LARGEST_SCORE):
            raise rows.complaint()
        low, high = found[-2:]
        if low is None:
            raise _weightless(rows, count)
        return cls(count, low + 0.0, high + 0.0)


def _weightless(rows: Rows, count: int) -> DataError:
    if rows.frame.where(~rows.good).limit(1).count():
        return rows.complaint()
    return DataError(f"weights must not all be zero, got {count:,} rows that count for nothing.")


def _exact(rows: Rows, ends: _Ends) -> Summary:
    """One bin a distinct score."""
    found = fetch(_classed(rows, ends).groupBy("score", "class").agg(*_sums(rows)))
    bins = _Bins.of(found, found["score"], found["class"])
    bins.require(rows, ends)
    scores, places = np.unique(bins.keys + 0.0, return_inverse=True)
    masses = bins.masses.gather(places, len(scores))
    return Summary(
        scores,
        masses,
        bins.heard,
        ends.low,
        ends.high,
        rows.kind,
        None,
        np.empty(0, dtype=np.int64),
    )


def _pooled(rows: Rows, ends: _Ends) -> Summary:
    """Bins of the grid that spans the scores."""
    table = Table.spanning(ends.low, ends.high)
    bins = _Bins.grouped(rows, with_places(_classed(rows, ends), table.grid, ends.low, ends.high))
    bins.require(rows, ends)
    if bins.keys.min() < 0 or bins.keys.max() >= len(table.squares):
        raise unsteady()
    table.add(bins.masses.gather(bins.keys.astype(np.intp), len(table.squares)), slice(None))
    return Summary.of_table(table, ends.low, ends.high, bins.heard, rows.kind)


def _in_one_pass(rows: Rows, look: _Look) -> Summary | None:
    """Bins by the look's grid, merged on the driver into those of the range; nothing where some lie far beyond it."""
    grid = look.grid
    room = math.ldexp(1.0, grid.top + _ROOM)
    # What is missing counts as too large, and NaN is the largest of all to Spark: the other way tells what is wrong.
    held = f"least(greatest(coalesce(score, {2 * room!r}D), {-2 * room!r}D), {2 * room!r}D)"
    beyond = F.col("_units") > units_of(grid, room)
    placed = with_places(rows.frame, grid, -2 * room, 2 * room, held)
    placed = placed.withColumn("class", F.when(beyond, _BEYOND).otherwise(_class(rows)))
    bins = _Bins.grouped(rows, placed)
    if bins.beyond:
        return None
    if bins.broken:
        raise rows.complaint()
    inside, places = np.unique(bins.keys + grid.keys(np.array([-2 * room])), return_inverse=True)
    masses = bins.masses.gather(places, len(inside))
    low, high = _outermost(rows, grid, inside, masses)
    pooled = Summary(
        masses.moment / masses.total, masses, bins.heard, low, high, rows.kind, grid, inside
    )
    table = Table.spanning(low, high)
    pooled.add_to(table)
    return Summary.of_table(table, low, high, bins.heard, rows.kind)


def _outermost(rows: Rows, grid: Grid, keys: Keys, masses: Masses) -> tuple[float, float]:
    """The lowest and the highest score, each mostly alone in its bin; else those bins are read once more."""
    if "weight" not in rows.roles and masses.total[0] == masses.total[-1] == 1:
        return float(masses.moment[0]) + 0.0, float(masses.moment[-1]) + 0.0
    # Parquet's statistics spare most of the table this pass.
    lowest, highest = grid.inner_edges(
        np.array([keys[0] + (keys[0] >= 0), keys[-1] - (keys[-1] < 0)])
    ).tolist()
    score = F.col("score")
    outer = rows.frame.where((score <= lowest) | (score >= highest))
    if "weight" in rows.roles:
        outer = outer.where(F.col("weight") > 0.0)
    low, high = outer.agg(F.min(score), F.max(score)).collect()[0]
    if low is None:
        raise unsteady()
    return low + 0.0, high + 0.0


def _few(rows: Rows, ends: _Ends) -> bool:
    """Whether few enough scores differ in the whole table."""
    scores = _classed(rows, ends).where(F.col("class") < _BROKEN).select("score")
    return bool(scores.distinct().limit(CAPACITY + 1).count() <= CAPACITY)


def _class(rows: Rows) -> Column:
    """The class of a row whose score is good."""
    label = F.col("label")
    known = F.when(label == 0, _DISLIKED).when(label == 1, _LIKED).otherwise(_BROKEN)
    if rows.roles == ("score", "label"):
        return known
    heard = (
        F.when(F.col("weight") > 0.0, known).otherwise(_UNHEARD)
        if "weight" in rows.roles
        else known
    )
    return F.when(rows.good, heard).otherwise(_BROKEN)


def _classed(rows: Rows, ends: _Ends) -> DataFrame:
    """The rows with their class; those that weigh nothing get a score within the range."""
    classed = rows.frame.withColumn("class", _class(rows))
    if "weight" not in rows.roles:
        return classed
    return classed.withColumn(
        "score", F.when(F.col("class") < _BROKEN, F.col("score")).otherwise(ends.low)
    )


@dataclass(frozen=True, slots=True)
class _Bins:
    """What comes back to the driver: sums by key and class."""

    keys: npt.NDArray[Any]
    masses: Masses
    rows: int
    heard: int
    broken: bool
    beyond: bool

    @classmethod
    def grouped(cls, rows: Rows, placed: DataFrame) -> "_Bins":
        """Sums by bin and class, in one key: a whole number is cheaper to group by than two columns.

        Keys next to each other: Spark's fast hash map puts them next to each other too, and none in another's place.
        """
        pair = F.shiftleft("place", 1).bitwiseOR(F.col("class").cast("bigint"))
        key = F.when(F.col("class") < _BROKEN, pair).otherwise(-F.col("class"))
        with grouping(placed):
            found = fetch(placed.groupBy(key.alias("key")).agg(*_sums(rows)))
        return cls.of(
            found, found["key"] >> 1, np.where(found["key"] < 0, -found["key"], found["key"] & 1)
        )

    @classmethod
    def of(
        cls,
        found: Mapping[str, npt.NDArray[Any]],
        keys: npt.NDArray[Any],
        classes: npt.NDArray[np.integer[Any]],
    ) -> "_Bins":
        kept = (classes == _LIKED) | (classes == _DISLIKED)
        sums = {name: values[kept].astype(np.float64) for name, values in found.items()}
        rows, heard = int(found["rows"].sum()), int(found["rows"][kept].sum())
        masses = _masses(sums, classes[kept] == _LIKED)
        broken, beyond = (bool((classes == some).any()) for some in (_BROKEN, _BEYOND))
        return cls(keys[kept], masses, rows, heard, broken, beyond)

    def require(self, rows: Rows, ends: _Ends) -> None:
        """No row broke a rule, and none came or went since the first pass."""
        if self.broken:
            raise rows.complaint()
        if self.rows != ends.rows:
            raise unsteady()


def _sums(rows: Rows) -> list[Column]:
    """The sums to ask for: those that do not follow from others."""
    score, positive, total = F.col("score"), rows.positive, rows.total
    weighted = "weight" in rows.roles
    sums = {"rows": F.count(F.lit(1)), "moment": F.sum(total * score if weighted else score)}
    if weighted or "propensity" in rows.roles:
        sums |= {"positive": F.sum(positive), "positive_moment": F.sum(positive * score)}
        sums |= {"positive_squared": F.sum(positive * positive)}
    if weighted:
        sums |= {
            "total": F.sum(total),
            "cross": F.sum(positive * total),
            "total_squared": F.sum(total * total),
        }
    return [value.alias(name) for name, value in sums.items()]


def _masses(sums: dict[str, Floats], liked: npt.NDArray[np.bool_]) -> Masses:
    """All masses from those that were asked for; without weights every row counts once."""
    total = sums.get("total", sums["rows"])
    positive = sums.get("positive", np.where(liked, total, 0.0))
    return Masses(
        positive,
        total,
        sums.get("positive_moment", np.where(liked, sums["moment"], 0.0)),
        sums["moment"],
        sums.get("positive_squared", positive),
        sums.get("cross", positive),
        sums.get("total_squared", total),
    )
