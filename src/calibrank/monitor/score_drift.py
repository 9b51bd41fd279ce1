"""Whether scores have moved, without labels, and what that does to the mean probability."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance
from calibrank.maps import CalibrationMap
from calibrank.maps.calibration_map import require_map
from calibrank.monitor.day import PREDICTED, TOTAL, Day
from calibrank.monitor.day_sums import DaySums, comparison_points

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
