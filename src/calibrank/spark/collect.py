"""Bringing a small result to the driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame


def fetch(frame: DataFrame) -> dict[str, npt.NDArray[Any]]:
    """A small frame's columns as arrays; by Arrow where it is there, for a Python object a cell is slow."""
    try:
        table = frame.toArrow()
    except (AttributeError, ImportError):  # pyspark before 4, or no pyarrow
        rows = frame.collect()
        return {name: np.array([row[at] for row in rows]) for at, name in enumerate(frame.columns)}
    return {name: table.column(name).to_numpy() for name in frame.columns}


@contextmanager
def grouping(frame: DataFrame) -> Iterator[None]:
    """Settings that suit grouping into tens of thousands of groups; the session's own are put back afterwards.

    The columnar kind of Spark's hash map, which is off by default, is some third less work. And what is shuffled is
    small: 200 partitions of it, the default, would take longer to hand round than to add up. Queries planned meanwhile
    in the same session get the same answers.
    """
    settings = frame.sparkSession.conf
    wanted = {"spark.sql.codegen.aggregate.map.vectorized.enable": "true"}
    most = "spark.sql.shuffle.partitions"
    partitions = _cores(frame)
    given = str(settings.get(most, None))  # "auto" in places
    if partitions is not None and given.isdigit() and partitions < int(given):
        wanted[most] = str(partitions)
    before = {name: settings.get(name, None) for name in wanted}
    for name, value in wanted.items():
        settings.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                settings.unset(name)
            else:
                settings.set(name, old)


def _cores(frame: DataFrame) -> int | None:
    """How many tasks run at once, where that is known: over Spark Connect it is not."""
    try:
        return int(frame.sparkSession.sparkContext.defaultParallelism)
    except (AttributeError, NotImplementedError):
        return None
