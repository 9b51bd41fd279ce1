"""Evidence for a change that may be looked at every day.

Let S_t be the sum of residuals of day t (for the slope: of residuals times log odds, with the level
removed) and V_t its variance under the map. Without a change

    S_t = V_t (offset + effect_t) + noise_t,

with an offset that is constant, because a map has an error, effects of days and of weekdays, and
noise of variance V_t or more. The offset has a normal prior: as wide as the map's standard error,
or wide, in case the map never was as good as that. Effects are normal with an unknown standard
deviation, which is averaged over a few values. So the days themselves show how much they vary.

A change on day k adds d to the offset from then on. Its likelihood ratio has an expectation of 1
if nothing changed. E is the average over sizes d and over days k, with the weight 1/364 for each
day: a Shiryaev-Roberts statistic. By Ville's inequality a mean of 1 over a year bounds the
probability that E exceeds 1/a by about a; `python -m benchmarks.monitor_claims` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri

from calibrank._internal.validation import Floats
from calibrank.monitor.day import LEVEL, SLOPE
from calibrank.monitor.windows import SHIFTS, DaySums

YEAR = 364
"""Days over which the probability of a false alarm is stated, and the longest memory."""

WIDE = 1.0
"""Standard deviation of an offset about which nothing is known."""

# Standard deviations of the effects of days, in log odds, and their prior probabilities.
_DAY_EFFECTS = ((0.0, 0.6), (0.07, 0.2), (0.15, 0.15), (0.4, 0.05))
_WEEKDAY_EFFECTS = ((0.0, 0.7), (0.2, 0.3))

# Correlation of the effects of consecutive days: a week of new items is between 1 and 7 days.
_PERSISTENCE = 0.8

# The probability that a map is off by more than its standard error explains.
_OFF_SHARE = 0.3

# False alarms are shared out: a change of level may have more than what is looked for besides.
_START_SHARE = 0.5

# The weight of normally distributed changes; two single ones share the rest.
_NORMAL_SHARE = 0.4

# Lengths of the windows since a change. Long ones lie apart: neighbours have the same evidence.
_DAILY = 8
_LENGTHS = np.unique([*range(1, _DAILY), *np.geomspace(_DAILY, YEAR, 22).round().astype(int)])
_LENGTH_WEIGHTS = np.diff(_LENGTHS, prepend=0) / YEAR

# Beyond this every number means the same, and sums of its exponential are still finite.
_LARGEST_LOG = 600.0


class Sizes(NamedTuple):
    """The sizes of changes that are looked for."""

    spread: float
    """Standard deviation of normally distributed changes."""
    single: float
    """Size of the two single changes, up and down."""
    effects: float
    """Effects of days, as a multiple of those of the level."""
    share: float
    """A factor of the evidence: the share of the false alarms."""


# A change of the log odds by 0.75 halves or doubles a rare rate; 0.25 is a slope of 0.75 or 1.25.
LEVEL_SIZES = Sizes(spread=0.5, single=SHIFTS[1], effects=1.0, share=1.0)
SLOPE_SIZES = Sizes(spread=0.25, single=0.25, effects=0.25, share=0.5)


class Series(NamedTuple):
    """Sums over labels of each day that has any, for the level or for the slope."""

    sums: Floats
    information: Floats
    """Their variances if the map is right and labels are independent."""
    noise: Floats
    """Their variances as they are between clusters of users, at least these."""
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
            ages=self.ages[days],
            skewness=self.skewness[:, days],
        )


def level_series(days: Sequence[DaySums], ages: Floats) -> Series:
    """The residuals of days that all have labels."""
    sums = DaySums(*map(np.array, zip(*days, strict=True)))
    weight = _mean_weight(sums)
    down, up, expected = np.cumsum(sums.cumulants, axis=0).T
    skewness = np.array([down, up]) / (np.square(SHIFTS)[:, None] / 2 * expected)
    clusters = sums.clusters[:, :, LEVEL] / weight
    return _series(clusters, sums.variances[:, 0] / weight**2, ages, skewness, LEVEL_SIZES)


def slope_series(days: Sequence[DaySums], ages: Floats) -> Series:
    """Residuals times log odds, less what a change of level adds to them (an efficient score)."""
    sums = DaySums(*map(np.array, zip(*days, strict=True)))
    weight = _mean_weight(sums)
    v0, v1, v2 = sums.variances.T / weight**2
    centre = np.cumsum(v1) / np.cumsum(v0)
    clusters = sums.clusters[:, :, SLOPE] - centre[:, None] * sums.clusters[:, :, LEVEL]
    information = v2 - 2 * centre * v1 + centre**2 * v0
    # Days of a single probability say nothing about the slope.
    information = np.maximum(information, 1e-9 * v0)
    return _series(clusters / weight, information, ages, np.ones((2, len(days))), SLOPE_SIZES)


def _mean_weight(sums: DaySums) -> float:
    """Offsets are those of log odds if weights are 1 on average."""
    return float(sums.masses[:, 1].sum() / sums.labels.sum())


def _series(
    clusters: Floats, information: Floats, ages: Floats, skewness: Floats, sizes: Sizes
) -> Series:
    """Dependence within users shows in the variance between clusters, on a day and over days."""
    between = clusters.shape[1] * np.var(clusters, axis=1)
    noise = information * np.maximum(np.cumsum(between) / np.cumsum(information), 1)
    over_days = clusters.shape[1] * np.var(clusters.sum(axis=0))
    excess = max(float(over_days - noise.sum()), 0.0)
    user_error = np.sqrt(excess) / float(information.sum())
    return Series(
        clusters.sum(axis=1), information, noise, ages, skewness, float(user_error), sizes
    )


class _Component(NamedTuple):
    """One value of each standard deviation of the days without a change."""

    whiten: Floats
    """Turns sums into independent ones of variance 1: an inverse Cholesky factor."""
    steps: Floats
    """A change by 1 on each day (columns), whitened."""
    information: Floats
    """Of a change, by day (rows) and length of the window (columns)."""
    log_scale: Floats
    """Log of the density's scale, over the days up to each."""
    log_weight: float
    is_wide: bool
    """Whether nothing is known about the offset."""

    def log_likelihood(self, sums: Floats) -> Floats:
        """Of the days up to each, with the component's weight and up to a constant."""
        squares: Floats = np.cumsum((self.whiten @ sums) ** 2)
        return self.log_weight - squares / 2 - self.log_scale


