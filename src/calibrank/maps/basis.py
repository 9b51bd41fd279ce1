"""Bases: the functions of the score whose weighted sum is a logistic map's log odds.

A family of the paper is usually written with parameters `a, b, c` and a constraint that keeps it
increasing. Here each family is written with the *generators* of that constraint's cone: functions
that increase over the fitted range, so that "increasing" means "no negative coefficient". The
formulas use only the operations of `Target`, so the same lines run on numpy arrays, tensors,
dataframe expressions or SQL text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from calibrank._internal.json import Fields, Saved, kind_of
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.maps._program import Kind
from calibrank.maps.checks import require
from calibrank.maps.targets.target import Target

Slopes: TypeAlias = tuple[float, ...]
"""One derivative per generator."""

Terms: TypeAlias = tuple[Any, ...]
"""One expression per generator."""


class Form(NamedTuple):
    """A sum of generators at the position u in the range, from 0 to 1.

    It is `logarithm * log(u / margin + 1) + square * u^2 + linear * u + constant`.
    """

    logarithm: float
    square: float
    linear: float
    constant: float


@dataclass(frozen=True, slots=True)
class Basis(Saved, ABC):
    """Increasing functions of a score within [low, high], and their slopes at both ends."""

    tag: ClassVar[str] = "name"
    parameters: ClassVar[tuple[str, ...]]
    places: ClassVar[tuple[int, ...]] = ()
    """Which fields of the form, in units of the score, are the paper's parameters."""
    scale_free: ClassVar[bool] = True
    """Whether the generators depend on the position of the score in the range alone."""

    @abstractmethod
    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        """The value of each generator; `score` lies within [low, high]."""

    @abstractmethod
    def form(self, intercept: float, *coefficients: float) -> Form:
        """The sum of the generators."""

    def end_slopes(self, low: float, high: float) -> tuple[Slopes, Slopes]:
        """The derivative of each generator at low, and at high."""
        # The first one rises at low alone, the second at high alone, and a third at neither.
        slope, flat = 1 / (high - low), [0.0] * (len(self.parameters) - 3)
        return (slope, 0.0, *flat), (0.0, slope, *flat)

    def constants(self, intercept: float, coefficients: Sequence[float]) -> tuple[float, ...]:
        """The kind of C loop and its numbers, for the sum of the generators."""
        return Kind.QUADRATIC, *self.form(intercept, *coefficients)[1:]

    def natural(self, low: float, high: float) -> Floats:
        """The matrix that turns (intercept, coefficients) into the paper's `parameters`."""
        width, origin = high - low, self._origin(low, high)
        units = [self.form(*unit) for unit in np.eye(len(self.parameters)).tolist()]
        logarithm, square, linear, constant = np.array(units).T
        # Of the score, or of its distance from where the logarithm starts: u is (s - origin) / w.
        square = square / width**2
        linear = linear / width - 2 * origin * square
        constant = constant - origin * linear - origin**2 * square
        if logarithm.any():
            constant = constant - np.log(origin) * logarithm
        return np.array([logarithm, square, linear, constant])[list(self.places)]

    def _origin(self, low: float, high: float) -> float:
        return low

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        kinds = {each.kind: each for each in _BASES if issubclass(each, cls)}
        return super(Basis, kind_of(fields, kinds, cls.tag)).from_fields(fields)


@dataclass(frozen=True, slots=True)
class Linear(Basis):
    """Equal-variance Gaussian scores: `b s + c` (Eq. 6)."""

    kind: ClassVar[str] = "linear"
    parameters: ClassVar[tuple[str, ...]] = ("b", "c")
    places: ClassVar[tuple[int, ...]] = (2, 3)

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        return ((score - low) / (high - low),)

    def end_slopes(self, low: float, high: float) -> tuple[Slopes, Slopes]:
        return (1 / (high - low),), (1 / (high - low),)

    def form(self, intercept: float, *coefficients: float) -> Form:
        return Form(0.0, 0.0, coefficients[0], intercept)


@dataclass(frozen=True, slots=True)
class Quadratic(Basis):
    """Gaussian scores in each class: `a s^2 + b s + c` (Eq. 9)."""

    kind: ClassVar[str] = "quadratic"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    places: ClassVar[tuple[int, ...]] = (1, 2, 3)

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        # The slope of an increasing parabola is a straight line that is not negative on the range:
        # a weighted sum of 1 - u and u, where u = (s - low) / (high - low). These are the integrals
        # of 1 - u and of u, up to the width of the range.
        from_low = (score - low) / (high - low)
        from_high = (high - score) / (high - low)
        return (1 - from_high * from_high) / 2, from_low * from_low / 2

    def form(self, intercept: float, *coefficients: float) -> Form:
        concave, convex = coefficients
        return Form(0.0, (convex - concave) / 2, concave, intercept)


@dataclass(frozen=True, slots=True)
class LogQuadratic(Basis):
    """Gamma negatives, Gaussian positives: `a s^2 + b s + b' log s + c` (Eq. 22) with a <= 0.

    Here s starts `margin` times the width of the range below its low end.
    """

    kind: ClassVar[str] = "log-quadratic"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "b'", "c")
    places: ClassVar[tuple[int, ...]] = (1, 2, 0, 3)

    margin: float

    def __post_init__(self) -> None:
        require(self.margin > 0, "margin", "be above 0", self.margin)

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        # With x = u + margin, the slope times x is a concave quadratic, so it is not negative on
        # [start, end] if it is not negative at both ends. The slope of the first generator is 0 at
        # the high end, that of the second at the low end, and that of the third at both.
        position = (score - low) / (high - low)
        start, end = self.margin, 1 + self.margin
        logarithm = target.log(position / start + 1)
        concave = start * (end * logarithm - position)
        convex = end * (position - start * logarithm)
        linear = (start + end) * position
        square = (position + 2 * start) * position / 2
        return concave, convex, linear - square - start * end * logarithm

    def form(self, intercept: float, *coefficients: float) -> Form:
        concave, convex, curvature = coefficients
        start, end = self.margin, 1 + self.margin
        logarithm = start * end * (concave - convex - curvature)
        linear = end * convex - start * concave + end * curvature
        return Form(logarithm, -curvature / 2, linear, intercept)

    def constants(self, intercept: float, coefficients: Sequence[float]) -> tuple[float, ...]:
        logarithm, *rest = self.form(intercept, *coefficients)
        return Kind.LOGARITHMIC, logarithm, 1 / self.margin, *rest

    def _origin(self, low: float, high: float) -> float:
        return self.margin * (high - low)


@dataclass(frozen=True, slots=True)
class Log(LogQuadratic):
    """Gamma scores in each class: `a log s + b s + c` (Eq. 12): no third generator."""

    kind: ClassVar[str] = "log"
    parameters: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    places: ClassVar[tuple[int, ...]] = (0, 2, 3)

    def generators(self, score: Any, low: float, high: float, target: Target) -> Terms:
        return super(Log, self).generators(score, low, high, target)[:2]

    def form(self, intercept: float, *coefficients: float) -> Form:
        return super(Log, self).form(intercept, *coefficients, 0.0)


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

    def form(self, intercept: float, *coefficients: float) -> Form:
        raise NotImplementedError("a sum of softplus functions has another form")

    def constants(self, intercept: float, coefficients: Sequence[float]) -> tuple[float, ...]:
        return Kind.SOFTPLUS, *coefficients, intercept

    def natural(self, low: float, high: float) -> Floats:
        return np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=np.float64)


_BASES: tuple[type[Basis], ...] = (Linear, Quadratic, Softplus, Log, LogQuadratic)
