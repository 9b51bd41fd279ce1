"""Maps as a plain Python function of one float, for serving one request at a time.

An array of one score costs many times the arithmetic. This target writes the formula as straight
lines of Python, one local variable per operation, and compiles them once. The operations and their
order are those of `NumpyTarget`, so the digits are the same.
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
from calibrank._internal.rules import ColumnRule
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE, require_scores
from calibrank.errors import DataError
from calibrank.maps.targets.target import Expression, Lines, Target, Unary

if TYPE_CHECKING:
    from calibrank.maps.calibration_map import CalibrationMap

# The largest number whose exponential is finite.
_LARGEST_POWER = 709.782712893384

ScalarFunction = Callable[..., float]


class Variable(Expression):
    """A local variable of the function under construction; arithmetic adds a line to it."""

    def __init__(self, lines: list[str], expression: str) -> None:
        self.lines = lines
        self.name = f"x{len(lines)}"
        lines.append(f"{self.name} = {expression}")

    def binary(self, left: Any, operator: str, right: Any) -> Variable:
        return Variable(self.lines, f"{_text(left)} {operator} {_text(right)}")


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

    def steps(self, score: Variable, edges: Sequence[float], values: Sequence[float]) -> Variable:
        expression = f"{self._table(values)}[{self._position(score, edges)}]"
        return Variable(self.code, expression)

    def lines(self, score: Variable, edges: Sequence[float], lines: Lines) -> Variable:
        origins, values, slopes = lines
        # One search serves all three tables.
        segment = Variable(self.code, self._position(score, edges)).name
        offset = Variable(self.code, f"{score.name} - {self._table(origins)}[{segment}]").name
        line = f"{offset} * {self._table(slopes)}[{segment}] + {self._table(values)}[{segment}]"
        return Variable(self.code, line)

    def by_level(self, x: Variable, keys: Sequence[Key], values: Sequence[float]) -> Variable:
        return Variable(self.code, f"{self._table(values)}[{x.name}]")

    # The inputs of terms are checked where they are read.
    def is_valid(self, x: Variable, rule: ColumnRule) -> None:
        return None

    def is_level(self, x: Variable, count: int) -> None:
        return None

    def where_valid(self, score: Variable, formula: Unary, conditions: Sequence[None] = ()) -> Any:
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
    """The map as a function of one score; see `CalibrationMap.scalar`."""
    checked = _compiled(fitted)
    program = b"" if fitted.terms else fitted.curve.program
    is_native = native.READY and bool(program)
    compiled = native.scalar_probability() if is_native else None

    def probability(score: float, columns: Mapping[str, Any] | None = None) -> float:
        try:
            # NumPy would convert the bounds to the type of its small floats: 1e30 overflows.
            if not isinstance(score, float) and isinstance(score, np.floating):
                score = float(score)
            if compiled is not None and -LARGEST_SCORE <= score <= LARGEST_SCORE:
                return compiled(score, program)
            return checked(score, columns)
        except (TypeError, ValueError, ArithmeticError) as error:
            if not isinstance(error, DataError):
                check_score(score)
            raise

    return probability


def _compiled(fitted: CalibrationMap) -> Callable[[float, Any], float]:
    """The formula as a Python function of a score and a mapping of columns."""
    target = PythonTarget()
    score = Variable(target.code, "score")
    inputs = []
    if fitted.terms:
        target.names["read"] = _reader(fitted)
        values = Variable(target.code, "read(columns)")
        inputs = [
            Variable(target.code, f"{values.name}[{place}]") for place in range(len(fitted.terms))
        ]
    probability = fitted.where_valid(target, score, inputs)
    body = "".join(f"    {line}\n" for line in target.code)
    source = f"def probability(score, columns):\n{body}    return {probability.name}\n"
    # The text consists of our own operations and of numbers, never of names from a file.
    exec(compile(source, "<calibrank map>", "exec"), target.names)  # noqa: S102  (see above)
    function: Callable[[float, Any], float] = target.names["probability"]
    return function


def _reader(fitted: CalibrationMap) -> Callable[[Any], list[Any]]:
    """A function from a mapping of columns to the input of each term, as Python numbers."""

    def read(columns: Any) -> list[Any]:
        return [values.tolist()[0] for values in fitted.inputs(columns, 1)]

    return read


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
        raise DataError("score", "be a number", shown(score), "Arrays are for predict(scores).")
    try:
        number = float(score)
    except OverflowError:  # an integer beyond the largest float
        number = inf
    require_scores(np.array([number]))
