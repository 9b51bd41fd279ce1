"""Apply a map to a Spark frame."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank._internal.arguments import listed
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, LevelTerm
from calibrank.maps.targets.spark import SparkTarget
from calibrank.spark.rows import column, level_column, quoted, require_columns, require_map_column


def transform(
    fitted: CalibrationMap, frame: DataFrame, *, score: str = "score", to: str = "probability"
) -> DataFrame:
    """Add a column of probabilities: lazily, in whole-stage generated code, without Python workers.

    A row that `predict` refuses (a null, NaN, or a number beyond +-1e30) gets null, so that it does
    not fail a job on a cluster; `count_if(probability is null)` counts them. The columns of a map's
    terms are read by name; those of levels are joined with a broadcast of the map's levels.

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
            "frame",
            f"not have a column {to!r} already",
            listed(frame.columns),
            ("Name another with to=... (outputCol=... in a pipeline), or drop it first."),
        )
    target = SparkTarget(frame.columns)
    staged = frame
    inputs: list[Any] = []
    for term in fitted.terms:
        if isinstance(term, LevelTerm):
            staged, number = _with_level(staged, frame, target, term)
            inputs.append(number)
        else:
            (name,) = term.columns
            require_map_column(frame, name)
            require_columns(frame, {f"column {name!r}": name})
            inputs.append(column(name))
    probability = fitted.where_valid(target, column(score), inputs)
    for name, expression in target.staged:
        staged = staged.withColumn(name, expression)
    result = staged.withColumn(to, probability)
    return result.select(*[F.col(quoted(name)) for name in (*frame.columns, to)])


def _with_level(
    joined: DataFrame, frame: DataFrame, target: SparkTarget, term: LevelTerm
) -> tuple[DataFrame, Column]:
    """The frame with the number of each row's level: one broadcast join per depth of keys."""
    texts = [level_column(frame, name) for name in term.columns]
    numbers = []
    for depth in range(1, len(texts) + 1):
        rows = []
        for number, key in enumerate(term.keys, start=1):
            if len(key) == depth:
                rows.append((*key, number))
        if not rows:
            continue
        names = [target.new_name() for _ in range(depth + 1)]
        schema = ", ".join([*[f"{name} string" for name in names[:-1]], f"{names[-1]} int"])
        table = frame.sparkSession.createDataFrame(rows, schema)
        is_same = [text == F.col(name) for text, name in zip(texts, names[:-1], strict=False)]
        joined = joined.join(F.broadcast(table), is_same, "left")
        numbers.append(F.col(names[-1]))
    # The deepest level first; keys are unique, so that no row is repeated.
    known = F.coalesce(*reversed(numbers), F.lit(0))
    return joined, F.when(reduce(and_, [text.isNotNull() for text in texts]), known)
