"""Find all changes of a map's days, and of its segments, and estimate its level and slope.

After an alarm, the next one is looked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.logit import expit
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats, Indices
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, LevelTerm
from calibrank.metrics import Estimate
from calibrank.metrics.pooled import pooled_bins
from calibrank.metrics.recalibration import recalibration
from calibrank.monitor.day import (
    LEVEL,
    SLOPE,
    Day,
    LevelRows,
    bounded_log_odds,
    labels_of_fit,
    level_alone,
    probabilities_of,
)
from calibrank.monitor.e_process import YEAR, Unchanged
from calibrank.monitor.series import LEVEL_SIZES, DaySums, Series, moments
from calibrank.summary.by_segment import SegmentSums

ALPHA = 0.05
"""The probability of a false alarm in a year without change, at most."""

LOG_THRESHOLD = float(np.log(1 / ALPHA))
"""The log of the evidence from which on it is an alarm."""

LATER_SHARE = 2 / 3
"""A factor of the evidence after the first year: by then changes may have begun on more days."""

# Days after an alarm whose labels still count for the date of its change.
_DATING = 7

# A smaller error of a map is not worth an alarm.
LEAST_ERROR = 0.05


class Found(NamedTuple):
    """A change, by the places of days that have labels."""

    begin: int
    alarm: int
    process: int
    """0 is the level, 1 the slope."""
    from_start: bool = False


@one_blas_thread()
def find_changes(
    processes: Sequence[Series], errors: Sequence[float], log_threshold: float = LOG_THRESHOLD
) -> tuple[list[Found], Floats]:
    """Find changes of level or slope or from the start, and the log of the evidence by day.

    A day is compared with at least half a year before it, or with all days since the first.
    """
    n_days = len(processes[0].ages)
    evidence = np.zeros((n_days, len(processes)))
    changes: list[Found] = []
    starts: list[Found] = []
    # Of the level that of the slope, and the reverse. A segment is checked for its level alone.
    others = errors[::-1] if len(errors) > 1 else [0.0]
    for first in range(0, max(n_days - YEAR // 2, 1), YEAR // 2):
        last = min(first + YEAR, n_days)
        parts = [series.part(first, last) for series in processes]
        of_map = errors if first == 0 else [None] * len(parts)
        log_share = 0.0 if first == 0 else float(np.log(LATER_SHARE))
        searched = 0 if first == 0 else first + YEAR // 2
        while True:
            known = [each.begin - first for each in changes if each.begin > first]
            earliest = max(changes[-1].alarm + 1 - first, 1) if changes else 1
            models = [
                Unchanged(part, error, known, other)
                for part, error, other in zip(parts, of_map, others, strict=True)
            ]
            logs = [model.log_evidence(earliest=earliest) + log_share for model in models]
            evidence[searched:last] = np.array(logs).T[searched - first :]
            alarms = np.flatnonzero((evidence[searched:last] >= log_threshold).any(axis=1))
            if not len(alarms):
                break
            alarm = searched + int(alarms[0])
            process = int(np.argmax(evidence[alarm]))
            # It most likely began on this day, by the labels until a week after the alarm.
            seen = processes[process].part(first, alarm + 1 + _DATING)
            since = Unchanged(seen, None, known, others[process]).log_since()[
                earliest : alarm + 1 - first
            ]
            changes.append(Found(first + earliest + int(np.argmax(since)), alarm, process))
            searched = alarm + 1
        if first == 0:
            # Whether the offset is more than the map's error, allowing for the changes found.
            for process, model in enumerate(models):
                alarms = np.flatnonzero(model.log_start() >= log_threshold)
                starts += [Found(0, int(day), process, from_start=True) for day in alarms[:1]]
    return starts[:1] + changes, evidence


def map_error(fitted: CalibrationMap, series: Series, labels: int) -> float:
    """The standard error of a map's level or slope, from the number of labels of its fit.

    These have about as much information each as those of the days.
    """
    information = labels_of_fit(fitted) * float(series.information.sum()) / labels
    variance = 1 / information if information > 0 else np.inf
    return float(np.sqrt(max(variance, LEAST_ERROR**2) + series.user_error**2))


# Segments with the most labels are watched.
_MOST_SEGMENTS = 1_000

POSITIVE, PREDICTED, TOTAL, INFORMATION, VARIANCE = range(5)


class SegmentDays(NamedTuple):
    """One segment on the days on which it has labels."""

    key: Key
    places: Indices
    """Places of these days among all that have labels."""
    masses: Floats
    """Positive, predicted and total mass, information and variance, by day: 5 x days.

    Of weights that are 1 on average over all labels of the map.
    """
    error: float
    """Standard error of the segment's log odds, beside that of the whole map."""
    log_threshold: float

    def find(self, level: Series, map_error: float) -> list[Found]:
        """Find changes of the segment's level, given all labels of the days."""
        positive, predicted, _, information, variance = self.masses
        dependence = level.dependence[self.places]
        series = Series(
            sums=positive - predicted,
            information=information,
            # Labels of a segment depend on each other as those of all do.
            noise=variance * dependence,
            dependence=dependence,
            cross=np.zeros_like(information),
            ages=level.ages[self.places],
            skewness=level.skewness[:, self.places],
            user_error=level.user_error,
            sizes=LEVEL_SIZES,
        )
        error = float(np.hypot(self.error, map_error))
        if _most_evidence(series, error) < self.log_threshold:
            return []
        return find_changes([series], [error], self.log_threshold)[0]


