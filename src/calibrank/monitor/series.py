"""Sums over the labels of each day: what a change of level or slope adds, and how they vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, add_up
from calibrank.maps import CalibrationMap
from calibrank.metrics import Miscalibration
from calibrank.monitor.day import LEVEL, SLOPE, Day, bounded_log_odds, probabilities_of

# Only its bins and terms are used.
_BINNED = Miscalibration()

SHIFTS = (-0.75, 0.75)
"""Changes of the level of which the exact likelihood ratio of labels is computed.

Where positives are rare, half as many or twice as many are a change of the log odds by 0.7 to 0.8.
"""


class Size(NamedTuple):
    """A size of changes, up and down."""

    change: float
    weight: float
    information: float = 0.0
    """Of a day, with which the weight is full. A small change takes more time with fewer labels,
    and cannot be told from effects of days by then."""

    def log_weight(self, information: Floats) -> Floats:
        """The log of the weight of either sign, by the information of a day."""
        share = np.minimum(information / self.information, 1) if self.information else 1.0
        return np.asarray(np.log(self.weight / 2) + 2 * np.log(share))


class Sizes(NamedTuple):
    """The sizes of changes that are looked for."""

    of: tuple[Size, ...]
    effects: float
    """Effects of days, as a multiple of those of the level."""
    share: float
    """A factor of the evidence: the share of the false alarms."""


# A change of the log odds by 0.75 halves or doubles a rare rate; 0.25 is a slope of 0.75 or 1.25.
_LEVELS = (Size(0.25, 0.23, 14.0), Size(0.5, 0.32), Size(0.75, 0.35), Size(1.5, 0.1))
LEVEL_SIZES = Sizes(_LEVELS, 1.0, share=1.4)
SLOPE_SIZES = Sizes((Size(0.25, 1.0, 8.0),), 0.25, share=0.8)


class DaySums(NamedTuple):
    """Sums over the rows of one day or of several."""

    masses: Floats
    """Positive, total and predicted mass of labelled rows per bin of log odds, 3 x bins."""
    clusters: Floats
    """`Day.sums`: clusters x 4."""
    variances: Floats
    """Model variances of residuals times 1, log odds and squared log odds."""
    information: Floats
    """The same with weights that are not squared: what an offset adds to residuals."""
    cumulants: Floats
    """For each of `SHIFTS` log(1 - p + p exp(shift)) - shift p, then p (1 - p), by label."""
    labels: Floats

    @classmethod
    def of(cls, fitted: CalibrationMap, day: Day) -> DaySums:
        """Reduce a day."""
        labelled, labels = day.labelled, np.array(float(day.labels))
        if labelled is None:
            empty = np.zeros((3, _BINNED.n_bins))
            none = np.zeros(3)
            return cls(empty, day.sums, none, none, none, labels)
        p = probabilities_of(fitted, labelled.scores)
        bins = _BINNED.bin_indices(p, labelled.evidence)
        terms = _BINNED.terms(p, labelled.evidence)
        masses = np.array([add_up(bins, term, _BINNED.n_bins) for term in terms])
        log_odds = bounded_log_odds(fitted, p)
        variances = moments(labelled.masses.total_squared * p * (1 - p), log_odds)
        information = moments(labelled.total * p * (1 - p), log_odds)
        cumulants = [np.log1p(p * np.expm1(shift)) - shift * p for shift in SHIFTS]
        by_label = np.array([*cumulants, p * (1 - p)]) @ labelled.total
        return cls(masses, day.sums, variances, information, by_label, labels)

    @classmethod
    def total(cls, days: Sequence[DaySums]) -> DaySums:
        """The sums of several days."""
        return cls(*[np.sum(column, axis=0) for column in zip(*days, strict=True)])


def moments(weights: Floats, values: Floats) -> Floats:
    """Weighted sums of the values to the powers of 0, 1 and 2."""
    return np.array([weights @ values**power for power in range(3)])


class Series(NamedTuple):
    """Sums over labels of each day that has any, for the level or for the slope."""

    sums: Floats
    information: Floats
    """What an offset of 1 adds to them: without weights, their variances if labels are independent.
    """
    noise: Floats
    """Their variances as they are between clusters of users, at least those of independent labels.
    """
    dependence: Floats
    """The ratio of these two variances, 1 or more."""
    cross: Floats
    """What an error of 1 of the map's slope adds to the sums of its level, and the reverse.

    It is about 0 while scores stay as they are, and a change of level where they move.
    """
    ages: Floats
    """Days since the first one."""
    skewness: Floats
    """2 x days: by how much a single change down or up differs from one of normal sums."""
    user_error: float
    """Standard deviation of the offset that comes from users who return."""
    sizes: Sizes

    def part(self, first: int, last: int) -> Series:
        """The days from `first` to before `last`."""
        days = slice(first, last)
        return self._replace(
            sums=self.sums[days],
            information=self.information[days],
            noise=self.noise[days],
            dependence=self.dependence[days],
            cross=self.cross[days],
            ages=self.ages[days],
            skewness=self.skewness[:, days],
        )


def series_of(days: Sequence[DaySums], ages: Floats) -> tuple[Series, Series]:
    """Of level and slope, from days that all have labels.

    The level's sums are residuals. The slope's are residuals times log odds, less what a change of
    level adds to them (an efficient score).
    """
    sums = DaySums(*map(np.array, zip(*days, strict=True)))
    # Offsets are those of log odds if weights are 1 on average.
    weight = float(sums.masses[:, 1].sum() / sums.labels.sum())
    down, up, expected = np.cumsum(sums.cumulants, axis=0).T
    skewness = np.array([down, up]) / (np.square(SHIFTS)[:, None] / 2 * expected)
    level = sums.clusters[:, :, LEVEL] / weight
    variances, information = sums.variances / weight**2, sums.information / weight
    centre = np.cumsum(information[:, 1]) / np.cumsum(information[:, 0])
    slope = sums.clusters[:, :, SLOPE] / weight - centre[:, None] * level
    cross = [information[:, 1] - about * information[:, 0] for about in (centre[-1], centre)]
    of_level = (level, variances[:, 0], information[:, 0], cross[0])
    of_slope = (slope, _about(centre, variances), _about(centre, information), cross[1])
    return (
        _series(*of_level, ages, skewness, LEVEL_SIZES),
        _series(*of_slope, ages, np.ones((2, len(days))), SLOPE_SIZES),
    )


def _about(centre: Floats, moments: Floats) -> Floats:
    """Second moments about a centre by day; those of a single probability say hardly anything."""
    zeroth, first, second = moments.T
    return np.maximum(second - 2 * centre * first + centre**2 * zeroth, 1e-9 * zeroth)


def _series(
    clusters: Floats,
    variances: Floats,
    information: Floats,
    cross: Floats,
    ages: Floats,
    skewness: Floats,
    sizes: Sizes,
) -> Series:
    """Dependence within users shows in the variance between clusters, on a day and over days."""
    between = clusters.shape[1] * np.var(clusters, axis=1)
    dependence = np.maximum(np.cumsum(between) / np.cumsum(variances), 1)
    noise = variances * dependence
    over_days = clusters.shape[1] * np.var(clusters.sum(axis=0))
    excess = max(float(over_days - noise.sum()), 0.0)
    user_error = np.sqrt(excess) / float(information.sum())
    sums = clusters.sum(axis=1)
    varying = (sums, information, noise, dependence, cross, ages)
    return Series(*varying, skewness, float(user_error), sizes)
