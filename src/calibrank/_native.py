"""The loops of `_native.c`, built with the package where there is a C compiler; everything works without, slower."""

import ctypes
import zlib
from ctypes import POINTER, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from calibrank._validation import LARGEST_SCORE

LIBRARY = Path(__file__).with_name("libcalibrank.so")
"""Where the build puts it, under one name on every system."""

SOURCE = Path(__file__).with_name("_native.c")
FLOATS = POINTER(c_float)
DOUBLES = POINTER(c_double)


def load_library() -> ctypes.CDLL | None:
    """The library, if it was built from the very source that lies beside it."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        if loaded.calibrank_loops() != zlib.crc32(SOURCE.read_bytes()) & 0x7FFFFFFF:
            return None
    except (OSError, AttributeError):
        return None
    for name, score, whole in (
        ("pool_float32", c_float, c_int32),
        ("pool_float64", c_double, c_int64),
    ):
        columns = [POINTER(score), c_size_t, c_void_p, c_int, c_void_p, c_int]
        pool = getattr(loaded, name)
        pool.argtypes = [*columns, c_int, whole, whole, whole, c_int, c_size_t, *[DOUBLES] * 3]
    loaded.sigmoid_of_quadratic.argtypes = [
        FLOATS,
        c_size_t,
        c_double,
        c_double,
        *[c_float] * 6,
        FLOATS,
    ]
    return loaded


library = load_library()
READY = library is not None


def sigmoid_of_quadratic(
    scores: npt.NDArray[np.float32],
    low: float,
    scale: float,
    curve: tuple[float, float, float],
    slopes: tuple[float, float],
    result: npt.NDArray[np.float32],
) -> bool:
    """Write sigmoid(a u^2 + b u + c), u = (score - low) * scale, straight beyond [0, 1]; False if a score is none."""
    start, written = (array.ctypes.data_as(FLOATS) for array in (scores, result))
    numbers = (low, scale, *curve, *slopes, LARGEST_SCORE)
    loop = cast("ctypes.CDLL", library).sigmoid_of_quadratic
    return not loop(start, len(scores), *numbers, written)
