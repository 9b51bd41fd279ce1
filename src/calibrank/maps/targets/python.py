"""Maps as a function of one float, for serving one request at a time.

An array of one score costs many times the arithmetic. The operations and their order are those of
`NumpyTarget`, so the digits are the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrank._internal import native
from calibrank._internal.arguments import shown
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE, Floats, require_scores
from calibrank.errors import DataError
from calibrank.maps.targets.target import Lines, Target, Unary

if TYPE_CHECKING:
    from calibrank.maps.calibration_map import CalibrationMap

# The largest number whose exponential is finite.
_LARGEST_POWER = 709.782712893384


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

    def where_valid(self, score: float, formula: Unary, conditions: Sequence[Any] = ()) -> Any:
        return formula(score)


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
