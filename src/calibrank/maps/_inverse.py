"""The scores at which a map reaches a probability, by bisection over all floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrank._internal.validation import LARGEST_SCORE, Floats, Mask
from calibrank.errors import DataError

# An interval that is narrower than this, relative to the scores of the map, is due to rounding.
_RELATIVE = 1e-9


def scores_at(
    function: Callable[[Floats], Floats], probability: float, rows: int, width: float
) -> tuple[Floats, Floats]:
    """The lowest score that reaches the probability, and the highest that does not exceed it.

    `function` gives the probabilities of `rows` scores, each of which it increases with. They are
    infinite where the curve is flat up to its end. `width` is that of the usual scores.
    """
    ends = np.full(rows, LARGEST_SCORE)
    lowest, highest = function(-ends), function(ends)
    outside = np.flatnonzero((probability < lowest) | (probability > highest))
    if len(outside):
        row = int(outside[0])
        raise DataError(
            "probability",
            f"be one that the map reaches, {lowest[row]:.6g} to {highest[row]:.6g}",
            got=f"{probability:.6g}",
            row=row if rows > 1 else None,
        )
    low = np.where(
        lowest >= probability, -np.inf, _first(lambda s: function(s) >= probability, rows)
    )
    # The last score that is not above is the one before the first that is.
    above = _first(lambda s: function(s) > probability, rows)
    high = np.where(highest <= probability, np.inf, np.nextafter(above, -np.inf))
    is_point = np.isfinite(low) & ~(high - low > _RELATIVE * np.maximum(np.abs(low), width))
    return low, np.where(is_point, low, high)


def _first(holds: Callable[[Floats], Mask], rows: int) -> Floats:
    """The lowest score at which a condition holds that holds from there on."""
    below = np.full(rows, _number(-LARGEST_SCORE))
    above = np.full(rows, _number(LARGEST_SCORE))
    while np.any(above > below + 1):
        # The mean, rounded down; the sum of both would be too large.
        middle = (below >> 1) + (above >> 1) + (below & above & 1)
        is_above = holds(_score(middle))
        below = np.where(is_above, below, middle)
        above = np.where(is_above, middle, above)
    return _score(above)


# Floats in increasing order are whole numbers in increasing order: halving an interval of numbers
# finds a score to its last digit in 63 steps, wherever it lies.
def _number(score: float) -> int:
    bits = int(np.float64(abs(score)).view(np.int64))
    return bits if score >= 0 else -bits


def _score(numbers: np.ndarray) -> Floats:
    scores: Floats = np.copysign(np.abs(numbers).view(np.float64), numbers)
    return scores
