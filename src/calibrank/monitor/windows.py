"""Windows of days as short arrays that add up: level, slope and drift of the scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from calibrank._internal.arguments import instance
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, Indices, add_up
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap
from calibrank.maps.calibration_map import require_map
from calibrank.metrics import Estimate, Miscalibration
from calibrank.metrics.pooled import pooled_bins
from calibrank.metrics.recalibration import fit_recalibration
from calibrank.monitor.day import (
    LEVEL,
    PREDICTED,
    SLOPE,
    TOTAL,
    Day,
    bounded_log_odds,
    probabilities_of,
)
from calibrank.summary import Summary

# Where distributions of scores are compared: quantiles of the older one, so that a distance is
# missed by at most 1/512.
_POINTS = 512

# Only its bins and terms are used.
_BINNED = Miscalibration()

SHIFTS = (-0.75, 0.75)
"""Changes of the level of which the exact likelihood ratio of labels is computed.

Where positives are rare, half as many or twice as many are a change of the log odds by 0.7 to 0.8.
"""


class DaySums(NamedTuple):
    """Sums over the rows of one day or of several."""

    masses: Floats
    """Positive, total and predicted mass of labelled rows per bin of log odds, 3 x bins."""
    clusters: Floats
    """`Day.sums`: clusters x 4."""
    variances: Floats
    """Model variances of residuals times 1, log odds and squared log odds."""
    cumulants: Floats
    """For each of `SHIFTS` log(1 - p + p exp(shift)) - shift p, then p (1 - p), by label."""
    distribution: Floats
    """Mass of all rows with a score up to each point."""
    squares: Floats
    """Squared weights of all rows, times 1, their probability, and its square."""
    rows: Floats
    labels: Floats

    @property
    def mass(self) -> float:
        """Total mass of all rows."""
        return float(self.clusters[:, TOTAL].sum())

    @classmethod
    def of(cls, fitted: CalibrationMap, day: Day, points: Floats | None = None) -> DaySums:
        """Reduce a day; `points` are the scores at which distributions are compared."""
        scores = day.scores
        squares = scores.masses.total_squared
        of_labels = _label_sums(fitted, day.labelled)
        return cls(
            of_labels[0],
            day.sums,
            *of_labels[1:],
            distribution=_distribution(scores, np.empty(0) if points is None else points),
            squares=_moments(squares, probabilities_of(fitted, scores.scores)),
            rows=np.array(float(day.rows)),
            labels=np.array(float(day.labels)),
        )

    @classmethod
    def total(cls, days: Sequence[DaySums]) -> DaySums:
        """The sums of several days."""
        return cls(*[np.sum(column, axis=0) for column in zip(*days, strict=True)])


def _moments(weights: Floats, values: Floats) -> Floats:
    return np.array([weights @ values**power for power in range(3)])


def _label_sums(fitted: CalibrationMap, labelled: Summary | None) -> tuple[Floats, Floats, Floats]:
    """`DaySums.masses`, `variances` and `cumulants`."""
    if labelled is None:
        return np.zeros((3, _BINNED.n_bins)), np.zeros(3), np.zeros(3)
    p = probabilities_of(fitted, labelled.scores)
    bins = _BINNED.bin_indices(p, labelled.evidence)
    terms = _BINNED.terms(p, labelled.evidence)
    masses = np.array([add_up(bins, term, _BINNED.n_bins) for term in terms])
    variances = _moments(labelled.masses.total_squared * p * (1 - p), bounded_log_odds(p))
    cumulants = [np.log1p(p * np.expm1(shift)) - shift * p for shift in SHIFTS]
    return masses, variances, np.array([*cumulants, p * (1 - p)]) @ labelled.total


def proportional(mass: Floats, count: int) -> Indices:
    """Places of rows, each as often as its mass says (systematic sampling)."""
    cumulative = np.cumsum(mass)
    levels = (np.arange(count) + 0.5) / count * cumulative[-1]
    return np.searchsorted(cumulative, levels).clip(max=len(mass) - 1)


def comparison_points(reference: Summary) -> Floats:
    """The scores at which distributions are compared with that of a reference."""
    return np.unique(reference.scores[proportional(reference.total, _POINTS)])


def _distribution(summary: Summary, points: Floats) -> Floats:
    """The mass up to each point; between the bins of a grid it is interpolated."""
    cumulative = np.cumsum(summary.total)
    if summary.exact:
        at = np.searchsorted(summary.scores, points, side="right")
        return np.concatenate([[0.0], cumulative])[at]
    # A bin's mass lies around its mean score: half of it below.
    middle = cumulative - summary.total / 2
    return np.interp(points, summary.scores, middle, left=0.0, right=cumulative[-1])


# The 97.5% quantile of the normal distribution.
_Z = 1.96

# Levels beyond this are those of labels that are all equal.
_LARGEST_LEVEL = 60.0
_TOLERANCE = 1e-10
_LEAST_SPREAD = 1e-9


class Corrections(NamedTuple):
    """What would have to be done to the map's log odds, with 95% intervals clustered by user."""

    level: Estimate | None = None
    """To be added, with the slope left at 1: above 0 the probabilities are too low."""
    slope: Estimate | None = None
    """Factor, with the level free: below 1 the probabilities are too extreme."""


