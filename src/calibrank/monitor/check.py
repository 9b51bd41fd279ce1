"""Check the days of a map: has calibration changed, in level or slope, and have scores moved."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import whole
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.calibration_map import require_map
from calibrank.maps.score_shift import ScoreComparison
from calibrank.metrics import Estimate
from calibrank.monitor.changes import (
    LOG_THRESHOLD,
    Found,
    SegmentDays,
    corrections,
    find_changes,
    map_error,
    segment_days,
)
from calibrank.monitor.day import Day, proportional
from calibrank.monitor.series import DaySums, Series, series_of
from calibrank.monitor.store import Store, age_of, require_days, window_of

WINDOW = 28
"""Days of the window that estimates are computed on: four whole weeks."""
LONGEST_WINDOW = 100_000

KINDS = ("level", "slope")
"""Of changes."""

# Scores that are compared with those of the fit.
_MOST_COMPARED = 2**14

_HIGHEST = 0.2
_MOST_DIGITS = 4

# Of more segments, the headline only gives the number.
_SEGMENTS_NAMED = 3


class Rates(NamedTuple):
    """A rate that was predicted, and the one that was observed."""

    predicted: float
    observed: float

    def __str__(self) -> str:
        digits = 2
        while digits < _MOST_DIGITS and len({f"{rate:.{digits}g}" for rate in self}) == 1:
            digits += 1
        predicted, observed = [f"{float(f'{100 * rate:.{digits}g}'):g}%" for rate in self]
        return f"{predicted} predicted, {observed} observed"


class DayStatus(NamedTuple):
    """One day of the series."""

    date: str
    rows: int
    labels: int
    predicted: float | None
    """Mean probability of the labelled rows, and the rate of positive labels; None without."""
    observed: float | None
    level_evidence: float
    """Log of the e-process; `Status.threshold` and more is an alarm. So for the slope."""
    slope_evidence: float
    level: Estimate | None
    """Level and slope of the window that ends on this day."""
    slope: Estimate | None


class Change(NamedTuple):
    """A change of the map or of a segment, with the rates since then until the next change.

    The date is an estimate, and the intervals of level and slope do not allow for its error.
    """

    date: str
    """When it most likely began."""
    alarm: str
    """When there was enough evidence."""
    until: str | None
    """The last day with labels before the next change, if there is one."""
    kind: str
    """One of `KINDS`."""
    from_start: bool
    """Whether the map has been off since the first day: an error of the map, not a change."""
    rates: Rates
    highest: Rates | None = None
    """Of the fifth with the highest probabilities. Segments have neither this nor estimates."""
    level: Estimate | None = None
    slope: Estimate | None = None
    segment: tuple[str, ...] | None = None
    """The values of the segment's columns; None for the whole map."""

    @property
    def sentence(self) -> str:
        """The change in plain words."""
        rates = str(self.rates)
        if self.kind == "slope":
            rates = f"of the fifth with the highest probabilities, {self.highest}"
        where = "" if self.segment is None else f"In {', '.join(self.segment)}: "
        until = "" if self.until is None else f" until {_written(self.until)}"
        if self.from_start:
            off = "was off from the start" if until else "has been off since the start"
            return f"{where}The map {off}: {rates}{until}."
        since = f"{'from' if until else 'since'} {_written(self.date)}{until}"
        return f"{where}Calibration has changed: {rates} {since} (alarm on {_written(self.alarm)})."


class Status(NamedTuple):
    """Whether a map is still right, and the days that say so."""

    map_digest: str
    days: tuple[DayStatus, ...]
    window: int
    threshold: float
    changes: tuple[Change, ...]
    """All of the map by date, then those of segments."""
    moved: str | None = None
    """What to say if the scores of the last window are not like those of the map's fit."""

    @property
    def alarm(self) -> bool:
        """Whether calibration is off; false in 95% of years in which nothing changed."""
        return bool(self.changes)

    @property
    def change(self) -> Change | None:
        """The last change of the whole map."""
        found = [change for change in self.changes if change.segment is None]
        return found[-1] if found else None

    @property
    def headline(self) -> str:
        """The result in a few sentences."""
        if self.alarm:
            return " ".join(_describe(self.changes))
        labelled = [day for day in self.days if day.labels]
        if not labelled:
            return "No labels yet: only the scores can be compared."
        labels = sum(day.labels for day in labelled)
        rates = np.array([(day.predicted, day.observed) for day in labelled], dtype=float)
        mean = Rates(*np.average(rates, axis=0, weights=[day.labels for day in labelled]))
        over = "1 day" if len(self.days) == 1 else f"{len(self.days):,} days"
        return f"No change of calibration in {labels:,} labels over {over}: {mean}."

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**_plain(self), "alarm": self.alarm, "headline": self.headline}


def _plain(value: Any) -> Any:
    """Records as dicts, however deeply they are nested."""
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def check(fitted: CalibrationMap, days: Store | Sequence[Day], *, window: int = WINDOW) -> Status:
    """Check a map on the days that it was deployed on; it may be run as often as you like.

    In a year without change the probability of any alarm is at most 5%, however often you look.
    The error of the map itself, days that differ and weekdays are no change.

    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> check(fitted, [Day.of(fitted, [0.5, 1.5], [0, 1], date="2026-01-05")]).headline
    'No change of calibration in 2 labels over 1 day: 61% predicted, 50% observed.'
    """
    require_map(fitted)
    window = whole("window", window, 1, LONGEST_WINDOW)
    digest = fitted.digest
    kept = days.days(digest) if isinstance(days, Store) else require_days(days)
    found = _by_date([day for day in kept if day.map_digest == digest])
    if not found:
        raise DataError(
            "days",
            f"be of the map with digest {digest[:15]}...",
            "none",
            "Add days with this map, or check the one that was deployed.",
        )
    sums = [DaySums.of(fitted, day) for day in found]
    evidence, changes = _find(fitted, found, sums)
    return Status(
        map_digest=digest,
        days=tuple(_series(fitted, found, sums, evidence, window)),
        window=window,
        threshold=LOG_THRESHOLD,
        changes=tuple(changes),
        moved=_scores_moved(fitted, window_of(found, window)),
    )


