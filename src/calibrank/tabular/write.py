"""Write a table with a new column, batch by batch.

Every output file is written atomically, so a run that is stopped leaves no partial file. A rerun
writes only the files that are missing or out of date.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrank._internal.arguments import listed
from calibrank._internal.atomic import atomic_path
from calibrank._internal.json import digest_of
from calibrank._internal.validation import Floats, Indices, floats
from calibrank.errors import DataError, Setting
from calibrank.maps import CalibrationMap
from calibrank.maps.score_shift import ScoreComparison
from calibrank.scorers import SavedModel
from calibrank.tables import Index
from calibrank.tabular.arrow import as_segments, names_like, names_of, to_arrow
from calibrank.tabular.columns import Roles, roles_of
from calibrank.tabular.csv_files import delimiter_of, ending_of, lines_of
from calibrank.tabular.files import Batch, Progress, format_of, read_tasks, stored_schema
from calibrank.tabular.read import Table, prefetch
from calibrank.tabular.rules import Mask, Rules

_DIGEST_KEY = b"calibrank_digest"

WriteColumns: TypeAlias = Callable[[list[pa.Array]], None]


@dataclass(frozen=True, slots=True)
class Probabilities:
    """The probabilities that a map assigns to a score column."""

    fitted: CalibrationMap
    score: str
    rules: Rules
    comparison: ScoreComparison | None = None
    """Collects the scores, to compare them with those of the fit."""

    def valid_rows(self, batch: Batch) -> Mask | None:
        fitted = self.fitted
        return self.rules.valid_rows(
            batch, {"score": self.score}, (), fitted.level_columns, fitted.number_columns
        )

    def values(self, batch: Batch) -> Floats:
        scores = floats("scores", batch.numbers(self.score))
        if self.comparison is not None:
            self.comparison.add(scores)

        fitted = self.fitted
        columns: dict[str, Any] = {name: batch.numbers(name) for name in fitted.number_columns}
        for name in fitted.level_columns:
            columns[name] = as_segments(batch.segments(name))
        return fitted.predict(scores, columns)

    def data_type(self, schema: pa.Schema) -> pa.DataType:
        is_single = schema.field(self.score).type == pa.float32()
        return pa.float32() if is_single else pa.float64()

    def inputs(self) -> tuple[str, ...]:
        return (self.score, *self.fitted.columns)

    def roles(self, recorded: Roles, to: str) -> Roles:
        return recorded.added("calibrank apply", score=self.score, probability=to)

    def digest(self) -> str:
        content = {"map": self.fitted.digest, "score": self.score, "skip": self.rules.skip}
        return digest_of(content)


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores that a saved model assigns to pairs of a user and an item."""

    model: SavedModel
    user: str
    item: str
    rules: Rules

    def valid_rows(self, batch: Batch) -> Mask | None:
        valid = self.rules.valid_rows(batch, {}, [self.user, self.item])
        for name, index in ((self.user, self.model.users), (self.item, self.model.items)):
            known = self.rules.known_rows(batch, name, index, valid)
            if known is not None:
                valid = known if valid is None else valid & known
        return valid

    def values(self, batch: Batch) -> Floats:
        users = self._rows("users", batch.ids(self.user), self.model.users)
        items = self._rows("items", batch.ids(self.item), self.model.items)
        return self.model.scorer.score(users, items)

    def _rows(self, what: str, column: pa.Array, index: Index) -> Indices:
        return index.rows(what, names_like(index.names, names_of(column)))

    def data_type(self, schema: pa.Schema) -> pa.DataType:
        return pa.from_numpy_dtype(self.model.scorer.users.dtype)

    def inputs(self) -> tuple[str, ...]:
        return (self.user, self.item)

    def roles(self, recorded: Roles, to: str) -> Roles:
        return recorded.added("calibrank score", user=self.user, item=self.item, score=to)

    def digest(self) -> str:
        pairs = [self.user, self.item]
        return digest_of({"weights": self.model.digest, "pairs": pairs, "skip": self.rules.skip})


NewColumn: TypeAlias = Probabilities | Scores
"""A new column of a table.

`values` are those of a batch without the rows that are not valid (`valid_rows`, None: all are), and
`digest` changes with everything that they depend on, except the table.
"""


def add_column(
    column: NewColumn, table: Table, out: Path, to: str, progress: Progress | None = None
) -> tuple[int, int]:
    """Write a table with a new column `to`.

    Returns the number of rows written, and the number of files that were already up to date.
    """
    rows = 0
    up_to_date = 0
    # Once: a map of a million levels takes seconds to serialize.
    computation = column.digest()
    for source, target in _targets(table, out):
        digest = _digest(computation, source, to)
        if _is_up_to_date(target, digest):
            up_to_date += 1
            if progress is not None:
                progress(source.stat().st_size)
        else:
            rows += _write_file(column, source, target, to, digest, progress)
    return rows, up_to_date


