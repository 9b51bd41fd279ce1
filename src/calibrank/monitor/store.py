"""A folder of days: a file is named by its content, so that hosts can share it without a lock."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, path_of, shown, whole
from calibrank._internal.validation import Floats, Mask
from calibrank.errors import CalibrankWarning, DataError, MissingExtraError
from calibrank.monitor.day import LEVEL, PREDICTED, SLOPE, TOTAL, Day

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# Sums of the same rows in another order differ by rounding, about 1e-12 of the sum of the sizes.
_TOLERANCE = 1e-9

# Tables with fewer different scores may have equal sums by chance, such as 30 positives in 100
# rows of one score on two days. With 10 scores and 20 rows there are about 10^7 different tables.
_FEWEST_SCORES = 10

_SUFFIX = ".day.npz"
# pyarrow's names of file systems in which a write is visible when it is complete.
_OBJECT_STORES = ("s3", "gcs", "abfs")

# Sums of a fingerprint that are about labels: the last two.
_OF_LABELS = slice(-2, None)
_OF_SCORES = slice(0, -2)


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

    def _agrees(self, other: Fingerprint) -> Mask:
        agrees: Mask = np.abs(self.sums - other.sums) <= _TOLERANCE * self.scales
        return agrees

    def has_rows_of(self, other: Fingerprint) -> bool:
        """Whether map, scores and weights are the same."""
        is_like = (self.map_digest, self.rows) == (other.map_digest, other.rows)
        return is_like and bool(self._agrees(other)[_OF_SCORES].all())

    def is_version_of(self, other: Fingerprint) -> bool:
        """Whether both are of the same rows on the same date, with the same or other labels."""
        both = self.is_distinctive and self.date == other.date
        return both and self.has_rows_of(other)

    def is_copy_of(self, other: Fingerprint) -> bool:
        """Whether both have the same rows and labels."""
        is_like = self.labels == other.labels and self.has_rows_of(other)
        return is_like and bool(self._agrees(other)[_OF_LABELS].all())

    def repeats(self, other: Fingerprint) -> bool:
        """Whether rows would count twice if both were added."""
        if self.is_copy_of(other):
            return self.is_distinctive or self.date == other.date
        return self.is_version_of(other)


class _Part(NamedTuple):
    """A file of the store."""

    name: str
    day: Day


@dataclass(frozen=True, slots=True)
class Store:
    """Days in a folder, or under an address such as `s3://bucket/folder` (through pyarrow).

    With `filesystem`, one of `pyarrow.fs`, the location is a path in it: for stores whose address
    cannot say everything, such as credentials, or those of fsspec.

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
    filesystem: FileSystem | None = None

    def __post_init__(self) -> None:
        path_of("store", self.location)
        if self.filesystem is not None:
            kind = _filesystems().FileSystem
            instance("filesystem", self.filesystem, kind, "E.g. pyarrow.fs.S3FileSystem().")

    def add(self, day: Day) -> None:
        """Write a day, or a part of one, to a new file, atomically; an equal one is kept."""
        instance("day", day, Day, "Make one with Day.of(...).")
        name = _name_of(day)
        if self._is_remote:
            self._upload(day, name)
            return
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
        replaced: set[str] = set()
        while True:
            merge = _Merge(new)
            for part in self._parts(may_be_absent=new is not None):
                is_used = map_digest is None or part.day.map_digest == map_digest
                if is_used and part.name not in replaced:
                    merge.add(part)
            if not merge.replaced:
                merge.warn()
                return [merge.days[key] for key in sorted(merge.days)]
            # Rarely: files that `add` named come in the order that needs no second reading.
            replaced |= merge.replaced

    @property
    def _is_remote(self) -> bool:
        return self.filesystem is not None or "://" in os.fspath(self.location)

    def _parts(self, *, may_be_absent: bool) -> Iterator[_Part]:
        """All files, of each date first those with most labels."""
        if self._is_remote:
            yield from self._remote_parts()
            return
        folder = path_of("store", self.location)
        if not folder.is_dir() and (folder.exists() or not may_be_absent):
            found = "a file" if folder.exists() else "no such folder"
            raise DataError(folder, "be a folder of days", found, "Add a day first.")
        for file in sorted(folder.glob(f"*{_SUFFIX}"), reverse=True):
            yield _Part(str(file), Day.load(file))

    def _remote(self) -> tuple[FileSystem, str]:
        if self.filesystem is not None:
            return self.filesystem, os.fspath(self.location).rstrip("/")
        try:
            files, folder = _filesystems().FileSystem.from_uri(os.fspath(self.location))
        except (ValueError, OSError) as error:
            rule = "be an address such as s3://bucket/days that can be reached"
            remedy = "Check it and the connection."
            raise DataError(self.location, rule, error, remedy) from None
        return files, folder

    def _upload(self, day: Day, name: str) -> None:
        files, folder = self._remote()
        target = f"{folder}/{name}"
        if files.get_file_info(target).is_file:
            return
        files.create_dir(folder, recursive=True)
        with tempfile.TemporaryDirectory() as local:
            day.save(Path(local) / name)
            content = (Path(local) / name).read_bytes()
        # Object stores make an object visible only when it is complete; others need a move.
        is_object = files.type_name in _OBJECT_STORES
        written = target if is_object else f"{target}.{os.urandom(8).hex()}.partial"
        with files.open_output_stream(written) as out:
            out.write(content)
        if written != target:
            files.move(written, target)

    def _remote_parts(self) -> Iterator[_Part]:
        files, folder = self._remote()
        selector = _filesystems().FileSelector(folder, allow_not_found=True)
        paths = [info.path for info in files.get_file_info(selector)]
        with tempfile.TemporaryDirectory() as local:
            copy = Path(local) / "day.npz"
            for path in sorted(paths, reverse=True):
                if path.endswith(_SUFFIX):
                    copy.write_bytes(files.open_input_file(path).read())
                    yield _Part(path, Day.load(copy))


