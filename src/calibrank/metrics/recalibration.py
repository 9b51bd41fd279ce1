"""Calibration slope and intercept: logistic regression of the labels on the log odds (Cox, 1958).

`logit P(Y = 1) = intercept + slope * logit(p)`; calibrated probabilities have slope 1 and
intercept 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, Ids, Numbers, add_up, probability_column
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import Better, Metric

# Probabilities of 0 and 1 have infinite log odds.
CLIP = 1e-15

# A ridge towards slope 1 and intercept 0, relative to the variance of the labels. It decides
# where the labels do not (a single class or probability) and moves other results by about 1e-6.
RIDGE = 1e-6
LEAST_VARIANCE = 0.01

# Where the labels are separated the optimum is at infinity; any value beyond this means the same.
LARGEST = 100.0

MOST_STEPS = 50
TOLERANCE = 1e-13
CLOSE = 1e-3


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
    return fit_recalibration(probabilities, evidence)


def fit_recalibration(
    probabilities: Floats, evidence: Evidence, start: Recalibration = IDENTITY
) -> Recalibration:
    """Fit slope and intercept to validated columns by Newton's method with step halving."""
    distinct, groups = np.unique(probabilities.astype(np.float64), return_inverse=True)
    loss = _Loss.of(distinct, add_up(groups, evidence.positive), add_up(groups, evidence.total))
    at = np.array(start)
    for _ in range(MOST_STEPS):
        gradient, hessian = loss.derivatives(at)
        if np.abs(gradient).max() <= TOLERANCE:
            break
        step = np.linalg.solve(hessian, gradient)
        # So close to the optimum full steps converge, and rounding hides their gain.
        is_close = gradient @ step <= CLOSE * loss.ridge
        at = at - (step if is_close else _shorten(loss, at, step))
    slope, intercept = np.clip(at, -LARGEST, LARGEST).tolist()
    return Recalibration(slope, intercept)


@dataclass(frozen=True, slots=True)
class CalibrationSlope(Metric):
    """The slope of a logistic regression of the labels on the log odds of the probabilities.

    >>> round(CalibrationSlope()([0.5, 0.5, 0.75, 0.75, 0.75, 0.75], [0, 1, 0, 1, 1, 1]), 6)
    1.0
    """

    better: ClassVar[Better] = Better.NEAR_ONE
    minimum: ClassVar[float] = float("-inf")
    explanation: ClassVar[str] = (
        "Slope of a logistic regression of the labels on the log odds of the probabilities: "
        "below 1 the probabilities are too extreme, above 1 too close to each other."
    )

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        return fit_recalibration(probabilities, evidence).slope


@dataclass(frozen=True, slots=True)
class CalibrationIntercept(Metric):
    """The intercept of the same regression: what remains to be added after the slope.

    >>> round(CalibrationIntercept()([0.25, 0.25, 0.75, 0.75], [0, 1, 1, 1]), 3) > 0
    True
    """

    better: ClassVar[Better] = Better.NEAR_ZERO
    minimum: ClassVar[float] = float("-inf")
    explanation: ClassVar[str] = (
        "Intercept of a logistic regression of the labels on the log odds of the probabilities. "
        "With a slope of 1, above 0 the probabilities are too low and below 0 too high."
    )

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        return fit_recalibration(probabilities, evidence).intercept


class _Loss(NamedTuple):
    """Mean log loss of `slope * x + intercept` with the ridge, in the order (slope, intercept)."""

    design: Floats
    positive: Floats
    total: Floats
    ridge: float

    @classmethod
    def of(cls, probabilities: Floats, positive: Floats, total: Floats) -> _Loss:
        log_odds = logit(np.clip(probabilities, CLIP, 1 - CLIP))
        design = np.column_stack([log_odds, np.ones_like(log_odds)])
        mass = total.sum()
        rate = np.clip(positive.sum() / mass, 0, 1)
        ridge = RIDGE * max(rate * (1 - rate), LEAST_VARIANCE)
        return cls(design, positive / mass, total / mass, ridge)

    def value(self, at: Floats) -> float:
        log_odds = self.design @ at
        losses = self.total * np.logaddexp(0, log_odds) - self.positive * log_odds
        return float(losses.sum() + self.ridge / 2 * np.sum((at - IDENTITY) ** 2))

    def derivatives(self, at: Floats) -> tuple[Floats, Floats]:
        p = expit(self.design @ at)
        gradient = self.design.T @ (self.total * p - self.positive)
        hessian = (self.design.T * (self.total * p * (1 - p))) @ self.design
        gradient = gradient + self.ridge * (at - IDENTITY)
        return gradient, hessian + self.ridge * np.eye(2)


def _shorten(loss: _Loss, at: Floats, step: Floats) -> Floats:
    """Halve the Newton step until the loss does not rise."""
    value = loss.value(at)
    while loss.value(at - step) > value:
        step = step / 2
    return step