def _targets(table: Table, out: Path) -> list[tuple[Path, Path]]:
    """Pair every file of a table with its output: a file for a file, else a tree like its own."""
    if len(table.files) == 1 and out.suffix and not out.is_dir():
        pairs = [(table.files[0], out)]
    else:
        pairs = [(file, out / file.relative_to(table.root)) for file in table.files]
    folder = Path(table.name)
    if folder.is_dir() and out.resolve().is_relative_to(folder.resolve()):
        rule = f"lie outside {folder}: the next run would read it as part of the table"
        raise DataError(out, rule, remedy="Name another output.")
    if out.exists() and not out.is_file() and not out.is_dir():
        raise DataError(out, "be a file or a folder", "a pipe or a device", "Name another.")
    # Links are other names of one file.
    sources = {(source.stat().st_dev, source.stat().st_ino) for source, _ in pairs}
    for _, target in pairs:
        if target.exists() and (target.stat().st_dev, target.stat().st_ino) in sources:
            raise DataError(target, "not be the table itself", remedy="Name another output.")
    return pairs


def _write_file(
    column: NewColumn, source: Path, target: Path, to: str, digest: bytes, progress: Progress | None
) -> int:
    stored = stored_schema(source)
    _require_columns(column, source, stored, to)
    if format_of(target) != format_of(source):
        remedy = "Keep the ending of the table."
        raise DataError(target, f"be {format_of(source)} as the table", format_of(target), remedy)
    roles = column.roles(roles_of(stored), to)
    metadata = {**(stored.metadata or {}), **roles.metadata(), _DIGEST_KEY: digest}
    field = pa.field(to, column.data_type(stored))
    schema = stored.append(field).with_metadata(metadata)
    written = 0
    with _writer(target, schema, _delimiter(source, target)) as write:
        for batch in prefetch(read_tasks(source, stored.names, progress)):
            valid = column.valid_rows(batch)
            if valid is not None:
                chosen = to_arrow(np.flatnonzero(valid))
                batch = replace(batch, rows=batch.rows.take(chosen))
            write([*batch.rows.columns, to_arrow(column.values(batch))])
            written += batch.rows.num_rows
    return written


def _require_columns(column: NewColumn, source: Path, schema: pa.Schema, to: str) -> None:
    for name in column.inputs():
        if name not in schema.names:
            remedy = "It is needed to compute the new column."
            raise DataError(source, f"have a column {name!r}", listed(schema.names), remedy)
    if to in schema.names:
        another = ("Name another with ", Setting("to"), ".")
        raise DataError(source, f"not have a column {to} already", remedy=another)


def _delimiter(source: Path, target: Path) -> str:
    """What separates cells of an output: that of its source, unless it is a .tsv."""
    if ending_of(target).startswith(".csv") and ending_of(source).startswith(".csv"):
        return delimiter_of(source)
    return "\t" if ending_of(target).startswith(".tsv") else ","


@contextmanager
def _writer(target: Path, schema: pa.Schema, delimiter: str) -> Iterator[WriteColumns]:
    """Open a writer; the file appears under its name only when it is complete on disk."""
    with atomic_path(target) as partial:
        if format_of(target) == "csv":
            opened: Any = gzip.open if ending_of(target).endswith(".gz") else open
            with opened(partial, "wb") as file:
                names = [pa.array([name], pa.string()) for name in schema.names]
                _write_lines(file, names, delimiter)
                yield lambda columns: _write_lines(file, columns, delimiter)
            return
        with pq.ParquetWriter(partial, schema) as writer:
            yield lambda columns: writer.write_batch(
                pa.RecordBatch.from_arrays(columns, schema=schema)
            )


def _write_lines(file: IO[bytes], columns: list[pa.Array], delimiter: str) -> None:
    lines = lines_of(columns, delimiter)
    # Arrow stores the text of all lines one after the other.
    _, offsets, text = lines.buffers()
    end = np.frombuffer(offsets, dtype=np.int64)[len(lines)]
    file.write(memoryview(text)[:end])


def _digest(computation: str, source: Path, to: str) -> bytes:
    """Return a digest of everything that an output file depends on."""
    status = source.stat()
    content = {"column": computation, "to": to, "size": status.st_size, "time": status.st_mtime_ns}
    return digest_of(content).encode()


def _is_up_to_date(target: Path, digest: bytes) -> bool:
    """Whether a Parquet file was written from the same source by the same computation.

    A CSV file cannot hold a digest, so it is always written again.
    """
    if not target.exists() or format_of(target) == "csv":
        return False
    try:
        metadata = pq.read_schema(target).metadata or {}
    except pa.ArrowInvalid:
        return False
    return bool(metadata.get(_DIGEST_KEY) == digest)
