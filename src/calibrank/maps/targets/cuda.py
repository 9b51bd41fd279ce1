"""Maps as CUDA C++ source: one kernel reads the scores once and writes the probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from calibrank._validation import LARGEST_SCORE
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.targets.target import Target, UnsupportedOperationError


def kernel_source(fitted: CalibrationMap, *, single: bool) -> str:
    """A function template from a score to its probability, NaN where the score is invalid.

    With `single`, T is float and the fast exponential of the hardware is used.
    """
    probability = fitted.on(CudaTarget(single=single), CudaExpression("score"))
    return f"""template <typename T> T probability(T score) {{
        return (score < 0 ? -score : score) <= T({LARGEST_SCORE!r}) ? T({probability.code}) : T(NAN);
    }}"""


@dataclass(frozen=True, slots=True)
class CudaExpression:
    """A C++ expression of type T, with arithmetic that writes longer expressions."""

    code: str

    def __add__(self, other: CudaExpression | float) -> CudaExpression:
        return CudaExpression(f"({self.code} + {_operand(other)})")

    def __radd__(self, other: float) -> CudaExpression:
        return CudaExpression(f"({_operand(other)} + {self.code})")

    def __sub__(self, other: CudaExpression | float) -> CudaExpression:
        return CudaExpression(f"({self.code} - {_operand(other)})")

    def __rsub__(self, other: float) -> CudaExpression:
        return CudaExpression(f"({_operand(other)} - {self.code})")

    def __mul__(self, other: CudaExpression | float) -> CudaExpression:
        return CudaExpression(f"({self.code} * {_operand(other)})")

    def __rmul__(self, other: float) -> CudaExpression:
        return CudaExpression(f"({_operand(other)} * {self.code})")

    def __truediv__(self, other: float) -> CudaExpression:
        # On a GPU a division costs as much as all the rest of the formula.
        return CudaExpression(f"({self.code} * {_operand(1 / other)})")


def _operand(value: CudaExpression | float) -> str:
    return value.code if isinstance(value, CudaExpression) else f"T({float(value)!r})"


@dataclass(frozen=True, slots=True)
class CudaTarget(Target):
    """CUDA source; T is the type of the scores."""

    normalizes: ClassVar[bool] = True

    single: bool

    def place(self, score: CudaExpression, low: float, width: float) -> CudaExpression:
        # The difference is taken in double: float32 would lose it where scores are many times
        # larger than their range.
        return CudaExpression(f"T((double({score.code}) - {low!r}) * {1 / width!r})")

    def log(self, x: CudaExpression) -> CudaExpression:
        return CudaExpression(f"log({x.code})")

    def softplus(self, x: CudaExpression) -> CudaExpression:
        return CudaExpression(f"(fmax({x.code}, T(0)) + log1p(exp(-fabs({x.code}))))")

    def sigmoid(self, x: CudaExpression) -> CudaExpression:
        exponential = "__expf" if self.single else "exp"
        return CudaExpression(f"(T(1) / (T(1) + {exponential}(-{x.code})))")

    def minimum(self, x: CudaExpression, bound: float) -> CudaExpression:
        return CudaExpression(f"fmin({x.code}, {_operand(bound)})")

    def maximum(self, x: CudaExpression, bound: float) -> CudaExpression:
        return CudaExpression(f"fmax({x.code}, {_operand(bound)})")

    def steps(
        self, score: CudaExpression, edges: Sequence[float], values: Sequence[float]
    ) -> CudaExpression:
        raise UnsupportedOperationError("a kernel has no table to search for steps")
