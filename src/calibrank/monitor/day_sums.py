"""A day reduced to short arrays that add up, so that windows of a year of days are cheap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, add_up
from calibrank.maps import CalibrationMap
from calibrank.metrics import LogOddsBinned, Miscalibration
from calibrank.monitor.day import TOTAL, Day, probabilities_of
from calibrank.summary import Summary

# Where distributions of scores are compared: quantiles of the older one, so that a distance is
# missed by at most 1/512.
_POINTS = 512

# Only its bins and terms are used.
_BINNED = LogOddsBinned(Miscalibration())


class DaySums(NamedTuple):
    """Sums over the rows of one day or of several."""

    masses: Floats
    """Positive, total and predicted mass of labelled rows per bin of log odds, 3 x bins."""
    clusters: Floats
    """`Day.sums`: clusters x 4."""
    variances: Floats
    """`Day.variances`."""
    distribution: Floats
    """Mass of all rows with a score up to each point."""
    squares: Floats
    """Squared weights of all rows, times 1, their probability, and its square."""
    rows: Floats

    @property
    def mass(self) -> float:
        """Total mass of all rows."""
        return float(self.clusters[:, TOTAL].sum())

    @classmethod
    def of(cls, fitted: CalibrationMap, day: Day, points: Floats) -> DaySums:
        """Reduce a day; `points` are the scores at which distributions are compared."""
        scores = day.scores
        probabilities = probabilities_of(fitted, scores.scores)
        squares = scores.masses.total_squared
        return cls(
            masses=_masses(fitted, day.labelled),
            clusters=day.sums,
            variances=day.variances,
            distribution=_distribution(scores, points),
            squares=np.array([squares @ probabilities**power for power in range(3)]),
            rows=np.array(float(day.rows)),
        )

    @classmethod
    def total(cls, days: Sequence[DaySums]) -> DaySums:
        """The sums of several days."""
        return cls(*[np.sum(column, axis=0) for column in zip(*days, strict=True)])


def comparison_points(reference: Summary) -> Floats:
    """The scores at which distributions are compared with that of a reference."""
    cumulative = np.cumsum(reference.total) / reference.total.sum()
    levels = (np.arange(_POINTS) + 0.5) / _POINTS
    places = np.searchsorted(cumulative, levels).clip(max=len(reference) - 1)
    return np.unique(reference.scores[places])


def _masses(fitted: CalibrationMap, labelled: Summary | None) -> Floats:
    if labelled is None:
        return np.zeros((3, _BINNED.n_bins))
    probabilities = probabilities_of(fitted, labelled.scores)
    bins = _BINNED.bin_indices(probabilities, labelled.evidence)
    terms = _BINNED.terms(probabilities, labelled.evidence)
    return np.array([add_up(bins, term, _BINNED.n_bins) for term in terms])


def _distribution(summary: Summary, points: Floats) -> Floats:
    """The mass up to each point; between the bins of a grid it is interpolated."""
    cumulative = np.cumsum(summary.total)
    if summary.exact:
        at = np.searchsorted(summary.scores, points, side="right")
        return np.concatenate([[0.0], cumulative])[at]
    # A bin's mass lies around its mean score: half of it below.
    middle = cumulative - summary.total / 2
    return np.interp(points, summary.scores, middle, left=0.0, right=cumulative[-1])
