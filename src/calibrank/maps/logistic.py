"""Logistic curves: Platt, Temperature, Beta, Gaussian, Gamma and GammaGaussian once fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np

from calibrank._internal.json import Fields
from calibrank._internal.validation import Floats
from calibrank.maps._program import pack
from calibrank.maps.basis import Basis
from calibrank.maps.checks import require, require_range, scaled
from calibrank.maps.curve import Curve, Ends
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Inner, Target

# Beyond this the position of a valid score in the range, up to 1e30 times this, may overflow.
_LARGEST_SCALE = 1e250
_ROUNDING = 1e-14


@dataclass(frozen=True, slots=True)
class Deviation:
    """What the labels of the fit say of the true log odds minus those of the family."""

    scores: tuple[float, ...]
    means: tuple[float, ...]
    """Expected difference at each score; linear between them, and constant beyond."""
    errors: tuple[float, ...]
    """Its standard deviation."""

    def __post_init__(self) -> None:
        is_full = len(self.scores) == len(self.means) == len(self.errors) > 0
        require(is_full, "a deviation", "have one mean and one error per score")
        is_sorted = min(self.errors) >= 0 and list(self.scores) == sorted(self.scores)
        require(is_sorted, "a deviation", "have increasing scores, and no negative error")


@dataclass(frozen=True, slots=True, repr=False)
class LogisticCurve(Curve):
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
        require_range(self.low, self.high)
        require(
            len(self.coefficients) == size - 1 and min(self.coefficients) >= 0,
            "coefficients",
            f"be {size - 1} numbers, none negative",
            self.coefficients,
        )
        slopes = self.end_slopes
        require(min(slopes) > 0, "the curve", "rise at both ends", f"slopes {slopes}")
        sizes = {len(self.covariance), *map(len, self.covariance)}
        require(sizes == {size}, "covariance", f"be {size} x {size}", self.covariance)

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
        errors = self._errors(natural.T)
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
        terms = np.array(self.coefficients)[:, None] * np.array(generators)
        return max(abs(self.intercept), float(np.abs(terms).max()))

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds as an expression of the target."""
        inner = Inner(self._inside, self._end_slopes, self.basis.scale_free)
        return target.over_range(score, self.low, self.high, inner)

    def _inside(self, target: Target, score: Any, low: float, high: float) -> Any:
        """The log odds of a score within [low, high]."""
        generators = self.basis.generators(score, low, high, target)
        result: Any = self.intercept
        for coefficient, generator in zip(self.coefficients, generators, strict=True):
            result = generator * coefficient + result
        return result

    def _end_slopes(self, low: float, high: float) -> tuple[float, float]:
        slopes = np.array(self.basis.end_slopes(low, high)) @ np.array(self.coefficients)
        return float(slopes[0]), float(slopes[1])

    def _compile(self) -> bytes:
        width = self.high - self.low
        if width < 1 / _LARGEST_SCALE:
            return b""
        below, above = self.end_slopes
        kind, *constants = self.basis.constants(self.intercept, self.coefficients)
        if not self.basis.scale_free:
            return pack(kind, 0.0, 1.0, self.low, self.high, below, above, *constants)
        # In the position within the range, from 0 to 1.
        place = (self.low, 1 / width, 0.0, 1.0)
        return pack(kind, *place, below * width, above * width, *constants)

    def margins(self, scores: Floats, level: float) -> Ends:
        """Wald intervals of the log odds, by the delta method, widened by the deviation.

        They hold the curve of the family, and the truth where that is of another one.
        """
        quantile = -NormalDist().inv_cdf((1 - level) / 2)
        margin = quantile * self._errors(self.gradient(scores))
        if self.deviation is None:
            return margin, margin
        mean = np.interp(scores, self.deviation.scores, self.deviation.means)
        error = np.interp(scores, self.deviation.scores, self.deviation.errors)
        wide = np.hypot(margin, quantile * error)
        return np.maximum(margin, wide - mean), np.maximum(margin, wide + mean)

    def _errors(self, columns: Floats) -> Floats:
        """Standard errors of sums of the coefficients: 0 where only rounding is left.

        So is that of a parameter that is fixed, such as the intercept of Temperature.
        """
        covariance = np.array(self.covariance)
        variance = np.einsum("in,ij,jn->n", columns, covariance, columns)
        largest = np.sqrt(np.maximum(np.diag(covariance), 0)) @ np.abs(columns)
        return np.sqrt(np.where(variance > _ROUNDING * largest**2, variance, 0))

    def moved(self, shift: float, slope: float = 1.0) -> Self:
        """The curve with its coefficients and their covariance multiplied by the slope."""
        deviation = self.deviation
        if deviation is not None:
            means, errors = scaled(deviation.means, slope), scaled(deviation.errors, slope)
            deviation = Deviation(deviation.scores, means, errors)
        return replace(
            self,
            intercept=slope * self.intercept + shift,
            coefficients=scaled(self.coefficients, slope),
            covariance=tuple(scaled(row, slope**2) for row in self.covariance),
            deviation=deviation,
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
