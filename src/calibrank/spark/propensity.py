"""Propensities from numbers of positives or of impressions, by native aggregation and joins."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank.errors import DataError
from calibrank.propensity import Exposure, Popularity
from calibrank.spark.rows import Rows, column, is_valid, quoted, require_column

# Up to this many ids, their propensities (tens of MB) are sent to every executor, which spares the
# large frame a shuffle.
MOST_BROADCAST_IDS = 1_000_000

_ID = "_calibrank_id"
_MASS = "_calibrank_mass"


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
    mass = F.when(column(label) == 1.0, _mass(weight)).otherwise(0.0)
    counted = _Counted.of(frame, rows, "item", item, mass)
    if not counted.highest:
        raise DataError(
            "labels", "hold a positive with nonzero weight to estimate popularity", "none"
        )
    propensity = model.propensity(model.exposure(F.col(_MASS), counted.highest), greatest)
    return counted.joined(frame.withColumn(to, F.lit(1.0)), item, propensity, clip, to)


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
    rows = Rows.of(frame, weight=weight)
    result = frame.withColumn(to, F.lit(1.0))
    for role, name in (("item", item), ("user", user)):
        if name is not None:
            counted = _Counted.of(frame, rows, role, name, _mass(weight))
            if not counted.highest:
                raise DataError("frame", "hold an impression to estimate exposure", "none")
            factor = model.factor(F.col(_MASS), counted.highest, greatest)
            result = counted.joined(result, name, factor, clip, to)
    return result


def _mass(weight: str | None) -> Column:
    return F.lit(1.0) if weight is None else column(weight)


class _Counted(NamedTuple):
    """The mass of each id, and what must be known before propensities can be computed."""

    masses: DataFrame
    highest: float
    ids: int
    """Number of ids with mass."""

    @classmethod
    def of(cls, frame: DataFrame, rows: Rows, role: str, name: str, mass: Column) -> _Counted:
        """Sum the mass of each id; invalid rows and missing ids are errors."""
        require_column(frame, role, name)
        checks = [~is_valid(each, column(given)) for each, given in rows.names.items()]
        invalid = reduce(or_, checks, F.lit(False))  # noqa: FBT003  (a literal has no name)
        masses = frame.groupBy(F.col(quoted(name)).alias(_ID)).agg(
            F.sum(mass).alias(_MASS), F.count(F.when(invalid, 1)).alias("invalid")
        )
        highest, invalid_rows, missing, ids = masses.agg(
            F.max(_MASS),
            F.sum("invalid"),
            F.count(F.when(F.col(_ID).isNull(), 1)),
            F.count(F.when(F.col(_MASS) > 0, 1)),
        ).collect()[0]
        if invalid_rows:
            raise rows.invalid_row_error()
        if missing:
            raise DataError(
                role, "be ids (integers or strings)", "null", "Drop rows without an id."
            )
        return cls(masses, highest, ids)

    def joined(
        self, result: DataFrame, name: str, factor: Column, clip: float, to: str
    ) -> DataFrame:
        """Multiply the column `to` by a factor of each id; an id without mass has the lowest."""
        factors = self.masses.where(F.col(_MASS) > 0).select(_ID, factor.alias(_MASS))
        if self.ids <= MOST_BROADCAST_IDS:
            factors = F.broadcast(factors)
        joined = result.join(factors, F.col(quoted(name)) == F.col(_ID), "left")
        known = F.coalesce(F.col(_MASS), F.lit(float(clip)))
        return joined.withColumn(to, F.col(quoted(to)) * known).drop(_ID, _MASS)


def greatest(values: Column, bound: float) -> Column:
    """The larger of each value and a number."""
    return F.greatest(values, F.lit(float(bound)))