def segment_days(fitted: CalibrationMap, days: Sequence[Day]) -> list[SegmentDays]:
    """The levels with the most labels, of all levels of the map."""
    terms = [term for term in fitted.terms if isinstance(term, LevelTerm)]
    rows: dict[tuple[int, Key], list[list[float]]] = defaultdict(list)
    for place, day in enumerate(days):
        for number, sums in enumerate(day.by_segment):
            for key, masses in zip(sums.keys, _masses(fitted, sums).T.tolist(), strict=True):
                if masses[INFORMATION] > 0:
                    rows[number, key].append([*masses, place])
    most = sorted(rows, key=lambda each: -sum(row[TOTAL] for row in rows[each]))[:_MOST_SEGMENTS]
    # Any of the segments has a false alarm with the probability that the whole map has.
    log_threshold = LOG_THRESHOLD + float(np.log(max(len(most), 1)))
    errors = [dict(zip(term.keys, term.errors, strict=True)) for term in terms]
    summaries = [day.labelled for day in days if day.labelled is not None]
    weight = sum(float(each.total.sum()) for each in summaries) / sum(day.labels for day in days)
    powers = np.array([1, 1, 1, 1, 2])[:, None]
    found = []
    for number, key in most:
        *masses, places = np.array(rows[number, key]).T
        error = errors[number].get(key, max(terms[number].spreads))
        segment = SegmentDays(
            key, places.astype(np.intp), np.array(masses) / weight**powers, error, log_threshold
        )
        found.append(segment)
    return found


def _masses(fitted: CalibrationMap, sums: SegmentSums) -> Floats:
    """`SegmentDays.masses` of one day, of each level, with weights as they are: 5 x levels."""
    rows = LevelRows.of(sums)
    columns = rows.columns if level_alone(fitted) is not None else None
    p = probabilities_of(fitted, rows.scores, columns)
    positive, total = rows.evidence.positive, rows.evidence.total
    terms = (positive, total * p, total, total * p * (1 - p))
    masses = [np.bincount(rows.levels, term, len(sums.keys)) for term in terms]
    # Weights are taken to be alike at all scores of a level.
    squared = sums.by_segment[1] / np.maximum(masses[TOTAL], np.finfo(float).tiny)
    return np.array([*masses, masses[INFORMATION] * squared])


def _most_evidence(series: Series, error: float) -> float:
    """The most that `find_changes` can find, about: half the largest squared z score.

    It costs little, so that segments without a change do.
    """
    sums, information, noise = np.cumsum([series.sums, series.information, series.noise], axis=1)
    start = sums**2 / (noise + (error * information) ** 2)
    # Offsets and their variances: of days up to each (rows), of those from the next (columns).
    before = (sums[:-1] / information[:-1])[:, None]
    of_before = (noise[:-1] / information[:-1] ** 2)[:, None]
    later = np.triu(information[1:] - information[:-1, None])
    is_later = later > 0
    later[~is_later] = 1.0
    gaps = before - (sums[1:] - sums[:-1, None]) / later
    change = is_later * gaps**2 / (of_before + (noise[1:] - noise[:-1, None]) / later**2)
    return float(max(start.max(), change.max(initial=0.0))) / 2


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


def corrections(fitted: CalibrationMap, sums: DaySums) -> Corrections:
    """Estimate both from the labels of some days; neither without labels."""
    if not sums.masses[1].any():
        return Corrections()
    probabilities, evidence = pooled_bins(sums.masses)
    log_odds = bounded_log_odds(fitted, probabilities)
    shift = _fit_level(log_odds, evidence)
    slope, intercept = recalibration(expit(log_odds), evidence)
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
    weighted = moments(total * p * (1 - p), log_odds)
    if weighted[0] <= 0:
        return np.inf, np.inf
    centre = weighted[1] / weighted[0]
    level = sums.clusters[:, LEVEL]
    slope = sums.clusters[:, SLOPE] - centre * level
    independent = float(sums.variances @ [centre**2, -2 * centre, 1.0])
    level_error = _root(level, float(sums.variances[0])) / weighted[0]
    spread = weighted[2] - centre * weighted[1]
    # A single probability has no slope.
    has_slope = spread > _LEAST_SPREAD * weighted[0]
    return level_error, _root(slope, independent) / spread if has_slope else np.inf


def _root(by_cluster: Floats, independent: float) -> float:
    """The standard deviation of a sum over clusters, at least that of independent labels."""
    clustered = len(by_cluster) * float(np.var(by_cluster))
    return float(np.sqrt(max(clustered, independent)))


def _interval(value: float, error: float) -> Estimate:
    return Estimate(value, value - _Z * error, value + _Z * error)
