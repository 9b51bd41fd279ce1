"""Read one Parquet or CSV file: its columns, and its rows in batches that any thread can read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from calibrank.errors import DataError, Setting
from calibrank.tabular.arrow import numbers_of, parse_ids
from calibrank.tabular.csv_files import (
    BLOCK_BYTES,
    csv_batches,
    csv_names,
    ending_of,
    is_utf16,
    not_utf8,
    numbers_of_text,
    values_of_text,
)

# pyarrow.dataset offers much of this module, but takes longer to import than most tables to read.

FORMATS = {".parquet": "parquet", ".pq": "parquet"} | dict.fromkeys(
    (".csv", ".tsv", ".csv.gz", ".tsv.gz"), "csv"
)
"""Supported formats by file suffix."""

UNREADABLE = (".gz", ".zip", ".bz2", ".zst", ".xz", ".jsonl", ".orc", ".avro", ".feather")
"""Endings of tables in formats that are not supported."""

# Large enough for compiled loops to run at full speed, small enough to keep several in memory.
_BATCH_ROWS = 2**20

# Row groups are read whole, one per task. Larger ones would break the bound on memory, so a file
# that has one is streamed by a single thread instead.
_LARGEST_ROW_GROUP = 4_000_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive rows of one file."""

    file: Path
    first: int
    """Number of the first row within the file, counted from 0."""
    rows: pa.RecordBatch
    before: int = 0
    """Number of rows of the whole table that come before this batch."""
    from_csv: bool = False
    """Whether the columns are the text of a CSV file."""
    # A column is checked first and used later; text is converted only once.
    _converted: dict[tuple[str, str], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return a numeric column: integers keep their type, and missing values become NaN."""
        column = self.rows.column(name)
        if self.from_csv and pa.types.is_string(column.type):
            where, first = self._where(name), self.first
            return self._once("numbers", name, lambda: numbers_of_text(column, where, first))
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if not pa.types.is_integer(column.type) and not pa.types.is_floating(column.type):
            raise self._wrong_type(name, "numbers")
        if column.null_count or pa.types.is_float16(column.type):
            column = column.cast(pa.float64()).fill_null(np.nan)
        return numbers_of(column)

    def labels(self, name: str) -> npt.NDArray[Any]:
        """Return the numeric column of labels; where it holds text, the error offers a rule."""
        try:
            return self.numbers(name)
        except DataError as error:
            answer = Setting("label", f'{name} == "yes"')
            error.remedies = [("Correct it, or declare what is liked, such as ", answer, ".")]
            raise

    def ids(self, name: str) -> pa.Array:
        """Return a column of ids: integers, or text."""
        column, where = self.rows.column(name), self._where(name)
        return self._once("ids", name, lambda: parse_ids(column, where, from_csv=self.from_csv))

    def segments(self, name: str) -> pa.Array:
        """Return a column of ids: integers, or one with a dictionary; null is a missing value."""
        return self._once("segments", name, lambda: self._parse_segments(name))

    def texts(self, name: str) -> npt.NDArray[Any]:
        """Return a column of ids as Python texts; None is a missing value."""
        column = self.segments(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        names = [str(value) for value in column.dictionary.to_pylist()]
        indices = column.indices.cast(pa.int32()).fill_null(len(names))
        return np.array([*names, None], dtype=object)[numbers_of(indices)]

    def values(self, name: str) -> pa.Array:
        """Return a column that is neither ids nor checked numbers, with its own type."""
        column = self.rows.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            raise self._wrong_type(name, "text or numbers")
        return values_of_text(column) if self.from_csv else column

    def _wrong_type(self, name: str, wanted: str) -> DataError:
        remedy = "Convert it, or name another column."
        return DataError(self._where(name), f"hold {wanted}", self.rows.column(name).type, remedy)

    def _where(self, name: str) -> str:
        return f"{self.file}, column {name}"

    def _once(self, kind: str, name: str, convert: Callable[[], Any]) -> Any:
        key = (kind, name)
        if key not in self._converted:
            self._converted[key] = convert()
        return self._converted[key]

    def _parse_segments(self, name: str) -> pa.Array:
        column = self.rows.column(name)
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = column.dictionary_encode()
        if not pa.types.is_dictionary(column.type) or column.dictionary.null_count:
            ids = self.ids(name)
            is_plain = pa.types.is_integer(ids.type) and not ids.null_count
            return ids if is_plain else ids.dictionary_encode()
        # Each distinct value is parsed once.
        values = parse_ids(column.dictionary, self._where(name), from_csv=self.from_csv)
        indices = column.indices
        if not pa.types.is_int32(indices.type):
            indices = indices.cast(pa.int32())
        return pa.DictionaryArray.from_arrays(indices, values)


Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes read since the last call."""

ReadTask: TypeAlias = Callable[[], list[Batch]]
"""Reads some rows of a file, in whichever thread calls it."""

_Chunk: TypeAlias = tuple[int, Callable[[], list[pa.RecordBatch]]]
"""Rows of a file that are read together: their number, and a function that reads them."""


def read_tasks(
    file: Path,
    columns: Sequence[str],
    progress: Progress | None = None,
    before: int = 0,
    encoded: Sequence[str] = (),
) -> Generator[ReadTask, None, int]:
    """Yield tasks that read a file in row order, and return its number of rows.

    `before` is the number of rows in earlier files of the same table. Parquet's text columns named
    in `encoded` keep the dictionaries that most of them are stored with.
    """
    unreported = size = file.stat().st_size
    # A CSV file is read by blocks. How much a packed one has left is known only at its end.
    block = 0 if ending_of(file).endswith(".gz") else BLOCK_BYTES
    first = 0
    with _readable(file):
        total, chunks = _chunks(file, columns, encoded)
        for rows, read in chunks:
            yield partial(_read_chunk, file, columns, first, before, read)
            first += rows
            share = size * rows // total if total else min(block, unreported)
            unreported -= share
            if progress is not None:
                progress(share)
    if progress is not None:
        progress(unreported)
    return first


def _read_chunk(
    file: Path,
    columns: Sequence[str],
    first: int,
    before: int,
    read: Callable[[], list[pa.RecordBatch]],
) -> list[Batch]:
    """Read a chunk, and add the columns that the file's path names."""
    batches = []
    is_csv = format_of(file) == "csv"
    with _readable(file):
        for rows in read():
            if rows.num_rows:
                selected = _select_columns(rows, file, columns)
                batches.append(Batch(file, first, selected, before + first, is_csv))
                first += rows.num_rows
    return batches


def schema(file: Path) -> pa.Schema:
    """Return the columns of a file: those stored in it, then those its path names (`day=1`)."""
    columns = stored_schema(file)
    for name, value in _partition_values(file).items():
        if name not in columns.names:
            columns = columns.append(pa.field(name, pa.array([value]).type))
    return columns


def stored_schema(file: Path) -> pa.Schema:
    """Return the columns that are stored in the file itself."""
    with _readable(file):
        if format_of(file) == "csv":
            found = pa.schema([pa.field(name, pa.string()) for name in csv_names(file)])
        else:
            found = pq.read_schema(file)
    repeated = sorted({name for name in found.names if found.names.count(name) > 1})
    if repeated:
        rule, remedy = "have columns with different names", "Rename or drop one."
        raise DataError(file, rule, f"{repeated[0]!r} more than once", remedy)
    return found


def _chunks(
    file: Path, columns: Sequence[str], encoded: Sequence[str]
) -> tuple[int, Iterable[_Chunk]]:
    """Return a file's number of rows (0 if it is not known yet) and its chunks."""
    if format_of(file) == "csv":
        return 0, _already_read(csv_batches(file, columns))
    metadata = pq.read_metadata(file)
    found = metadata.schema.to_arrow_schema()
    stored = [name for name in columns if name in found.names]
    kinds = {name: found.field(name).type for name in encoded if name in found.names}
    texts = [name for name, kind in kinds.items() if kind in (pa.string(), pa.large_string())]
    return metadata.num_rows, _parquet_chunks(file, metadata, stored, texts)


def _parquet_chunks(
    file: Path, metadata: pq.FileMetaData, columns: list[str], encoded: list[str]
) -> Iterator[_Chunk]:
    groups = range(metadata.num_row_groups)
    sizes = [metadata.row_group(group).num_rows for group in groups]
    if max(sizes, default=0) > _LARGEST_ROW_GROUP:
        with pq.ParquetFile(file, metadata=metadata, read_dictionary=encoded) as reader:
            batches = reader.iter_batches(_BATCH_ROWS, columns=columns)
            yield from _already_read(batches)
        return
    for group, size in zip(groups, sizes, strict=True):
        yield size, partial(_read_row_group, file, metadata, columns, encoded, group)


def _read_row_group(
    file: Path, metadata: pq.FileMetaData, columns: list[str], encoded: list[str], group: int
) -> list[pa.RecordBatch]:
    # A ParquetFile must not be shared by threads, so every task opens its own.
    with pq.ParquetFile(file, metadata=metadata, read_dictionary=encoded) as reader:
        rows = reader.read_row_group(group, columns=columns, use_threads=False)
    return rows.combine_chunks().to_batches(_BATCH_ROWS)


def _already_read(batches: Iterable[pa.RecordBatch]) -> Iterator[_Chunk]:
    for batch in batches:
        yield batch.num_rows, partial(list, [batch])


def _select_columns(rows: pa.RecordBatch, file: Path, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the requested columns, including those that the file's path names."""
    for name, value in _partition_values(file).items():
        if name in columns and name not in rows.schema.names:
            column = pa.array([value] * rows.num_rows)
            rows = rows.append_column(name, column)
    return rows.select(list(columns))


def _partition_values(file: Path) -> dict[str, str | int]:
    """Return the columns that a Hive-style path names, such as `country=NL/day=1/part.parquet`."""
    values: dict[str, str | int] = {}
    for folder in file.parts[:-1]:
        name, separator, value = folder.partition("=")
        if separator:
            # "01" stays text: as a number it would lose its leading zero.
            is_number = value.isdigit() and str(int(value)) == value
            values[name] = int(value) if is_number else value
    return values


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn Arrow's errors about a file's content into a `DataError` that names the file."""
    try:
        yield
    except (MemoryError, FileNotFoundError, PermissionError):
        raise
    # Damaged Parquet files also raise OSError, and damaged names UnicodeDecodeError.
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split()).removesuffix(".")
        if "launch worker thread" in reason:  # Arrow's way to say that memory is short
            raise MemoryError(reason) from None
        if "invalid UTF8" in reason or is_utf16(file):
            raise not_utf8(file, "other bytes") from None
        raise DataError(
            file,
            f"be readable as {format_of(file)}",
            reason,
            "Check how it was written, and whether it is complete.",
        ) from None


def format_of(file: Path) -> str:
    """Return "parquet" or "csv" by the ending of the name; another one is an error."""
    ending = ending_of(file)
    if ending not in FORMATS:
        remedy = "Save it as Parquet. Runs of search systems are read by calibrank search."
        raise DataError(file, f"end in {', '.join(FORMATS)}", file.suffix or "no ending", remedy)
    return FORMATS[ending]
