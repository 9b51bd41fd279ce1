"""Evidence for a change that may be looked at every day.

Let S_t be the sum of residuals of day t (for the slope: of residuals times log odds, with the level
removed) and V_t its derivative by the offset: without weights, its variance under the map. Without
a change

    S_t = V_t (offset + effect_t) + noise_t,

with an offset that is constant, because a map has an error, effects of days and of weekdays, and
noise, whose variance is that of independent labels or more. The offset has a normal prior: as wide
as the map's standard error, or wide, in case the map never was as good as that. Effects are normal
with an unknown standard deviation, which is averaged over a few values. So the days themselves show
how much they vary.

A change on day k adds d to the offset from then on. E is the ratio of two averages: of the
likelihoods of all changes (sizes d, and days k with the weight 1/364 each: a Shiryaev-Roberts
statistic) and of the likelihoods without one, both over the effects of days. Days that vary have
a larger weight in the second average than in the first. Otherwise years in which they do would
have most false alarms, as it takes months to learn that they do.

E has an expectation of 1 over years of the second average, so by Ville's inequality a year exceeds
20 with a probability of 5% at most. It is far less, because E leaps past 20. So E is multiplied
by a share that was chosen by simulation: about 5% of years at most have an alarm
(`python -m benchmarks.monitor_claims`).

What items of a week share does not average out over many labels, and effects of days are not quite
normal. So a day counts as at most 400 labels: log likelihoods are the ones expected of a random
choice of 400. Nothing is drawn, as this expectation has a formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri

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

YEAR = 364
"""Days over which the probability of a false alarm is stated, and the longest memory."""

WIDE = 1.0
"""Standard deviation of an offset about which nothing is known."""

# Standard deviations of the effects of days, in log odds, and their prior probabilities: without
# a change, and with one.
_DAY_EFFECTS = ((0.0, 0.25, 0.6), (0.07, 0.3, 0.2), (0.15, 0.35, 0.15), (0.4, 0.1, 0.05))
_WEEKDAY_EFFECTS = ((0.0, 0.7), (0.2, 0.3))

# Correlation of the effects of consecutive days: a week of new items is between 1 and 7 days.
_PERSISTENCE = 0.8

# Of a day: 400 labels of a rate of 31%.
_MOST_INFORMATION = 85.0

# The probability that a map is off by more than its standard error explains.
_OFF_SHARE = 0.3

# False alarms are shared out: changes have more of them than maps that are off from the start.
_START_SHARE = 1 / 8

# Lengths of the windows since a change. Long ones lie apart: neighbours have the same evidence.
_DAILY = 8
_LENGTHS = np.unique([*range(1, _DAILY), *np.geomspace(_DAILY, YEAR, 22).round().astype(int)])
_LENGTH_WEIGHTS = np.diff(_LENGTHS, prepend=0) / YEAR

# Beyond this every number means the same, and sums of its exponential are still finite.
_LARGEST_LOG = 600.0


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
        log_odds = bounded_log_odds(p)
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
    of_level = (level, variances[:, 0], information[:, 0])
    of_slope = (slope, _about(centre, variances), _about(centre, information))
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
    return Series(sums, information, noise, dependence, ages, skewness, float(user_error), sizes)


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
    """Of the prior probability without a change."""
    log_odds: float
    """Of the prior probabilities with and without a change."""
    is_wide: bool
    """Whether nothing is known about the offset."""

    def log_likelihood(self, sums: Floats) -> Floats:
        """Of the days up to each, with the component's weight and up to a constant."""
        squares: Floats = np.cumsum((self.whiten @ sums) ** 2)
        return self.log_weight - squares / 2 - self.log_scale

    def log_change(self, sums: Floats) -> Floats:
        """The same with the component's weight in case of a change."""
        return self.log_odds + self.log_likelihood(sums)


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
        # What changes of unknown size on known days add to the covariance.
        changed = np.zeros((len(known), len(series.ages)))
        for row, day in enumerate(known):
            changed[row, day:] = WIDE * series.information[day:]
        counted = _counted_noise(series)
        always = changed.T @ changed + np.diag(counted)
        self._components = []
        for of_days, of_weekdays, of_map in product(_DAY_EFFECTS, _WEEKDAY_EFFECTS, offsets):
            spreads = (of_days[0], of_weekdays[0], of_map[0])
            root = np.linalg.cholesky(_covariance(series, *spreads) + always)
            whiten, _ = dtrtri(root, lower=1)
            # What squares of fewer labels are larger by, on average. Without it, days of many
            # labels vary so little that they seem to have no effects, and weeks to be changes.
            excess = whiten**2 @ (counted - series.noise)
            # A change on day k adds the information of all days from k on.
            steps = np.cumsum((whiten * series.information)[:, ::-1], axis=1)[:, ::-1]
            component = _Component(
                whiten=whiten,
                steps=steps,
                information=self._windows(np.cumsum(steps**2, axis=0)),
                log_scale=np.cumsum(np.log(np.diag(root)) + excess / 2),
                log_weight=float(np.log(of_days[1] * of_weekdays[1] * of_map[1])),
                log_odds=float(np.log(of_days[2] / of_days[1])),
                is_wide=of_map[0] == WIDE,
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
            # The first window has one day: what a day says about a change.
            information, of_day = component.information, component.information[:, :1]
            skewness = self._series.skewness[:, :, None]
            ratios = self._log_ratios(score, information, of_day, skewness)
            logs.append(component.log_change(sums)[:, None] + ratios)
        unchanged = np.logaddexp.reduce(self._log_likelihoods(sums))
        ratios = _log_sum(np.array(logs)) - unchanged[:, None]
        weights = np.where(self._starts >= earliest, _LENGTH_WEIGHTS, 0.0)
        evidence = np.sum(weights * np.exp(np.minimum(ratios, _LARGEST_LOG)), axis=1)
        # A change that has not begun has no evidence yet: 1.
        share = self._series.sizes.share
        return np.log(share * (evidence + 1 - weights.sum(axis=1)))

    def log_start(self, sums: Floats | None = None) -> Floats:
        """The log of the evidence that a map has been off since the first day."""
        logs = self._log_likelihoods(self._series.sums if sums is None else sums)
        is_wide = np.array([each.is_wide for each in self._components])
        if is_wide.all():
            return np.zeros(logs.shape[1])
        wide = np.logaddexp.reduce(logs[is_wide])
        narrow = np.logaddexp.reduce(logs[~is_wide])
        odds = _OFF_SHARE / (1 - _OFF_SHARE)
        return wide - narrow + np.log(_START_SHARE / odds)

    def log_since(self) -> Floats:
        """For a change on each day, the log of its evidence in all days since, and a constant."""
        logs = []
        for component in self._components:
            score = component.steps.T @ (component.whiten @ self._series.sums)
            information = np.sum(component.steps**2, axis=0)
            of_day, skewness = component.information[-1, :1], self._series.skewness[:, -1:]
            ratios = self._log_ratios(score, information, of_day, skewness)
            logs.append(component.log_change(self._series.sums)[-1] + ratios)
        return np.logaddexp.reduce(logs)

    def _log_likelihoods(self, sums: Floats) -> Floats:
        """Of the days up to each without a change: components x days."""
        return np.array([each.log_likelihood(sums) for each in self._components])

    def _log_ratios(
        self, score: Floats, information: Floats, of_day: Floats, skewness: Floats
    ) -> Floats:
        """Averaged over sizes, up and down."""
        logs = []
        for size in self._series.sizes.of:
            for sign, of_shift in zip((-1, 1), skewness, strict=True):
                change = sign * size.change
                # Exact for `SHIFTS`, and for other sizes of rare labels within 4%.
                factor = of_shift ** (size.change / SHIFTS[1])
                ratios = change * score - factor * change**2 * information / 2
                logs.append(size.log_weight(of_day) + ratios)
        return _log_sum(np.array(logs))


def _log_sum(logs: Floats) -> Floats:
    """Of exponentials, over the first axis; `np.logaddexp.reduce` takes three times as long."""
    largest = logs.max(axis=0)
    total: Floats = np.log(np.exp(logs - largest).sum(axis=0))
    return largest + total


def _covariance(series: Series, day: float, weekday: float, offset: float) -> Floats:
    """Of what all labels of a day share."""
    gaps = np.abs(series.ages[:, None] - series.ages)
    effects = day**2 * _PERSISTENCE**gaps + weekday**2 * (gaps % 7 == 0)
    spread = series.sizes.effects**2 * effects + offset**2
    covariance: Floats = spread * np.outer(series.information, series.information)
    return covariance


def _counted_noise(series: Series) -> Floats:
    """The variance of the noise with at most as many labels as count."""
    least = (series.sizes.effects * series.information) ** 2 / _MOST_INFORMATION
    counted: Floats = np.maximum(series.noise, least)
    return counted
