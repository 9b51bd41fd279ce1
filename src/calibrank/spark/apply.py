"""Apply a map to a Spark frame."""

from __future__ import annotations

from pyspark.sql import DataFrame

from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.targets.spark import SparkTarget
from calibrank.spark.rows import column, require_columns


def transform(
    fitted: CalibrationMap, frame: DataFrame, *, score: str = "score", to: str = "probability"
) -> DataFrame:
    """Add a column of probabilities: lazily, in whole-stage generated code, without Python workers.

    Invalid scores (null, NaN, beyond +-1e30) get null, so that one bad row does not fail a job on a
    cluster; `count_if(probability is null)` counts them.

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
            f"frame must not have a column {to!r} already, got {', '.join(frame.columns)}. "
            "Name another with to=... (outputCol=... in a pipeline), or drop it first."
        )
    target = SparkTarget(frame.columns)
    probability = fitted.where_valid(target, column(score))
    staged = frame
    for name, expression in target.staged:
        staged = staged.withColumn(name, expression)
    result = staged.withColumn(to, probability)
    return result.drop(*[name for name, _ in target.staged])
