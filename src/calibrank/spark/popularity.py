"""Propensities from the popularity of items, by native aggregation and a join."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank.errors import DataError
from calibrank.propensity import Popularity
from calibrank.spark.rows import Rows, column, is_valid, quoted, require_column

# Up to this many items, their propensities (tens of MB) are sent to every executor, which spares
# the large frame a shuffle.
MOST_BROADCAST_ITEMS = 1_000_000

_ITEM = "_calibrank_item"
_PROPENSITY = "_calibrank_propensity"


def popularity(
    frame: DataFrame,
    *,
    item: str = "item",
    label: str = "label",
    weight: str | None = None,
    power: float = 0.5,
    clip: float = 0.1,
    to: str = "propensity",
) -> DataFrame:
    """Add a propensity column by the popularity of items: `calibrank.propensity.Popularity`.

    The popularity of an item is the number of its positives, or the sum of their weights. They are
    counted at once, in one pass; the join is lazy.

    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([("a", 1)] * 4 + [("b", 1), ("c", 0)], ["item", "label"])
    >>> sorted(row.propensity for row in popularity(frame).collect())
    [0.1, 0.5, 1.0, 1.0, 1.0, 1.0]
    """
    model = Popularity(power, clip)
    rows = Rows.of(frame, label=label, weight=weight)
    require_column(frame, "item", item)
    counts = _count_positives(frame, rows, item)
    found = _Totals.of(counts)
    found.require_valid(rows)
    exposure = model.exposure(F.col("positives"), found.largest)
    propensity = model.propensity(exposure, greatest).alias(_PROPENSITY)
    popular = counts.where(F.col("positives") > 0).select(_ITEM, propensity)
    if found.items <= MOST_BROADCAST_ITEMS:
        popular = F.broadcast(popular)
    joined = frame.join(popular, F.col(quoted(item)) == F.col(_ITEM), "left")
    unseen = F.lit(float(clip))
    result = joined.withColumn(to, F.coalesce(F.col(_PROPENSITY), unseen))
    return result.drop(_ITEM, _PROPENSITY)


def _count_positives(frame: DataFrame, rows: Rows, item: str) -> DataFrame:
    """Count the positives (or sum their weights) and the invalid rows of each item."""
    is_positive = column(rows.names["label"]) == 1.0
    positives = F.count(F.when(is_positive, 1))
    if rows.has_weight:
        weight = column(rows.names["weight"])
        positives = F.sum(F.when(is_positive, weight).otherwise(0.0))
    invalid = F.lit(False)  # noqa: FBT003  (a literal has no name)
    for role, name in rows.names.items():
        invalid = invalid | ~is_valid(role, column(name))
    return frame.groupBy(F.col(quoted(item)).alias(_ITEM)).agg(
        positives.alias("positives"), F.count(F.when(invalid, 1)).alias("invalid")
    )


class _Totals(NamedTuple):
    """What must be known before propensities can be computed."""

    largest: float
    invalid_rows: int
    missing_ids: int
    items: int
    """Number of items with a positive."""

    @classmethod
    def of(cls, counts: DataFrame) -> _Totals:
        found = counts.agg(
            F.max("positives"),
            F.sum("invalid"),
            F.count(F.when(F.col(_ITEM).isNull(), 1)),
            F.count(F.when(F.col("positives") > 0, 1)),
        )
        return cls(*found.collect()[0])

    def require_valid(self, rows: Rows) -> None:
        """Raise an error about invalid rows, missing ids or a frame without positives."""
        if self.invalid_rows:
            raise rows.invalid_row_error()
        if self.missing_ids:
            raise DataError(
                "item",
                "be ids (integers or strings)",
                got="null",
                remedy="Drop rows without an id.",
            )
        if not self.largest:
            raise DataError(
                "labels", "hold a positive with nonzero weight to estimate popularity", got="none"
            )


def greatest(values: Column, bound: float) -> Column:
    """The larger of each value and a number."""
    return F.greatest(values, F.lit(float(bound)))
