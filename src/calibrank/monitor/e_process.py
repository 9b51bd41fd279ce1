"""Evidence for a change that may be looked at every day.

Let S_t be the sum of residuals of day t (for the slope: of residuals times log odds, with the level
removed) and V_t its derivative by the offset: without weights, its variance under the map. Without
a change

    S_t = V_t (offset + effect_t) + noise_t,

with an offset that is constant, because a map has an error, effects of days and of weekdays, and
noise, whose variance is that of independent labels or more. The offset has a normal prior: as wide
as the map's standard error, or wide, in case the map never was as good as that. Effects are normal
with an unknown standard deviation, which is averaged over a few values. So the days themselves show
how much they vary. Where scores move, an error of the slope is an effect on the level, and the
reverse; it is normal too.

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

from calibrank._internal.validation import Floats
from calibrank.monitor.series import SHIFTS, Series

YEAR = 364
"""Days over which the probability of a false alarm is stated, and the longest memory."""

WIDE = 1.0
"""Standard deviation of an offset about which nothing is known."""


class _DayEffects(NamedTuple):
    """Effects of days, and their prior probabilities without a change and with one."""

    deviation: float
    """Standard deviation, in log odds."""
    persistence: float
    """Correlation of consecutive days."""
    unchanged: float
    changed: float


# A week of new items is between 1 and 7 days. The last ones go on for weeks, such as those of users
# who come and go. They are rare: a larger weight hides small changes of few labels.
_DAY_EFFECTS = (
    _DayEffects(0.0, 0.8, 0.2425, 0.582),
    _DayEffects(0.07, 0.8, 0.291, 0.194),
    _DayEffects(0.15, 0.8, 0.3395, 0.1455),
    _DayEffects(0.4, 0.8, 0.097, 0.0485),
    _DayEffects(0.12, 0.95, 0.03, 0.03),
)
_WEEKDAY_EFFECTS = ((0.0, 0.7), (0.2, 0.3))

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

    def __init__(
        self,
        series: Series,
        error: float | None,
        known: Sequence[int] = (),
        other_error: float = 0.0,
    ) -> None:
        """Allow for an offset, and for any change on the `known` days.

        `error` is the standard error of the map; None if nothing is known about the offset. The
        other one is that of the slope for the level, and the reverse: see `Series.cross`.
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
        moved = other_error * series.cross
        always = changed.T @ changed + np.outer(moved, moved) + np.diag(counted)
        self._components = []
        for of_days, of_weekdays, of_map in product(_DAY_EFFECTS, _WEEKDAY_EFFECTS, offsets):
            shared = _covariance(series, of_days, of_weekdays[0], of_map[0])
            root = np.linalg.cholesky(shared + always)
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
                log_weight=float(np.log(of_days.unchanged * of_weekdays[1] * of_map[1])),
                log_odds=float(np.log(of_days.changed / of_days.unchanged)),
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


def _covariance(series: Series, of_days: _DayEffects, weekday: float, offset: float) -> Floats:
    """Of what all labels of a day share."""
    gaps = np.abs(series.ages[:, None] - series.ages)
    effects = of_days.deviation**2 * of_days.persistence**gaps + weekday**2 * (gaps % 7 == 0)
    spread = series.sizes.effects**2 * effects + offset**2
    covariance: Floats = spread * np.outer(series.information, series.information)
    return covariance


def _counted_noise(series: Series) -> Floats:
    """The variance of the noise with at most as many labels as count."""
    least = (series.sizes.effects * series.information) ** 2 / _MOST_INFORMATION
    counted: Floats = np.maximum(series.noise, least)
    return counted
