"""Move a map to a known base rate, or keep the interval that sampled labels leave of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, Numbers, score_column
from calibrank.anchoring._priors import SLOPE_FACTORS
from calibrank.composition import refusal
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, Curve, LogisticCurve, Sensitivity
from calibrank.maps.calibration_map import require_map
from calibrank.maps.record import require_rate_range
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.summary import Summary

# Log slopes searched, per standard deviation of the log odds: from flat to a step function.
_LOG_SLOPES = (-10.0, 7.0)
# Of a shift, in log odds.
_TOLERANCE = 1e-13
_MAX_STEPS = 200
_LEAST_SLOPE = 1e-300
# Standard errors to either end of a 95% interval, and the least reach of it in log odds.
_TWO_SIDED_95 = 1.96
_SMALLEST_REACH = 1e-6
# A band's probabilities stay this far from 0 and 1.
_MARGIN = 1e-6

Map = TypeVar("Map", bound=CalibrationMap)


def to_base_rate(
    fitted: CalibrationMap,
    rate: float,
    population: Numbers | Summary,
    top_rate: float | None = None,
    rate_range: tuple[float, float] | None = None,
    columns: Any = None,
) -> CalibrationMap:
    """Shift a map's log odds so that the mean probability over a population is the known rate.

    With `top_rate`, the positive rate among the tenth of the population with the highest scores,
    the slope is adjusted too. Nothing else is learned: errors in the shape of the curve remain.
    Without it, a log that overstates the slope can leave the map worse than the rate alone, and a
    sensitivity band holds every slope that `anchor` expects of a biased fit.
    `rate_range` is a 95% interval of the rate, if it is not known exactly: random labels that the
    map is anchored on later are weighed against it. `columns` has the columns of the population
    where the map has terms.

    >>> from calibrank import Gaussian
    >>> scores = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    >>> moved = to_base_rate(Gaussian().fit(scores, [0, 0, 1, 0, 1, 1]), 0.1, scores)
    >>> round(float(moved.predict(scores).mean()), 6)
    0.1
    """
    require_map(fitted)
    if fitted.record.evidence == "positive_ips":
        raise refusal("positive_ips", "anchor, another base rate")
    rate = real("rate", rate, "[1e-12, 1)", "It is the mean probability of the population.")
    if top_rate is not None:
        top_rate = real("top_rate", top_rate, "[1e-12, 1)")
    scores, mass = _scores_and_mass(population)
    # Without terms, the curve's own log odds are finite where steps are at 0 and 1.
    log_odds: Floats = fitted.curve.log_odds_on(NumpyTarget(), scores)
    if fitted.terms:
        log_odds = fitted.log_odds(scores, columns)
    slope = 1.0
    known_masses = [mass]
    if top_rate is not None:
        slope = _slope_for(log_odds, mass, rate, top_rate)
        known_masses.append(top_tenth(log_odds, mass))
    shift = shift_for(slope * log_odds, mass, rate)
    moved = slope * log_odds + shift
    result = fitted.moved(shift, slope)
    if isinstance(result.curve, LogisticCurve):
        covariance = _conditional_covariance(
            fitted.curve, result.curve, scores, moved, known_masses
        )
        rows = tuple(tuple(row) for row in covariance.tolist())
        result = replace(result, curve=replace(result.curve, covariance=rows))
    record = replace(
        fitted.record,
        base_rate_source="known rate",
        anchoring=None,
        base_rate=rate,
        base_rate_range=None if rate_range is None else require_rate_range(rate_range),
        top_rate=top_rate,
        sensitivity=None,
    )
    band = fitted.record.sensitivity
    if band is not None:
        is_slope_known = top_rate is not None or band.assumption == "logged propensities"
        factors = (slope,) if is_slope_known else tuple(SLOPE_FACTORS)
        # What the moved terms add.
        offset = slope * (log_odds - fitted.curve.log_odds_on(NumpyTarget(), scores))
        moved_band = _band_at_rate(band, result, factors, (scores, mass, offset), rate)
        record = replace(record, sensitivity=moved_band)
    return replace(result, record=record)


def _band_at_rate(
    band: Sensitivity,
    moved: CalibrationMap,
    factors: Sequence[float],
    population: tuple[Floats, Floats, Floats],
    rate: float,
) -> Sensitivity:
    """The band where the rate is known: its ends at that rate, with each of the slopes."""
    scores, mass, offset = population
    interval = moved.without_terms().sampling_interval(np.array(band.scores))
    curves = [clipped_logit(interval.low), clipped_logit(interval.high)]
    for end in (band.low, band.high):
        for factor in factors:
            values = factor * np.array(end)
            log_odds = np.interp(scores, band.scores, values) + offset
            curves.append(clipped_log_odds(values + shift_for(log_odds, mass, rate)))
    return replace(
        band,
        low_rate=rate,
        high_rate=rate,
        alternatives=(),
        low=tuple(np.min(curves, axis=0).tolist()),
        high=tuple(np.max(curves, axis=0).tolist()),
        exposure_factor=1.0,
    )


def undo_undersampling(fitted: CalibrationMap, kept: float) -> CalibrationMap:
    """Correct a map that was fitted on all positives and a random fraction `kept` of the negatives.

    In such a table the odds are 1/kept times too high, so the log odds shift by exactly log(kept).
    This holds for maps fitted on `naive` evidence; with other evidence, fit again with
    `weights=undersampling_weights(labels, kept)`.

    >>> from calibrank import Platt
    >>> sampled = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> round(float(sampled.log_odds(0.5) - undo_undersampling(sampled, kept=0.1).log_odds(0.5)), 6)
    2.302585
    """
    require_map(fitted)
    kept = real("kept", kept, "(0, 1]", "It is the fraction of negatives that was kept.")
    record = fitted.record
    if record.evidence != "naive":
        rule, found = "be fitted on naive evidence: no shift is exact otherwise", record.evidence
    elif record.base_rate_source != "assumed":
        rule, found = "come straight from a fit", f"a rate of {record.base_rate_source}"
    elif record.negatives_kept is not None:
        rule, found = "be of the sampled table", f"one that undid kept={record.negatives_kept:g}"
    else:
        moved = fitted.moved(float(np.log(kept)))
        known = replace(record, negatives_kept=kept, base_rate_range=None)
        return replace(moved, record=replace(known, sensitivity=None, score_quantiles=None))
    remedy = "Fit again with weights=undersampling_weights(labels, kept)."
    raise DataError("the map to be moved", rule, found, remedy)


def with_sampling_range(fitted: Map, summary: Summary) -> Map:
    """Keep the 95% interval of the base rate that the sampling error of impressions leaves.

    Only where the propensities are those of the policy that showed the pairs: the sampling error
    says nothing about what users would have chosen to see. Random labels that the map is anchored
    on later are weighed against the interval.

    >>> from calibrank import Platt, impressions
    >>> summary = Summary.of([0.0, 1.0, 2.0, 3.0], impressions([0, 1, 0, 1], [0.5, 1.0, 0.5, 1.0]))
    >>> with_sampling_range(Platt().fit_summary(summary), summary).record.base_rate_range[1] > 0.5
    True
    """
    if summary.kind != "impressions":
        rule = "be impressions to have a sampling error"
        raise DataError("evidence", rule, summary.kind, "Use impressions(labels, propensity).")
    total = float(summary.total.sum())
    rate = float(summary.positive.sum()) / total
    # The rate is a ratio of weighted sums, whose variance is linearised.
    residuals = summary.squared_residuals(np.full(len(summary), rate))
    error = float(np.sqrt(residuals.sum())) / total / (rate * (1 - rate))
    reach = max(_TWO_SIDED_95 * error, _SMALLEST_REACH)
    low, high = expit(logit(rate) + np.array([-reach, reach])).tolist()
    record = replace(fitted.record, base_rate_range=(low, high))
    return replace(fitted, record=record)


def _scores_and_mass(population: Numbers | Summary) -> tuple[Floats, Floats]:
    """The population's scores, and masses that sum to 1."""
    if isinstance(population, Summary):
        return population.scores, population.total / population.total.sum()
    scores = score_column(population, "population")[0].astype(np.float64)
    return scores, np.full(len(scores), 1 / len(scores))


