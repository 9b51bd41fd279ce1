"""Apply a map to a Spark frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._internal.arguments import listed
from calibrank._internal.segment_keys import Key
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, GroupedMap
from calibrank.maps.targets.spark import SparkTarget
from calibrank.spark.rows import column, quoted, require_columns


def transform(
    fitted: CalibrationMap, frame: DataFrame, *, score: str = "score", to: str = "probability"
) -> DataFrame:
    """Add a column of probabilities: lazily, in whole-stage generated code, without Python workers.

    Invalid scores (null, NaN, beyond +-1e30) get null, so that one bad row does not fail a job on a
    cluster; `count_if(probability is null)` counts them. A map by segment is joined with the
    frame's segment columns, by a broadcast of its segments; one with covariates reads its columns.

    >>> from calibrank import Platt
    >>> from pyspark.sql import SparkSession
    >>> spark = SparkSession.builder.getOrCreate()
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> transform(fitted, spark.createDataFrame([(0.5,), (None,)], "score double")).collect()
    [Row(score=0.5, probability=0.5), Row(score=None, probability=None)]
    """
    require_columns(frame, {"score": score})
    if to in frame.columns:
        raise DataError(
            f"frame must not have a column {to!r} already, got {listed(frame.columns)}. "
            "Name another with to=... (outputCol=... in a pipeline), or drop it first."
        )
    target = SparkTarget(frame.columns)
    staged = frame
    segment: Any = None
    if isinstance(fitted, GroupedMap):
        staged, segment = _with_number(frame, target, fitted.columns, fitted.keys)
    elif fitted.feature_columns:
        staged, segment = _with_features(fitted, frame, target)
    probability = fitted.where_valid(target, column(score), segment)
    for name, expression in target.staged:
        staged = staged.withColumn(name, expression)
    result = staged.withColumn(to, probability)
    return result.select(*[F.col(quoted(name)) for name in (*frame.columns, to)])


def _with_features(
    fitted: CalibrationMap, frame: DataFrame, target: SparkTarget
) -> tuple[DataFrame, list[Column]]:
    """The frame with the numbers of categories, and one expression per feature."""
    require_columns(frame, {f"feature {name}": name for name in fitted.number_columns})
    joined = frame
    features = []
    for name in fitted.feature_columns:
        if name in fitted.categories:
            keys = [(category,) for category in fitted.categories[name]]
            joined, number = _with_number(joined, target, (name,), keys)
            features.append(number)
        else:
            features.append(column(name))
    return joined, features


def _with_number(
    frame: DataFrame, target: SparkTarget, columns: tuple[str, ...], keys: Sequence[Key]
) -> tuple[DataFrame, Column]:
    """The frame with the number of each row's key: one broadcast join per column."""
    for name in columns:
        if name not in frame.columns:
            raise DataError(
                f"frame must have the column {name!r} of the map, got {listed(frame.columns)}."
            )
    joined = frame
    numbers = []
    for depth in range(1, len(columns) + 1):
        rows = []
        for number, key in enumerate(keys, start=1):
            if len(key) == depth:
                rows.append((*key, number))
        if not rows:
            continue
        names = [target.new_name() for _ in range(depth + 1)]
        schema = ", ".join([*[f"{name} string" for name in names[:-1]], f"{names[-1]} int"])
        table = frame.sparkSession.createDataFrame(rows, schema)
        conditions = []
        for name, value in zip(names[:-1], columns, strict=False):
            conditions.append(column(value, "string") == F.col(name))
        joined = joined.join(F.broadcast(table), conditions, "left")
        numbers.append(F.col(names[-1]))
    # The deepest level first; keys are unique, so that no row is repeated.
    return joined, F.coalesce(*reversed(numbers), F.lit(0))
