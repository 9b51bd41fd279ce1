"""Logistic curves: Platt, Temperature, Beta, Gaussian, Gamma and GammaGaussian once fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np

from calibrank._internal.json import Fields
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps._blocks import Ends
from calibrank.maps._program import pack
from calibrank.maps.basis import Basis
from calibrank.maps.curve import LogOddsCurve
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target, large_term_problem, narrow_range_problem

# Beyond this the position of a valid score in the range, up to 1e30 times this, may overflow.
_LARGEST_SCALE = 1e250


@dataclass(frozen=True, slots=True)
class Deviation:
    """What the labels of the fit say of the true log odds minus those of the family."""

    scores: tuple[float, ...]
    means: tuple[float, ...]
    """Expected difference at each score; linear between them, and constant beyond."""
    errors: tuple[float, ...]
    """Its standard deviation."""

    def __post_init__(self) -> None:
        if not len(self.scores) == len(self.means) == len(self.errors) > 0:
            raise DataError("a deviation", "have one mean and one error per score")
        if min(self.errors) < 0 or list(self.scores) != sorted(self.scores):
            raise DataError("a deviation", "have increasing scores, and no negative error")

    def moved(self, slope: float) -> Deviation:
        """The deviation of log odds that are multiplied."""
        means = tuple(slope * each for each in self.means)
        return Deviation(self.scores, means, tuple(slope * each for each in self.errors))


@dataclass(frozen=True, slots=True, repr=False)
class LogisticCurve(LogOddsCurve):
    """Log odds `intercept + sum of coefficient * generator` on [low, high], straight lines beyond.

    No coefficient is negative and the slopes at both ends are positive, so the curve is strictly
    increasing everywhere. `covariance` is that of (intercept, *coefficients).
    """

    kind: ClassVar[str] = "logistic"
    newer: ClassVar[tuple[str, ...]] = ("deviation",)

    basis: Basis
    low: float
    high: float
    intercept: float
    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    deviation: Deviation | None = None
    """None where nothing was fitted, or in maps that older versions saved."""

    def __post_init__(self) -> None:
        size = len(self.basis.parameters)
        if not self.low < self.high:
            raise DataError("low", "be below high", f"{self.low} and {self.high}")
        if len(self.coefficients) != size - 1 or min(self.coefficients) < 0:
            raise DataError(
                "coefficients", f"be {size - 1} numbers, none negative", self.coefficients
            )
        if min(self.end_slopes) <= 0:
            raise DataError("the curve", "rise at both ends", f"slopes {self.end_slopes}")
        if len(self.covariance) != size or any(len(row) != size for row in self.covariance):
            raise DataError("covariance", f"be {size} x {size}", self.covariance)

    @property
    def end_slopes(self) -> tuple[float, float]:
        """Slopes of the log odds at low and at high, which continue beyond the range."""
        return self._end_slopes(self.low, self.high)

    @property
    def parameters(self) -> dict[str, float]:
        """The paper's parameters in score units, e.g. a, b, c of `a s^2 + b s + c`."""
        natural = self.basis.natural(self.low, self.high)
        values = natural @ np.array([self.intercept, *self.coefficients])
        return dict(zip(self.basis.parameters, values.tolist(), strict=True))

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors of `parameters`, from the sandwich covariance."""
        natural = self.basis.natural(self.low, self.high)
        variances = np.diag(natural @ np.array(self.covariance) @ natural.T)
        errors = np.sqrt(np.maximum(variances, 0))
        return dict(zip(self.basis.parameters, errors.tolist(), strict=True))

    @property
    def description(self) -> str:
        return (
            f"Log odds {self.basis.kind} in the score on {self.low:.4g} to {self.high:.4g}, "
            "straight lines beyond."
        )

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.low, self.high

    @property
    def largest_term(self) -> float:
        """The largest of the intercept and of the terms at both ends of the range."""
        ends = np.array([self.low, self.high])
        generators = self.basis.generators(ends, self.low, self.high, NumpyTarget())
        largest = abs(self.intercept)
        for coefficient, generator in zip(self.coefficients, generators, strict=True):
            largest = max(largest, float(np.abs(coefficient * generator).max()))
        return largest

    def float32_problem(self) -> str | None:
        narrow = narrow_range_problem(self.low, self.high)
        return narrow or large_term_problem(self.largest_term)

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds as an expression of the target."""

        def formula(score: Any, low: float, high: float) -> Any:
            inside = target.maximum(target.minimum(score, high), low)
            below, above = self._end_slopes(low, high)
            return (
                self._inside(target, inside, low, high)
                + below * target.minimum(score - low, 0)
                + above * target.maximum(score - high, 0)
            )

        scale_free = self.basis.scale_free
        return target.over_range(score, self.low, self.high, formula, scale_free=scale_free)

    def _inside(self, target: Target, score: Any, low: float, high: float) -> Any:
        """The log odds of a score within [low, high]."""
        generators = self.basis.generators(score, low, high, target)
        result: Any = self.intercept
        for coefficient, generator in zip(self.coefficients, generators, strict=True):
            result = generator * coefficient + result
        return result

    def _end_slopes(self, low: float, high: float) -> tuple[float, float]:
        at_low, at_high = self.basis.end_slopes(low, high)
        return self._weighted_sum(at_low), self._weighted_sum(at_high)

    def _weighted_sum(self, terms: tuple[float, ...]) -> float:
        return sum(
            coefficient * term for coefficient, term in zip(self.coefficients, terms, strict=True)
        )

    def _compile(self) -> bytes:
        width = self.high - self.low
        if width < 1 / _LARGEST_SCALE:
            return b""
        below, above = self.end_slopes
        curve = self.basis.curve(self.intercept, self.coefficients)
        if not self.basis.scale_free:
            return pack(curve.kind, 0.0, 1.0, self.low, self.high, below, above, *curve.terms)
        # In the position within the range, from 0 to 1.
        place = (self.low, 1 / width, 0.0, 1.0)
        return pack(curve.kind, *place, below * width, above * width, *curve.terms)

    def margins(self, scores: Floats, level: float) -> Ends:
        """Wald intervals of the log odds, by the delta method, widened by the deviation.

        They hold the curve of the family, and the truth where that is of another one.
        """
        columns = self.gradient(scores)
        variance = np.einsum("in,ij,jn->n", columns, np.array(self.covariance), columns)
        quantile = -NormalDist().inv_cdf((1 - level) / 2)
        margin = quantile * np.sqrt(np.maximum(variance, 0))
        if self.deviation is None:
            return margin, margin
        mean = np.interp(scores, self.deviation.scores, self.deviation.means)
        error = np.interp(scores, self.deviation.scores, self.deviation.errors)
        wide = np.hypot(margin, quantile * error)
        return np.maximum(margin, wide - mean), np.maximum(margin, wide + mean)

    def moved(self, shift: float, slope: float = 1.0) -> Self:
        """The curve with its coefficients and their covariance multiplied by the slope."""
        covariance = (slope**2 * np.array(self.covariance)).tolist()
        return replace(
            self,
            intercept=slope * self.intercept + shift,
            coefficients=tuple(slope * each for each in self.coefficients),
            covariance=tuple(tuple(row) for row in covariance),
            deviation=self.deviation and self.deviation.moved(slope),
        )

    def gradient(self, scores: Floats) -> Floats:
        """Derivatives of the log odds by (intercept, *coefficients), one column per score."""
        inside = np.clip(scores, self.low, self.high)
        below = np.minimum(scores - self.low, 0)
        above = np.maximum(scores - self.high, 0)
        generators = self.basis.generators(inside, self.low, self.high, NumpyTarget())
        slopes = zip(*self.basis.end_slopes(self.low, self.high), strict=True)
        rows = [np.ones_like(scores)]
        for generator, (at_low, at_high) in zip(generators, slopes, strict=True):
            rows.append(generator + at_low * below + at_high * above)
        return np.array(rows)

    def content(self) -> dict[str, Any]:
        covariance = [value for row in self.covariance for value in row]
        return {**super(LogisticCurve, self).content(), "covariance": covariance}

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        # Saved row after row.
        numbers = fields.numbers("covariance")
        size = max(math.isqrt(len(numbers)), 1)
        rows = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        nested = replace(fields, values={**fields.values, "covariance": rows})
        return super(LogisticCurve, cls).from_fields(nested)