def _slope_for(log_odds: Floats, mass: Floats, rate: float, top_rate: float) -> float:
    """The factor on the log odds at which both the base rate and the top rate are met."""
    from scipy.optimize import brentq  # noqa: PLC0415  (slow to load, and few know the top rate)

    if log_odds.min() == log_odds.max():
        raise DataError("population", "hold scores that differ to set a slope", "only one")
    top = top_tenth(log_odds, mass)

    def found(log_slope: float) -> float:
        scaled = np.exp(log_slope) * log_odds / log_odds.std()
        return float(top @ expit(scaled + shift_for(scaled, mass, rate)))

    lowest, highest = found(_LOG_SLOPES[0]), found(_LOG_SLOPES[1])
    if not lowest < top_rate < highest:
        raise DataError(
            "top_rate", f"lie between {lowest:.4f} and {highest:.4f} at this base rate", top_rate
        )
    log_slope = brentq(lambda x: found(x) - top_rate, *_LOG_SLOPES, xtol=_TOLERANCE)
    return float(np.exp(log_slope) / log_odds.std())


def _conditional_covariance(
    start: Curve, moved: LogisticCurve, scores: Floats, log_odds: Floats, known_masses: list[Floats]
) -> Floats:
    """The covariance of moved coefficients, given that the mean probability of each mass is known.

    A change d of the coefficients changes the known means by `constraints` @ d, which must be 0:
    d is projected along the directions that were adjusted, the intercept and (for two masses) the
    slope. The projection P gives P @ covariance @ P.T.
    """
    fitted = cast("LogisticCurve", start)
    gradient = fitted.gradient(scores)
    size = len(gradient)
    positive = expit(log_odds)
    negative = expit(-log_odds)
    weights = [mass * positive * negative for mass in known_masses]
    constraints = np.array([gradient @ weight for weight in weights])
    along_intercept = np.eye(size)[0]
    along_slope = [fitted.intercept, *fitted.coefficients]
    adjusted = np.array([along_intercept, along_slope])[: len(known_masses)]
    removed = np.linalg.solve(constraints @ adjusted.T, constraints)
    projection = np.eye(size) - adjusted.T @ removed
    return projection @ np.array(moved.covariance) @ projection.T


