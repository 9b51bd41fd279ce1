"""Evidence against a map that may be looked at every day: e-processes of level and slope.

Let S be the sum of residuals (level), or of residuals times log odds with the level removed
(slope), and V its variance. For changes of the log odds with a normal prior of variance t^2, the
likelihood ratio of "the map changed" to "it did not" is

    E = (1 + t^2 V)^(-1/2) exp(t^2 S^2 / (2 (1 + t^2 V))).

If nothing changed, E starts at 1 and, where S is normal, the probability that it ever exceeds 1/a
is at most a, whenever and however often it is looked at (Robbins, 1970; for sums that are only
approximately normal, Waudby-Smith et al., 2021). A mixture over the weeks in which a change may
begin is again such a process, and finds late changes as well as early ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._validation import Floats
from calibrank.monitor.day import LEVEL, SLOPE, Day
from calibrank.monitor.store import age_of

ALPHA = 0.05
"""The probability of a false alarm in a year without change, at most."""

LOG_THRESHOLD = float(np.log(2 / ALPHA))
"""The log of E from which on it is an alarm; level and slope have half of `ALPHA` each."""

YEAR = 364
"""Days after which the processes start again, with a new probability of a false alarm."""

_WEEK = 7

# Standard deviations of the changes of level and slope that are looked for: half and a quarter of
# a log odd are changes worth a refit.
_SCALES = (0.5, 0.25)

# Half of the weight is on changes since the beginning, the rest is spread over later weeks.
_FIRST_SHARE = 0.5


class LogEvidence(NamedTuple):
    """The log of E on each day."""

    level: Floats
    slope: Floats


def evidence_of(days: Sequence[Day]) -> LogEvidence:
    """Compute the log of both processes on each day, in order of their dates."""
    sums = np.array([day.sums[:, [LEVEL, SLOPE]] for day in days])
    variances = np.array([day.variances for day in days])
    ages = np.array([age_of(days[0].date, day.date) for day in days])
    logs = np.zeros((len(days), 2))
    for year in np.unique(ages // YEAR):
        rows = np.flatnonzero(ages // YEAR == year)
        weeks = (ages[rows] % YEAR) // _WEEK
        logs[rows] = log_evidence(sums[rows], variances[rows], weeks)
    return LogEvidence(*logs.T)


def log_evidence(sums: Floats, variances: Floats, weeks: Floats) -> Floats:
    """The log of both processes of at most one year, days x 2.

    `sums` are days x clusters x 2, `variances` days x 3, and `weeks` the week of each day.
    """
    n_weeks = YEAR // _WEEK
    later = (1 - _FIRST_SHARE) / (n_weeks - 1)
    # A change that begins after a day has no evidence on it yet: E is 1.
    total = np.zeros((len(sums), 2))
    total_weight = np.zeros(len(sums))
    for week in np.unique(weeks):
        first = int(np.argmax(weeks >= week))
        weight = _FIRST_SHARE if week == 0 else later
        logs = _since(sums[first:], variances[first:])
        total[first:] += weight * np.exp(np.minimum(logs, _LARGEST_LOG))
        total_weight[first:] += weight
    return np.log(total + (1 - total_weight)[:, None])


# Beyond this every number means the same, and sums of its exponential are still finite.
_LARGEST_LOG = 600.0


def _since(sums: Floats, variances: Floats) -> Floats:
    """The log of E for a change before the first of the given days, days x 2."""
    cumulative = np.cumsum(sums, axis=0)
    variance = np.cumsum(variances, axis=0)
    # What a change of level adds to the slope's sum is removed from it (an efficient score).
    ratio = np.divide(
        variance[:, 1], variance[:, 0], out=np.zeros(len(sums)), where=variance[:, 0] > 0
    )
    level = cumulative[:, :, 0]
    slope = cumulative[:, :, 1] - ratio[:, None] * level
    model = (variance[:, 0], variance[:, 2] - ratio * variance[:, 1])
    logs = []
    for by_cluster, independent, scale in zip((level, slope), model, _SCALES, strict=True):
        # Dependence within users shows in the variance between clusters; around their mean, as a
        # change of all of them is no noise. Chance may make it too small, so the variance of
        # independent labels is the least.
        between = by_cluster.shape[1] * np.var(by_cluster, axis=1)
        v = np.maximum(independent, between)
        s = by_cluster.sum(axis=1)
        spread = 1 + scale**2 * v
        logs.append(scale**2 * s**2 / (2 * spread) - np.log(spread) / 2)
    return np.column_stack(logs)
