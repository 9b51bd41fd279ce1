"""The curve of an anchored map: the posterior mean curve, linear between quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats
from calibrank.anchoring._population import Population
from calibrank.anchoring.posterior import PosteriorCurve, RandomLabels, posterior_curve
from calibrank.maps import CalibrationMap, PiecewiseCurve

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


def anchored_curve(
    starts: Sequence[CalibrationMap],
    labels: RandomLabels,
    population: Population,
    rate_range: tuple[float, float] | None = None,
    *,
    is_judged: bool = False,
) -> tuple[PiecewiseCurve, PosteriorCurve]:
    """The curve of maps of the score alone, anchored on labels, and the posterior behind it."""
    curve = posterior_curve(starts, labels, population, rate_range, is_judged=is_judged)
    # A start at ranks stands for the population alone: the old scores are on another scale.
    lowest = min(starts[-1].span[0], labels.scores.min(), population.scores[0])
    highest = max(starts[-1].span[1], labels.scores.max(), population.scores[-1])
    return _over_range(_piecewise_curve(curve), float(lowest), float(highest)), curve


def _piecewise_curve(curve: PosteriorCurve) -> PiecewiseCurve:
    """The curve through the posterior curve, rising at least a little everywhere."""
    smallest, largest = _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY
    log_odds = logit(np.clip(curve.probabilities, smallest, largest))
    log_odds = log_odds + np.linspace(0, _SMALLEST_RISE, len(log_odds))
    low_slope, low_error = _end_slope(curve, log_odds, at_high=False)
    high_slope, high_error = _end_slope(curve, log_odds, at_high=True)
    errors = np.sqrt(np.maximum(np.diag(curve.covariance), 0))
    return PiecewiseCurve(
        knots=tuple(curve.scores.tolist()),
        values=tuple(log_odds.tolist()),
        end_slopes=(low_slope, high_slope),
        value_errors=tuple(errors.tolist()),
        slope_errors=(low_error, high_error),
    )


def _over_range(fitted: PiecewiseCurve, lowest: float, highest: float) -> PiecewiseCurve:
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


def _end_slope(curve: PosteriorCurve, log_odds: Floats, *, at_high: bool) -> tuple[float, float]:
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
