"""Anchor a biased fit on a few labels of randomly shown pairs.

A biased log determines the shape of P(preferred | score) partly and the base rate hardly at all.
Labels collected under random exposure determine both without bias, but there are few of them.
`anchor` combines the two by Bayesian model averaging (`posterior`), with priors centred at the
biased fit, and projects the result onto the family of the biased fit: the map whose probabilities
predict those of the posterior curve best over the population.

A quadratic may be restricted to a part of the score range and continue as a straight line beyond:
preference often rises and then levels off, which a single quadratic cannot follow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrank._logit import logit
from calibrank._validation import (
    Floats,
    Numbers,
    column,
    is_binary,
    require,
    score_column,
    starts_of,
)
from calibrank.base_rate._parametric_maps import require_logistic, with_coefficients
from calibrank.base_rate._terms import TAIL
from calibrank.base_rate.posterior import (
    PosteriorCurve,
    RandomLabels,
    posterior_curve,
)
from calibrank.calibrators.solver import SMALLEST_RISE, Problem, solve
from calibrank.errors import DataError
from calibrank.evidence import is_usable
from calibrank.maps import Anchoring, CalibrationMap, LogisticMap
from calibrank.maps.basis import Quadratic

# Scores that are enough to describe a distribution.
_MAX_POPULATION = 20_000
# Scores that stand for the range of the biased fit.
_RANGE_SCORES = 20
_ENDS = (0.015, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Fractions of the population, at either end, on which a quadratic may continue as a line."""


def anchor(
    fitted: CalibrationMap,
    scores: Numbers,
    labels: Numbers,
    propensity: Numbers | None = None,
    population: Numbers | None = None,
) -> LogisticMap:
    """Combine a biased fit with labels of pairs that were shown at random.

    `propensity` is the exploration policy's probability of showing each pair, if it was not the
    same for all. `population` holds scores of the pairs that probabilities are wanted for; by
    default, of the pairs shown. `record.anchoring` of the result says how much of the intercept,
    slope and curvature the labels determined.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> anchored = anchor(biased, scores=[-1.0, 0.5, 2.0, 2.5], labels=[0, 0, 0, 1])
    >>> bool(anchored.predict(2.0) < biased.predict(2.0))
    True
    """
    biased = require_logistic(fitted, "anchored")
    shown = score_column(scores)[0]
    labels = column("labels", labels, len(shown))
    require(is_binary, "labels", "be 0 or 1", labels, "Turn ratings into likes first.")
    weights = _label_weights(propensity, len(shown))
    shown = shown.astype(np.float64)
    random_labels = RandomLabels(shown, weights, weights * labels)
    where = _population(biased, shown, population)
    curve = posterior_curve(biased, random_labels, where)
    anchoring = Anchoring(
        len(shown), float(weights.sum()), curve.intercept, curve.slope, curve.curvature
    )
    record = replace(
        biased.record,
        base_rate_source="random labels",
        anchoring=anchoring,
        base_rate=None,
        sensitivity=None,
    )
    return replace(_project(biased, curve), record=record)


def _label_weights(propensity: Numbers | None, rows: int) -> Floats:
    """Inverse propensities of the exploration policy; they sum to the effective sample size."""
    if propensity is None:
        return np.ones(rows)
    chances = column("propensity", propensity, rows)
    remedy = "Log the policy's probabilities."
    require(is_usable, "propensity", "lie in (0, 1]", chances, remedy)
    inverse = 1 / chances
    # Kish: (sum of w)^2 / sum of w^2 labels of equal weight have the same variance.
    return inverse * inverse.sum() / (inverse**2).sum()


def _population(
    biased: LogisticMap,
    shown: Floats,
    population: Numbers | None,
) -> Floats:
    """Sorted scores of the population, thinned to a manageable number."""
    if population is None:
        # Two or three shown pairs do not span a curve, so the range of the biased fit is added.
        fitted_range = np.linspace(biased.low, biased.high, _RANGE_SCORES)
        scores = np.concatenate([shown, fitted_range])
    else:
        scores = score_column(population)[0]
    step = max(1, len(scores) // _MAX_POPULATION)
    scores = np.sort(scores[::step].astype(np.float64))
    least = len(biased.basis.parameters)
    if np.count_nonzero(starts_of(scores)) < least:
        raise DataError(
            f"population must hold {least} scores or more that differ, got fewer. "
            "Pass more of them."
        )
    return scores


def _project(biased: LogisticMap, curve: PosteriorCurve) -> LogisticMap:
    """The map of the biased fit's family that is closest to the posterior curve."""
    ranges = _candidate_ranges(biased, curve.scores)
    candidates = [_project_on_range(biased, curve, low, high) for low, high in ranges]
    losses = [loss for loss, _ in candidates]
    return candidates[int(np.argmin(losses))][1]


def _candidate_ranges(biased: LogisticMap, scores: Floats) -> list[tuple[float, float]]:
    """Ranges on which the map may be curved: the family's own or, for a quadratic, shorter ones."""
    own_range = (biased.low, biased.high)
    if not isinstance(biased.basis, Quadratic):
        return [own_range]
    low, high = np.quantile(scores, [TAIL, 1 - TAIL]).tolist()
    starts = np.quantile(scores, _ENDS).tolist()
    ends = np.quantile(scores, 1 - np.array(_ENDS)).tolist()
    ranges = [(low, high)]
    ranges += [(start, high) for start in starts]
    ranges += [(low, end) for end in ends]
    # Quantiles of tied scores may coincide.
    proper = [(start, end) for start, end in ranges if start < end]
    return proper or [own_range]


def _project_on_range(
    biased: LogisticMap,
    curve: PosteriorCurve,
    low: float,
    high: float,
) -> tuple[float, LogisticMap]:
    """The closest map that is curved on this range, and its log loss against the curve."""
    ones = (1.0,) * len(biased.coefficients)
    template = replace(biased, low=low, high=high, coefficients=ones)
    design = template.gradient(curve.scores)
    ends = template.gradient(np.array([low, high]))
    rises = np.diff(ends)[1:, 0]
    smallest = SMALLEST_RISE / np.maximum(rises, 1e-300)
    bounds = np.concatenate([[-np.inf], smallest])
    probabilities = curve.probabilities
    rate = float(probabilities.mean())
    mass = np.ones(len(curve.scores))
    problem = Problem(design, mass, design @ probabilities, bounds, rate)
    start = np.concatenate([[logit(rate)], smallest])
    point = solve(problem, start).point
    # Delta method: near the optimum the coefficients are the regression of the curve's log odds
    # on the design, weighted by p (1 - p).
    weighted = design * (probabilities * (1 - probabilities))
    inverse = np.linalg.pinv(weighted @ design.T, hermitian=True)
    regression = inverse @ weighted
    covariance = regression @ curve.covariance @ regression.T
    projected = with_coefficients(template, point.solution, covariance)
    return point.value, projected
