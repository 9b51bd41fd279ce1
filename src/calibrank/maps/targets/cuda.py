"""Maps as CUDA C++ source: one kernel reads the scores once and writes the probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.targets.script import Language, Script, ScriptTarget
from calibrank.maps.targets.target import Lines, UnsupportedOperationError


def kernel_source(fitted: CalibrationMap, *, single: bool) -> str:
    """A function template from a score to its probability, NaN where the score is invalid.

    With `single`, T is float and the fast exponential of the hardware is used.
    """
    exponential = "__expf" if single else "exp"
    choice = "(({}) ? T({}) : T({}))"
    language = Language(exponential, "log", "fabs", "fmin", "fmax", choice, "T({})", "NAN")
    probability = fitted.where_valid(CudaTarget(language), Code("score", language))
    return f"template <typename T> T probability(T score) {{ return {probability}; }}"


class Code(Script):
    """A C++ expression of type T, the type of the scores."""

    __slots__ = ()

    def __truediv__(self, other: float) -> Code:
        # On a GPU a division costs as much as all the rest of the formula.
        return self.binary(self, "*", 1 / other)


class CudaTarget(ScriptTarget):
    """CUDA source."""

    normalizes: ClassVar[bool] = True

    def place(self, score: Script, low: float, width: float) -> Script:
        # The difference is taken in double: float32 would lose it where scores are many times
        # larger than their range.
        return replace(score, text=f"T((double({score}) - {low!r}) * {1 / width!r})")

    def softplus(self, x: Script) -> Script:
        return replace(x, text=f"(fmax({x}, T(0)) + log1p(exp(-fabs({x}))))")

    def steps(self, score: Script, edges: Sequence[float], values: Sequence[float]) -> Script:
        raise UnsupportedOperationError("a kernel has no table to search for steps")

    def lines(self, score: Script, edges: Sequence[float], lines: Lines) -> Script:
        raise UnsupportedOperationError("a kernel has no table to search for lines")
