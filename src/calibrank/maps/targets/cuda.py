"""Maps as CUDA C++ source: one kernel reads the scores once and writes the probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from calibrank._internal.validation import LARGEST_SCORE
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.targets.target import Target, UnsupportedOperationError


def kernel_source(fitted: CalibrationMap, *, single: bool) -> str:
    """A function template from a score to its probability, NaN where the score is invalid.

    With `single`, T is float and the fast exponential of the hardware is used.
    """
    probability = fitted.where_valid(CudaTarget(single=single), Code("score"))
    return f"template <typename T> T probability(T score) {{ return {probability.code}; }}"


@dataclass(frozen=True, slots=True)
class Code:
    """A C++ expression of type T, with arithmetic that writes longer expressions."""

    code: str

    def __add__(self, other: Code | float) -> Code:
        return _binary(self, "+", other)

    def __radd__(self, other: float) -> Code:
        return _binary(other, "+", self)

    def __sub__(self, other: Code | float) -> Code:
        return _binary(self, "-", other)

    def __rsub__(self, other: float) -> Code:
        return _binary(other, "-", self)

    def __mul__(self, other: Code | float) -> Code:
        return _binary(self, "*", other)

    def __rmul__(self, other: float) -> Code:
        return _binary(other, "*", self)

    def __truediv__(self, other: float) -> Code:
        # On a GPU a division costs as much as all the rest of the formula.
        return _binary(self, "*", 1 / other)


def _binary(left: Code | float, operator: str, right: Code | float) -> Code:
    return Code(f"({_operand(left)} {operator} {_operand(right)})")


def _operand(value: Code | float) -> str:
    if isinstance(value, Code):
        return value.code
    return f"T({float(value)!r})"


@dataclass(frozen=True, slots=True)
class CudaTarget(Target):
    """CUDA source; T is the type of the scores."""

    normalizes: ClassVar[bool] = True

    single: bool

    def place(self, score: Code, low: float, width: float) -> Code:
        # The difference is taken in double: float32 would lose it where scores are many times
        # larger than their range.
        return Code(f"T((double({score.code}) - {low!r}) * {1 / width!r})")

    def log(self, x: Code) -> Code:
        return Code(f"log({x.code})")

    def softplus(self, x: Code) -> Code:
        return Code(f"(fmax({x.code}, T(0)) + log1p(exp(-fabs({x.code}))))")

    def sigmoid(self, x: Code) -> Code:
        exponential = "__expf" if self.single else "exp"
        return Code(f"(T(1) / (T(1) + {exponential}(-{x.code})))")

    def minimum(self, x: Code, bound: float) -> Code:
        return Code(f"fmin({x.code}, {_operand(bound)})")

    def maximum(self, x: Code, bound: float) -> Code:
        return Code(f"fmax({x.code}, {_operand(bound)})")

    def where_valid(
        self, score: Code, formula: Callable[[Code], Code], conditions: Sequence[Code] = ()
    ) -> Code:
        magnitude = f"({score.code} < 0 ? -{score.code} : {score.code})"
        is_valid = f"{magnitude} <= T({LARGEST_SCORE!r})"
        return Code(f"({is_valid} ? T({formula(score).code}) : T(NAN))")

    def steps(self, score: Code, edges: Sequence[float], values: Sequence[float]) -> Code:
        raise UnsupportedOperationError("a kernel has no table to search for steps")
