"""Collect small results on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame

_VECTORIZED_MAP = "spark.sql.codegen.aggregate.map.vectorized.enable"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def fetch(frame: DataFrame) -> dict[str, npt.NDArray[Any]]:
    """Collect the columns of a small frame as arrays.

    Arrow is used where it is available: a Python object per cell is slow.
    """
    try:
        table = frame.toArrow()
    except (AttributeError, ImportError):  # pyspark before 4, or no pyarrow
        rows = frame.collect()
        return {name: np.array([row[name] for row in rows]) for name in frame.columns}
    return {name: table.column(name).to_numpy() for name in frame.columns}


def fetch_lists(
    frame: DataFrame, keys: Sequence[str], lists: str
) -> tuple[list[tuple[Any, ...]], npt.NDArray[Any], dict[str, npt.NDArray[Any]]]:
    """Collect rows with a list of structs: their keys, the sizes of the lists, and the fields.

    The fields are columns over all lists, one after the other.
    """
    try:
        table = frame.toArrow()
    except (AttributeError, ImportError):  # pyspark before 4, or no pyarrow
        return _lists_of_rows(frame, keys, lists)
    found = table.column(lists).combine_chunks()
    fields = found.flatten()
    columns = {field.name: fields.field(field.name).to_numpy() for field in fields.type}
    rows = list(zip(*[table.column(key).to_pylist() for key in keys], strict=True))
    return rows, np.diff(found.offsets.to_numpy()), columns


def _lists_of_rows(
    frame: DataFrame, keys: Sequence[str], lists: str
) -> tuple[list[tuple[Any, ...]], npt.NDArray[Any], dict[str, npt.NDArray[Any]]]:
    rows = frame.collect()
    of_lists: Any = frame.schema[lists].dataType  # an array of structs
    structs = [struct for row in rows for struct in row[lists]]
    columns = {
        name: np.array([each[name] for each in structs]) for name in of_lists.elementType.names
    }
    sizes = np.array([len(row[lists]) for row in rows])
    return [tuple(row[key] for key in keys) for row in rows], sizes, columns


@contextmanager
def grouping_settings(frame: DataFrame) -> Iterator[None]:
    """Tune the session for grouping into tens of thousands of groups, then restore it.

    Other queries that are planned meanwhile in the same session give the same answers.
    """
    session = frame.sparkSession.conf
    # Spark's columnar hash map is off by default, and takes about a third less time here.
    wanted = {_VECTORIZED_MAP: "true"}
    # The shuffled data is small: scheduling 200 partitions, the default, would take longer than
    # adding them up.
    partitions = _parallelism(frame)
    current = str(session.get(_SHUFFLE_PARTITIONS, None))  # "auto" on some platforms
    if partitions is not None and current.isdigit() and partitions < int(current):
        wanted[_SHUFFLE_PARTITIONS] = str(partitions)
    before = {name: session.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.unset(name)
            else:
                session.set(name, old)


def _parallelism(frame: DataFrame) -> int | None:
    """Return how many tasks run at once, or None over Spark Connect, where it is not known."""
    try:
        return int(frame.sparkSession.sparkContext.defaultParallelism)
    except (AttributeError, NotImplementedError):
        return None
