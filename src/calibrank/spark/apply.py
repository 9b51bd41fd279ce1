"""Maps as native Spark columns."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, LogisticMap, RescaleMap, StepMap
from calibrank.spark.rows import column, is_valid, require_columns

_TREE = 64
"""Steps that become conditions: well within what the JVM compiles, beside the rest of a plan."""
_CELLS = 4096
"""Cells that a longer search starts from."""


class SparkOps:
    """`Ops` for Spark columns. A missing value comes out as the bound: mend it once, at the end.

    Not by conditions: Spark's optimiser pushes arithmetic into their branches until it is all there many times over.
    """

    def log(self, x: Column) -> Column:
        return F.log(x)

    def softplus(self, x: Column) -> Column:
        return self.maximum(x, 0.0) + F.log1p(F.exp(F.abs(x) * -1.0))

    def minimum(self, x: Column, bound: float) -> Column:
        return F.least(x, F.lit(float(bound)))

    def maximum(self, x: Column, bound: float) -> Column:
        return F.greatest(x, F.lit(float(bound)))


def transform(
    fitted: CalibrationMap, frame: DataFrame, *, score: str = "score", to: str = "probability"
) -> DataFrame:
    """Add a column of probabilities; lazy as all of Spark, in whole-stage generated code, without Python.

    What is not a score (null, NaN, beyond +-1e30) gets null: a job on a cluster should not die of one bad row, and
    `count_if(probability is null)` counts them.

    >>> from calibrank import Platt
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> transform(fitted, spark.createDataFrame([(0.5,), (None,)], "score double")).collect()
    [Row(score=0.5, probability=0.5), Row(score=None, probability=None)]
    """
    require_columns(frame, {"score": score})
    names = _free_names(frame)
    clean = next(names)
    value = column(score)
    staged = frame.withColumn(clean, F.when(is_valid("score", value), value))
    held = F.col(clean)
    if isinstance(fitted, StepMap):
        staged, probability = _steps(staged, held, fitted, names)
    elif isinstance(fitted, LogisticMap):
        probability = 1.0 / (F.exp(fitted.log_odds_on(held, SparkOps()) * -1.0) + 1.0)
    elif isinstance(fitted, RescaleMap):
        line = (held - fitted.low) / (fitted.high - fitted.low)
        probability = SparkOps().minimum(SparkOps().maximum(line, 0.0), 1.0)
    else:
        raise DataError(f"fitted must be a map that calibrank fits, got {type(fitted).__name__}.")
    # Adding nothing lets a missing score through; a condition would keep Spark from sharing what is computed twice.
    with_result = staged.withColumn(to, probability + held * 0.0)
    return with_result.drop(*(name for name in staged.columns if name not in frame.columns))


def _free_names(frame: DataFrame) -> Iterator[str]:
    """Names for columns that come and go, none of which the frame has."""
    stem = "_calibrank"
    while any(name.startswith(stem) for name in frame.columns):
        stem = "_" + stem
    number = 0
    while True:
        yield f"{stem}_{number}"
        number += 1


def _steps(
    frame: DataFrame, score: Column, fitted: StepMap, names: Iterator[str]
) -> tuple[DataFrame, Column]:
    """The step a score is on: by a tree of conditions for few steps, else by a search of a constant array.

    Conditions are faster, but some two hundred of them outgrow what the JVM compiles. The search starts from the
    score's cell, of many equally wide: rounding keeps the order, so only edges in the same cell are left to compare.
    """
    present = next(names)
    frame = frame.withColumn(
        present, F.coalesce(score, F.lit(0.0))
    )  # what cannot be missing makes shorter code
    if len(fitted.values) <= _TREE:
        return frame, _tree(F.col(present), fitted.edges, fitted.values)
    edges = np.array(fitted.edges)
    low, high = fitted.edges[0], fitted.edges[-1]
    scale = _CELLS / (high - low) if _CELLS / (high - low) < math.inf else 0.0
    homes = np.floor((edges - low) * scale).astype(np.intp)
    starts = np.searchsorted(homes, np.arange(homes[-1] + 1))
    levels = int(np.bincount(homes).max()).bit_length()
    padded = _array([*fitted.edges, *[math.inf] * 2**levels], "double")
    name = next(names)
    cell = F.floor(
        (F.least(F.greatest(F.col(present), F.lit(low)), F.lit(high)) - low) * scale
    ).cast("int")
    frame = frame.withColumn(name, _array(starts.tolist(), "int")[cell])
    place = F.col(name)
    for level in reversed(range(levels)):
        name, stride = next(names), 2**level
        reached = F.col(present) >= padded[place + (stride - 1)]
        frame = frame.withColumn(name, place + F.when(reached, stride).otherwise(0))
        place = F.col(name)
    return frame, _array(fitted.values, "double")[place]


def _tree(score: Column, edges: Sequence[float], values: Sequence[float]) -> Column:
    if not edges:
        return F.lit(float(values[0]))
    middle = len(edges) // 2
    above = _tree(score, edges[middle + 1 :], values[middle + 1 :])
    return F.when(score >= float(edges[middle]), above).otherwise(
        _tree(score, edges[:middle], values[: middle + 1])
    )


def _array(values: Sequence[float], kind: str) -> Any:
    """A constant array: parsed from text once, when Spark folds constants, however long it is."""
    plain = np.asarray(values).tolist()
    text = ",".join("Infinity" if value == math.inf else repr(value) for value in plain)
    return F.split(F.lit(text), ",").cast(f"array<{kind}>")
