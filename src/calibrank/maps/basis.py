"""Bases: the functions of the score whose weighted sum is a logistic map's log odds.

A family of the paper is usually written with parameters `a, b, c` and a constraint that keeps it
increasing. Here each family is written with the *generators* of that constraint's cone: functions
that increase over the fitted range, so that "increasing" means "no negative coefficient". The
formulas use only the operations of `Target`, so the same lines run on numpy arrays, tensors,
dataframe expressions or SQL text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from calibrank._internal.json import Fields, Saved, kind_of
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps._program import Kind
from calibrank.maps.targets.target import Target

Slopes: TypeAlias = tuple[float, ...]
"""One derivative per generator."""

Terms: TypeAlias = tuple[Any, ...]
"""One expression per generator."""


class Curve(NamedTuple):
    """A sum of generators as a C loop computes it; in the position in the range if scale-free."""

    kind: Kind
    terms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Basis(Saved, ABC):
    """Increasing functions of a score within [low, high], and their slopes at both ends."""

    tag: ClassVar[str] = "name"
    parameters: ClassVar[tuple[str, ...]]
    scale_free: ClassVar[bool] = True
    """Whether the generators depend on the position of the score in the range alone."""

    @abstractmethod
    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        """The value of each generator; `score` lies within [low, high]."""

    @abstractmethod
    def end_slopes(self, low: float, high: float) -> tuple[Slopes, Slopes]:
        """The derivative of each generator at low, and at high."""

    @abstractmethod
    def natural(self, low: float, high: float) -> Floats:
        """The matrix that turns (intercept, coefficients) into the paper's `parameters`."""

    @abstractmethod
    def curve(self, intercept: float, coefficients: tuple[float, ...]) -> Curve:
        """The log odds within the range, for the C loops."""

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        kinds = {each.kind: each for each in _BASES if issubclass(each, cls)}
        return super(Basis, kind_of(fields, kinds, cls.tag)).from_fields(fields)


@dataclass(frozen=True, slots=True)
class Linear(Basis):
    """Equal-variance Gaussian scores: `b s + c` (Eq. 6)."""

    kind: ClassVar[str] = "linear"
    parameters: ClassVar[tuple[str, ...]] = ("b", "c")

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        return ((score - low) / (high - low),)

    def end_slopes(self, low: float, high: float) -> tuple[Slopes, Slopes]:
        return (1 / (high - low),), (1 / (high - low),)

    def natural(self, low: float, high: float) -> Floats:
        width = high - low
        return np.array([[0, 1 / width], [1, -low / width]])

    def curve(self, intercept: float, coefficients: tuple[float, ...]) -> Curve:
        return Curve(Kind.QUADRATIC, (0.0, *coefficients, intercept))


@dataclass(frozen=True, slots=True)
class Quadratic(Basis):
    """Gaussian scores in each class: `a s^2 + b s + c` (Eq. 9)."""

    kind: ClassVar[str] = "quadratic"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        # The slope of an increasing parabola is a straight line that is not negative on the range:
        # a weighted sum of 1 - u and u, where u = (s - low) / (high - low). These are the integrals
        # of 1 - u and of u, up to the width of the range.
        from_low = (score - low) / (high - low)
        from_high = (high - score) / (high - low)
        return (1 - from_high * from_high) / 2, from_low * from_low / 2

    def end_slopes(self, low: float, high: float) -> tuple[Slopes, Slopes]:
        return (1 / (high - low), 0.0), (0.0, 1 / (high - low))

    def natural(self, low: float, high: float) -> Floats:
        width = high - low
        square = np.array([0, -0.5, 0.5]) / width**2
        linear = np.array([0, 1, 0]) / width - 2 * low * square
        constant = np.array([1, 0, 0]) - low * linear - low**2 * square
        return np.array([square, linear, constant])

    def curve(self, intercept: float, coefficients: tuple[float, ...]) -> Curve:
        concave, convex = coefficients
        return Curve(Kind.QUADRATIC, ((convex - concave) / 2, concave, intercept))


@dataclass(frozen=True, slots=True)
class _Shifted(Basis):
    """Bases with log s, where s starts `margin` times the width of the range below its low end."""

    margin: float

    def __post_init__(self) -> None:
        if self.margin <= 0:
            raise DataError("margin", "be above 0", self.margin)

    def _logarithmic(self, intercept: float, coefficients: tuple[float, ...]) -> Curve:
        """The generators of `LogQuadratic`, of which `Log` has the first two, by their terms."""
        concave, convex, curvature = coefficients
        start = self.margin
        end = 1 + self.margin
        logarithm = start * end * (concave - convex - curvature)
        linear = end * convex - start * concave + end * curvature
        square = -curvature / 2
        return Curve(Kind.LOGARITHMIC, (logarithm, 1 / start, square, linear, intercept))


