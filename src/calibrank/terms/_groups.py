"""Rows of groups, and a logistic regression with a random intercept per group.

Log odds of a row = intercept + slope * curve(score) + level of its group, where levels are normal
with mean 0 and an unknown standard deviation. The levels are integrated out by adaptive
Gauss-Hermite quadrature: nodes are placed around the mode of each group's level, so groups of one
row and of thousands are equally accurate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Indices,
    Mask,
    Numbers,
    add_up,
    ids,
    score_column,
)
from calibrank.errors import FitError
from calibrank.evidence import Evidence, Labels, as_evidence
from calibrank.summary import Summary

SMALLEST = 1e-12
"""Probabilities closer to 0 or 1 are clipped, so that one row cannot make a loss infinite."""
# On synthetic pools most of the gain is there with three, and more would flatten the top of lists.
_SUPPORTING_GROUPS = 3
_MOST_LOG_ODDS = -float(logit(SMALLEST))

# Caps that are averaged, evenly spaced on a log scale, from the largest mass to a multiple of the
# mean. Lower ones would give most weight to small groups, whose rates may be others altogether.
_CAPS = 64
_LEAST_CAP = 2.0

# Adaptive nodes are accurate to many digits for a smooth, unimodal integrand. With 11 the gradient
# of wide spreads differed from that of the sum by 1e-3, and the optimum by the processor.
_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(15)
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


@dataclass(frozen=True, slots=True, eq=False)
class GroupedRows:
    """Scores and evidence of rows, and the group of each."""

    scores: Floats
    evidence: Evidence
    group: Indices
    names: tuple[object, ...]

    @classmethod
    def of(cls, scores: Numbers, labels: Labels, groups: IdsLike) -> GroupedRows:
        """Check what a user passed, and number the groups."""
        array = score_column(scores)[0].astype(np.float64)
        evidence = as_evidence(labels, len(array))
        names, group = np.unique(ids("groups", groups, len(array)), return_inverse=True)
        return cls(array, evidence, group, tuple(names.tolist()))

    @property
    def positive(self) -> Floats:
        """The positive mass of each row."""
        return self.evidence.positive

    @property
    def total(self) -> Floats:
        """The total mass of each row."""
        return self.evidence.total

    @property
    def n_groups(self) -> int:
        """The number of groups that occur."""
        return len(self.names)

    def summary(self) -> Summary:
        """All groups together, as other methods fit them."""
        return Summary.of(self.scores, self.evidence)

    def where(self, kept: Mask) -> GroupedRows:
        """Some of the rows, with groups numbered anew."""
        rows = np.flatnonzero(kept)
        present, group = np.unique(self.group[rows], return_inverse=True)
        names = tuple([self.names[index] for index in present.tolist()])
        return GroupedRows(self.scores[rows], self.evidence.rows(rows), group, names)

    def capped(self) -> GroupedRows:
        """The same rows, where groups with much mass have less, if that estimates rates better."""
        mass = self.by_group(self.total)
        capped = capped_masses(self.by_group(self.positive), mass)
        factor = (capped / np.maximum(mass, 1e-300))[self.group]
        # Groups of equal mass count as they are, up to rounding.
        if np.allclose(factor, 1, rtol=1e-9):
            return self
        evidence = Evidence(self.positive * factor, self.total * factor, self.evidence.kind)
        return replace(self, evidence=evidence)

    def supported_range(self) -> tuple[float, float]:
        """The scores that several groups reach or exceed, at both ends.

        Where one or two groups have scores of their own, their level cannot be told from a slope.
        """
        lowest = np.full(self.n_groups, np.inf)
        highest = np.full(self.n_groups, -np.inf)
        np.minimum.at(lowest, self.group, self.scores)
        np.maximum.at(highest, self.group, self.scores)
        place = min(_SUPPORTING_GROUPS, self.n_groups) - 1
        low = float(np.sort(lowest)[place])
        high = float(np.sort(highest)[::-1][place])
        return (low, high) if low < high else (float(lowest.min()), float(highest.max()))

    def by_group(self, values: Floats) -> Floats:
        """The sum of each group's values."""
        return add_up(self.group, values, self.n_groups)

    def losses(self, log_odds: Floats) -> Floats:
        """The log loss of each row; log odds are clipped so that no row makes it infinite."""
        log_odds = np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        return self.total * np.logaddexp(0, log_odds) - self.positive * log_odds


def capped_masses(positive: Floats, total: Floats) -> Floats:
    """The mass that each group counts with, at most its own.

    Rows of one group are alike, so a rate over few large groups varies as if there were few rows.
    Capping their mass lowers that variance, and moves the rate where large groups have another. As
    in the trimming of survey weights (Potter 1990), the error of a cap is the sum of the two:
    squared change of the rate + its variance between groups. Caps are averaged by their errors.
    With more and more groups the variance vanishes, and with it caps that change the rate.
    """
    present = total > 0
    masses = total[present]
    rates = positive[present] / masses
    shares = masses / masses.sum()
    rate = float(shares @ rates)
    # For groups of equal variance, the weighted squares are short by the factor 1 - sum of squares.
    spread = float(shares @ (rates - rate) ** 2) / max(1 - float(shares @ shares), 1e-9)
    highest = float(masses.max())
    least = min(_LEAST_CAP * float(masses.mean()), highest)
    caps = np.geomspace(highest, least, _CAPS)
    weights = np.array([np.minimum(masses, cap) for cap in caps.tolist()])
    weights /= weights.sum(axis=1, keepdims=True)
    errors = (weights @ rates - rate) ** 2 + spread * (weights**2).sum(axis=1)
    averaged = np.exp(-errors / (2 * max(float(errors.min()), 1e-300))) @ weights
    factors = averaged / shares
    capped = np.zeros_like(total)
    # Relative to the group that loses least: rows that count fully count once.
    capped[present] = masses * factors / factors.max()
    return capped


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
        return np.add.reduceat(values, self.starts)

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
        rule, remedy = "have a finite likelihood", "Clip outlying scores, or fit without groups."
        raise FitError("the random intercept model", rule, result.fun, remedy)
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
    return probabilities @ (weights / weights.sum())


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