def clipped_log_odds(log_odds: Floats) -> Floats:
    """Log odds whose probabilities stay away from 0 and 1."""
    return np.clip(log_odds, logit(_MARGIN), logit(1 - _MARGIN))


def clipped_logit(probabilities: Floats) -> Floats:
    """Log odds of probabilities clipped away from 0 and 1."""
    return logit(np.clip(probabilities, _MARGIN, 1 - _MARGIN))


def shift_for(log_odds: Floats, mass: Floats, rate: float) -> float:
    """The shift at which the mean probability over the mass (which sums to 1) equals the rate."""
    row = log_odds[None]
    return float(shifts_for(row, np.ones_like(row), mass, rate)[0])


def shifts_for(log_odds: Floats, moderation: Floats, mass: Floats, rate: float) -> Floats:
    """The shift of each row at which moderated log odds have the mean probability `rate`.

    The probability is `expit((log_odds + shift) / moderation)`. Newton's method runs for all rows
    at once, and halves the bracket where a step would leave it.
    """
    # Each point alone would reach the rate at one of these shifts.
    alone = logit(rate) * moderation - log_odds
    low = alone.min(axis=1) - 1
    high = alone.max(axis=1) + 1
    at = np.clip(alone @ mass, low, high)
    for _ in range(_MAX_STEPS):
        probabilities = expit((log_odds + at[:, None]) / moderation)
        excess = probabilities @ mass - rate
        slope = (probabilities * (1 - probabilities) / moderation) @ mass
        low = np.where(excess < 0, at, low)
        high = np.where(excess > 0, at, high)
        # Where all probabilities round to 0 or 1 the slope is 0.
        following = at - excess / np.maximum(slope, _LEAST_SLOPE)
        is_inside = (low <= following) & (following <= high)
        following = np.where(is_inside, following, (low + high) / 2)
        movement = np.abs(following - at).max()
        at = following
        if movement <= _TOLERANCE:
            break
    return at


def top_tenth(log_odds: Floats, mass: Floats) -> Floats:
    """Weights, which sum to 1, of the tenth of the mass with the highest log odds."""
    order = np.argsort(-log_odds, kind="stable")
    mass_above = np.cumsum(mass[order]) - mass[order]
    top = np.zeros(len(log_odds))
    # The point at the border of the tenth is included in part.
    top[order] = np.clip(0.1 * mass.sum() - mass_above, 0, mass[order])
    return top / top.sum()
