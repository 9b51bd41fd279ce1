"""A folder of days: each file has a random name, so that hosts can share it without a lock."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from calibrank._arguments import instance, path_of, real, shown, whole
from calibrank.errors import DataError, MissingExtraError
from calibrank.monitor.day import Day

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_SUFFIX = ".day.npz"
# pyarrow's names of file systems in which a write is visible when it is complete.
_OBJECT_STORES = ("s3", "gcs", "abfs")


@dataclass(frozen=True, slots=True)
class Store:
    """Days in a folder, or under an address such as `s3://bucket/folder` (through pyarrow).

    With `filesystem`, one of `pyarrow.fs`, the location is a path in it: for stores whose address
    cannot say everything, such as credentials, or those of fsspec.

    A file is written once and never changed. To merge the days of several hosts, copy their files
    into one folder.

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
        """Write a day, or a part of one, to a new file, atomically."""
        instance("day", day, Day, "Make one with Day.of(...).")
        name = f"{day.date}-{os.urandom(8).hex()}{_SUFFIX}"
        if not self._is_remote:
            folder = path_of("store", self.location)
            if folder.exists() and not folder.is_dir():
                raise DataError(
                    f"{folder} must be a folder of days, got a file. Name another folder."
                )
            day.save(folder / name)
            return
        files, remote_folder = self._remote()
        files.create_dir(remote_folder, recursive=True)
        with tempfile.TemporaryDirectory() as local:
            day.save(Path(local) / name)
            content = (Path(local) / name).read_bytes()
        # Object stores make an object visible only when it is complete; others need a move.
        target = f"{remote_folder}/{name}"
        written = target if files.type_name in _OBJECT_STORES else f"{target}.partial"
        with files.open_output_stream(written) as out:
            out.write(content)
        if written != target:
            files.move(written, target)

    def holds(self, day: Day) -> bool:
        """Whether a file of the same date and map has the same sums: that of the same table."""
        instance("day", day, Day, "Make one with Day.of(...).")
        if self._is_absent:
            return False
        about = (day.date, day.map_digest, day.rows, day.labels)
        return any(
            (part.date, part.map_digest, part.rows, part.labels) == about
            and np.array_equal(part.sums, day.sums)
            for part in self._parts(day.date)
        )

    def days(self, map_digest: str | None = None) -> list[Day]:
        """All days in order, or those of one map; parts of a day are merged."""
        return _merged(self._parts(), map_digest)

    def with_day(self, day: Day) -> list[Day]:
        """The days of a map as they will be once another day, or a part of one, is added."""
        stored = [] if self._is_absent else self._parts()
        return _merged(chain(stored, [day]), day.map_digest)

    @property
    def _is_absent(self) -> bool:
        return not self._is_remote and not path_of("store", self.location).exists()

    @property
    def _is_remote(self) -> bool:
        return self.filesystem is not None or "://" in os.fspath(self.location)

    def _parts(self, date: str = "") -> Iterator[Day]:
        """The files of a date, or of all."""
        if self._is_remote:
            yield from self._remote_parts(date)
            return
        folder = path_of("store", self.location)
        if not folder.is_dir():
            found = "a file" if folder.exists() else "no such folder"
            raise DataError(f"{folder} must be a folder of days, got {found}. Add a day first.")
        for file in sorted(folder.glob(f"{date}*{_SUFFIX}")):
            yield Day.load(file)

    def _remote(self) -> tuple[FileSystem, str]:
        if self.filesystem is not None:
            return self.filesystem, os.fspath(self.location).rstrip("/")
        try:
            found = _filesystems().FileSystem.from_uri(os.fspath(self.location))
        except (ValueError, OSError) as error:
            raise DataError(
                f"{self.location} must be an address such as s3://bucket/days that can be reached, "
                f"got: {error}. Check it and the connection."
            ) from None
        files, folder = found
        return files, folder

    def _remote_parts(self, date: str) -> Iterator[Day]:
        files, folder = self._remote()
        selector = _filesystems().FileSelector(folder, allow_not_found=True)
        found = files.get_file_info(selector)
        with tempfile.TemporaryDirectory() as local:
            for info in sorted(found, key=lambda each: each.path):
                if info.base_name.startswith(date) and info.base_name.endswith(_SUFFIX):
                    copy = Path(local) / "day.npz"
                    copy.write_bytes(files.open_input_file(info.path).read())
                    yield Day.load(copy)


def _filesystems() -> ModuleType:
    try:
        return import_module("pyarrow.fs")  # only where a store is not a plain folder
    except ImportError:
        raise MissingExtraError("pyarrow", "cli") from None


def _merged(parts: Iterable[Day], map_digest: str | None) -> list[Day]:
    """Days in order, of one map or of all; parts of a day are merged."""
    by_date: dict[tuple[str, str], Day] = {}
    for part in parts:
        if map_digest is not None and part.map_digest != map_digest:
            continue
        key = (part.date, part.map_digest)
        by_date[key] = by_date[key] + part if key in by_date else part
    return [by_date[key] for key in sorted(by_date)]


def require_days(days: object) -> list[Day]:
    """A sequence of days as a list."""
    if not isinstance(days, Sequence) or isinstance(days, str | bytes):
        raise DataError(f"days must be a list of days or a Store, got {shown(days)}.")
    return [instance("days", day, Day, "Make one with Day.of(...).") for day in days]


def window_of(
    days: Sequence[Day], length: int | None = None, half_life: float | None = None
) -> Day:
    """Merge the days of the last `length` dates, weighted by age if a half-life is given.

    A day that is `half_life` dates older than the last one has half its weight.
    """
    days = require_days(days)
    if not days:
        raise DataError("a window must hold at least one day, got none. Add a day first.")
    if length is not None:
        whole("length", length, 1, 10**6)
    if half_life is not None:
        real("half_life", half_life, "[0.1, 1e6]", "It is a number of days.")
    newest = max(day.date for day in days)
    merged: Day | None = None
    for day in days:
        age = age_of(day.date, newest)
        if length is not None and age >= length:
            continue
        weighted = day if half_life is None else 0.5 ** (age / half_life) * day
        merged = weighted if merged is None else merged + weighted
    if merged is None:
        raise AssertionError("the newest day is in every window")
    return merged


def age_of(date: str, newest: str) -> int:
    """The number of days from one date to another."""
    return (dt.date.fromisoformat(newest) - dt.date.fromisoformat(date)).days
