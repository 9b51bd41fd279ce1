"""Reading tables of any size: which files, which columns, which rows are bad."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import Ids
from calibrank.errors import DataError, MissingExtraError

try:
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("pyarrow", "cli") from error

BATCH = 2**20
_READERS = 2
_LARGEST_GROUP = 4_000_000
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}

ALIASES = {
    "score": ("score", "scores", "prediction", "predictions", "rating"),
    "label": ("label", "labels", "liked", "clicked", "click", "target"),
    "user": ("user", "user_id", "userID", "userId", "uid"),
    "item": ("item", "item_id", "itemID", "itemId", "iid"),
    "probability": ("probability",),
    "propensity": ("propensity",),
    "weight": ("weight",),
    "time": ("time", "timestamp", "time_ms"),
}
"""Names by which common schemas call a column; the first one present is taken unless another is named."""

Progress = Callable[[int], None]
Piece = Callable[[], list["Batch"]]
_Read = Callable[[], list[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Table:
    """Files of one table, in order."""

    name: str
    files: tuple[Path, ...]

    @classmethod
    def find(cls, name: str) -> "Table":
        """A file, a folder (partitions and all) or a glob."""
        path = Path(name)
        if has_magic(name) and not path.exists():
            found = sorted(Path(match) for match in glob(name, recursive=True))
        elif path.is_dir():
            hidden = (".", "_")
            inside = (inner for inner in path.rglob("*") if inner.suffix in _FORMATS)
            found = sorted(
                i
                for i in inside
                if not any(part.startswith(hidden) for part in i.relative_to(path).parts)
            )
        else:
            found = [path]
        files = tuple(
            file for file in found if file.is_file() and not file.name.startswith((".", "_"))
        )
        if not files:
            raise DataError(
                f"{name} must be a table (Parquet or CSV file, folder or glob), got no such file."
            )
        return cls(name, files)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def root(self) -> Path:
        """The folder that relative names start from."""
        path = Path(self.name)
        return path if path.is_dir() else Path(*_common(self.files))

    def columns(self) -> list[str]:
        """The names of the first file's columns."""
        return schema(self.files[0]).names

    def resolve(self, role: str, given: str | None) -> str:
        """The column that plays a role: the one given, or the first known alias."""
        names = self.columns()
        wanted = (given,) if given else ALIASES[role]
        for name in wanted:
            if name in names:
                return name
        article, remedy = "an" if role[0] in "aeiou" else "a", f"Name it with --{role}."
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            remedy = "Save it with commas between columns, or as Parquet."
        raise DataError(
            f"{self.name} must have {article} {role} column ({' or '.join(wanted)}), got "
            f"{', '.join(map(repr, names))}. {remedy}"
        )

    def has(self, role: str) -> str | None:
        """The column that plays a role under a known alias, if any."""
        names = self.columns()
        return next((name for name in ALIASES[role] if name in names), None)

    def batches(
        self, columns: Sequence[str], progress: Progress | None = None
    ) -> Iterator["Batch"]:
        """Row batches of the chosen columns, file by file in row order; `progress` hears bytes done."""
        return read_ahead(self._pieces(columns, progress))

    def pieces(self, columns: Sequence[str], progress: Progress | None = None) -> Iterator["Piece"]:
        """As `batches`, in pieces that are read by who calls them: so threads can share the reading."""
        return failing_last(self._pieces(columns, progress))

    def _pieces(self, columns: Sequence[str], progress: Progress | None) -> Iterator["Piece"]:
        before = 0
        for file in self.files:
            _require_columns(file, columns)
            before += yield from pieces_of(file, columns, progress, before)


def _require_columns(file: Path, columns: Sequence[str]) -> None:
    have = schema(file).names
    for name in columns:
        if name not in have:
            raise DataError(
                f"{file} must have a column {name!r} as the other files have, got {', '.join(map(repr, have))}."
            )


def pieces_of(
    file: Path, columns: Sequence[str] | None, progress: Progress | None = None, before: int = 0
) -> Generator["Piece", None, int]:
    """One file's rows in pieces, in order; returns how many there are. `progress` hears of bytes as they are read."""
    # pyarrow.dataset would do, but takes longer to load than most tables take to read.
    size = left = file.stat().st_size
    first = 0
    with _readable(file):
        known, unread = _parquet(file, columns) if _format(file) == "parquet" else (0, _csv(file))
        for rows, read in unread:
            share = size * rows // known if known else 0  # a CSV's rows are known when it ends

            def piece(first: int = first, share: int = share, read: _Read = read) -> list[Batch]:
                with _readable(file):
                    batches = _whole(file, columns, first, before, read())
                if progress is not None:
                    progress(share)
                return batches

            yield piece
            first += rows
            left -= share
    if progress is not None:
        progress(left)
    return first


def failing_last(pieces: Iterator["Piece"]) -> Iterator["Piece"]:
    """The same pieces; where no more can be had, the last one says why: after those before it have had their say."""
    try:
        yield from pieces
    except Exception as error:  # noqa: BLE001  (whatever it is, it is raised in its turn)
        yield partial(_fail, error)


def _fail(error: Exception) -> list["Batch"]:
    raise error


def read_ahead(pieces: Iterator["Piece"]) -> Iterator["Batch"]:
    """The pieces' batches in order; the next ones are read while this one is used."""
    with ThreadPoolExecutor(_READERS) as pool:
        coming = deque[Future[list[Batch]]]()
        for piece in failing_last(pieces):
            coming.append(pool.submit(piece))
            if len(coming) > _READERS:
                yield from coming.popleft().result()
        while coming:
            yield from coming.popleft().result()


