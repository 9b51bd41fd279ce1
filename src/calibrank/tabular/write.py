"""Writing tables whole or not at all, a batch at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from calibrank._atomic import atomic_path
from calibrank._json import digest_of
from calibrank._validation import Floats, floats
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.scorers import SavedModel
from calibrank.tabular.read import (
    Batch,
    Progress,
    Table,
    arrow,
    inner_schema,
    names_of,
    pieces_of,
    read_ahead,
)
from calibrank.tabular.rules import Rules

_STAMP = b"calibrank"


class Filler(Protocol):
    """What computes a new column."""

    def rows(self, batch: Batch) -> npt.NDArray[np.bool_] | None:
        """Which rows of a batch are good (None: all)."""

    def values(self, batch: Batch) -> Floats:
        """The new column of good rows, as float32 or float64."""

    def kind(self, shape: pa.Schema) -> pa.DataType:
        """The new column's type in a table of this shape."""

    def needs(self) -> tuple[str, ...]:
        """Columns that must be there."""

    def digest_of(self) -> str:
        """A digest of all that the new column depends on, but for the table."""


@dataclass(frozen=True, slots=True)
class Probabilities:
    """A map's probabilities of a score column."""

    fitted: CalibrationMap
    score: str
    rules: Rules

    def rows(self, batch: Batch) -> npt.NDArray[np.bool_] | None:
        return self.rules.good_rows(batch, {"score": self.score})

    def values(self, batch: Batch) -> Floats:
        return self.fitted.predict(floats("scores", batch.numbers(self.score)))

    def kind(self, shape: pa.Schema) -> pa.DataType:
        return pa.float32() if shape.field(self.score).type == pa.float32() else pa.float64()

    def needs(self) -> tuple[str, ...]:
        return (self.score,)

    def digest_of(self) -> str:
        return digest_of(
            {"map": self.fitted.to_dict(), "score": self.score, "skip": self.rules.skip}
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """A saved model's scores of pairs."""

    model: SavedModel
    user: str
    item: str
    rules: Rules

    def rows(self, batch: Batch) -> npt.NDArray[np.bool_] | None:
        good = self.rules.good_rows(batch, {}, [self.user, self.item])
        for name, index in ((self.user, self.model.users), (self.item, self.model.items)):
            known = self.rules.known_rows(batch, name, index, good)
            if known is not None:
                good = known if good is None else good & known
        return good

    def values(self, batch: Batch) -> Floats:
        users = self.model.users.rows("users", names_of(batch.ids(self.user)))
        return self.model.scorer.score(
            users, self.model.items.rows("items", names_of(batch.ids(self.item)))
        )

    def kind(self, shape: pa.Schema) -> pa.DataType:
        return pa.from_numpy_dtype(self.model.scorer.users.dtype)

    def needs(self) -> tuple[str, ...]:
        return (self.user, self.item)

    def digest_of(self) -> str:
        return digest_of(
            {"weights": self.model.digest, "pairs": [self.user, self.item], "skip": self.rules.skip}
        )


def add_column(
    filler: Filler, table: Table, out: Path, to: str, progress: Progress | None = None
) -> tuple[int, int]:
    """Write a table with a column more; rows written, and files left as they were, already done."""
    rows, done = 0, 0
    for source, target in _targets(table, out):
        stamp = _stamp(filler, source, to)
        if _is_done(target, stamp):
            done += 1
            if progress is not None:
                progress(source.stat().st_size)
        else:
            batches = read_ahead(pieces_of(source, None, progress))
            rows += _fill_file(filler, source, batches, target, to, stamp)
    return rows, done


def _targets(table: Table, out: Path) -> list[tuple[Path, Path]]:
    if len(table.files) == 1 and out.suffix and not out.is_dir():
        pairs = [(table.files[0], out)]
    else:
        pairs = [(file, out / file.relative_to(table.root)) for file in table.files]
    for source, target in pairs:
        if target.exists() and source.samefile(target):
            raise DataError(f"{target} must not be the table itself. Name another output.")
    return pairs


def _fill_file(
    filler: Filler, source: Path, batches: Iterator[Batch], target: Path, to: str, stamp: bytes
) -> int:
    shape = inner_schema(source)
    for name in filler.needs():
        if name not in shape.names:
            raise DataError(
                f"{source} must have a column {name}, got {', '.join(shape.names)}. Name another."
            )
    if to in shape.names:
        raise DataError(f"{source} must not have a column {to} already. Name another with --to.")
    wider = shape.append(pa.field(to, filler.kind(shape))).with_metadata(
        {**(shape.metadata or {}), _STAMP: stamp}
    )
    written = 0
    with _writer(target, wider) as write:
        for batch in batches:
            good = filler.rows(batch)
            chosen = (
                batch
                if good is None
                else replace(batch, rows=batch.rows.take(arrow(np.flatnonzero(good))))
            )
            values = filler.values(chosen)
            write(pa.RecordBatch.from_arrays([*chosen.rows.columns, arrow(values)], schema=wider))
            written += chosen.rows.num_rows
    return written


class _Write:
    """What a table's batches are written with: Parquet or CSV by the file's ending."""

    def __init__(self, path: Path, target: Path, shape: pa.Schema) -> None:
        csv = target.suffix == ".csv"
        self.writer = pc.CSVWriter(path, shape) if csv else pq.ParquetWriter(path, shape)

    def __call__(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch)

    def close(self) -> None:
        self.writer.close()


@contextmanager
def _writer(target: Path, shape: pa.Schema) -> Iterator[_Write]:
    """A writer to a file that appears under its name only when all is on disk."""
    if target.suffix not in (".parquet", ".pq", ".csv"):
        raise DataError(
            f"{target} must end in .parquet, .pq or .csv, got {target.suffix or 'no ending'}."
        )
    with atomic_path(target) as partial:
        write = _Write(partial, target, shape)
        try:
            yield write
        finally:
            write.close()


def _stamp(filler: Filler, source: Path, to: str) -> bytes:
    """A digest of all that the output depends on."""
    about = source.stat()
    asked = {
        "filler": filler.digest_of(),
        "to": to,
        "size": about.st_size,
        "time": about.st_mtime_ns,
    }
    return digest_of(asked).encode()


def _is_done(target: Path, stamp: bytes) -> bool:
    """Whether a Parquet file was written whole from the same source by the same map."""
    if not target.exists() or target.suffix == ".csv":
        return False
    try:
        metadata = pq.read_schema(target).metadata or {}
    except pa.ArrowInvalid:
        return False
    return bool(metadata.get(_STAMP) == stamp)
