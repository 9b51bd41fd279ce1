"""Propensities from the popularity of items, by native aggregation and a join."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calibrank.errors import DataError
from calibrank.propensity import Popularity
from calibrank.spark.rows import Rows, column, obeys

_BROADCAST = 1_000_000
"""Items up to here go to every executor, so that the large table is not shuffled."""


def popularity(
    frame: DataFrame,
    *,
    item: str = "item",
    label: str = "label",
    power: float = 0.5,
    clip: float = 0.1,
    to: str = "propensity",
) -> DataFrame:
    """Add each row's propensity by the popularity of its item; the same as `calibrank.propensity.Popularity`.

    Counts positives now, in one pass; the join stays lazy.

    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> frame = spark.createDataFrame([("a", 1)] * 4 + [("b", 1), ("c", 0)], ["item", "label"])
    >>> sorted(row.propensity for row in popularity(frame).collect())
    [0.1, 0.5, 1.0, 1.0, 1.0, 1.0]
    """
    Popularity(power, clip)  # checks the settings
    rows = Rows.of(frame, label=label)
    if item not in frame.columns:
        raise DataError(
            f"frame must have a column {item!r}, got {', '.join(frame.columns)}. Name it, e.g. item='x'."
        )
    name = "`" + item.replace("`", "``") + "`"
    key = "_calibrank_item"
    liked = F.count(F.when(column(label) == 1.0, 1)).alias("liked")
    broken = F.count(F.when(~obeys("label", column(label)), 1)).alias("broken")
    counts = frame.groupBy(F.col(name).alias(key)).agg(liked, broken)
    most, bad, nameless, items = counts.agg(
        F.max("liked"),
        F.sum("broken"),
        F.count(F.when(F.col(key).isNull(), 1)),
        F.count(F.when(F.col("liked") > 0, 1)),
    ).collect()[0]
    if bad:
        raise rows.complaint()
    if nameless:
        raise DataError(
            "item must be ids (integers or strings), got null. Drop rows without an id."
        )
    if not most:
        raise DataError("labels must hold a positive to tell popularity, got none.")
    value = F.greatest(F.pow(F.col("liked") / most, F.lit(float(power))), F.lit(float(clip)))
    known = counts.where(F.col("liked") > 0).select(key, value.alias("_calibrank_value"))
    joined = frame.join(
        F.broadcast(known) if items <= _BROADCAST else known, F.col(name) == F.col(key), "left"
    )
    found = F.coalesce(F.col("_calibrank_value"), F.lit(float(clip)))
    return joined.withColumn(to, found).drop(key, "_calibrank_value")
