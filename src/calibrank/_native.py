"""Load the C loops of `_native.c`; if they were not compiled, NumPy does the same work slower."""

import ctypes
import zlib
from ctypes import POINTER, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from calibrank._rules import LARGEST_SCORE

LIBRARY = Path(__file__).with_name("libcalibrank.so")
"""Where the build puts the library, under the same name on every system."""

SOURCE = Path(__file__).with_name("_native.c")
FLOAT_POINTER = POINTER(c_float)
DOUBLE_POINTER = POINTER(c_double)


def load_library() -> ctypes.CDLL | None:
    """The library, if it exists and was built from the source file next to it."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        built_from = loaded.calibrank_source_checksum()
        current = zlib.crc32(SOURCE.read_bytes()) & 0x7FFFFFFF
    except (OSError, AttributeError):
        return None
    if built_from != current:
        return None
    loaded.pool_float32.argtypes = _pool_arguments(c_float, c_int32)
    loaded.pool_float64.argtypes = _pool_arguments(c_double, c_int64)
    loaded.sigmoid_of_quadratic.argtypes = [
        FLOAT_POINTER,  # scores
        c_size_t,  # rows
        c_double,  # low
        c_double,  # scale
        *[c_float] * 6,  # a, b, c, below, above, largest
        FLOAT_POINTER,  # result
    ]
    return loaded


def _pool_arguments(score: Any, integer: Any) -> list[Any]:
    """Argument types of a pooling loop for one type of scores."""
    return [
        POINTER(score),  # scores
        c_size_t,  # rows
        score,  # origin
        c_void_p,  # positive
        c_int,  # positive_type
        c_void_p,  # total
        c_int,  # total_type
        c_int,  # shift
        integer,  # offset
        integer,  # smallest
        integer,  # first
        c_int,  # exponent
        c_size_t,  # size
        *[DOUBLE_POINTER] * 3,  # totals, positives, squares
    ]


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
    """Write sigmoid(a u^2 + b u + c), u = (score - low) * scale, into `result`.

    Beyond u in [0, 1] the log odds continue linearly with the two slopes. Returns False if a score
    is not finite or too large, as the column rule for scores says.
    """
    loop = cast("ctypes.CDLL", library).sigmoid_of_quadratic
    invalid = loop(
        scores.ctypes.data_as(FLOAT_POINTER),
        len(scores),
        low,
        scale,
        *curve,
        *slopes,
        LARGEST_SCORE,
        result.ctypes.data_as(FLOAT_POINTER),
    )
    return not invalid
