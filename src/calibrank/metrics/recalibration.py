"""Calibration slope and intercept: logistic regression of the labels on the log odds (Cox, 1958).

`logit P(Y = 1) = intercept + slope * logit(p)`; calibrated probabilities have slope 1 and
intercept 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, Mask, Numbers, probability_column
from calibrank.evidence import Labels, nonzero_evidence
from calibrank.metrics.metric import Better
from calibrank.metrics.pooled import Pooled, PooledBins

# Probabilities of 0 and 1 have infinite log odds.
_CLIP = 1e-15

# A ridge towards slope 1 and intercept 0, relative to the variance of the labels. It decides
# where the labels do not (a single class or probability) and moves other results by about 1e-6.
_RIDGE = 1e-6
_LEAST_VARIANCE = 0.01

# Where the labels are separated the optimum is at infinity; any value beyond this means the same.
_LARGEST = 100.0

_MOST_STEPS = 50
_TOLERANCE = 1e-13
_CLOSE = 1e-3


class Recalibration(NamedTuple):
    """The best linear correction of log odds: `intercept + slope * logit(p)`."""

    slope: float
    intercept: float


IDENTITY = Recalibration(1.0, 0.0)
"""No correction: that of calibrated probabilities."""


def recalibration(probabilities: Numbers, labels: Labels) -> Recalibration:
    """Fit calibration slope and intercept, of rows or of pooled evidence.

    Slopes below 1 mean probabilities that are too extreme, above 1 too close to the base rate.
    Both numbers are limited to +-100, where the labels are perfectly separated for example.

    >>> slope, intercept = recalibration([0.1, 0.1, 0.1, 0.9, 0.9, 0.9], [0, 0, 1, 0, 1, 1])
    >>> round(slope, 3), abs(round(intercept, 3))
    (0.315, 0.0)
    """
    probabilities = probability_column(probabilities)
    evidence = nonzero_evidence(labels, len(probabilities))
    losses = _Losses.of(PooledBins.distinct(probabilities, evidence))
    slopes, intercepts = _newton(losses, IDENTITY)
    return Recalibration(float(slopes[0]), float(intercepts[0]))


@dataclass(frozen=True, slots=True)
class CalibrationSlope(Pooled):
    """Slope of a logistic regression of the labels on the log odds of the probabilities.

    Below 1 the probabilities are too extreme, above 1 too close to each other.

    >>> round(CalibrationSlope()([0.5, 0.5, 0.75, 0.75, 0.75, 0.75], [0, 1, 0, 1, 1, 1]), 6)
    1.0
    """

    better: ClassVar[Better] = Better.NEAR_ONE
    minimum: ClassVar[float] = float("-inf")

    def evaluate_all(self, bins: PooledBins) -> Floats:
        return _fit_resamples(bins)[0]


@dataclass(frozen=True, slots=True)
class CalibrationIntercept(Pooled):
    """Intercept of a logistic regression of the labels on the log odds of the probabilities.

    With a slope of 1, above 0 the probabilities are too low and below 0 too high.

    >>> round(CalibrationIntercept()([0.25, 0.25, 0.75, 0.75], [0, 1, 1, 1]), 3) > 0
    True
    """

    better: ClassVar[Better] = Better.NEAR_ZERO
    minimum: ClassVar[float] = float("-inf")

    def evaluate_all(self, bins: PooledBins) -> Floats:
        return _fit_resamples(bins)[1]


class _Losses(NamedTuple):
    """Mean log loss of `slope * x + intercept` with the ridge, for each resample."""

    log_odds: Floats
    positive: Floats
    total: Floats
    ridge: Floats

    @classmethod
    def of(cls, bins: PooledBins) -> _Losses:
        log_odds = logit(np.clip(bins.probabilities, _CLIP, 1 - _CLIP))
        mass = bins.mass
        rate = np.clip(bins.positive.sum(axis=1) / mass[:, 0], 0, 1)
        ridge = _RIDGE * np.maximum(rate * (1 - rate), _LEAST_VARIANCE)
        return cls(log_odds, bins.positive / mass, bins.total / mass, ridge)

    def values(self, slope: Floats, intercept: Floats) -> Floats:
        z = slope[:, None] * self.log_odds + intercept[:, None]
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        losses = (self.total * softplus - self.positive * z).sum(axis=1)
        return np.asarray(losses + self.ridge / 2 * ((slope - 1) ** 2 + intercept**2))

    def derivatives(self, slope: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Gradients, resamples x 2, and the entries (0, 0), (0, 1) and (1, 1) of the Hessians."""
        p = expit(slope[:, None] * self.log_odds + intercept[:, None])
        residuals = self.total * p - self.positive
        weights = self.total * p * (1 - p)
        weighted = weights * self.log_odds
        by_slope = (residuals * self.log_odds).sum(axis=1) + self.ridge * (slope - 1)
        by_intercept = residuals.sum(axis=1) + self.ridge * intercept
        entries = [
            (weighted * self.log_odds).sum(axis=1) + self.ridge,
            weighted.sum(axis=1),
            weights.sum(axis=1) + self.ridge,
        ]
        return np.column_stack([by_slope, by_intercept]), np.array(entries)


# Slope and intercept are asked for one after the other, of the same bins.
@lru_cache(maxsize=1)
def _fit_resamples(bins: PooledBins) -> tuple[Floats, Floats]:
    """The slope and intercept of each resample, starting from those of all together."""
    together = (bins.probabilities[:1], bins.positive, bins.total)
    summed = PooledBins(*[part.mean(axis=0, keepdims=True) for part in together])
    slopes, intercepts = _newton(_Losses.of(summed), IDENTITY)
    start = Recalibration(float(slopes[0]), float(intercepts[0]))
    return _newton(_Losses.of(bins), start)


def _newton(losses: _Losses, start: Recalibration) -> tuple[Floats, Floats]:
    """Minimize the loss of each resample by Newton's method with step halving."""
    slope = np.full(len(losses.total), start.slope)
    intercept = np.full(len(losses.total), start.intercept)
    for _ in range(_MOST_STEPS):
        gradient, (first, mixed, second) = losses.derivatives(slope, intercept)
        moving = np.abs(gradient).max(axis=1) > _TOLERANCE
        if not moving.any():
            break
        determinant = first * second - mixed**2
        steps = np.column_stack(
            [
                second * gradient[:, 0] - mixed * gradient[:, 1],
                first * gradient[:, 1] - mixed * gradient[:, 0],
            ]
        )
        steps *= (moving / determinant)[:, None]
        # So close to the optimum full steps converge, and rounding hides their gain.
        is_close = (gradient * steps).sum(axis=1) <= _CLOSE * losses.ridge
        steps = _shorten(losses, slope, intercept, steps, moving & ~is_close)
        slope, intercept = slope - steps[:, 0], intercept - steps[:, 1]
    return np.clip(slope, -_LARGEST, _LARGEST), np.clip(intercept, -_LARGEST, _LARGEST)


def _shorten(
    losses: _Losses, slope: Floats, intercept: Floats, steps: Floats, checked: Mask
) -> Floats:
    """Halve the checked steps until no loss rises."""
    if not checked.any():
        return steps
    before = losses.values(slope, intercept)
    while True:
        after = losses.values(slope - steps[:, 0], intercept - steps[:, 1])
        rising = checked & (after > before)
        if not rising.any():
            return steps
        steps = np.where(rising[:, None], steps / 2, steps)
