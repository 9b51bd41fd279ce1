"""The loops of `loops.c`, built with the package where there is a C compiler; everything works without, slower."""

import ctypes
import zlib
from ctypes import POINTER, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from calibrank.arrays import LARGEST_SCORE, Floats
from calibrank.grid import SINGLE, Grid

LIBRARY = Path(__file__).with_name("libcalibrank.so")
"""Where the build puts it, under one name on every system."""

SOURCE = Path(__file__).with_name("loops.c")
_TYPES = {np.dtype(np.int8): 1, np.dtype(np.bool_): 1, np.dtype(np.float32): 2, np.dtype(np.float64): 3}
_Doubles: TypeAlias = npt.NDArray[np.float64]
_FLOATS = POINTER(c_float)
_DOUBLES = POINTER(c_double)


def _loaded() -> ctypes.CDLL | None:
    """The library, if it was built from the very source that lies beside it."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        if library.calibrank_loops() != zlib.crc32(SOURCE.read_bytes()) & 0x7FFFFFFF:
            return None
    except (OSError, AttributeError):
        return None
    for name, score, whole in (("pool_float32", c_float, c_int32), ("pool_float64", c_double, c_int64)):
        columns = [POINTER(score), c_size_t, c_void_p, c_int, c_void_p, c_int]
        pool = getattr(library, name)
        pool.argtypes = [*columns, c_int, whole, whole, whole, c_int, c_size_t, *[_DOUBLES] * 3]
    library.sigmoid_of_quadratic.argtypes = [_FLOATS, c_size_t, c_double, c_double, *[c_float] * 6, _FLOATS]
    return library


_library = _loaded()
READY = _library is not None


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
    loop, pointer = ("pool_float32", _FLOATS) if layout is SINGLE else ("pool_float64", _DOUBLES)
    positive, liking = _column(positive)
    total, weighing = _column(total)
    outside = getattr(_library, loop)(
        scores.ctypes.data_as(pointer), len(scores), _address(positive), liking, _address(total), weighing,
        layout.mantissa - grid.bits, grid.offset(layout), 1 << grid.bits, first, grid.bits - grid.floor, len(squares),
        *(table.ctypes.data_as(_DOUBLES) for table in (every, liked, squares)),
    )  # fmt: skip
    if outside:
        raise AssertionError("a score fell outside the table")


def sigmoid_of_quadratic(
    scores: npt.NDArray[np.float32],
    low: float,
    scale: float,
    curve: tuple[float, float, float],
    slopes: tuple[float, float],
    result: npt.NDArray[np.float32],
) -> bool:
    """Write sigmoid(a u^2 + b u + c), u = (score - low) * scale, straight beyond [0, 1]; False if a score is none."""
    start, written = (array.ctypes.data_as(_FLOATS) for array in (scores, result))
    numbers = (low, scale, *curve, *slopes, LARGEST_SCORE)
    loop = cast("ctypes.CDLL", _library).sigmoid_of_quadratic
    return not loop(start, len(scores), *numbers, written)


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