@dataclass(frozen=True, slots=True)
class Log(_Shifted):
    """Gamma scores in each class: `a log s + b s + c` (Eq. 12)."""

    kind: ClassVar[str] = "log"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        # With x = u + margin, the slope a / x + b is not negative on [start, end] if it is not
        # negative at both ends: each generator has a slope of 0 at one end and 1 at the other.
        position = (score - low) / (high - low)
        start = self.margin
        end = 1 + self.margin
        logarithm = target.log(position / start + 1)
        return start * (end * logarithm - position), end * (position - start * logarithm)

    def end_slopes(self, low: float, high: float) -> tuple[Slopes, Slopes]:
        return (1 / (high - low), 0.0), (0.0, 1 / (high - low))

    def natural(self, low: float, high: float) -> Floats:
        start = self.margin
        end = 1 + self.margin
        width = high - low
        logarithm = start * end * np.array([0, 1, -1])
        linear = np.array([0, -start, end]) / width
        constant = np.array([1, 0, 0]) - np.log(start * width) * logarithm - start * width * linear
        return np.array([logarithm, linear, constant])

    def curve(self, intercept: float, coefficients: tuple[float, ...]) -> Curve:
        return self._logarithmic(intercept, (*coefficients, 0.0))


@dataclass(frozen=True, slots=True)
class LogQuadratic(_Shifted):
    """Gamma negatives, Gaussian positives: `a s^2 + b s + b' log s + c` (Eq. 22) with a <= 0."""

    kind: ClassVar[str] = "log-quadratic"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "b'", "c")

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        # The slope times x is a concave quadratic, so it is not negative on the range if it is not
        # negative at both ends. The third generator has a slope of 0 at both ends.
        position = (score - low) / (high - low)
        start = self.margin
        end = 1 + self.margin
        logarithm = target.log(position / start + 1)
        linear = (start + end) * position
        square = (position + 2 * start) * position / 2
        curvature = linear - square - start * end * logarithm
        concave = start * (end * logarithm - position)
        convex = end * (position - start * logarithm)
        return concave, convex, curvature

    def end_slopes(self, low: float, high: float) -> tuple[Slopes, Slopes]:
        return (1 / (high - low), 0.0, 0.0), (0.0, 1 / (high - low), 0.0)

    def natural(self, low: float, high: float) -> Floats:
        start = self.margin
        end = 1 + self.margin
        width = high - low
        origin = start * width
        square = np.array([0, 0, 0, -0.5]) / width**2
        linear = np.array([0, -start, end, start + end]) / width
        logarithm = start * end * np.array([0, 1, -1, -1])
        constant = (
            np.array([1.0, 0, 0, 0])
            - np.log(origin) * logarithm
            - origin * linear
            - origin**2 * square
        )
        return np.array([square, linear, logarithm, constant])

    def curve(self, intercept: float, coefficients: tuple[float, ...]) -> Curve:
        return self._logarithmic(intercept, coefficients)


@dataclass(frozen=True, slots=True)
class Softplus(Basis):
    """Beta scores after a sigmoid: `a log p - b log(1 - p) + c` with p = sigmoid(s).

    Written in the score itself, which does not saturate where p rounds to 0 or 1.
    """

    kind: ClassVar[str] = "softplus"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    scale_free: ClassVar[bool] = False

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        # log p = -softplus(-s) and -log(1 - p) = softplus(s). Not every target has a unary minus.
        return target.softplus(score * -1.0) * -1.0, target.softplus(score)

    def end_slopes(self, low: float, high: float) -> tuple[Slopes, Slopes]:
        at_low = (float(expit(-low)), float(expit(low)))
        at_high = (float(expit(-high)), float(expit(high)))
        return at_low, at_high

    def natural(self, low: float, high: float) -> Floats:
        return np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=np.float64)

    def curve(self, intercept: float, coefficients: tuple[float, ...]) -> Curve:
        return Curve(Kind.SOFTPLUS, (*coefficients, intercept))


_BASES: tuple[type[Basis], ...] = (Linear, Quadratic, Softplus, Log, LogQuadratic)
