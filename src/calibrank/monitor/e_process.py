"""Evidence against a map that may be looked at every day: e-processes of level and slope.

Let S be the sum of residuals (level), or of residuals times log odds with the level removed
(slope), and V its variance, over the labels since a day. If nothing changed, each of these has an
expectation of 1, whatever the day:

- for changes of the log odds with a normal prior of variance t^2, the likelihood ratio
  (1 + t^2 V)^(-1/2) exp(t^2 S^2 / (2 (1 + t^2 V))) (Robbins, 1970);
- for a change of the level by d, exp(d S - K), where K is the sum over labels of
  log(1 - p + p e^d) - d p. This is the likelihood ratio of the labels themselves, without the
  normal approximation, which would need 100 labels more where positives are rare;
- for a change of the slope by d, exp(d S - d^2 V / 2).

E is their average over the changes, and over the days on which a change may begin (a
Shiryaev-Roberts statistic with weights that sum to 1): what came before a change does not dilute
it. Like its parts it starts at 1, and the probability that it ever exceeds 1/a is at most a,
whenever and however often it is looked at (Ville, 1939; for sums that are only approximately
normal, Waudby-Smith et al., 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, Indices
from calibrank.monitor.day import LEVEL, SHIFTS, SLOPE, Day
from calibrank.monitor.store import age_of

ALPHA = 0.05
"""The probability of a false alarm in a year without change, at most."""

LOG_THRESHOLD = float(np.log(2 / ALPHA))
"""The log of E from which on it is an alarm; level and slope have half of `ALPHA` each."""

YEAR = 364
"""Days after which the processes start again, with a new probability of a false alarm."""

# Standard deviations of the changes of level and slope that are looked for: half and a quarter of
# a log odd are changes worth a refit.
_SCALES = (0.5, 0.25)

# Changes of the slope with a weight of their own; those of the level are `SHIFTS`.
_SLOPE_CHANGES = (-0.25, 0.25)

# The weight of the normal prior; single changes share the rest.
_NORMAL_SHARE = 0.4

# A map may be wrong from the start, which is more likely than on any other day.
_FIRST_SHARE = 0.25

# Beyond this every number means the same, and sums of its exponential are still finite.
_LARGEST_LOG = 600.0


class LogEvidence(NamedTuple):
    """The log of E on each day."""

    level: Floats
    slope: Floats


class YearSums(NamedTuple):
    """The days of at most one year, as arrays."""

    sums: Floats
    """Residuals, and these times log odds: days x clusters x 2."""
    variances: Floats
    """`Day.variances`: days x 3."""
    cumulants: Floats
    """`Day.cumulants`: days x 2."""
    ages: Floats
    """Days since the beginning of the year."""

    def rows(self, rows: Indices) -> YearSums:
        """Some of the days."""
        return YearSums(*[values[rows] for values in self])


def evidence_of(days: Sequence[Day]) -> LogEvidence:
    """Compute the log of both processes on each day, in order of their dates."""
    ages = np.array([age_of(days[0].date, day.date) for day in days])
    everything = _year_sums(days, ages)
    logs = np.zeros((len(days), 2))
    for year in np.unique(ages // YEAR):
        rows = np.flatnonzero(ages // YEAR == year)
        logs[rows] = log_evidence(everything.rows(rows))
    return LogEvidence(*logs.T)


def _year_sums(days: Sequence[Day], ages: Floats) -> YearSums:
    return YearSums(
        sums=np.array([day.sums[:, [LEVEL, SLOPE]] for day in days]),
        variances=np.array([day.variances for day in days]),
        cumulants=np.array([day.cumulants for day in days]),
        ages=ages % YEAR,
    )


def beginning_of(days: Sequence[Day], alarm: int, process: int) -> int:
    """The place of the day on which a change most likely began, an estimate.

    `alarm` is the place of the day of the alarm, `process` 0 for the level and 1 for the slope. Of
    the days up to the alarm it is the one from which on the labels of that year have the most
    evidence.
    """
    ages = np.array([age_of(days[0].date, day.date) for day in days])
    rows = np.flatnonzero(ages // YEAR == ages[alarm] // YEAR)
    year = [days[row] for row in rows.tolist()]
    logs = _logs_since(_year_sums(year, ages[rows]))[process]
    since = logs[rows <= alarm, -1]
    # Days without labels have the evidence of the next one: the last of equals has labels.
    return int(rows[len(since) - 1 - np.argmax(since[::-1])])


def log_evidence(year: YearSums) -> Floats:
    """The log of both processes on each day of at most one year, days x 2."""
    weights = _weights(year.ages)
    # A change that begins after a day has no evidence on it yet: E is 1.
    not_begun = 1 - np.cumsum(weights)
    results = []
    for logs in _logs_since(year):
        ratios = np.triu(np.exp(np.minimum(logs, _LARGEST_LOG)))
        results.append(np.log(weights @ ratios + not_begun))
    return np.column_stack(results)


def _weights(ages: Floats) -> Floats:
    """The weight of a change on each day, or on one before it that is missing."""
    later = (1 - _FIRST_SHARE) / (YEAR - 1)
    weights = later * np.diff(ages, prepend=ages[0])
    weights[0] = _FIRST_SHARE
    return weights


def _logs_since(year: YearSums) -> list[Floats]:
    """For level and slope, the log of E for a change on each day (rows) by each day (columns)."""
    sums = _Sums.of(year.sums)
    v0, v1, v2 = [_since(values) for values in year.variances.T]
    # What a change of level adds to the slope's sum is removed from it (an efficient score).
    ratio = np.divide(v1, v0, out=np.zeros_like(v0), where=v0 > 0)
    level = sums.level
    slope = sums.slope - ratio * level
    between = sums.level_between
    slope_between = sums.slope_between - 2 * ratio * sums.both_between + ratio**2 * between
    # Dependence within users shows in the variance between clusters. Chance may make it too small,
    # so the variance of independent labels is the least.
    level_variance = np.maximum(v0, between)
    slope_variance = np.maximum(v2 - ratio * v1, slope_between)
    # By the factor by which labels depend on each other, there are fewer of them.
    dependence = np.divide(level_variance, v0, out=np.ones_like(v0), where=v0 > 0)
    cumulants = [_since(values) for values in year.cumulants.T]
    level_ratios = [
        (shift * level - cumulant) / dependence
        for shift, cumulant in zip(SHIFTS, cumulants, strict=True)
    ]
    slope_ratios = [change * slope - change**2 * slope_variance / 2 for change in _SLOPE_CHANGES]
    return [
        _average(_normal_prior(level, level_variance, _SCALES[0]), level_ratios),
        _average(_normal_prior(slope, slope_variance, _SCALES[1]), slope_ratios),
    ]


class _Sums(NamedTuple):
    """Sums from each day (rows) to each day (columns), and their variances between clusters."""

    level: Floats
    slope: Floats
    level_between: Floats
    both_between: Floats
    slope_between: Floats

    @classmethod
    def of(cls, sums: Floats) -> _Sums:
        level, slope = np.moveaxis(sums, 2, 0)
        # Around the mean of the clusters, as a change of all of them is no noise.
        level_rest = level - level.mean(axis=1, keepdims=True)
        slope_rest = slope - slope.mean(axis=1, keepdims=True)
        return cls(
            _since(level.sum(axis=1)),
            _since(slope.sum(axis=1)),
            _products(level_rest, level_rest),
            _products(level_rest, slope_rest),
            _products(slope_rest, slope_rest),
        )


def _since(values: Floats) -> Floats:
    """Sums from each day (rows) to each day (columns)."""
    cumulative = np.cumsum(values)
    before = cumulative - values
    differences: Floats = cumulative[None, :] - before[:, None]
    return differences


def _products(first: Floats, second: Floats) -> Floats:
    """Over clusters, the sum of the products of two sums, each from day to day.

    With cumulative sums a and b, the sum of (a_t - a_s)(b_t - b_s) needs only products of matrices.
    """
    a = np.cumsum(first, axis=0)
    b = np.cumsum(second, axis=0)
    a_before = a - first
    b_before = b - second
    after = np.sum(a * b, axis=1)
    before = np.sum(a_before * b_before, axis=1)
    crossed = a_before @ b.T + b_before @ a.T
    result: Floats = after[None, :] + before[:, None] - crossed
    return result


def _normal_prior(s: Floats, v: Floats, scale: float) -> Floats:
    spread = 1 + scale**2 * np.maximum(v, 0)
    result: Floats = scale**2 * s**2 / (2 * spread) - np.log(spread) / 2
    return result


def _average(normal: Floats, single: Sequence[Floats]) -> Floats:
    share = (1 - _NORMAL_SHARE) / len(single)
    logs = [np.log(_NORMAL_SHARE) + normal, *[np.log(share) + each for each in single]]
    result: Floats = np.logaddexp.reduce(logs)
    return result
