"""A folder of days: a file is named by its content, so that hosts can share it without a lock."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, path_of, shown, whole
from calibrank._internal.validation import Floats
from calibrank.errors import CalibrankWarning, DataError
from calibrank.monitor.day import LEVEL, PREDICTED, SLOPE, TOTAL, Day

# Sums of the same rows in another order differ by rounding, about 1e-12 of the sum of the sizes.
_TOLERANCE = 1e-9

# Tables with fewer different scores may have equal sums by chance, such as 30 positives in 100
# rows of one score on two days. With 10 scores and 20 rows there are about 10^7 different tables.
_FEWEST_SCORES = 10

_SUFFIX = ".day.npz"

# Sums of a fingerprint that are about labels: the last two.
_OF_LABELS = 2


class Fingerprint(NamedTuple):
    """What tells the rows of a day from other rows, whatever their order."""

    map_digest: str
    date: str
    rows: int
    labels: int
    is_distinctive: bool
    """Whether other rows hardly have the same sums by chance."""
    sums: Floats
    scales: Floats
    """The sizes that rounding errors of the sums are relative to."""

    @classmethod
    def of(cls, day: Day) -> Fingerprint:
        """The fingerprint of a day."""
        summary = day.scores
        level, slope, predicted, mass = day.sums.sum(axis=0)[[LEVEL, SLOPE, PREDICTED, TOTAL]]
        squared = summary.masses.total_squared.sum()
        largest = max(abs(summary.low), abs(summary.high))
        weighted = summary.total @ summary.scores
        size = summary.total @ np.abs(summary.scores)
        sums = [mass, squared, predicted, weighted, summary.low, summary.high, level, slope]
        scales = [mass, squared, mass, size, largest, largest, mass, mass]
        is_distinctive = len(summary) >= _FEWEST_SCORES
        about = (day.map_digest, day.date, day.rows, day.labels)
        return cls(*about, is_distinctive, np.array(sums), np.array(scales))

    def compare(self, other: Fingerprint) -> Comparison:
        """Whether both are of the same rows: the same map, scores and weights."""
        is_like = (self.map_digest, self.rows) == (other.map_digest, other.rows)
        agrees = np.abs(self.sums - other.sums) <= _TOLERANCE * self.scales
        if not (is_like and agrees[:-_OF_LABELS].all()):
            return Comparison(is_version=False, is_copy=False)
        is_version = self.date == other.date
        is_copy = self.labels == other.labels and bool(agrees[-_OF_LABELS:].all())
        return Comparison(is_version, is_copy)


class Comparison(NamedTuple):
    """How two days relate."""

    is_version: bool
    """Whether both are of the same rows on the same date, with the same or other labels.

    Unless rows are distinctive, they may be others by chance.
    """
    is_copy: bool
    """Whether both have the same rows and labels, on any date."""


@dataclass(frozen=True, slots=True)
class Store:
    """Days in a folder.

    A file is written once and never changed. To merge the days of several hosts, copy their files
    into one folder. Rows of a date that are stored more than once (the same scores and weights,
    at least 10 different scores) count once, with the labels of the file that has most. So do
    labelled rows that are stored under two dates.

    >>> import tempfile
    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> store = Store(tempfile.mkdtemp())
    >>> store.add(Day.of(fitted, [0.5, 1.5], [0, 1], date="2026-01-05"))
    >>> store.add(Day.of(fitted, [0.7], [1], date="2026-01-05"))
    >>> store.days()
    [Day(2026-01-05, 3 scores, 3 labels)]
    """

    location: str | os.PathLike[str]

    def __post_init__(self) -> None:
        path_of("store", self.location)

    def add(self, day: Day) -> None:
        """Write a day, or a part of one, to a new file, atomically; an equal one is kept."""
        instance("day", day, Day, "Make one with Day.of(...).")
        name = _name_of(day)
        folder = path_of("store", self.location)
        if folder.exists() and not folder.is_dir():
            raise DataError(folder, "be a folder of days", "a file", "Name another folder.")
        if not (folder / name).exists():
            day.save(folder / name)

    def days(self, map_digest: str | None = None) -> list[Day]:
        """All days in order, or those of one map; parts of a day are merged."""
        return self._merged(map_digest)

    def with_day(self, day: Day) -> list[Day]:
        """The days of a map as they will be once another day, or a part of one, is added.

        Rows that are in the store already are refused, unless they now have more labels: these
        replace the older ones.
        """
        instance("day", day, Day, "Make one with Day.of(...).")
        return self._merged(day.map_digest, day)

    def _merged(self, map_digest: str | None, new: Day | None = None) -> list[Day]:
        folder = path_of("store", self.location)
        if not folder.is_dir() and (folder.exists() or new is None):
            found = "a file" if folder.exists() else "no such folder"
            raise DataError(folder, "be a folder of days", found, "Add a day first.")
        # Of each date first those with most labels.
        files = sorted(folder.glob(f"*{_SUFFIX}"), reverse=True)
        while True:
            merge = _Merge(new)
            for file in files:
                day = Day.load(file)
                if map_digest is None or day.map_digest == map_digest:
                    merge.add(file, day)
            if not merge.replaced:
                break
            # Rarely: files that `add` named come in the order that needs no second reading.
            files = [file for file in files if file not in merge.replaced]
        for first, second in merge.repeated:
            warnings.warn(
                f"{first} and {second} must be of different tables, got the same rows twice: only "
                "the first counts. Delete one of them.",
                CalibrankWarning,
                stacklevel=3,
            )
        return [merge.days[key] for key in sorted(merge.days)]


class _Merge:
    """Adds up the parts of days, the rows of each table once."""

    def __init__(self, new: Day | None) -> None:
        self.days: dict[tuple[str, str], Day] = {}
        """By date and map."""
        self.replaced: set[Path] = set()
        """Files that were added before one with more labels of their rows."""
        self.repeated: list[tuple[Path, Path]] = []
        """Files of which only one counts."""
        self._seen: dict[tuple[str, int], dict[Path, Fingerprint]] = defaultdict(dict)
        self._new = None if new is None else Fingerprint.of(new)
        if new is not None:
            self._add_up(new)

    def add(self, file: Path, day: Day) -> None:
        """Add a file, unless its rows are there already."""
        found = Fingerprint.of(day)
        if self._new is not None and self._is_older(self._new, found, file):
            return
        seen = self._seen[found.map_digest, found.rows]
        for name, other in seen.items():
            same = found.compare(other)
            # Under two dates, tables without labels may be of the same items.
            is_copy = same.is_copy and found.is_distinctive and found.labels > 0
            if is_copy or (same.is_version and found.is_distinctive):
                if found.labels > other.labels:
                    self.replaced.add(name)
                elif found.labels == other.labels:
                    self.repeated.append((name, file))
                return
        seen[file] = found
        self._add_up(day)

    def _is_older(self, new: Fingerprint, found: Fingerprint, file: Path) -> bool:
        """Whether the new day replaces a file; one whose rows would count twice is refused."""
        same = new.compare(found)
        is_repeated = same.is_copy and (new.is_distinctive or new.date == found.date)
        # Rows of a few scores may be others by chance, so that they replace none unasked.
        replaces = same.is_version and new.labels > found.labels and new.is_distinctive
        if is_repeated or (same.is_version and not replaces):
            raise DataError(
                "a day to add",
                "be new to the store",
                f"a table that is stored under {found.date} with {found.labels:,} labels: its rows "
                "would count twice",
                f"Leave it out. If the stored date or labels are wrong, delete {file} first.",
            )
        return replaces

    def _add_up(self, day: Day) -> None:
        key = (day.date, day.map_digest)
        self.days[key] = self.days[key] + day if key in self.days else day


def _name_of(day: Day) -> str:
    """The date, the number of labels, and what is in the day.

    Two processes that add one table at the same time write the same file. A day of a few scores
    may be equal to another one by chance, so its name is random.
    """
    content = os.urandom(8)
    if Fingerprint.of(day).is_distinctive:
        content = day.map_digest.encode() + day.sums.tobytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return f"{day.date}-{day.labels:012d}-{digest}{_SUFFIX}"


def require_days(days: object) -> list[Day]:
    """A sequence of days as a list."""
    if not isinstance(days, Sequence) or isinstance(days, str | bytes):
        raise DataError("days", "be a list of days or a Store", shown(days))
    return [instance("days", day, Day, "Make one with Day.of(...).") for day in days]


def window_of(days: Sequence[Day], length: int | None = None) -> Day:
    """Merge the days of the last `length` dates."""
    days = require_days(days)
    if not days:
        raise DataError("a window", "hold at least one day", "none", "Add a day first.")
    newest = max(day.date for day in days)
    if length is not None:
        whole("length", length, 1, 10**6)
        days = [day for day in days if age_of(day.date, newest) < length]
    return reduce(add, days)


def age_of(date: str, newest: str) -> int:
    """The number of days from one date to another."""
    return (dt.date.fromisoformat(newest) - dt.date.fromisoformat(date)).days
