"""A logistic regression with a random intercept per group, fitted by marginal likelihood.

Log odds of a row = intercept + slope * curve(score) + level of its group, where levels are normal
with mean 0 and an unknown standard deviation. The levels are integrated out by adaptive
Gauss-Hermite quadrature: nodes are placed around the mode of each group's level, so groups of one
row and of thousands are equally accurate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, Indices
from calibrank.errors import FitError

# With adaptive nodes, 11 are accurate to many digits for a smooth, unimodal integrand.
_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(11)
# The trapezoidal rule converges exponentially for a normal density times a logistic curve, whose
# poles are pi / spread away: with steps of h / max(spread, 1) its error is about
# 2 exp(pi^2 / 2 - 2 pi^2 / h), here 2e-10. Levels reach 7 standard deviations.
_STEP = 0.7
_REACH = 7.0
# Levels that differ by a standard deviation above 10 would be certainty in every group.
_SPREADS = (1e-3, 10.0)
_LARGEST_SLOPE = 20.0
_NEWTON_STEPS = 100
# Below these, probabilities are no longer normal numbers, and log(1 + exp(x)) is 0.
_LOWEST_LOG_ODDS = -700.0


class MixedModel(NamedTuple):
    """The fitted random intercept model."""

    intercept: float
    slope: float
    spread: float
    """Standard deviation of the groups' levels."""


class _Rows(NamedTuple):
    """Rows in the order of their groups, each of which has some."""

    curve: Floats
    positive: Floats
    total: Floats
    starts: Indices
    """The first row of each group."""
    counts: Indices

    @classmethod
    def of(cls, curve: Floats, positive: Floats, total: Floats, group: Indices) -> _Rows:
        order = np.argsort(group, kind="stable")
        counts = np.bincount(group)
        # Groups without rows say nothing.
        counts = counts[counts > 0]
        starts = np.cumsum(counts) - counts
        return cls(curve[order], positive[order], total[order], starts, counts)

    def add_up(self, values: Floats) -> Floats:
        """The sum over each group."""
        sums: Floats = np.add.reduceat(values, self.starts)
        return sums

    def spread_out(self, by_group: Floats) -> Floats:
        """Each group's value for each of its rows."""
        return np.repeat(by_group, self.counts)


def fit_mixed_model(curve: Floats, positive: Floats, total: Floats, group: Indices) -> MixedModel:
    """Maximize the marginal likelihood; the slope is 0 or more."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to load)

    rows = _Rows.of(curve, positive, total, group)
    rate = float(positive.sum() / total.sum())
    start = np.array([np.log(rate / (1 - rate)), 1.0, 0.0])
    bounds = [(-50.0, 50.0), (0.0, _LARGEST_SLOPE), tuple(np.log(_SPREADS))]
    with one_blas_thread():
        result = minimize(_loss, start, args=(rows,), jac=True, method="L-BFGS-B", bounds=bounds)
    if not np.isfinite(result.fun):
        raise FitError(
            "the random intercept model",
            "have a finite likelihood",
            result.fun,
            "Clip outlying scores, or calibrate without groups.",
        )
    intercept, slope, log_spread = result.x.tolist()
    return MixedModel(intercept, slope, float(np.exp(log_spread)))


def integrated(log_odds: Floats, spread: float) -> Floats:
    """The mean probability over normal levels with this standard deviation: of a new group.

    >>> integrated(np.array([0.0, 2.0]), 1.5).round(3)
    array([0.5 , 0.81])
    """
    steps = int(np.ceil(_REACH * max(spread, 1.0) / _STEP))
    standardized = np.linspace(-_REACH, _REACH, 2 * steps + 1)
    weights = np.exp(-(standardized**2) / 2)
    probabilities: Floats = expit(np.asarray(log_odds)[:, None] + spread * standardized)
    mean: Floats = probabilities @ (weights / weights.sum())
    return mean


def _loss(parameters: Floats, rows: _Rows) -> tuple[float, Floats]:
    """The negative log marginal likelihood and its gradient.

    The gradient is the posterior mean of the complete-data gradient (Fisher's identity), computed
    with the weights of the quadrature.
    """
    intercept, slope, log_spread = parameters.tolist()
    spread = float(np.exp(log_spread))
    fixed = intercept + slope * rows.curve
    mode, width = _modes(fixed, spread, rows)
    levels = mode[:, None] + np.sqrt(2) * width[:, None] * _NODES
    log_terms = np.empty_like(levels)
    intercept_scores = np.empty_like(levels)
    slope_scores = np.empty_like(levels)
    for node in range(len(_NODES)):
        log_odds = fixed + rows.spread_out(levels[:, node])
        bounded = np.maximum(log_odds, _LOWEST_LOG_ODDS)
        probabilities = expit(bounded)
        # log(1 + exp(x)) = x - log(p), and a logarithm takes less time than `logaddexp`.
        gain = rows.positive * log_odds - rows.total * (bounded - np.log(probabilities))
        residual = rows.positive - rows.total * probabilities
        log_terms[:, node] = rows.add_up(gain)
        intercept_scores[:, node] = rows.add_up(residual)
        slope_scores[:, node] = rows.add_up(residual * rows.curve)
    standardized = levels / spread
    # log of likelihood x normal density x quadrature weight, without constants.
    log_terms += _NODES**2 + np.log(_WEIGHTS) - standardized**2 / 2
    log_terms += np.log(width / spread)[:, None]
    highest = log_terms.max(axis=1, keepdims=True)
    weights = np.exp(log_terms - highest)
    sums = weights.sum(axis=1, keepdims=True)
    weights /= sums
    gradient = [
        (weights * intercept_scores).sum(),
        (weights * slope_scores).sum(),
        (weights * (standardized**2 - 1)).sum(),
    ]
    return -float((highest + np.log(sums)).sum()), -np.array(gradient)


def _modes(fixed: Floats, spread: float, rows: _Rows) -> tuple[Floats, Floats]:
    """The most probable level of each group, and its standard deviation there."""
    mode = np.zeros(len(rows.counts))
    precision = np.full(len(rows.counts), 1 / spread**2)
    for _ in range(_NEWTON_STEPS):
        probabilities = expit(fixed + rows.spread_out(mode))
        slope = rows.add_up(rows.positive - rows.total * probabilities) - mode / spread**2
        curvature = rows.total * probabilities * (1 - probabilities)
        precision = rows.add_up(curvature) + 1 / spread**2
        # A full step from far away may overshoot; the problem is concave, so short ones arrive.
        step = np.clip(slope / precision, -1, 1)
        mode = mode + step
        if np.abs(step).max() < 1e-9:
            break
    return mode, 1 / np.sqrt(precision)
