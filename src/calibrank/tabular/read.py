"""Find the files of a table of any size, choose its columns, and read its rows in batches."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from calibrank._internal.aliases import ALIASES
from calibrank._internal.arguments import listed, path_of
from calibrank.errors import CalibrankWarning, DataError, Setting
from calibrank.tabular.columns import Roles, roles_of
from calibrank.tabular.csv_files import ending_of
from calibrank.tabular.files import (
    FORMATS,
    UNREADABLE,
    Batch,
    Progress,
    ReadTask,
    read_tasks,
    schema,
)

Result = TypeVar("Result")

_ENDINGS = ", ".join(FORMATS)
_RULE = "a table (Parquet or CSV file, folder or glob)"

# While the caller works on one batch, one thread can wait for the disk and another decode.
_READERS = 2

# Spark and Hive write such files beside the data, for instance `_SUCCESS` and `.part-0.crc`.
_HIDDEN = (".", "_")


@dataclass(frozen=True, slots=True)
class Table:
    """One or more files with the same columns, in reading order."""

    name: str
    files: tuple[Path, ...]
    # A command asks for columns and roles many times.
    _schemas: dict[Path, pa.Schema] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def find(cls, name: str, rule: str = _RULE) -> Table:
        """Find a table by the name of a file, a folder (searched recursively) or a glob.

        `rule` says in errors what there must be.
        """
        path_of("the table", name)
        name = os.fspath(name)
        scheme, is_address, _ = name.partition("://")
        if is_address:
            remedy = "Copy or mount it first, or pass batches of its rows to calibrank.frames."
            raise DataError(name, "be on a local disk", f"a {scheme}:// address", remedy)
        found = [file for file in _matches(name) if _is_file(file)]
        files = [file for file in found if not file.name.startswith(_HIDDEN)]
        if not files:
            there = "no file with such a name" if has_magic(name) else "no such file"
            if Path(name).is_dir():
                there = f"a folder without {_ENDINGS} files"
            raise DataError(name, f"be {rule}", there, "Check the path.")
        return cls(name, tuple(files))

    @property
    def size(self) -> int:
        """Size on disk, in bytes."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def root(self) -> Path:
        """The folder that contains all files; output paths are relative to it."""
        path = Path(self.name)
        return (
            path
            if path.is_dir()
            else Path(os.path.commonpath([file.parent for file in self.files]))
        )

    def schema(self, file: Path) -> pa.Schema:
        """The columns of a file, which is opened once to see them."""
        if file not in self._schemas:
            self._schemas[file] = schema(file)
        return self._schemas[file]

    def columns(self) -> list[str]:
        """Return the column names of the first file."""
        return self.schema(self.files[0]).names

    def roles(self) -> Roles:
        """Return the roles that calibrank recorded in the first file when it wrote it."""
        return roles_of(self.schema(self.files[0]))

    def resolve(self, role: str, given: str | None) -> str:
        """Return the column for a role: given, recorded, or the first known alias; else raise."""
        names = self.columns()
        given = given or self.roles().column(role)
        wanted = (given,) if given else ALIASES[role]
        for name in wanted:
            if name in names:
                return name
        article = "an" if role[0] in "aeio" else "a"
        rule = f"have {article} {role} column ({' or '.join(wanted)})"
        raise DataError(self.name, rule, listed(names), ("Name it with ", Setting(role), "."))

    def has(self, role: str) -> str | None:
        """Return the column for a role if it is recorded or a known alias is present."""
        names = self.columns()
        recorded = self.roles().column(role)
        if recorded is not None:
            return recorded
        return next((name for name in ALIASES[role] if name in names), None)

    def batches(self, columns: Sequence[str], progress: Progress | None = None) -> Iterator[Batch]:
        """Read the chosen columns batch by batch, in row order.

        Reading runs ahead in other threads. `progress` is called with the bytes read.
        """
        return prefetch(self._tasks(columns, progress))

    def read_tasks(
        self, columns: Sequence[str], progress: Progress | None = None, encoded: Sequence[str] = ()
    ) -> Iterator[ReadTask]:
        """As `batches`, but in tasks that read when called, so that workers share the reading.

        Text columns named in `encoded` are read with dictionaries of their values, if possible.
        """
        return _errors_as_tasks(self._tasks(columns, progress, encoded))

    def _tasks(
        self, columns: Sequence[str], progress: Progress | None, encoded: Sequence[str] = ()
    ) -> Iterator[ReadTask]:
        before = 0
        for file in self.files:
            self._require_columns(file, columns)
            before += yield from read_tasks(file, columns, progress, before, encoded)

    def _require_columns(self, file: Path, columns: Sequence[str]) -> None:
        names = self.schema(file).names
        for name in columns:
            if name not in names:
                raise DataError(
                    file,
                    f"have the column {name!r}",
                    listed(names),
                    "Name one of these; all files of a table must have it.",
                )


