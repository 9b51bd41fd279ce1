"""Level and slope of the labels of a window, as corrections of the map's log odds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats
from calibrank.evidence import Evidence
from calibrank.metrics import Estimate
from calibrank.metrics.pooled import pooled_bins
from calibrank.metrics.recalibration import fit_recalibration
from calibrank.monitor.day import LEVEL, SLOPE
from calibrank.monitor.day_sums import DaySums

# The 97.5% quantile of the normal distribution.
_Z = 1.96

# Log odds beyond this are those of probabilities of 0 and 1, up to rounding.
_LARGEST_LOG_ODDS = 15.0
_MOST_STEPS = 50
_TOLERANCE = 1e-10
_LEAST_SPREAD = 1e-9


class Corrections(NamedTuple):
    """What would have to be done to the map's log odds, with 95% intervals clustered by user."""

    level: Estimate
    """To be added, with the slope left at 1: above 0 the probabilities are too low."""
    slope: Estimate
    """Factor, with the level free: below 1 the probabilities are too extreme."""


def corrections(sums: DaySums) -> Corrections | None:
    """Estimate both from the labels of some days; None without labels."""
    if not sums.masses[1].any():
        return None
    probabilities, evidence = pooled_bins(sums.masses)
    log_odds = np.clip(logit(probabilities), -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
    shift = _fit_level(log_odds, evidence)
    slope, intercept = fit_recalibration(probabilities, evidence)
    by_level = _errors(sums, evidence.total, log_odds, shift + log_odds)
    by_slope = _errors(sums, evidence.total, log_odds, intercept + slope * log_odds)
    return Corrections(_interval(shift, by_level.level), _interval(slope, by_slope.slope))


def _fit_level(log_odds: Floats, evidence: Evidence) -> float:
    """The shift at which predicted and positive mass agree, by Newton's method."""
    mass = evidence.total.sum()
    # Half an observation of either kind keeps it finite where all labels are equal.
    least = 0.5 / (mass + 1)
    rate = np.clip(evidence.positive.sum() / mass, least, 1 - least)
    shift = 0.0
    for _ in range(_MOST_STEPS):
        p = expit(log_odds + shift)
        gap = rate * mass - evidence.total @ p
        step = gap / max(float(evidence.total @ (p * (1 - p))), 1e-12)
        shift += float(np.clip(step, -1, 1))
        if abs(step) < _TOLERANCE:
            break
    return shift


class _Errors(NamedTuple):
    level: float
    slope: float


def _errors(sums: DaySums, total: Floats, log_odds: Floats, fitted: Floats) -> _Errors:
    """Standard errors: a sandwich with sums per cluster of users in the middle."""
    p = expit(fitted)
    information = total * p * (1 - p)
    moments = [float(information @ log_odds**power) for power in range(3)]
    if moments[0] <= 0:
        return _Errors(np.inf, np.inf)
    centre = moments[1] / moments[0]
    level = sums.clusters[:, LEVEL]
    slope = sums.clusters[:, SLOPE] - centre * level
    independent = float(sums.variances @ [centre**2, -2 * centre, 1.0])
    level_error = _root(level, float(sums.variances[0])) / moments[0]
    spread = moments[2] - centre * moments[1]
    if spread <= _LEAST_SPREAD * moments[0]:
        # A single probability has no slope.
        return _Errors(level_error, np.inf)
    return _Errors(level_error, _root(slope, independent) / spread)


def _root(by_cluster: Floats, independent: float) -> float:
    """The standard deviation of a sum over clusters, at least that of independent labels."""
    clustered = len(by_cluster) * float(np.var(by_cluster))
    return float(np.sqrt(max(clustered, independent)))


def _interval(value: float, error: float) -> Estimate:
    return Estimate(value, value - _Z * error, value + _Z * error)
