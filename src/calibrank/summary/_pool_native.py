"""Pool rows into bins by the loops of `_native.c`."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrank import _native
from calibrank._native import DOUBLES, FLOATS
from calibrank._validation import Floats
from calibrank.summary.grid import SINGLE, Grid

_TYPES = {
    np.dtype(np.int8): 1,
    np.dtype(np.bool_): 1,
    np.dtype(np.float32): 2,
    np.dtype(np.float64): 3,
}
_Doubles: TypeAlias = npt.NDArray[np.float64]


def pool(
    grid: Grid,
    first: int,
    scores: Floats,
    positive: npt.NDArray[Any] | None,
    total: Floats | None,
    every: _Doubles,
    liked: _Doubles,
    squares: _Doubles,
) -> None:
    """Add rows to the bins of a `Table` that starts at bin `first`; without `total`, every row counts once."""
    layout = grid.layout(single=scores.dtype == np.float32)
    scores = _plain(scores.astype(layout.float, copy=False))
    loop, pointer = ("pool_float32", FLOATS) if layout is SINGLE else ("pool_float64", DOUBLES)
    positive, liking = _column(positive)
    total, weighing = _column(total)
    outside = getattr(_native.library, loop)(
        scores.ctypes.data_as(pointer), len(scores), _address(positive), liking, _address(total), weighing,
        layout.mantissa - grid.bits, grid.offset(layout), 1 << grid.bits, first, grid.bits - grid.floor, len(squares),
        *(table.ctypes.data_as(DOUBLES) for table in (every, liked, squares)),
    )  # fmt: skip
    if outside:
        raise AssertionError("a score fell outside the table")


def _column(values: npt.NDArray[Any] | None) -> tuple[npt.NDArray[Any] | None, int]:
    """A column in one of the types that the loops read, and which."""
    if values is None:
        return None, 0
    values = _plain(values if values.dtype in _TYPES else values.astype(np.float64))
    return values, _TYPES[values.dtype]


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.require(values, requirements=["C", "ALIGNED"])


def _address(values: npt.NDArray[Any] | None) -> int | None:
    return None if values is None else values.ctypes.data