def prefetch(tasks: Iterator[Callable[[], list[Result]]]) -> Iterator[Result]:
    """Yield the results of all tasks in order, running the next ones while one is in use."""
    with ThreadPoolExecutor(1) as lister, ThreadPoolExecutor(_READERS) as readers:

        def submit() -> Future[list[Result] | None]:
            # A thread of its own lists the tasks: of a CSV file, this is what parses it.
            listed = lister.submit(next, tasks, None)
            return readers.submit(_run, listed)

        pending = deque([submit() for _ in range(_READERS)])
        while (results := pending.popleft().result()) is not None:
            pending.append(submit())
            yield from results


def _run(listed: Future[Callable[[], list[Result]] | None]) -> list[Result] | None:
    task = listed.result()
    return None if task is None else task()


def _errors_as_tasks(tasks: Iterator[ReadTask]) -> Iterator[ReadTask]:
    """Yield the tasks; if listing them fails, the last task raises that error.

    Errors are then raised in row order: an invalid row is reported before a damaged file after it.
    """
    try:
        yield from tasks
    except Exception as error:  # noqa: BLE001  (every error is raised again, by the last task)
        yield partial(_fail, error)


def _fail(error: Exception) -> list[Batch]:
    raise error


def _matches(name: str) -> Iterable[Path]:
    path = Path(name)
    # A file whose name contains brackets or stars is that file, not a pattern.
    if has_magic(name) and not path.exists():
        return sorted(Path(match) for match in glob(name, recursive=True))
    if path.is_dir():
        return sorted(_data_files(path))
    return [path]


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield the files to read; other data in the folder are an error or a warning, never silent."""
    not_read = []
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        is_hidden = any(part.startswith(_HIDDEN) for part in parts)
        if not is_hidden:
            _require_readable(folder, file)
        if file.is_dir():
            continue
        is_data = ending_of(file) in FORMATS
        if is_data and not is_hidden:
            yield file
        elif is_data or not is_hidden:
            not_read.append(str(file.relative_to(folder)))
    if not_read:
        names = ", ".join(sorted(not_read)[:5])
        warnings.warn(
            f"{folder}: {len(not_read)} files are not read, such as {names}. Only {_ENDINGS} are, "
            "unless a name starts with . or _.",
            CalibrankWarning,
            stacklevel=2,
        )


def _require_readable(folder: Path, file: Path) -> None:
    """Refuse what is probably a part of the table, but would not be read."""
    if file.is_symlink() and (file.is_dir() or not file.exists()):
        raise DataError(
            folder,
            "not hold links to folders or to missing files",
            file,
            "Name the folder that it leads to, or remove it.",
        )
    if ending_of(file) not in FORMATS and file.suffix.lower() in UNREADABLE and file.is_file():
        raise DataError(
            folder,
            f"hold only {_ENDINGS} files",
            f"{file}, which would not be read",
            "Convert it, move it, or name the files to read by a quoted glob.",
        )
    if ending_of(file) in FORMATS:
        _is_file(file)


def _is_file(path: Path) -> bool:
    if path.exists() and not path.is_file() and not path.is_dir():
        found = "a pipe or a device: tables are read more than once"
        raise DataError(path, "be a regular file", found, "Save it first.")
    return path.is_file()