class _Merge:
    """Adds up the parts of days, the rows of each table once."""

    def __init__(self, new: Day | None) -> None:
        self.days: dict[tuple[str, str], Day] = {}
        """By date and map."""
        self.replaced: set[str] = set()
        """Files that were added before one with more labels of their rows."""
        self._repeated: list[tuple[str, str]] = []
        self._seen: dict[tuple[str, int], dict[str, Fingerprint]] = defaultdict(dict)
        self._new = None if new is None else Fingerprint.of(new)
        if new is not None:
            self._add_up(new)

    def add(self, part: _Part) -> None:
        """Add a file, unless its rows are there already."""
        found = Fingerprint.of(part.day)
        if self._new is not None and self._new.repeats(found):
            if not self._new.is_version_of(found) or self._new.labels <= found.labels:
                raise _refused(part)
            return
        seen = self._seen[found.map_digest, found.rows]
        for name, other in seen.items():
            # Under two dates, tables without labels may be of the same items.
            is_copy = found.is_distinctive and found.labels > 0 and found.is_copy_of(other)
            if is_copy or found.is_version_of(other):
                if found.labels > other.labels:
                    self.replaced.add(name)
                elif found.labels == other.labels:
                    self._repeated.append((name, part.name))
                return
        seen[part.name] = found
        self._add_up(part.day)

    def _add_up(self, day: Day) -> None:
        key = (day.date, day.map_digest)
        self.days[key] = self.days[key] + day if key in self.days else day

    def warn(self) -> None:
        """Report files of which only one counts."""
        for first, second in self._repeated:
            warnings.warn(
                f"{first} and {second} must be of different tables, got the same rows twice: only "
                "the first counts. Delete one of them.",
                CalibrankWarning,
                stacklevel=4,
            )


def _refused(stored: _Part) -> DataError:
    day = stored.day
    return DataError(
        "a day to add",
        "be new to the store",
        f"a table that is stored under {day.date} with {day.labels:,} labels: its rows would "
        "count twice",
        f"Leave it out. If the stored date or labels are wrong, delete {stored.name} first.",
    )


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


def _filesystems() -> ModuleType:
    try:
        return import_module("pyarrow.fs")  # only where a store is not a plain folder
    except ImportError:
        raise MissingExtraError("pyarrow", "cli") from None


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
    merged = days[0]
    for day in days[1:]:
        merged += day
    return merged


def age_of(date: str, newest: str) -> int:
    """The number of days from one date to another."""
    return (dt.date.fromisoformat(newest) - dt.date.fromisoformat(date)).days