def _whole(
    file: Path,
    columns: Sequence[str] | None,
    first: int,
    before: int,
    batches: Iterable[pa.RecordBatch],
) -> list["Batch"]:
    """Batches with the columns that were asked for, those that the file's path names among them."""
    whole = []
    for batch in batches:
        if batch.num_rows:
            rows = _with_path(batch, file, columns)
            whole.append(
                Batch(
                    file,
                    first,
                    rows if columns is None else rows.select(list(columns)),
                    before + first,
                )
            )
            first += batch.num_rows
    return whole


def schema(file: Path) -> pa.Schema:
    """The columns of one file, those named in its path (`day=1`) last."""
    inside = inner_schema(file)
    for name, value in _in_path(file).items():
        if name not in inside.names:
            inside = inside.append(pa.field(name, pa.array([value]).type))
    return inside


def inner_schema(file: Path) -> pa.Schema:
    """The columns that stand in the file itself."""
    with _readable(file):
        if _format(file) == "parquet":
            return pq.read_schema(file)
        with _open_csv(file) as opened:
            return opened.schema


def _parquet(file: Path, columns: Sequence[str] | None) -> tuple[int, Iterator[tuple[int, _Read]]]:
    """How many rows there are, and what reads them: how many each, and how."""
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    inside = (
        None
        if columns is None
        else [name for name in columns if name in metadata.schema.to_arrow_schema().names]
    )

    def opened() -> pq.ParquetFile:
        return pq.ParquetFile(file, metadata=metadata)

    def read(group: int) -> list[pa.RecordBatch]:
        with opened() as mine:  # one reader a thread
            rows = mine.read_row_group(group, columns=inside, use_threads=False)
        return rows.combine_chunks().to_batches(BATCH)

    def streamed() -> Iterator[pa.RecordBatch]:
        with opened() as whole:
            yield from whole.iter_batches(BATCH, columns=inside)

    if max(groups, default=0) > _LARGEST_GROUP:
        return metadata.num_rows, _read_already(streamed())
    return metadata.num_rows, ((rows, partial(read, group)) for group, rows in enumerate(groups))


def _csv(file: Path) -> Iterator[tuple[int, _Read]]:
    with _open_csv(file) as opened:
        yield from _read_already(opened)


def _read_already(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, _Read]]:
    for batch in batches:
        yield batch.num_rows, partial(list, [batch])


def _open_csv(file: Path) -> pc.CSVStreamingReader:
    return pc.open_csv(file, read_options=pc.ReadOptions(block_size=2**24))


def _with_path(batch: pa.RecordBatch, file: Path, columns: Sequence[str] | None) -> pa.RecordBatch:
    """The batch with columns that its file's path names, where asked for."""
    for name, value in _in_path(file).items():
        if columns is not None and name in columns and name not in batch.schema.names:
            batch = batch.append_column(name, pa.array([value] * batch.num_rows))
    return batch


def _in_path(file: Path) -> dict[str, str | int]:
    pairs = (part.split("=", 1) for part in file.parts[:-1] if "=" in part)
    return {
        name: int(value) if value.isdigit() and str(int(value)) == value else value
        for name, value in pairs
    }


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowKeyError) as error:
        raise DataError(f"{file} must be readable as {_format(file)}: {error}") from None


def arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Numbers as an Arrow array without a copy, and without loading pandas as `pa.array` does."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)]
    )


def _numbers_in(column: pa.Array) -> npt.NDArray[Any]:
    """As to_numpy would do, but without loading pandas, which takes longer than most tables."""
    values: npt.NDArray[Any] = np.frombuffer(
        column.buffers()[1], dtype=column.type.to_pandas_dtype()
    )
    return values[column.offset : column.offset + len(column)]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a file, from row `first` on."""

    file: Path
    first: int
    rows: pa.RecordBatch
    before: int = 0
    """Rows of the whole table before these."""

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers, integers as they are; missing ones become NaN."""
        column = self.rows.column(name)
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise DataError(f"{self.file}, column {name} must hold numbers, got {column.type}.")
        if column.null_count or pa.types.is_float16(column.type):
            column = column.cast(pa.float64()).fill_null(np.nan)
        return _numbers_in(column)

    def ids(self, name: str) -> pa.Array:
        """A column of ids."""
        column = self.rows.column(name)
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def take(ids: pa.Array, rows: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Some of the ids; of plain numbers without pyarrow.compute, which takes long to load."""
    plain = pa.types.is_integer(ids.type) and not ids.null_count
    return arrow(_numbers_in(ids)[rows]) if plain else ids.take(arrow(rows))


def names_of(column: pa.Array) -> Ids:
    """A column of ids as numbers or texts, without loading pandas."""
    if pa.types.is_integer(column.type):
        return _numbers_in(column)
    encoded = column.dictionary_encode()
    return np.array([str(name) for name in encoded.dictionary.to_pylist()], dtype=np.str_)[
        indices_of(encoded)
    ]


def indices_of(encoded: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    """A dictionary array's indices, without loading pandas for it."""
    indices = encoded.indices
    return np.frombuffer(indices.buffers()[1], dtype=np.int32)[
        indices.offset : indices.offset + len(indices)
    ]


def _format(file: Path) -> str:
    if file.suffix not in _FORMATS:
        packed = (
            " Unpack it first." if file.suffix in (".gz", ".zip", ".bz2", ".zst", ".xz") else ""
        )
        raise DataError(
            f"{file} must end in {', '.join(_FORMATS)}, got {file.suffix or 'no ending'}.{packed}"
        )
    return _FORMATS[file.suffix]


def _common(files: Sequence[Path]) -> list[str]:
    parts = [file.parent.parts for file in files]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return shared
