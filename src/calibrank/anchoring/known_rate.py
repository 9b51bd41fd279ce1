"""Move a map to a known base rate, or back to the rate before negatives were sampled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, Numbers, score_column
from calibrank.anchoring.constant_check import (
    ConstantCheck,
    check_against_constant,
    is_slope_assumed,
)
from calibrank.anchoring.shift import root, shift_for, top_tenth
from calibrank.composition import refusal
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, Curve, LogisticCurve
from calibrank.maps.calibration_map import require_map
from calibrank.maps.record import require_rate_range
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.summary import Summary

_LOG_SLOPES = (-10.0, 7.0)
"""Log slopes searched, per standard deviation of the log odds: from flat to a step function."""


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
    the slope is adjusted too. Nothing else is learned: errors in the shape of the curve remain, and
    a sensitivity band that is attached afterwards has alternatives at this rate, not at this slope.
    Without it, and if labels were weighted by propensities, a `WorseThanConstantWarning` says if
    the slope is so steep that the map is expected to be worse than the rate alone.
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
    log_odds = _finite_log_odds(fitted, scores, columns)
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
    if top_rate is None and is_slope_assumed(record):
        check_against_constant(moved, mass, rate).warn()
    return replace(result, record=record)


def _finite_log_odds(fitted: CalibrationMap, scores: Floats, columns: Any) -> Floats:
    """Log odds over a population; finite where steps are at 0 and 1."""
    if fitted.terms:
        return fitted.log_odds(scores, columns)
    log_odds: Floats = fitted.curve.log_odds_on(NumpyTarget(), scores)
    return log_odds


def compare_with_constant(moved: CalibrationMap, population: Numbers | Summary) -> ConstantCheck:
    """Compare a map that was moved to a known rate with predicting the rate for every pair.

    >>> from calibrank import Platt
    >>> scores = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    >>> fitted = Platt().fit(scores, [0, 1, 0, 1, 0, 1])
    >>> compare_with_constant(to_base_rate(fitted, 0.1, scores), scores).is_worse
    False
    """
    require_map(moved)
    rate = moved.record.base_rate
    if rate is None:
        raise DataError("the map", "be at a known base rate", "none", "Use to_base_rate first.")
    scores, mass = _scores_and_mass(population)
    return check_against_constant(moved.log_odds(scores), mass, rate)


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
    _require_unmoved_naive(fitted)
    moved = fitted.moved(float(np.log(kept)))
    return replace(
        moved,
        record=replace(
            fitted.record,
            sensitivity=None,
            score_quantiles=None,
            negatives_kept=kept,
            base_rate_range=None,
        ),
    )


def _require_unmoved_naive(sampled: CalibrationMap) -> None:
    """Raise unless a shift by log(kept) is exact for this map."""
    if sampled.record.evidence != "naive":
        raise DataError(
            "the map to be moved",
            "be fitted on naive evidence",
            (
                f"{sampled.record.evidence}: positives weigh more than 1 there, and no "
                "shift is exact"
            ),
            "Fit again with weights=undersampling_weights(labels, kept).",
        )
    if sampled.record.base_rate_source != "assumed":
        raise DataError(
            "the map to be moved",
            "come straight from a fit",
            f"one whose base rate comes from {sampled.record.base_rate_source} already",
            "Undo the sampling first.",
        )
    if sampled.record.negatives_kept is not None:
        raise DataError(
            "the map to be moved",
            "be of the sampled table",
            (f"one whose sampling (kept={sampled.record.negatives_kept:g}) was undone before"),
            "Undo it once.",
        )


def _scores_and_mass(population: Numbers | Summary) -> tuple[Floats, Floats]:
    """The population's scores, and masses that sum to 1."""
    if isinstance(population, Summary):
        return population.scores, population.total / population.total.sum()
    scores = score_column(population, "population")[0].astype(np.float64)
    return scores, np.full(len(scores), 1 / len(scores))


def _slope_for(log_odds: Floats, mass: Floats, rate: float, top_rate: float) -> float:
    """The factor on the log odds at which both the base rate and the top rate are met."""
    if log_odds.min() == log_odds.max():
        raise DataError("population", "hold scores that differ to set a slope", "only one")
    top = top_tenth(log_odds, mass)

    def excess(log_slope: float) -> float:
        scaled = np.exp(log_slope) * log_odds / log_odds.std()
        shifted = scaled + shift_for(scaled, mass, rate)
        return float(top @ expit(shifted)) - top_rate

    flattest, steepest = _LOG_SLOPES
    lowest = excess(flattest) + top_rate
    highest = excess(steepest) + top_rate
    if not lowest < top_rate < highest:
        raise DataError(
            "top_rate", f"lie between {lowest:.4f} and {highest:.4f} at this base rate", top_rate
        )
    return float(np.exp(root(excess, flattest, steepest)) / log_odds.std())


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
