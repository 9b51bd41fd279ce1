"""Group the rows of a frame by bin and class, and collect the sums on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._internal.validation import Floats
from calibrank.spark.collect import fetch, grouping_settings
from calibrank.spark.rows import Rows
from calibrank.summary.bins import Masses

# The class of a row is part of the grouping key. Sums over positives then need no columns of their
# own, and invalid rows are found without another pass.
NEGATIVE = 0
POSITIVE = 1
INVALID = 2
ZERO_WEIGHT = 3
OUT_OF_RANGE = 4


def row_class(rows: Rows) -> Column:
    """Return the class of each row with a valid score."""
    label = F.col("label")
    binary = F.when(label == 0, NEGATIVE).when(label == 1, POSITIVE)
    by_label = binary.otherwise(INVALID)
    if rows.roles == ("score", "label"):
        return by_label
    result = by_label
    if rows.has_weight:
        result = F.when(F.col("weight") > 0.0, by_label).otherwise(ZERO_WEIGHT)
    return F.when(rows.valid, result).otherwise(INVALID)


@dataclass(frozen=True, slots=True)
class BinSums:
    """Sums over the rows of each bin and class, on the driver."""

    keys: npt.NDArray[Any]
    """The bin, or the score itself, of each sum; it may occur once per class."""
    masses: Masses
    all_rows: int
    rows: int
    """Number of valid rows with nonzero weight: the ones that are summed."""
    has_invalid: bool
    has_out_of_range: bool

    @classmethod
    def by_bin(cls, rows: Rows, binned: DataFrame, origin: float = 0.0) -> BinSums:
        """Sum by the columns `bin` and `class`; moments are of offsets from an origin."""
        # Bin and class share one integer: grouping by it is cheaper than by two columns. Keys are
        # consecutive, so Spark's hash map, which uses their low bits, has no collisions.
        pair = F.shiftleft("bin", 1).bitwiseOR(F.col("class").cast("bigint"))
        key = F.when(F.col("class") < INVALID, pair).otherwise(-F.col("class"))
        with grouping_settings(binned):
            found = fetch(binned.groupBy(key.alias("key")).agg(*_sums(rows, origin)))
        keys = found["key"]
        return cls._of(found, keys >> 1, np.where(keys < 0, -keys, keys & 1))

    @classmethod
    def by_score(cls, rows: Rows, classified: DataFrame) -> BinSums:
        """Sum by the columns `score` and `class`."""
        found = fetch(classified.groupBy("score", "class").agg(*_sums(rows)))
        return cls._of(found, found["score"], found["class"])

    @classmethod
    def _of(
        cls,
        found: Mapping[str, npt.NDArray[Any]],
        keys: npt.NDArray[Any],
        classes: npt.NDArray[np.integer[Any]],
    ) -> BinSums:
        used = (classes == POSITIVE) | (classes == NEGATIVE)
        sums = {name: values[used].astype(np.float64) for name, values in found.items()}
        return cls(
            keys[used],
            _masses(sums, classes[used] == POSITIVE),
            int(found["rows"].sum()),
            int(found["rows"][used].sum()),
            bool((classes == INVALID).any()),
            bool((classes == OUT_OF_RANGE).any()),
        )


def _sums(rows: Rows, origin: float = 0.0) -> list[Column]:
    """Return the sums that are needed; the others follow from them (see `_masses`)."""
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
    return [value.alias(name) for name, value in sums.items()]


def _masses(sums: dict[str, Floats], is_positive: npt.NDArray[np.bool_]) -> Masses:
    """Complete the sums; without weights, sums over totals are numbers of rows."""
    total = sums.get("total", sums["rows"])
    moment = sums["moment"]
    positive = sums.get("positive", np.where(is_positive, total, 0.0))
    return Masses(
        positive,
        total,
        sums.get("positive_moment", np.where(is_positive, moment, 0.0)),
        moment,
        sums["second_moment"],
        sums.get("positive_squared", positive),
        sums.get("cross", positive),
        sums.get("total_squared", total),
    )