def corrections(sums: DaySums) -> Corrections:
    """Estimate both from the labels of some days; neither without labels."""
    if not sums.masses[1].any():
        return Corrections()
    probabilities, evidence = pooled_bins(sums.masses)
    log_odds = bounded_log_odds(probabilities)
    shift = _fit_level(log_odds, evidence)
    slope, intercept = fit_recalibration(probabilities, evidence)
    level_error, _ = _errors(sums, evidence.total, log_odds, shift + log_odds)
    _, slope_error = _errors(sums, evidence.total, log_odds, intercept + slope * log_odds)
    return Corrections(_interval(shift, level_error), _interval(slope, slope_error))


def _fit_level(log_odds: Floats, evidence: Evidence) -> float:
    """The shift at which predicted and positive mass agree."""
    mass = evidence.total.sum()
    # Half an observation of either kind keeps it finite where all labels are equal.
    least = 0.5 / (mass + 1)
    rate = np.clip(evidence.positive.sum() / mass, least, 1 - least)

    def excess(shift: float) -> float:
        return float(evidence.total @ expit(log_odds + shift) / mass - rate)

    return float(brentq(excess, -_LARGEST_LEVEL, _LARGEST_LEVEL, xtol=_TOLERANCE))


def _errors(sums: DaySums, total: Floats, log_odds: Floats, fitted: Floats) -> tuple[float, float]:
    """Standard errors of level and slope: sandwiches with sums per cluster of users inside."""
    p = expit(fitted)
    moments = _moments(total * p * (1 - p), log_odds)
    if moments[0] <= 0:
        return np.inf, np.inf
    centre = moments[1] / moments[0]
    level = sums.clusters[:, LEVEL]
    slope = sums.clusters[:, SLOPE] - centre * level
    independent = float(sums.variances @ [centre**2, -2 * centre, 1.0])
    level_error = _root(level, float(sums.variances[0])) / moments[0]
    spread = moments[2] - centre * moments[1]
    # A single probability has no slope.
    has_slope = spread > _LEAST_SPREAD * moments[0]
    return level_error, _root(slope, independent) / spread if has_slope else np.inf


def _root(by_cluster: Floats, independent: float) -> float:
    """The standard deviation of a sum over clusters, at least that of independent labels."""
    clustered = len(by_cluster) * float(np.var(by_cluster))
    return float(np.sqrt(max(clustered, independent)))


def _interval(value: float, error: float) -> Estimate:
    return Estimate(value, value - _Z * error, value + _Z * error)


# The Kolmogorov-Smirnov distance of two samples of one distribution exceeds this number over the
# root of their effective size in 1 of 1,000 cases (Smirnov, 1948): rarely enough for daily looks.
_CRITICAL = 1.95


class ScoreDrift(NamedTuple):
    """The distance between two score distributions, and its effect on the mean probability."""

    distance: float
    """Kolmogorov-Smirnov distance: the largest difference of the distribution functions."""
    noise: float
    """What the distance exceeds in 1 of 1,000 cases if nothing changed."""
    effect: float
    """Mean probability of the new scores minus that of the old ones, by the same map."""
    effect_error: float
    """Its standard error, clustered by user."""

    @property
    def matters(self) -> bool:
        """Whether the distance is more than chance explains."""
        return self.distance > self.noise


def score_drift(fitted: CalibrationMap, old: Day, new: Day) -> ScoreDrift:
    """Compare the scores of two periods, labelled or not."""
    require_map(fitted)
    for name, day in (("old", old), ("new", new)):
        instance(name, day, Day, "Make one with Day.of(...).")
    points = comparison_points(old.scores)
    return drift_of(*[DaySums.of(fitted, day, points) for day in (old, new)])


def drift_of(old: DaySums, new: DaySums) -> ScoreDrift:
    """Compare the sums of two periods."""
    first = _mean_probability(old)
    second = _mean_probability(new)
    sizes = (old.rows / first.design, new.rows / second.design)
    effective = sizes[0] * sizes[1] / (sizes[0] + sizes[1])
    gaps = old.distribution / old.mass - new.distribution / new.mass
    return ScoreDrift(
        distance=float(np.abs(gaps).max()),
        noise=float(_CRITICAL / np.sqrt(effective)),
        effect=second.mean - first.mean,
        effect_error=float(np.hypot(first.error, second.error)),
    )


class _Mean(NamedTuple):
    mean: float
    error: float
    design: float
    """The factor by which the dependence of a user's rows raises the variance of the mean."""


def _mean_probability(sums: DaySums) -> _Mean:
    predicted = sums.clusters[:, PREDICTED]
    total = sums.clusters[:, TOTAL]
    mean = float(predicted.sum() / sums.mass)
    clustered = float(np.sum((predicted - mean * total) ** 2)) / sums.mass**2
    spread = sums.squares @ [mean**2, -2 * mean, 1.0]
    independent = max(float(spread), 0.0) / sums.mass**2
    # Clusters that happen to agree do not make rows more informative than independent ones.
    variance = max(clustered, independent)
    design = variance / independent if independent > 0 else 1.0
    return _Mean(mean, float(np.sqrt(variance)), design)
