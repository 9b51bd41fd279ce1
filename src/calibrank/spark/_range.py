"""The range of a frame's scores: estimated from its first rows, or found by a pass over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import functions as F

from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.spark.collect import fetch
from calibrank.spark.rows import Rows
from calibrank.summary.grid import CAPACITY, Grid, Placement
from calibrank.summary.placement import look, place

# Enough rows to tell continuous scores from ratings: twice as many as a summary keeps apart. The
# driver receives 1 MB of scores.
_FIRST_ROWS = 2 * CAPACITY


@dataclass(frozen=True, slots=True)
class FirstScores:
    """The number of distinct scores in the first rows of a frame, their range and a sample."""

    distinct: int
    low: float
    high: float
    sample: Floats

    @classmethod
    def of(cls, rows: Rows) -> FirstScores:
        """Collect the first rows; those with an invalid score or without weight are ignored."""
        roles = [role for role in ("score", "weight") if role in rows.roles]
        # One task that stops early: a plain limit would shuffle that many rows from every task.
        first = fetch(rows.frame.select(*roles).coalesce(1).limit(_FIRST_ROWS))
        scores = first["score"].astype(np.float64)
        used = COLUMN_RULES["score"].holds(scores)
        if "weight" in first:
            used = used & (first["weight"].astype(np.float64) > 0)
        distinct = np.unique(scores[used])
        if not len(distinct):
            return cls(0, 0.0, 0.0, distinct)
        return cls(len(distinct), float(distinct[0]), float(distinct[-1]), look(scores[used]))

    @property
    def continuous(self) -> bool:
        """Whether there are more distinct scores than a summary keeps apart."""
        return self.distinct > CAPACITY

    @property
    def grid(self) -> Grid:
        """The grid for these scores; bins of any wider range are unions of its bins."""
        return Grid.spanning(self.low, self.high)

    def placement(self, low: float, high: float) -> Placement:
        """The placement of a grid over a range that resolves these scores."""
        return place(low, high, self.sample)


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The number of rows, and the lowest and highest score of rows with nonzero weight."""

    rows: int
    low: float
    high: float

    @classmethod
    def of(cls, rows: Rows) -> ScoreRange:
        """Read the scores (and weights) of all rows; an invalid score raises an error."""
        score = F.col("score")
        weighted = score
        if rows.has_weight:
            weighted = F.when(F.col("weight") > 0.0, score)
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
        if found["present"] < found["rows"]:
            raise rows.invalid_row_error()
        # NaN is the highest score to Spark, so it fails this check too.
        ends = np.array([found["lowest"], found["highest"]])
        if not COLUMN_RULES["score"].holds(ends).all():
            raise rows.invalid_row_error()
        if found["low"] is None:
            raise _zero_weight_error(rows, found["rows"])
        # Adding 0.0 turns -0.0 into 0.0.
        return cls(found["rows"], found["low"] + 0.0, found["high"] + 0.0)


def _zero_weight_error(rows: Rows, count: int) -> DataError:
    if rows.frame.where(~rows.valid).limit(1).count():
        return rows.invalid_row_error()
    return DataError("weights", "not all be zero", f"{count:,} rows without weight")
