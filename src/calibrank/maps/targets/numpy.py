"""Maps on NumPy arrays, and as a function of one float for serving one request at a time.

An array of one score costs many times the arithmetic. The operations and their order are the same,
so the digits are too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrank._internal import native
from calibrank._internal.arguments import shown
from calibrank._internal.logit import expit, softplus
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE, Floats, Indices, require_scores
from calibrank.errors import DataError
from calibrank.maps._program import of_log_odds, pack_lines
from calibrank.maps.targets.target import Lines, Target

if TYPE_CHECKING:
    from calibrank.maps.calibration_map import CalibrationMap

# The largest number whose exponential is finite.
_LARGEST_POWER = 709.782712893384


class NumpyTarget(Target):
    """Float64 arrays."""

    def log(self, x: Floats) -> Floats:
        return np.log(x)

    def softplus(self, x: Floats) -> Floats:
        return softplus(x)

    def sigmoid(self, x: Floats) -> Floats:
        return expit(x)

    def minimum(self, x: Floats, bound: float) -> Floats:
        return np.minimum(x, bound)

    def maximum(self, x: Floats, bound: float) -> Floats:
        return np.maximum(x, bound)

    def steps(self, score: Floats, edges: Sequence[float], values: Sequence[float]) -> Floats:
        step = np.searchsorted(np.array(edges), score, side="right")
        return np.array(values)[step]

    def by_level(self, x: Indices, keys: Sequence[Key], values: Floats) -> Floats:
        return values[x]

    def lines(self, score: Floats, edges: Sequence[float], lines: Lines) -> Floats:
        found = native.probabilities(score, _line_program(lines))
        if found is not None:
            return found
        # One search serves all three tables.
        segment = np.searchsorted(np.array(edges), score, side="right")
        origins, values, slopes = [np.array(part)[segment] for part in lines]
        return (score - origins) * slopes + values


@lru_cache(maxsize=256)
def _line_program(lines: Lines) -> bytes:
    """A broken line as the C loops read it."""
    origins, values, slopes = lines
    return of_log_odds(pack_lines(origins[1:], values[1:], slopes))


class FloatTarget(Target):
    """Python floats, computed at once; inputs are checked where they are read.

    The exponential and the logarithm are NumPy's, which differ from those of `math` in the last
    digit.
    """

    def log(self, x: float) -> float:
        return float(np.log(x))

    def softplus(self, x: float) -> float:
        return max(x, 0.0) + float(np.log1p(_exp(-abs(x))))

    def sigmoid(self, x: float) -> float:
        return 1 / (1 + _exp(-x))

    def minimum(self, x: float, bound: float) -> float:
        return min(x, bound)

    def maximum(self, x: float, bound: float) -> float:
        return max(x, bound)

    def steps(self, score: float, edges: Sequence[float], values: Sequence[float]) -> float:
        return values[bisect_right(edges, score)]

    def lines(self, score: float, edges: Sequence[float], lines: Lines) -> float:
        origins, values, slopes = lines
        segment = bisect_right(edges, score)
        return (score - origins[segment]) * slopes[segment] + values[segment]

    def by_level(self, x: int, keys: Sequence[Key], values: Floats) -> float:
        return float(values[x])


def to_function(fitted: CalibrationMap) -> Callable[..., float]:
    """The map as a function of one score; see `CalibrationMap.scalar`."""
    program = b"" if fitted.terms else fitted.curve.program
    compiled = native.loops.probability_of_score if native.READY and program else None
    target = FloatTarget()

    def probability(score: float, columns: Mapping[str, Any] | None = None) -> float:
        try:
            # NumPy would convert the bounds to the type of its small floats: 1e30 overflows.
            if not isinstance(score, float) and isinstance(score, np.floating):
                score = float(score)
            if not -LARGEST_SCORE <= score <= LARGEST_SCORE:
                _refuse(score)
            if compiled is not None:
                return float(compiled(score, program))
            inputs = [values.tolist()[0] for values in fitted.inputs(columns, 1)]
            return float(fitted.on(target, score, inputs))
        except (TypeError, ValueError, ArithmeticError) as error:
            if not isinstance(error, DataError):
                _refuse(score)
            raise

    return probability


def _exp(x: float) -> float:
    return float(np.exp(x)) if x <= _LARGEST_POWER else inf


def _refuse(score: float) -> None:
    """Raise the error of `predict` for a score that is not valid."""
    if not isinstance(score, Real):
        raise DataError("score", "be a number", shown(score), "Arrays are for predict(scores).")
    try:
        number = float(score)
    except OverflowError:  # an integer beyond the largest float
        number = inf
    require_scores(np.array([number]))
