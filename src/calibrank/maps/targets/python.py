"""Maps as a plain Python function of one float, for serving one request at a time.

An array of one score costs many times the arithmetic. This target writes the formula as straight
lines of Python, one local variable per operation, and compiles them once. The operations and their
order are those of `NumpyTarget`, so the digits are the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrank._internal.arguments import shown
from calibrank._internal.validation import LARGEST_SCORE, require_scores
from calibrank.errors import DataError
from calibrank.maps.targets.target import Target

if TYPE_CHECKING:
    from calibrank.maps.calibration_map import CalibrationMap

# The largest number whose exponential is finite.
_LARGEST_POWER = 709.782712893384

ScalarFunction = Callable[[float], float]


class Variable:
    """A local variable of the function under construction; arithmetic adds a line to it."""

    def __init__(self, lines: list[str], expression: str) -> None:
        self.lines = lines
        self.name = f"x{len(lines)}"
        lines.append(f"{self.name} = {expression}")

    def __add__(self, other: Variable | float) -> Variable:
        return self._with(f"{self.name} + {_text(other)}")

    def __radd__(self, other: float) -> Variable:
        return self._with(f"{_text(other)} + {self.name}")

    def __sub__(self, other: Variable | float) -> Variable:
        return self._with(f"{self.name} - {_text(other)}")

    def __rsub__(self, other: float) -> Variable:
        return self._with(f"{_text(other)} - {self.name}")

    def __mul__(self, other: Variable | float) -> Variable:
        return self._with(f"{self.name} * {_text(other)}")

    def __rmul__(self, other: float) -> Variable:
        return self._with(f"{_text(other)} * {self.name}")

    def __truediv__(self, other: float) -> Variable:
        return self._with(f"{self.name} / {_text(other)}")

    def _with(self, expression: str) -> Variable:
        return Variable(self.lines, expression)


class PythonTarget(Target):
    """Lines of Python, and the tables and functions that they name."""

    def __init__(self) -> None:
        self.code: list[str] = []
        self.names: dict[str, Any] = {
            "bisect_right": bisect_right,
            "exp": _exp,
            "log": _log,
            "log1p": _log1p,
            "check": check_score,
        }

    def log(self, x: Variable) -> Variable:
        return Variable(self.code, f"log({x.name})")

    def softplus(self, x: Variable) -> Variable:
        return Variable(
            self.code, f"({x.name} if {x.name} > 0 else 0) + log1p(exp(-abs({x.name})))"
        )

    def sigmoid(self, x: Variable) -> Variable:
        return Variable(self.code, f"1 / (1 + exp(-{x.name}))")

    def minimum(self, x: Variable, bound: float) -> Variable:
        return Variable(self.code, f"{x.name} if {x.name} < {bound!r} else {bound!r}")

    def maximum(self, x: Variable, bound: float) -> Variable:
        return Variable(self.code, f"{x.name} if {x.name} > {bound!r} else {bound!r}")

    def steps(
        self,
        score: Variable,
        edges: Sequence[float],
        values: Sequence[float],
    ) -> Variable:
        expression = f"{self._table(values)}[{self._position(score, edges)}]"
        return Variable(self.code, expression)

    def lines(
        self,
        score: Variable,
        edges: Sequence[float],
        origins: Sequence[float],
        values: Sequence[float],
        slopes: Sequence[float],
    ) -> Variable:
        # One search serves all three tables.
        segment = Variable(self.code, self._position(score, edges)).name
        offset = Variable(self.code, f"{score.name} - {self._table(origins)}[{segment}]").name
        line = f"{offset} * {self._table(slopes)}[{segment}] + {self._table(values)}[{segment}]"
        return Variable(self.code, line)

    def where_valid(self, score: Variable, formula: Callable[[Any], Any]) -> Any:
        largest = repr(LARGEST_SCORE)
        self.code.append(f"if not -{largest} <= {score.name} <= {largest}: check({score.name})")
        return formula(score)

    def _position(self, score: Variable, edges: Sequence[float]) -> str:
        """The number of edges that are at most the score."""
        return f"bisect_right({self._table(edges)}, {score.name})"

    def _table(self, numbers: Sequence[float]) -> str:
        name = f"table{len(self.names)}"
        self.names[name] = [float(number) for number in numbers]
        return name


def to_function(fitted: CalibrationMap) -> ScalarFunction:
    """The map as a function of one float; see `CalibrationMap.scalar`."""
    target = PythonTarget()
    score = Variable(target.code, "score")
    probability = fitted.where_valid(target, score)
    body = "".join(f"    {line}\n" for line in target.code)
    source = f"def probability(score):\n{body}    return {probability.name}\n"
    # The text consists of our own operations and of numbers, never of names from a file.
    exec(compile(source, "<calibrank map>", "exec"), target.names)  # noqa: S102  (see above)
    function: ScalarFunction = target.names["probability"]
    return function


def _text(operand: Variable | float) -> str:
    # `float` first: the repr of a NumPy number is not a number.
    return operand.name if isinstance(operand, Variable) else f"({float(operand)!r})"


# NumPy's own functions, because its exponential differs from that of `math` in the last digit.
def _exp(x: float) -> float:
    return float(np.exp(x)) if x <= _LARGEST_POWER else inf


def _log(x: float) -> float:
    return float(np.log(x))


def _log1p(x: float) -> float:
    return float(np.log1p(x))


def check_score(score: float) -> None:
    """Raise the error of `predict` for a score that is not valid."""
    if not isinstance(score, Real):
        raise DataError(
            f"score must be a number, got {shown(score)}. Arrays are for predict(scores)."
        )
    try:
        number = float(score)
    except OverflowError:  # an integer beyond the largest float
        number = inf
    require_scores(np.array([number]))
