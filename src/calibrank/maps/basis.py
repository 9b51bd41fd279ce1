"""Bases: the shapes a logistic map's log odds may take, each a sum of increasing pieces.

A family of the paper is usually written in `a, b, c` with a constraint that keeps it increasing. Here each family is
written in the *generators* of that constraint's cone: functions that rise over the fitted range, so that "increasing"
is simply "no negative coefficient". The formulas use only `Ops`, so the same lines run on numpy arrays, tensors,
dataframe expressions or SQL text.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from calibrank._logit import expit
from calibrank._validation import Floats


class Ops(Protocol):
    """What a target must offer besides + - * / for a map to run on it."""

    def log(self, x: Any) -> Any: ...
    def softplus(self, x: Any) -> Any: ...
    def minimum(self, x: Any, bound: float) -> Any: ...
    def maximum(self, x: Any, bound: float) -> Any: ...


class NumpyOps:
    """`Ops` for numpy arrays."""

    def log(self, x: Floats) -> Floats:
        return np.log(x)

    def softplus(self, x: Floats) -> Floats:
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))  # as np.logaddexp(0, x), and faster

    def minimum(self, x: Floats, bound: float) -> Floats:
        return np.minimum(x, bound)

    def maximum(self, x: Floats, bound: float) -> Floats:
        return np.maximum(x, bound)


@dataclass(frozen=True, slots=True)
class Basis(ABC):
    """Increasing functions of a score within [low, high], and their slopes at both ends."""

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]

    @abstractmethod
    def generators(self, score: Any, low: float, high: float, ops: Ops) -> tuple[Any, ...]:
        """Each generator's value; `score` lies within [low, high]."""

    @abstractmethod
    def end_slopes(self, low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Each generator's derivative at low, and at high."""

    @abstractmethod
    def natural(self, low: float, high: float) -> Floats:
        """The matrix that turns (intercept, coefficients) into the paper's `parameters`."""

    def settings(self) -> dict[str, Any]:
        """What a saved map must hold to rebuild this basis."""
        return {"name": self.name}


@dataclass(frozen=True, slots=True)
class Linear(Basis):
    """Equal-variance Gaussian scores: `b s + c` (Eq. 6)."""

    name: ClassVar[str] = "linear"
    parameters: ClassVar[tuple[str, ...]] = ("b", "c")

    def generators(self, score: Any, low: float, high: float, ops: Ops) -> tuple[Any, ...]:
        return ((score - low) / (high - low),)

    def end_slopes(self, low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (1 / (high - low),), (1 / (high - low),)

    def natural(self, low: float, high: float) -> Floats:
        return np.array([[0, 1 / (high - low)], [1, -low / (high - low)]])


@dataclass(frozen=True, slots=True)
class Quadratic(Basis):
    """Gaussian scores in each class: `a s^2 + b s + c` (Eq. 9); one generator is flat at each end."""

    name: ClassVar[str] = "quadratic"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")

    def generators(self, score: Any, low: float, high: float, ops: Ops) -> tuple[Any, ...]:
        up, down = (score - low) / (high - low), (high - score) / (high - low)
        return (1 - down * down) / 2, up * up / 2

    def end_slopes(self, low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (1 / (high - low), 0.0), (0.0, 1 / (high - low))

    def natural(self, low: float, high: float) -> Floats:
        width = high - low
        square = np.array([0, -0.5, 0.5]) / width**2
        linear = np.array([0, 1, 0]) / width - 2 * low * square
        return np.array([square, linear, np.array([1, 0, 0]) - low * linear - low**2 * square])


@dataclass(frozen=True, slots=True)
class Log(Basis):
    """Gamma scores in each class: `a log s + b s + c` (Eq. 12), s measured from `margin` ranges below the lowest."""

    name: ClassVar[str] = "log"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    margin: float

    def generators(self, score: Any, low: float, high: float, ops: Ops) -> tuple[Any, ...]:
        up = (score - low) / (high - low)
        start, end = self.margin, 1 + self.margin
        logarithm = ops.log(up / start + 1)
        return start * (end * logarithm - up), end * (up - start * logarithm)

    def end_slopes(self, low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (1 / (high - low), 0.0), (0.0, 1 / (high - low))

    def natural(self, low: float, high: float) -> Floats:
        start, end, width = self.margin, 1 + self.margin, high - low
        logarithm = start * end * np.array([0, 1, -1])
        linear = np.array([0, -start, end]) / width
        constant = np.array([1, 0, 0]) - np.log(start * width) * logarithm - start * width * linear
        return np.array([logarithm, linear, constant])

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "margin": self.margin}


@dataclass(frozen=True, slots=True)
class LogQuadratic(Basis):
    """Gamma negatives, Gaussian positives: `a s^2 + b s + b' log s + c` (Eq. 22) with a <= 0.

    The slope times s is a concave quadratic, so it is positive on the range exactly when it is at both ends.
    """

    name: ClassVar[str] = "log-quadratic"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "b'", "c")
    margin: float

    def generators(self, score: Any, low: float, high: float, ops: Ops) -> tuple[Any, ...]:
        up = (score - low) / (high - low)
        start, end = self.margin, 1 + self.margin
        logarithm = ops.log(up / start + 1)
        bend = (start + end) * up - (up + 2 * start) * up / 2 - start * end * logarithm
        return start * (end * logarithm - up), end * (up - start * logarithm), bend

    def end_slopes(self, low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (1 / (high - low), 0.0, 0.0), (0.0, 1 / (high - low), 0.0)

    def natural(self, low: float, high: float) -> Floats:
        start, end, width = self.margin, 1 + self.margin, high - low
        square = np.array([0, 0, 0, -0.5]) / width**2
        linear = np.array([0, -start, end, start + end]) / width
        logarithm = start * end * np.array([0, 1, -1, -1])
        origin = start * width
        constant = (
            np.array([1.0, 0, 0, 0])
            - np.log(origin) * logarithm
            - origin * linear
            - origin**2 * square
        )
        return np.array([square, linear, logarithm, constant])

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "margin": self.margin}


@dataclass(frozen=True, slots=True)
class Softplus(Basis):
    """Beta scores after a sigmoid: `a log p - b log(1 - p) + c` with p = sigmoid(s), free of its saturation."""

    name: ClassVar[str] = "softplus"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")

    def generators(self, score: Any, low: float, high: float, ops: Ops) -> tuple[Any, ...]:
        return ops.softplus(score * -1.0) * -1.0, ops.softplus(
            score
        )  # not every target has a unary minus

    def end_slopes(self, low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (float(expit(-low)), float(expit(low))), (float(expit(-high)), float(expit(high)))

    def natural(self, low: float, high: float) -> Floats:
        return np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=np.float64)
