"""Load the C loops of `_native.c`; if they were not compiled, NumPy does the same work slower."""

import ctypes
import zlib
from collections.abc import Callable
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
)
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from calibrank._rules import LARGEST_SCORE

Floats: TypeAlias = npt.NDArray[np.floating[Any]]

LIBRARY = Path(__file__).with_name("libcalibrank.so")
"""Where the build puts the library, under the same name on every system."""

SOURCE = Path(__file__).with_name("_native.c")
FLOAT_POINTER = POINTER(c_float)
DOUBLE_POINTER = POINTER(c_double)

# Stands for the memory of a contiguous, writable array that is not empty.
_FirstByte = ctypes.c_char * 1


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
    loaded.probability_of_score.argtypes = [c_double, c_char_p]
    loaded.probability_of_score.restype = c_double
    for loop, score in (
        (loaded.probabilities_float32, c_float),
        (loaded.probabilities_float64, c_double),
    ):
        # Addresses instead of typed pointers: building those takes longer than 1,000 scores.
        loop.argtypes = [c_void_p, c_size_t, c_char_p, score, c_void_p]
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

# The loop for each type of scores, by the character that NumPy gives it.
_PROBABILITY_LOOPS: dict[str, Any] = {}
if library is not None:
    _PROBABILITY_LOOPS = {"f": library.probabilities_float32, "d": library.probabilities_float64}


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


def probabilities(scores: Floats, constants: bytes, result: Floats) -> bool:
    """Write the probability of each score by a quadratic logistic map into `result`.

    `constants` are the bytes of low, scale, a, b, c, below and above, as float64: the arguments of
    `sigmoid_of_quadratic`. The relative error is about 3e-16, before rounding to the float type
    that the scores have. Returns False if a score is invalid.
    """
    loop = _PROBABILITY_LOOPS[scores.dtype.char]
    # The address of an array takes a microsecond to ask for; its buffer is found faster.
    buffer_of: Callable[[Any], Any] = _FirstByte.from_buffer
    read = buffer_of(scores) if scores.flags.writeable else scores.ctypes.data
    written = buffer_of(result)
    return not loop(read, len(scores), constants, LARGEST_SCORE, written)


def scalar_probability() -> Callable[[float, bytes], float]:
    """The function of one score and the constants above: the same digits as `probabilities`."""
    compiled = cast("ctypes.CDLL", library)
    return cast("Callable[[float, bytes], float]", compiled.probability_of_score)
