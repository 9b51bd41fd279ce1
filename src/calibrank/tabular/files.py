"""Read one Parquet or CSV file: its columns, and its rows in tasks that any thread can run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from calibrank.errors import DataError
from calibrank.tabular.batch import Batch
from calibrank.tabular.csv_files import (
    csv_batches,
    csv_names,
    ending_of,
    is_utf16,
    not_utf8,
    typed_schema,
)

# pyarrow.dataset offers much of this module, but takes longer to import than most tables to read.

FORMATS = {".parquet": "parquet", ".pq": "parquet"} | dict.fromkeys(
    (".csv", ".tsv", ".csv.gz", ".tsv.gz"), "csv"
)
"""Supported formats by file suffix."""

_COMPRESSED = (".gz", ".zip", ".bz2", ".zst", ".xz")
_JSON = (".jsonl", ".ndjson", ".json")
UNREADABLE = (*_COMPRESSED, ".jsonl", ".ndjson", ".orc", ".avro", ".feather", ".arrow")
"""Endings of tables in formats that are not supported."""

# Runs of search systems, which are no tables: query Q0 document rank score tag.
_TREC_ENDINGS = (".trec", ".run", ".txt")
_TREC_COLUMNS = 6
_LONGEST_LINE = 2**12

# Large enough for compiled loops to run at full speed, small enough to keep several in memory.
_BATCH_ROWS = 2**20

# Row groups are read whole, one per task. Larger ones would break the bound on memory, so a file
# that has one is streamed by a single thread instead.
_LARGEST_ROW_GROUP = 4_000_000

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes read since the last call."""

ReadTask: TypeAlias = Callable[[], list[Batch]]
"""Reads some rows of a file, in whichever thread calls it."""


_Chunk: TypeAlias = tuple[int, Callable[[], list[pa.RecordBatch]]]
"""Rows of a file that are read together: their number, and a function that reads them."""


def read_tasks(
    file: Path,
    columns: Sequence[str] | None,
    progress: Progress | None = None,
    before: int = 0,
    encoded: Sequence[str] = (),
) -> Generator[ReadTask, None, int]:
    """Yield tasks that read a file in row order, and return its number of rows.

    Without `columns`, all columns stored in the file are read. `before` is the number of rows in
    earlier files of the same table. Parquet's text columns named in `encoded` keep the dictionaries
    that most of them are stored with.
    """
    size = file.stat().st_size
    unreported = size
    first = 0
    with _readable(file):
        total, chunks = _chunks(file, columns, encoded)
        for rows, read in chunks:
            # A CSV file's number of rows is known only at its end; progress waits until then.
            share = size * rows // total if total else 0
            done = None if progress is None else partial(progress, share)
            yield partial(_read_chunk, file, columns, first, before, read, done)
            first += rows
            unreported -= share
    if progress is not None:
        progress(unreported)
    return first


def _read_chunk(
    file: Path,
    columns: Sequence[str] | None,
    first: int,
    before: int,
    read: Callable[[], list[pa.RecordBatch]],
    done: Callable[[], None] | None,
) -> list[Batch]:
    """Read a chunk, and add the columns that the file's path names."""
    batches = []
    with _readable(file):
        for rows in read():
            if rows.num_rows:
                selected = _select_columns(rows, file, columns)
                is_csv = format_of(file) == "csv"
                batches.append(Batch(file, first, selected, before + first, is_csv))
                first += rows.num_rows
    if done is not None:
        done()
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
        _require_distinct(file, found.names)
    return found


def schema_to_save(file: Path) -> pa.Schema:
    """Return the columns that are stored in the file, in the types of a Parquet copy of it."""
    if format_of(file) == "parquet":
        return stored_schema(file)
    with _readable(file):
        return typed_schema(file)


def _chunks(
    file: Path, columns: Sequence[str] | None, encoded: Sequence[str]
) -> tuple[int, Iterable[_Chunk]]:
    """Return a file's number of rows (0 if it is not known yet) and its chunks."""
    if format_of(file) == "csv":
        return 0, _already_read(csv_batches(file, columns))
    metadata = pq.read_metadata(file)
    found = metadata.schema.to_arrow_schema()
    stored = None if columns is None else [name for name in columns if name in found.names]
    texts = [name for name in encoded if name in found.names and _is_text(found.field(name).type)]
    return metadata.num_rows, _parquet_chunks(file, metadata, stored, texts)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _parquet_chunks(
    file: Path, metadata: pq.FileMetaData, columns: list[str] | None, encoded: list[str]
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
    file: Path, metadata: pq.FileMetaData, columns: list[str] | None, encoded: list[str], group: int
) -> list[pa.RecordBatch]:
    # A ParquetFile must not be shared by threads, so every task opens its own.
    with pq.ParquetFile(file, metadata=metadata, read_dictionary=encoded) as reader:
        rows = reader.read_row_group(group, columns=columns, use_threads=False)
    return rows.combine_chunks().to_batches(_BATCH_ROWS)


def _already_read(batches: Iterable[pa.RecordBatch]) -> Iterator[_Chunk]:
    for batch in batches:
        yield batch.num_rows, partial(list, [batch])


def _select_columns(
    rows: pa.RecordBatch, file: Path, columns: Sequence[str] | None
) -> pa.RecordBatch:
    """Return the requested columns, including those that the file's path names."""
    if columns is None:
        return rows
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


def _require_distinct(file: Path, names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(
            file,
            "have columns with different names",
            f"{repeated[0]!r} more than once",
            "Rename or drop one.",
        )


def format_of(file: Path) -> str:
    """Return "parquet" or "csv" by the ending of the name; another one is an error."""
    ending = ending_of(file)
    if ending in FORMATS:
        return FORMATS[ending]
    remedy = ""
    if _is_trec_run(file):
        remedy = (
            "Runs of search systems are fitted by calibrank search fit, and calibrated by "
            "calibrank search apply."
        )
    elif file.suffix.lower() in _COMPRESSED:
        remedy = "Unpack it first, or save it as Parquet, which is compressed itself."
    if ending in _JSON:
        remedy = "Save it as Parquet, e.g. polars.read_ndjson(file).write_parquet(...)."
    found = file.suffix or "no ending"
    raise DataError(file, f"end in {', '.join(FORMATS)}", found, remedy)


def _is_trec_run(file: Path) -> bool:
    """Whether a file is a TREC run, by its name or by its first line."""
    if not file.is_file():
        return False
    if Path(file.name.lower().removesuffix(".gz")).suffix in _TREC_ENDINGS:
        return True
    with file.open("rb") as content:
        first = content.readline(_LONGEST_LINE).split()
    return len(first) == _TREC_COLUMNS and first[1].upper() == b"Q0"