class Unchanged:
    """The distribution of daily sums without a change, which sums can be compared with.

    These are the sums of the series, or others of such days.
    """

    def __init__(self, series: Series, error: float | None, known: Sequence[int] = ()) -> None:
        """Allow for an offset, and for any change on the `known` days.

        `error` is the standard error of the map; None if nothing is known about the offset.
        """
        self._series = series
        self._starts = np.arange(len(series.ages))[:, None] - _LENGTHS + 1
        offsets: tuple[tuple[float, float], ...] = ((WIDE, 1.0),)
        if error is not None and error < WIDE:
            offsets = ((error, 1 - _OFF_SHARE), (WIDE, _OFF_SHARE))
        changes = _known_changes(series, known)
        self._components = []
        for effects in product(_DAY_EFFECTS, _WEEKDAY_EFFECTS, offsets):
            spreads, weights = zip(*effects, strict=True)
            root = np.linalg.cholesky(_covariance(series, *spreads) + changes)
            whiten, _ = dtrtri(root, lower=1)
            # A change on day k adds the information of all days from k on.
            steps = np.cumsum((whiten * series.information)[:, ::-1], axis=1)[:, ::-1]
            component = _Component(
                whiten=whiten,
                steps=steps,
                information=self._windows(np.cumsum(steps**2, axis=0)),
                log_scale=np.cumsum(np.log(np.diag(root))),
                log_weight=float(np.log(weights).sum()),
                is_wide=spreads[2] == WIDE,
            )
            self._components.append(component)

    def _windows(self, cumulative: Floats) -> Floats:
        """Of days (rows) by days of a change (columns), those that windows begin on."""
        return np.take_along_axis(cumulative, np.maximum(self._starts, 0), axis=1)

    def log_evidence(self, sums: Floats | None = None, earliest: int = 1) -> Floats:
        """The log of E on each day, for changes on day `earliest` or later."""
        sums = self._series.sums if sums is None else sums
        logs = []
        for component in self._components:
            whitened = component.whiten @ sums
            score = self._windows(np.cumsum(component.steps * whitened[:, None], axis=0))
            ratios = self._log_ratios(
                score, component.information, self._series.skewness[:, :, None]
            )
            logs.append(component.log_likelihood(sums)[:, None] + ratios)
        unchanged = np.logaddexp.reduce(self._log_likelihoods(sums))
        ratios = np.logaddexp.reduce(logs) - unchanged[:, None]
        weights = np.where(self._starts >= earliest, _LENGTH_WEIGHTS, 0.0)
        evidence = np.sum(weights * np.exp(np.minimum(ratios, _LARGEST_LOG)), axis=1)
        # A change that has not begun has no evidence yet: 1.
        share = self._series.sizes.share
        result: Floats = np.log(share * (evidence + 1 - weights.sum(axis=1)))
        return result

    def log_start(self, sums: Floats | None = None) -> Floats:
        """The log of the evidence that a map has been off since the first day."""
        logs = self._log_likelihoods(self._series.sums if sums is None else sums)
        is_wide = np.array([each.is_wide for each in self._components])
        if is_wide.all():
            return np.zeros(logs.shape[1])
        wide = np.logaddexp.reduce(logs[is_wide])
        narrow = np.logaddexp.reduce(logs[~is_wide])
        odds = _OFF_SHARE / (1 - _OFF_SHARE)
        result: Floats = wide - narrow + np.log(_START_SHARE / odds)
        return result

    def log_since(self) -> Floats:
        """For a change on each day, the log of its evidence in all days since, and a constant."""
        logs = []
        for component in self._components:
            score = component.steps.T @ (component.whiten @ self._series.sums)
            information = np.sum(component.steps**2, axis=0)
            ratios = self._log_ratios(score, information, self._series.skewness[:, -1:])
            logs.append(component.log_likelihood(self._series.sums)[-1] + ratios)
        result: Floats = np.logaddexp.reduce(logs)
        return result

    def _log_likelihoods(self, sums: Floats) -> Floats:
        """Of the days up to each without a change: components x days."""
        return np.array([each.log_likelihood(sums) for each in self._components])

    def _log_ratios(self, score: Floats, information: Floats, skewness: Floats) -> Floats:
        """Averaged over sizes: normal ones (Robbins, 1970), and the labels' exact ratio for two."""
        sizes = self._series.sizes
        spread = sizes.spread**2
        width = 1 + spread * information
        normal = spread * score**2 / (2 * width) - np.log(width) / 2
        logs = [np.log(_NORMAL_SHARE) + normal]
        for sign, factor in zip((-1, 1), skewness, strict=True):
            change = sign * sizes.single
            ratio = change * score - factor * change**2 * information / 2
            logs.append(np.log((1 - _NORMAL_SHARE) / 2) + ratio)
        result: Floats = np.logaddexp.reduce(logs)
        return result


def _covariance(series: Series, day: float, weekday: float, offset: float) -> Floats:
    gaps = np.abs(series.ages[:, None] - series.ages)
    effects = day**2 * _PERSISTENCE**gaps + weekday**2 * (gaps % 7 == 0)
    spread = series.sizes.effects**2 * effects + offset**2
    covariance: Floats = spread * np.outer(series.information, series.information)
    return covariance + np.diag(series.noise)


def _known_changes(series: Series, known: Sequence[int]) -> Floats:
    """The covariance of sums that changes of unknown size on known days add."""
    changed = np.zeros((len(known), len(series.ages)))
    for row, day in enumerate(known):
        changed[row, day:] = WIDE * series.information[day:]
    covariance: Floats = changed.T @ changed
    return covariance
