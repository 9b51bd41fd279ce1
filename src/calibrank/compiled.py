"""Compiled loops for large tables. Needs numba (`pip install 'calibrank[fast]'`); everything works without, slower.

Compiling takes a second or two, so only tables of millions of rows come here. The machine code is kept on disk.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank.arrays import LARGEST_SCORE, Floats
from calibrank.errors import MissingExtra

try:
    from numba import njit
except ImportError as error:
    raise MissingExtra("numba", "fast") from error


@njit(cache=True, nogil=True)
def pool(
    scores: Floats,
    bits: npt.NDArray[np.signedinteger[Any]],
    positive: npt.NDArray[Any],
    total: Floats | None,
    layout: tuple[Any, ...],
    scale: float,
    every: npt.NDArray[np.float64],
    liked: npt.NDArray[np.float64],
    squares: npt.NDArray[np.float64],
) -> None:
    """Add rows to the bins of a `Table`; without `total`, every row counts once. `Grid` explains the arithmetic."""
    unsigned, shift, offset, smallest, first, sign = layout
    for row in range(scores.size):
        size = ((bits[row] & unsigned) >> shift) - offset
        score = np.float64(scores[row])
        if size < smallest:
            size = type(size)(abs(score) * scale)
        place = (size ^ (bits[row] >> sign)) - first
        if total is None:
            mass = 1.0
        else:
            mass = np.float64(total[row])
            squares[place] += mass * mass
        every[place, 0] += mass
        every[place, 1] += mass * score
        if positive[row] != 0:
            argument = np.float64(positive[row])
            liked[place, 0] += argument
            liked[place, 1] += argument * score
            liked[place, 2] += argument * argument
            liked[place, 3] += argument * mass


_LARGEST = np.float32(LARGEST_SCORE)
_LOG2_E = np.float32(1 / np.log(2))
_ROUNDER = np.float32(1.5 * 2**23)  # adding it leaves a float32 without a fraction
_0, _1 = np.float32(0), np.float32(1)
_EXP2 = tuple(np.float32(np.log(2) ** power / math.factorial(power)) for power in range(7))


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def sigmoid_of_quadratic(
    scores: npt.NDArray[np.float32],
    low: float,
    scale: float,
    curve: tuple[np.float32, np.float32, np.float32],
    slopes: tuple[np.float32, np.float32],
    result: npt.NDArray[np.float32],
) -> int:
    """Write sigmoid(a u^2 + b u + c), u = (score - low) * scale, straight beyond [0, 1]; count scores out of bounds.

    Without a branch or a call, so that it runs on several numbers at a time: the exponential is 2^k times the Taylor
    series of 2^f, with k whole and f within one half.
    """
    a, b, c = curve
    below, above = slopes
    wrong = 0
    for row in range(scores.size):
        unit = np.float32((np.float64(scores[row]) - low) * scale)
        inside = min(max(unit, _0), _1)
        z = (a * inside + b) * inside + c + below * min(unit, _0) + above * max(unit - _1, _0)
        power = min(max(-z * _LOG2_E, np.float32(-125)), np.float32(125))
        whole = (power + _ROUNDER) - _ROUNDER
        f = power - whole
        series = ((((_EXP2[6] * f + _EXP2[5]) * f + _EXP2[4]) * f + _EXP2[3]) * f + _EXP2[2]) * f + _EXP2[1]
        shift = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
        result[row] = _1 / (_1 + (series * f + _1) * shift)
        wrong += not abs(scores[row]) <= _LARGEST
    return wrong
