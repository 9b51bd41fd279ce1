"""Reading tables of any size: which files, which columns, which rows are bad."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank.arrays import LARGEST_SCORE, Floats, is_binary, is_mass
from calibrank.errors import DataError, MissingExtra

try:
    import pyarrow as pa
    import pyarrow.dataset as ds
except ImportError as error:
    raise MissingExtra("pyarrow", "cli") from error

BATCH = 2**19
_READAHEAD = 4
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".gz": "csv"}

ALIASES = {
    "score": ("score", "scores", "prediction", "predictions", "rating"),
    "label": ("label", "labels", "liked", "clicked", "click", "target"),
    "user": ("user", "user_id", "userID", "userId", "uid"),
    "item": ("item", "item_id", "itemID", "itemId", "iid"),
    "probability": ("probability",),
    "propensity": ("propensity",),
    "weight": ("weight",),
}
"""Names by which common schemas call a column; the first one present is taken unless another is named."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Table:
    """Files of one table, in order."""

    name: str
    files: tuple[Path, ...]

    @classmethod
    def find(cls, name: str) -> "Table":
        """A file, a folder (partitions and all) or a glob."""
        path = Path(name)
        if has_magic(name):
            found = sorted(Path(match) for match in glob(name, recursive=True))
        elif path.is_dir():
            found = sorted(inner for inner in path.rglob("*") if inner.suffix in _FORMATS)
        else:
            found = [path]
        files = tuple(file for file in found if file.is_file() and not file.name.startswith((".", "_")))
        if not files:
            raise DataError(f"{name} must be a table (Parquet or CSV file, folder or glob), got no such file.")
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
        return _dataset(self.files[0], self.root).schema.names

    def resolve(self, role: str, given: str | None) -> str:
        """The column that plays a role: the one given, or the first known alias."""
        names = self.columns()
        wanted = (given,) if given else ALIASES[role]
        for name in wanted:
            if name in names:
                return name
        raise DataError(
            f"{self.name} must have a {role} column ({' or '.join(wanted)}), got {', '.join(names)}. "
            f"Name it with --{role}."
        )

    def has(self, role: str) -> str | None:
        """The column that plays a role under a known alias, if any."""
        names = self.columns()
        return next((name for name in ALIASES[role] if name in names), None)

    def batches(self, columns: Sequence[str], progress: Progress | None = None) -> Iterator["Batch"]:
        """Row batches of the chosen columns, file by file in row order; `progress` hears bytes of files done."""
        for file in self.files:
            first = 0
            for batch in record_batches(file, self.root, columns):
                yield Batch(file, first, batch)
                first += batch.num_rows
            if progress is not None:
                progress(file.stat().st_size)


def record_batches(file: Path, root: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """Row batches of one file, in order."""
    try:
        data = _dataset(file, root)
        chosen = None if columns is None else list(columns)
        options = {"batch_size": BATCH, "batch_readahead": _READAHEAD, "fragment_readahead": 1}
        for batch in data.to_batches(columns=chosen, **options):
            if batch.num_rows:
                yield batch
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"{file} must be readable as {_format(file)}: {error}") from None


def schema(file: Path, root: Path) -> pa.Schema:
    """The columns of one file, partition columns included."""
    return _dataset(file, root).schema


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a file, from row `first` on."""

    file: Path
    first: int
    rows: pa.RecordBatch

    def numbers(self, name: str) -> Floats:
        """A column of numbers; missing ones become NaN."""
        column = self.rows.column(name)
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        try:
            values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
            return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{self.file}, column {name} must hold numbers, got {column.type}.") from None


@dataclass(slots=True)
class Rules:
    """What each column of a row must be; bad rows stop the work, or are left out and counted."""

    skip: bool
    skipped: dict[str, int] = field(default_factory=dict)

    def good_rows(self, batch: Batch, columns: dict[str, str]) -> npt.NDArray[np.bool_] | None:
        """Which rows obey every rule (None: all), for columns given as role: name."""
        good: npt.NDArray[np.bool_] | None = None
        for role, name in columns.items():
            obeys, words = _RULES[role]
            values = batch.numbers(name)
            fine = obeys(values)
            if fine.all():
                continue
            self._report(batch, role, name, words, values, fine)
            good = fine if good is None else good & fine
        return good

    def _report(
        self, batch: Batch, role: str, name: str, words: str, values: Floats, fine: npt.NDArray[np.bool_]
    ) -> None:
        if self.skip:
            self.skipped[role] = self.skipped.get(role, 0) + int((~fine).sum())
            return
        row = int(np.argmin(fine))
        raise DataError(
            f"{batch.file}, row {batch.first + row}: {name} must {words}, got {values[row]}. "
            "Mend the table, or leave such rows out with --on-bad-rows skip."
        )


def _is_score(values: Floats) -> npt.NDArray[np.bool_]:
    return np.abs(values) <= LARGEST_SCORE


def _is_propensity(values: Floats) -> npt.NDArray[np.bool_]:
    return (values > 0) & (values <= 1)


def _is_probability(values: Floats) -> npt.NDArray[np.bool_]:
    return (values >= 0) & (values <= 1)


_RULES: dict[str, tuple[Callable[[Floats], npt.NDArray[np.bool_]], str]] = {
    "score": (_is_score, "be finite and within +-1e30"),
    "label": (is_binary, "be 0 or 1"),
    "propensity": (_is_propensity, "lie in (0, 1]"),
    "probability": (_is_probability, "lie in [0, 1]"),
    "weight": (is_mass, "be finite and not negative"),
}


def _dataset(file: Path, root: Path) -> ds.Dataset:
    partitioning = ds.partitioning(flavor="hive")
    try:
        return ds.dataset(file, format=_format(file), partitioning=partitioning, partition_base_dir=str(root))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file} must be readable as {_format(file)}: {error}") from None


def _format(file: Path) -> str:
    if file.suffix not in _FORMATS:
        raise DataError(f"{file} must end in {', '.join(_FORMATS)}, got {file.suffix or 'no ending'}.")
    return _FORMATS[file.suffix]


def _common(files: Sequence[Path]) -> list[str]:
    parts = [file.parent.parts for file in files]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return shared
