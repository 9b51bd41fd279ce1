"""Averages of candidate curves: weights by held-out groups, levels, and standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, add_up
from calibrank.maps import CalibrationMap, Selection
from calibrank.terms._grouped_rows import SMALLEST, GroupedRows
from calibrank.terms._mixed_model import integrated

# Points that a level is matched on, and how closely, in log odds.
_MOST_POINTS = 256
_LEVEL_ERROR = 1e-9
# Candidates with less weight than this, relative to the best one, are left out.
_SMALLEST_WEIGHT = 1e-3


class Curve(NamedTuple):
    """Log odds = intercept + slope * base curve, with normal levels of this spread integrated."""

    base: CalibrationMap | None
    intercept: float
    slope: float
    spread: float

    def probabilities(self, scores: Floats) -> Floats:
        """Probabilities of new groups at these scores."""
        log_odds = np.full(len(scores), self.intercept)
        if self.base is not None:
            log_odds = self.intercept + self.slope * self.base.log_odds(scores)
        probabilities: Floats = expit(log_odds)
        return integrated(log_odds, self.spread) if self.spread else probabilities


@dataclass(frozen=True, slots=True)
class Average:
    """The weighted mean of the probabilities of several curves."""

    curves: tuple[Curve, ...]
    weights: tuple[float, ...]

    def log_odds(self, scores: Floats) -> Floats:
        """Log odds at these scores."""
        mean = np.zeros(len(scores))
        for curve, weight in zip(self.curves, self.weights, strict=True):
            mean += weight * curve.probabilities(scores)
        log_odds: Floats = logit(np.clip(mean, SMALLEST, 1 - SMALLEST))
        return log_odds


def averaged(curves: dict[str, Curve], selection: Selection) -> Average:
    """The mean of the candidates, weighted by the root of their likelihood on held-out groups.

    A candidate that is d standard errors of a slope away from the best one has a log likelihood
    that is lower by d^2 / 2, with a standard error of d: z = d / 2 of them, and a likelihood of
    exp(-d^2 / 2) = exp(-2 z^2). Rows that depend within groups multiply both alike, so z, whose
    standard error is over groups, accounts for it where the likelihood itself would not. The root,
    exp(-z^2), because the best one is so partly by chance: on synthetic pools of 20 to 50 queries
    slopes are then right on average, and with the likelihood itself 5% too steep where scores tell
    little. Choosing the best alone would be choosing by chance where candidates are equally good.
    """
    compared = [each for each in selection.candidates if each.loss is not None]
    lowest = min(float(each.loss or 0) for each in compared)
    weights = {}
    for each in compared:
        excess = float(each.loss or 0) - lowest
        z = excess / float(each.standard_error or 1) if excess > 0 else 0.0
        weight = float(np.exp(-(z**2)))
        if each.name in curves and weight >= _SMALLEST_WEIGHT:
            weights[each.name] = weight
    total = sum(weights.values())
    kept = tuple([curves[name] for name in weights])
    return Average(kept, tuple([weight / total for weight in weights.values()]))


def matching_level(sloped: Floats, spread: float, rows: GroupedRows) -> float:
    """The intercept at which the mean probability over the rows is their rate.

    The model's own intercept is that of a typical group, each counted once. Groups with more
    judged rows often have other rates, and probabilities are for rows.
    """
    from scipy.optimize import brentq  # noqa: PLC0415  (slow to load)

    target = float(rows.positive.sum())
    # Neighbours are integrated together: the error is of second order in their distance.
    order = np.argsort(sloped, kind="stable")
    point = np.empty(len(order), dtype=np.intp)
    point[order] = np.arange(len(order)) * min(_MOST_POINTS, len(order)) // len(order)
    mass = add_up(point, rows.total)
    means = add_up(point, rows.total * sloped) / np.maximum(mass, 1e-300)

    def excess(level: float) -> float:
        return float(mass @ integrated(level + means, spread)) - target

    low, high = -100.0 - float(sloped.max()), 100.0 - float(sloped.min())
    # Weighted positives may exceed the total: no level is high enough.
    if excess(high) <= 0:
        return high
    level: float = brentq(excess, low, high, xtol=_LEVEL_ERROR)
    return level


def robust_covariance(curve: Average, rows: GroupedRows) -> Floats:
    """The covariance of the level and of a factor of the curve, robust within groups.

    As in generalized estimating equations (Liang and Zeger 1986): bread from the marginal model,
    meat from the sum of each group's residuals.
    """
    design = design_of(curve, rows.scores)
    probabilities = expit(curve.log_odds(rows.scores))
    weights = rows.total * probabilities * (1 - probabilities)
    bread = np.linalg.pinv((design * weights) @ design.T)
    residuals = design * (rows.positive - rows.total * probabilities)
    sums = np.array([add_up(rows.group, each, rows.n_groups) for each in residuals])
    # A few groups underestimate their variance by the factor (n - 1) / n.
    correction = rows.n_groups / (rows.n_groups - 1)
    covariance: Floats = correction * bread @ (sums @ sums.T) @ bread
    return covariance


def design_of(curve: Average, scores: Floats) -> Floats:
    """A row of ones, and a row of the curve's log odds."""
    log_odds = curve.log_odds(scores)
    return np.vstack([np.ones(len(scores)), log_odds])
