"""Empirical Bayes changes of log odds per segment: an intercept and a slope, shrunk towards 0.

The log odds of segment g are offset + a + c * x, with a ~ N(0, tau^2) and c ~ N(0, kappa^2). For
each pair (tau, kappa) of a grid, Newton's method finds the mode of every segment and Laplace's
approximation the marginal likelihood. The result is the average over the grid, weighted by the
marginal likelihood: how much segments differ is estimated, and with few segments it stays
uncertain rather than being fixed at its most likely value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrank._logit import expit
from calibrank._validation import Floats, Indices

INTERCEPT_SDS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.5)
"""Standard deviations of the intercept between segments that are tried."""
SLOPE_SDS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Standard deviations of the slope, relative to the global slope, that are tried."""

# The grid is weighted by at most this many segments, evenly chosen: more change nothing.
_MOST_SEGMENTS = 2048
# Points of the grid with less than this weight are left out.
_SMALLEST_WEIGHT = 0.01
_MAX_STEPS = 50
_TOLERANCE = 1e-8


class Changes(NamedTuple):
    """Posterior means of each segment's intercept and slope, and its standard error."""

    intercepts: Floats
    slopes: Floats
    errors: Floats
    """Of the log odds at x = 0."""
    intercept_sd: float
    """Estimated standard deviation of the intercepts between segments."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentProblem:
    """Masses by segment and bin, with the log odds before the change (`offset`)."""

    positive: Floats
    total: Floats
    offset: Floats
    x: Floats
    dispersion: Floats
    """By segment: the variance of the evidence relative to that of labels without weights."""

    def take(self, chosen: Indices) -> SegmentProblem:
        """The problem of some of the segments."""
        return SegmentProblem(
            self.positive[chosen],
            self.total[chosen],
            self.offset[chosen],
            self.x[chosen],
            self.dispersion[chosen],
        )

    def loss(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Log loss of each segment, divided by its dispersion (quasi-likelihood)."""
        z = self._log_odds(intercepts, slopes)
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        losses: Floats = (self.total * softplus - self.positive * z).sum(axis=1) / self.dispersion
        return losses

    def derivatives(self, intercepts: Floats, slopes: Floats) -> tuple[Floats, ...]:
        """Gradient (2 arrays) and Hessian (3 arrays) of each segment's loss."""
        p = expit(self._log_odds(intercepts, slopes))
        residuals = self.total * p - self.positive
        weights = self.total * p * (1 - p)
        terms = (residuals, residuals * self.x, weights, weights * self.x, weights * self.x**2)
        return tuple(term.sum(axis=1) / self.dispersion for term in terms)

    def _log_odds(self, intercepts: Floats, slopes: Floats) -> Floats:
        return self.offset + intercepts[:, None] + slopes[:, None] * self.x


class _Mode(NamedTuple):
    intercepts: Floats
    slopes: Floats
    variances: Floats
    """Posterior variance of the intercept."""
    log_marginal: Floats
    """Log marginal likelihood of each segment, relative to no change."""


