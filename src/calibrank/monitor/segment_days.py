"""The labels of each level by day, for a map with levels: what its changes are found in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats, Indices
from calibrank.maps import CalibrationMap, LevelTerm
from calibrank.monitor.changes import LOG_THRESHOLD, Found, find_changes
from calibrank.monitor.day import Day, probabilities_by_level
from calibrank.monitor.e_process import LEVEL_SIZES, Series
from calibrank.monitor.segment_evidence import SegmentEvidence

# Segments with the most labels are watched.
_MOST_SEGMENTS = 1_000

POSITIVE, PREDICTED, TOTAL, VARIANCE = range(4)


class SegmentDays(NamedTuple):
    """One segment on the days on which it has labels."""

    key: Key
    places: Indices
    """Places of these days among all that have labels."""
    masses: Floats
    """Positive, predicted and total mass, and variance, by day: 4 x days."""
    error: float
    """Standard error of the segment's log odds, beside that of the whole map."""
    log_threshold: float

    def find(self, level: Series, map_error: float) -> list[Found]:
        """Find changes of the segment's level, given all labels of the days."""
        positive, predicted, _, variance = self.masses
        series = Series(
            sums=positive - predicted,
            information=variance,
            # Labels of a segment depend on each other as those of all do.
            noise=variance * (level.noise / level.information)[self.places],
            ages=level.ages[self.places],
            skewness=level.skewness[:, self.places],
            user_error=level.user_error,
            sizes=LEVEL_SIZES,
        )
        error = float(np.hypot(self.error, map_error))
        if _most_evidence(series, error) < self.log_threshold:
            return []
        return find_changes([series], [error], self.log_threshold).found


def segment_days(fitted: CalibrationMap, days: Sequence[Day]) -> list[SegmentDays]:
    """The levels with the most labels, of all levels of the map."""
    terms = [term for term in fitted.terms if isinstance(term, LevelTerm)]
    rows: dict[tuple[int, Key], list[list[float]]] = defaultdict(list)
    for place, day in enumerate(days):
        for number, evidence in enumerate(day.by_segment):
            for key, sums in _sums(fitted, evidence):
                rows[number, key].append([*sums, place])
    most = sorted(rows, key=lambda each: -sum(row[TOTAL] for row in rows[each]))[:_MOST_SEGMENTS]
    # Any of the segments has a false alarm with the probability that the whole map has.
    log_threshold = LOG_THRESHOLD + float(np.log(max(len(most), 1)))
    errors = [dict(zip(term.keys, term.errors, strict=True)) for term in terms]
    found = []
    for number, key in most:
        *masses, places = np.array(rows[number, key]).T
        error = errors[number].get(key, max(terms[number].spreads))
        segment = SegmentDays(key, places.astype(np.intp), np.array(masses), error, log_threshold)
        found.append(segment)
    return found


def _sums(fitted: CalibrationMap, evidence: SegmentEvidence) -> Iterator[tuple[Key, list[float]]]:
    """Of each level, the sums that `SegmentDays.masses` has of one day."""
    keys = evidence.sums.keys
    rows = evidence.to_rows()
    probabilities = probabilities_by_level(fitted, rows)
    positive, total = rows.evidence.positive, rows.evidence.total
    variance = total * probabilities * (1 - probabilities)
    terms = (positive, total * probabilities, total, variance)
    by_level = np.array([np.bincount(rows.levels, term, len(keys)) for term in terms])
    for key, values in zip(keys, by_level.T, strict=True):
        if values[VARIANCE] > 0:
            yield key, values.tolist()


def _most_evidence(series: Series, error: float) -> float:
    """The most that `find_changes` can find, about: half the largest squared z score.

    It costs little, so that segments without a change do.
    """
    sums = np.cumsum(series.sums)
    variance = np.cumsum(series.noise)
    start = sums**2 / (variance + (error * variance) ** 2)
    # Of days up to each (rows), and of those from the next to each (columns).
    before = variance[:-1, None]
    later = np.triu(variance[1:] - before)
    is_later = later > 0
    later[~is_later] = 1.0
    gaps = sums[:-1, None] / before - (sums[1:] - sums[:-1, None]) / later
    change = is_later * gaps**2 / (1 / before + 1 / later)
    return float(max(start.max(), change.max(initial=0.0))) / 2
