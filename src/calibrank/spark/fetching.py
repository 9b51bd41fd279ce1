"""Bringing a small result to the driver."""

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
