"""Propensities of being shown, from numbers of impressions, by native aggregation and joins."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank.errors import DataError
from calibrank.propensity import Exposure
from calibrank.spark.popularity import MOST_BROADCAST_ITEMS, greatest
from calibrank.spark.rows import Rows, column, quoted, require_column

_ID = "_calibrank_id"
_COUNT = "_calibrank_count"


def exposure(
    frame: DataFrame,
    *,
    item: str = "item",
    user: str | None = "user",
    weight: str | None = None,
    clip: float = 0.01,
    to: str = "propensity",
) -> DataFrame:
    """Add the propensity of being shown to a log of impressions: `calibrank.propensity.Exposure`.

    Without `user` it depends on the item alone. Impressions are counted at once; the joins are
    lazy.

    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([(1, "a"), (1, "b"), (2, "a"), (2, "a")], ["user", "item"])
    >>> sorted(round(row.propensity, 3) for row in exposure(frame).collect())
    [0.333, 1.0, 1.0, 1.0]
    """
    model = Exposure(by_user=user is not None, clip=clip)
    mass = F.lit(1.0)
    if weight is not None:
        Rows.of(frame, weight=weight)  # only to check the column
        mass = column(weight)
    result = frame.withColumn(to, F.lit(1.0))
    for role, name in (("item", item), ("user", user)):
        if name is not None:
            require_column(frame, role, name)
            result = _times_factor(result, frame, role, name, mass, model, to)
    return result


def _times_factor(
    result: DataFrame,
    frame: DataFrame,
    role: str,
    name: str,
    mass: Column,
    model: Exposure,
    to: str,
) -> DataFrame:
    """Multiply the column `to` by the exposure of each row's item or user."""
    counts = frame.groupBy(F.col(quoted(name)).alias(_ID)).agg(F.sum(mass).alias(_COUNT))
    missing = F.count(F.when(F.col(_ID).isNull(), 1))
    highest, missing_ids, ids = counts.agg(F.max(_COUNT), missing, F.count(F.lit(1))).collect()[0]
    if missing_ids:
        raise DataError(
            role, "be ids (integers or strings)", got="null", remedy="Drop rows without an id."
        )
    if not highest:
        raise DataError("frame", "hold an impression to estimate exposure", got="none")
    factors = counts.withColumn(_COUNT, model.factor(F.col(_COUNT), highest, greatest))
    if ids <= MOST_BROADCAST_ITEMS:
        factors = F.broadcast(factors)
    joined = result.join(factors, F.col(quoted(name)) == F.col(_ID), "left")
    factor = F.coalesce(F.col(_COUNT), F.lit(model.clip))
    return joined.withColumn(to, F.col(quoted(to)) * factor).drop(_ID, _COUNT)