def shrunk_changes(problem: SegmentProblem, *, with_slopes: bool) -> Changes:
    """Posterior mean changes, averaged over the grid of standard deviations."""
    count = len(problem.dispersion)
    step = max(1, -(-count // _MOST_SEGMENTS))
    sample = problem.take(np.arange(0, count, step))
    slope_sds = SLOPE_SDS if with_slopes else (0.0,)
    grid = [(tau, kappa) for tau in INTERCEPT_SDS for kappa in slope_sds]
    scores = []
    for tau, kappa in grid:
        scores.append(step * float(_mode(sample, tau, kappa).log_marginal.sum()))
    weights = np.exp(np.array(scores) - max(scores))
    weights = np.where(weights >= _SMALLEST_WEIGHT * weights.sum(), weights, 0.0)
    weights = weights / weights.sum()
    return _averaged(problem, grid, weights)


def _averaged(problem: SegmentProblem, grid: list[tuple[float, float]], weights: Floats) -> Changes:
    count = len(problem.dispersion)
    intercepts = np.zeros(count)
    slopes = np.zeros(count)
    squares = np.zeros(count)
    variance = 0.0
    for (tau, kappa), weight in zip(grid, weights.tolist(), strict=True):
        if not weight:
            continue
        mode = _mode(problem, tau, kappa)
        intercepts += weight * mode.intercepts
        slopes += weight * mode.slopes
        squares += weight * (mode.intercepts**2 + mode.variances)
        variance += weight * tau**2
    # The variance of a mixture: the mean of the squares, minus the square of the mean.
    errors = np.sqrt(np.maximum(squares - intercepts**2, 0))
    return Changes(intercepts, slopes, errors, float(np.sqrt(variance)))


def _mode(problem: SegmentProblem, tau: float, kappa: float) -> _Mode:
    """The posterior mode of every segment by Newton's method with step halving."""
    count = len(problem.dispersion)
    # A standard deviation of 0 keeps its coefficient at 0.
    intercept_precision = 1 / tau**2 if tau else np.inf
    slope_precision = 1 / kappa**2 if kappa else np.inf
    at: Floats = np.zeros((2, count))

    def penalized(point: Floats) -> Floats:
        loss = problem.loss(point[0], point[1])
        for coefficient, sd in zip(point, (tau, kappa), strict=True):
            if sd:
                loss = loss + coefficient**2 / (2 * sd**2)
        return loss

    start = penalized(at)
    value = start
    for _ in range(_MAX_STEPS):
        steps = _newton_steps(problem, at, intercept_precision, slope_precision)
        at, value, moved = _line_search(penalized, at, value, steps)
        if moved < _TOLERANCE:
            break
    _, _, h_aa, h_ac, h_cc = problem.derivatives(at[0], at[1])
    # Relative to the prior precision, so that both limits of 0 are exact.
    aa = 1 + h_aa * tau**2
    cc = 1 + h_cc * kappa**2
    determinant = aa * cc - (h_ac * tau * kappa) ** 2
    variances = tau**2 * cc / determinant
    return _Mode(at[0], at[1], variances, start - value - np.log(determinant) / 2)


def _newton_steps(
    problem: SegmentProblem, at: Floats, intercept_precision: float, slope_precision: float
) -> Floats:
    g_a, g_c, h_aa, h_ac, h_cc = problem.derivatives(at[0], at[1])
    if np.isinf(intercept_precision) and np.isinf(slope_precision):
        return np.zeros_like(at)
    if np.isinf(slope_precision):
        gradient = g_a + at[0] * intercept_precision
        return np.array([gradient / (h_aa + intercept_precision), np.zeros(len(g_a))])
    if np.isinf(intercept_precision):
        gradient = g_c + at[1] * slope_precision
        return np.array([np.zeros(len(g_c)), gradient / (h_cc + slope_precision)])
    g_a = g_a + at[0] * intercept_precision
    g_c = g_c + at[1] * slope_precision
    h_aa = h_aa + intercept_precision
    h_cc = h_cc + slope_precision
    determinant = h_aa * h_cc - h_ac**2
    return np.array([h_cc * g_a - h_ac * g_c, h_aa * g_c - h_ac * g_a]) / determinant


def _line_search(
    penalized: Callable[[Floats], Floats], at: Floats, value: Floats, steps: Floats
) -> tuple[Floats, Floats, float]:
    """Subtract each segment's step, halved until its loss does not increase."""
    fractions = np.ones(at.shape[1])
    for _ in range(_MAX_STEPS):
        following = at - fractions * steps
        after = penalized(following)
        worse = after > value + 1e-12 * (1 + np.abs(value))
        if not worse.any():
            break
        fractions[worse] /= 2
    moved = float(np.abs(fractions * steps).max(initial=0.0))
    return following, after, moved