def _by_date(days: Sequence[Day]) -> list[Day]:
    """One day per date, in order: parts of a day are merged."""
    merged: dict[str, Day] = {}
    for day in days:
        merged[day.date] = merged[day.date] + day if day.date in merged else day
    return [merged[date] for date in sorted(merged)]


def _scores_moved(fitted: CalibrationMap, recent: Day) -> str | None:
    """What to say if scores are further from those of the fit than by chance, as in `apply`."""
    record = fitted.record
    known = record.population
    if known is not None and known.run_scores is not None:
        record = replace(record, score_quantiles=known.run_scores)
    # With terms, only labelled rows are kept by their score.
    scores = recent.by_score if fitted.terms else recent.scores
    if scores is None:
        return None
    comparison = ScoreComparison(record)
    comparison.add(scores.scores[proportional(scores.total, min(scores.rows, _MOST_COMPARED))])
    return comparison.message if comparison.is_shifted else None


def _series(
    fitted: CalibrationMap,
    days: Sequence[Day],
    sums: Sequence[DaySums],
    evidence: Floats,
    window: int,
) -> Iterator[DayStatus]:
    ages = np.array([age_of(days[0].date, day.date) for day in days])
    for place, day in enumerate(days):
        first = int(np.argmax(ages > ages[place] - window))
        estimates = corrections(fitted, DaySums.total(sums[first : place + 1]))
        rates = _rates(sums[place].masses) if day.labels else None
        yield DayStatus(
            day.date,
            day.rows,
            day.labels,
            predicted=None if rates is None else rates.predicted,
            observed=None if rates is None else rates.observed,
            level_evidence=float(evidence[place, 0]),
            slope_evidence=float(evidence[place, 1]),
            level=estimates.level,
            slope=estimates.slope,
        )


def _rates(masses: Floats) -> Rates:
    """Of the rows of all bins."""
    positive, mass, predicted = masses.sum(axis=1).tolist()
    return Rates(predicted / mass, positive / mass)


def _find(
    fitted: CalibrationMap, days: Sequence[Day], sums: Sequence[DaySums]
) -> tuple[Floats, list[Change]]:
    """The log of the evidence on each day for level and slope, and all changes."""
    places = [place for place, each in enumerate(sums) if each.variances[0] > 0]
    evidence = np.zeros((len(days), 2))
    if not places:
        return evidence, []
    labelled = [days[place] for place in places]
    ages = np.array([age_of(days[0].date, day.date) for day in labelled])
    reduced = [sums[place] for place in places]
    processes = series_of(reduced, ages)
    labels = sum(day.labels for day in labelled)
    errors = [map_error(fitted, series, labels) for series in processes]
    all_found, logs = find_changes(processes, errors)
    for row, place in enumerate(places):
        # Days without labels have the evidence of the day before.
        evidence[place:] = logs[row]
    changes = []
    for found, dates, end in _dated(all_found, [day.date for day in labelled]):
        total = DaySums.total(reduced[found.begin : end])
        rates = (_rates(total.masses), _highest(total.masses))
        changes.append(
            Change(
                *dates, KINDS[found.process], found.from_start, *rates, *corrections(fitted, total)
            )
        )
    for segment in segment_days(fitted, labelled):
        changes += _segment_changes(labelled, segment, processes[0], errors[0])
    return evidence, changes


def _dated(
    found: Sequence[Found], dates: Sequence[str]
) -> Iterator[tuple[Found, tuple[str, str, str | None], int]]:
    """Each change, its `Change.date`, `alarm` and `until`, and the place of the next one."""
    for place, each in enumerate(found, start=1):
        end = found[place].begin if place < len(found) else len(dates)
        until = None if end == len(dates) else dates[end - 1]
        yield each, (dates[each.begin], dates[each.alarm], until), end


def _highest(masses: Floats) -> Rates:
    """The rates of bins of log odds from the highest on, until they hold a fifth of the mass."""
    from_above = np.cumsum(masses[:, ::-1], axis=1)
    enough = int(np.argmax(from_above[1] >= _HIGHEST * from_above[1, -1]))
    return _rates(from_above[:, enough : enough + 1])


def _segment_changes(
    days: Sequence[Day], segment: SegmentDays, level: Series, error: float
) -> Iterator[Change]:
    dates = [days[place].date for place in segment.places]
    for found, about, end in _dated(segment.find(level, error), dates):
        sums = segment.masses[:3, found.begin : end].sum(axis=1)
        positive, predicted, mass = sums.tolist()
        rates = Rates(predicted / mass, positive / mass)
        kind = KINDS[found.process]
        yield Change(*about, kind, found.from_start, rates, segment=segment.key)


def _describe(changes: Sequence[Change]) -> list[str]:
    """Sentences about the whole map, or else about segments: these change with the map."""
    whole = [change.sentence for change in changes if change.segment is None]
    if whole:
        return whole
    named = [change.sentence for change in changes[:_SEGMENTS_NAMED]]
    more = len(changes) - len(named)
    return [*named, f"{more:,} more changes of segments."] if more else named


def _written(date: str) -> str:
    day = dt.date.fromisoformat(date)
    return f"{day.day} {day:%B %Y}"
