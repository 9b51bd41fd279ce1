"""Anchor a biased fit on a few labels of randomly shown pairs.

A biased log determines the shape of P(preferred | score) partly and the base rate hardly at all.
Labels collected under random exposure determine both without bias, but there are few of them.
`anchor` combines the two by Bayesian model averaging (`posterior`), with priors centred at the
biased fit. The result is a piecewise map, whose log odds are linear between quantiles of the
population.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.logit import logit
from calibrank._internal.validation import (
    Floats,
    Numbers,
    column,
    require,
    require_role,
    score_column,
    starts_of,
)
from calibrank.anchoring._population import Population
from calibrank.anchoring.posterior import PosteriorCurve, RandomLabels, posterior_curve
from calibrank.errors import DataError
from calibrank.evidence import Evidence, is_usable
from calibrank.maps import Anchoring, CalibrationMap, FitRecord, PiecewiseMap
from calibrank.metrics import LogLoss

# Scores that are enough to describe a distribution.
_MAX_POPULATION = 20_000
# Scores that stand for the range of the biased fit.
_RANGE_SCORES = 20
# Log odds gained over the population at least, so that different scores stay different.
_SMALLEST_RISE = 1e-6
# Beyond the outermost quantiles, the slope is that over this fraction of the population.
_END_FRACTION = 0.02
# Ends that are nearer than this to the outermost quantile, relative to the range, are left out.
_NEGLIGIBLE_END = 1e-3
# Beyond these log odds a probability is 0 or 1, and a knot would only be a large number.
_LARGEST_LOG_ODDS = 100.0
# Log odds stay finite where every curve rounds to 0 or 1.
_SMALLEST_PROBABILITY = 1e-12


def anchor(
    fitted: CalibrationMap,
    scores: Numbers,
    labels: Numbers,
    propensity: Numbers | None = None,
    population: Numbers | None = None,
) -> PiecewiseMap:
    """Combine a biased fit with labels of pairs that were shown at random.

    The biased fit may be any map. It matters most while labels are few: with thousands of them the
    result is as flexible as an isotonic fit, and smoother.

    `propensity` is the exploration policy's probability of showing each pair, if it was not the
    same for all. `population` holds scores of the pairs that probabilities are wanted for; by
    default, of the pairs shown. `record.anchoring` of the result says how much of the intercept,
    slope and curvature the labels determined.

    Where the biased fit has an interval for its base rate (`record.base_rate_range`: a known rate
    with a range, a rate assumed from activity, impressions with logged propensities), the
    intercept's prior has that width or less with probability 0.98, and is as wide as without an
    interval otherwise.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> anchored = anchor(biased, scores=[-1.0, 0.5, 2.0, 2.5], labels=[0, 0, 0, 1])
    >>> bool(anchored.predict(2.0) < biased.predict(2.0))
    True
    """
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")
    shown = score_column(scores)[0]
    labels = column("labels", labels, len(shown))
    require_role("label", "labels", labels)
    weights = label_weights(propensity, len(shown))
    shown = shown.astype(np.float64)
    random_labels = RandomLabels(shown, weights, weights * labels)
    pairs = _population(fitted, shown, population)
    curve = posterior_curve(fitted, random_labels, pairs, fitted.record.base_rate_range)
    anchoring = Anchoring(
        len(shown), float(weights.sum()), curve.intercept, curve.slope, curve.curvature
    )
    record = replace(
        fitted.record,
        base_rate_source="random labels",
        anchoring=anchoring,
        base_rate=None,
        base_rate_range=None,
        sensitivity=None,
        # These describe the solution of the biased fit, which the anchored curve is not.
        residual=None,
        iterations=0,
        at_bound=(),
    )
    anchored = _piecewise_map(record, fitted.method, curve)
    evidence = Evidence.trusted(random_labels.positive, random_labels.total, "naive")
    loss = LogLoss()(anchored.predict(shown), evidence)
    anchored = replace(anchored, record=replace(record, loss=loss))
    lowest = min(fitted.span[0], shown.min(), pairs.scores[0])
    highest = max(fitted.span[1], shown.max(), pairs.scores[-1])
    return _over_range(anchored, float(lowest), float(highest))


def label_weights(propensity: Numbers | None, rows: int) -> Floats:
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
    fitted: CalibrationMap,
    shown: Floats,
    population: Numbers | None,
) -> Population:
    """The population, thinned to a manageable number of scores."""
    if population is None:
        # Two or three shown pairs do not span a curve, so the range of the biased fit is added.
        fitted_range = np.linspace(*fitted.span, _RANGE_SCORES)
        scores = np.concatenate([shown, fitted_range])
    else:
        scores = score_column(population, "population")[0]
    step = max(1, len(scores) // _MAX_POPULATION)
    scores = np.sort(scores[::step].astype(np.float64))
    if np.count_nonzero(starts_of(scores)) < 2:
        raise DataError(
            "population must hold scores that differ, got only one. Pass scores of more pairs."
        )
    return Population.of(scores)


def _piecewise_map(
    record: FitRecord,
    method: str,
    curve: PosteriorCurve,
) -> PiecewiseMap:
    """The map through the posterior curve, rising at least a little everywhere."""
    smallest, largest = _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY
    log_odds = logit(np.clip(curve.probabilities, smallest, largest))
    log_odds = log_odds + np.linspace(0, _SMALLEST_RISE, len(log_odds))
    low_slope, low_error = _end_slope(curve, log_odds, at_high=False)
    high_slope, high_error = _end_slope(curve, log_odds, at_high=True)
    errors = np.sqrt(np.maximum(np.diag(curve.covariance), 0))
    return PiecewiseMap(
        method=method,
        knots=tuple(curve.scores.tolist()),
        values=tuple(log_odds.tolist()),
        end_slopes=(low_slope, high_slope),
        value_errors=tuple(errors.tolist()),
        slope_errors=(low_error, high_error),
        record=record,
    )


def _over_range(
    fitted: PiecewiseMap,
    lowest: float,
    highest: float,
) -> PiecewiseMap:
    """The same function with knots at the ends of the scores, so that its span is all of them."""
    first, last = fitted.knots[0], fitted.knots[-1]
    negligible = _NEGLIGIBLE_END * (highest - lowest)
    low_value = fitted.values[0] - fitted.end_slopes[0] * (first - lowest)
    high_value = fitted.values[-1] + fitted.end_slopes[1] * (highest - last)
    below: list[tuple[float, float, float]] = []
    if first - lowest > negligible and low_value > -_LARGEST_LOG_ODDS:
        error = fitted.value_errors[0] + fitted.slope_errors[0] * (first - lowest)
        below = [(lowest, low_value, error)]
    above: list[tuple[float, float, float]] = []
    if highest - last > negligible and high_value < _LARGEST_LOG_ODDS:
        error = fitted.value_errors[-1] + fitted.slope_errors[1] * (highest - last)
        above = [(highest, high_value, error)]
    inner = list(zip(fitted.knots, fitted.values, fitted.value_errors, strict=True))
    knots, values, errors = zip(*below, *inner, *above, strict=True)
    return replace(fitted, knots=knots, values=values, value_errors=errors)


def _end_slope(
    curve: PosteriorCurve,
    log_odds: Floats,
    *,
    at_high: bool,
) -> tuple[float, float]:
    """The mean slope over the outermost quantiles at one end, and its standard error."""
    reach = max(1, round(_END_FRACTION * len(log_odds)))
    last = len(log_odds) - 1
    inner, outer = (last - reach, last) if at_high else (reach, 0)
    inner = min(max(inner, 0), last)
    distance = curve.scores[outer] - curve.scores[inner]
    slope = (log_odds[outer] - log_odds[inner]) / distance
    covariance = curve.covariance
    variance = covariance[outer, outer] + covariance[inner, inner] - 2 * covariance[outer, inner]
    return float(slope), float(np.sqrt(max(variance, 0.0)) / abs(distance))
