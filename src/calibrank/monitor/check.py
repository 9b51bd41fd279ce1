"""Check the days of a map: has calibration changed, in level or slope, and have scores moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import whole
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.calibration_map import require_map
from calibrank.metrics import Estimate
from calibrank.monitor.day import Day, digest_of_map
from calibrank.monitor.day_sums import DaySums, comparison_points
from calibrank.monitor.e_process import LOG_THRESHOLD, LogEvidence, beginning_of, evidence_of
from calibrank.monitor.estimates import Corrections, corrections
from calibrank.monitor.score_drift import ScoreDrift, drift_of
from calibrank.monitor.store import Store, age_of, require_days, window_of

WINDOW = 28
"""Days of the window that estimates and score drift are computed on: four whole weeks."""
LONGEST_WINDOW = 100_000

REFERENCE = 7
"""Days from the first one on whose scores later ones are compared with: one whole week."""


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
    drift: ScoreDrift | None
    """Scores of the window compared with the reference days; None during these."""

    def to_dict(self) -> dict[str, Any]:
        """The day as plain data."""
        nested: dict[str, Any] = {}
        if self.level is not None and self.slope is not None:
            nested |= {"level": self.level._asdict(), "slope": self.slope._asdict()}
        if self.drift is not None:
            nested["drift"] = {**self.drift._asdict(), "matters": self.drift.matters}
        return {**self._asdict(), **nested}


class Change(NamedTuple):
    """When a change most likely began, and the level and the slope of the labels since then.

    The date is an estimate, and the intervals of level and slope do not allow for its error.
    """

    date: str
    level: Estimate
    slope: Estimate

    def to_dict(self) -> dict[str, Any]:
        """The change as plain data."""
        nested = {"level": self.level._asdict(), "slope": self.slope._asdict()}
        return {**self._asdict(), **nested}


class Status(NamedTuple):
    """Whether a map is still right, and the days that say so."""

    map_digest: str
    days: tuple[DayStatus, ...]
    window: int
    threshold: float
    level_alarm: str | None
    """The first date on which the evidence for a changed level reached the threshold."""
    slope_alarm: str | None
    level_change: Change | None
    """Since when the level has changed, and by how much; None without its alarm. So for slope."""
    slope_change: Change | None

    @property
    def alarm(self) -> bool:
        """Whether calibration has changed; false in 95% of years in which it has not."""
        return self.level_alarm is not None or self.slope_alarm is not None

    @property
    def change(self) -> Change | None:
        """The change of the level, or else that of the slope."""
        return self.level_change or self.slope_change

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        if self.alarm:
            return " ".join(_describe_alarm(self))
        labels = sum(day.labels for day in self.days)
        if not labels:
            return "No labels yet: only the scores can be compared."
        over = "1 day" if len(self.days) == 1 else f"{len(self.days):,} days"
        return f"No change of calibration in {labels:,} labels over {over}."

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        days = [day.to_dict() for day in self.days]
        changes: dict[str, Any] = {}
        if self.level_change is not None:
            changes["level_change"] = self.level_change.to_dict()
        if self.slope_change is not None:
            changes["slope_change"] = self.slope_change.to_dict()
        about = {"alarm": self.alarm, "headline": self.headline}
        return {**self._asdict(), "days": days, **changes, **about}


def check(fitted: CalibrationMap, days: Store | Sequence[Day], *, window: int = WINDOW) -> Status:
    """Check a map on the days that it was deployed on; it may be run as often as you like.

    Level and slope have an alarm each. In a year without change the probability of any alarm is
    at most 5%, however often you look.

    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> check(fitted, [Day.of(fitted, [0.5, 1.5], [0, 1], date="2026-01-05")]).headline
    'No change of calibration in 2 labels over 1 day.'
    """
    require_map(fitted)
    window = whole("window", window, 1, LONGEST_WINDOW)
    digest = digest_of_map(fitted)
    found = days.days(digest) if isinstance(days, Store) else _sorted(days, digest)
    if not found:
        raise DataError(
            f"days must be of the map with digest {digest[:15]}..., got none. "
            "Add days with this map, or check the one that was deployed."
        )
    evidence = evidence_of(found)
    reference = _reference(found)
    points = comparison_points(window_of(reference).scores)
    sums = [DaySums.of(fitted, day, points) for day in found]
    alarms = [_first_alarm(logs) for logs in evidence]
    dates = [None if alarm is None else found[alarm].date for alarm in alarms]
    changes = [_change(found, sums, alarm, process) for process, alarm in enumerate(alarms)]
    return Status(
        map_digest=digest,
        days=tuple(_series(found, sums, len(reference), evidence, window)),
        window=window,
        threshold=LOG_THRESHOLD,
        level_alarm=dates[0],
        slope_alarm=dates[1],
        level_change=changes[0],
        slope_change=changes[1],
    )


def _sorted(days: Sequence[Day], digest: str) -> list[Day]:
    days = require_days(days)
    return sorted([day for day in days if day.map_digest == digest], key=lambda day: day.date)


def _reference(days: Sequence[Day]) -> Sequence[Day]:
    """The days whose scores the later ones are compared with."""
    return [day for day in days if age_of(days[0].date, day.date) < REFERENCE]


def _series(
    days: Sequence[Day],
    sums: Sequence[DaySums],
    n_reference: int,
    evidence: LogEvidence,
    window: int,
) -> Iterator[DayStatus]:
    ages = np.array([age_of(days[0].date, day.date) for day in days])
    reference = DaySums.total(sums[:n_reference])
    for place, day in enumerate(days):
        first = int(np.argmax(ages > ages[place] - window))
        estimates = corrections(DaySums.total(sums[first : place + 1]))
        drift = None
        if place >= n_reference:
            # Reference days are not compared with themselves.
            recent = sums[max(first, n_reference) : place + 1]
            drift = drift_of(reference, DaySums.total(recent))
        yield _status_of(day, place, sums[place], evidence, estimates, drift)


def _status_of(
    day: Day,
    place: int,
    sums: DaySums,
    evidence: LogEvidence,
    estimates: Corrections | None,
    drift: ScoreDrift | None,
) -> DayStatus:
    predicted = None
    observed = None
    if day.labels:
        positive_mass, mass, predicted_mass = sums.masses.sum(axis=1).tolist()
        predicted = predicted_mass / mass
        observed = positive_mass / mass
    return DayStatus(
        date=day.date,
        rows=day.rows,
        labels=day.labels,
        predicted=predicted,
        observed=observed,
        level_evidence=float(evidence.level[place]),
        slope_evidence=float(evidence.slope[place]),
        level=None if estimates is None else estimates.level,
        slope=None if estimates is None else estimates.slope,
        drift=drift,
    )


def _first_alarm(evidence: Floats) -> int | None:
    above = np.flatnonzero(evidence >= LOG_THRESHOLD)
    return int(above[0]) if len(above) else None


def _change(
    days: Sequence[Day], sums: Sequence[DaySums], alarm: int | None, process: int
) -> Change | None:
    if alarm is None:
        return None
    place = beginning_of(days, alarm, process)
    since = corrections(DaySums.total(sums[place:]))
    return None if since is None else Change(days[place].date, since.level, since.slope)


def _is_explained(status: Status) -> bool:
    """Whether the alarm of the slope follows from a changed level.

    A large change of level also changes the evidence for the slope, as it does not move all
    probabilities equally far. The estimate of the slope allows for the level.
    """
    last = status.days[-1].slope
    if status.level_alarm is None or last is None:
        return False
    return status.level_alarm <= (status.slope_alarm or "") and last.low <= 1 <= last.high


def _describe_alarm(status: Status) -> list[str]:
    sentences = []
    level = status.level_change
    slope = status.slope_change
    if level is not None:
        direction = "low" if level.level.value > 0 else "high"
        sentences.append(
            f"The level has changed, probably around {level.date} (alarm on {status.level_alarm}): "
            f"since then the probabilities are too {direction} by about "
            f"{abs(level.level.value):.2f} of log odds."
        )
    if slope is not None and not _is_explained(status):
        error = "extreme" if slope.slope.value < 1 else "close to each other"
        sentences.append(
            f"The slope has changed, probably around {slope.date} (alarm on {status.slope_alarm}): "
            f"since then it is about {slope.slope.value:.2f}, so the probabilities are too {error}."
        )
    return sentences or ["Calibration has changed."]
