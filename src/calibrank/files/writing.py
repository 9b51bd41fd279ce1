"""Writing tables whole or not at all, a batch at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from calibrank.arrays import floats
from calibrank.documents import seal, whole_file
from calibrank.errors import DataError
from calibrank.files.reading import Batch, Progress, Rules, Table, arrow, inner_schema, record_batches, with_progress
from calibrank.maps import CalibrationMap

_STAMP = b"calibrank"


def apply_map(
    fitted: CalibrationMap, table: Table, out: Path, score: str, to: str, rules: Rules, progress: Progress | None = None
) -> tuple[int, int]:
    """Write a table with a probability column more; rows written, and files left as they were, already done."""
    rows, done = 0, 0
    for source, target in _targets(table, out):
        stamp = _stamp(fitted, source, score, to, rules)
        if _is_done(target, stamp):
            done += 1
            if progress is not None:
                progress(source.stat().st_size)
        else:
            batches = with_progress(source, record_batches(source, None), progress)
            rows += _apply_file(fitted, source, batches, target, score, to, rules, stamp)
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


def _apply_file(
    fitted: CalibrationMap,
    source: Path,
    batches: Iterator[pa.RecordBatch],
    target: Path,
    score: str,
    to: str,
    rules: Rules,
    stamp: bytes,
) -> int:
    shape = inner_schema(source)
    if score not in shape.names:
        raise DataError(f"{source} must have a column {score}, got {', '.join(shape.names)}. Name it with --score.")
    if to in shape.names:
        raise DataError(f"{source} must not have a column {to} already. Name another with --to.")
    kind = pa.float32() if shape.field(score).type == pa.float32() else pa.float64()
    shape = shape.append(pa.field(to, kind)).with_metadata({**(shape.metadata or {}), _STAMP: stamp})
    read, written = 0, 0
    with _writer(target, shape) as write:
        for batch in batches:
            chosen = _good(Batch(source, read, batch), score, rules)
            scores = floats("scores", Batch(source, read, chosen).numbers(score))
            column = arrow(fitted.predict(scores))
            write(pa.RecordBatch.from_arrays([*chosen.columns, column], schema=shape))
            read, written = read + batch.num_rows, written + chosen.num_rows
    return written


def _good(batch: Batch, score: str, rules: Rules) -> pa.RecordBatch:
    good = rules.good_rows(batch, {"score": score})
    return batch.rows if good is None else batch.rows.take(arrow(np.flatnonzero(good)))


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
        raise DataError(f"{target} must end in .parquet, .pq or .csv, got {target.suffix or 'no ending'}.")
    with whole_file(target) as partial:
        write = _Write(partial, target, shape)
        try:
            yield write
        finally:
            write.close()


def _stamp(fitted: CalibrationMap, source: Path, score: str, to: str, rules: Rules) -> bytes:
    """A seal over all that the output depends on."""
    about = source.stat()
    asked = {"score": score, "to": to, "skip": rules.skip, "size": about.st_size, "time": about.st_mtime_ns}
    return seal({"map": fitted.to_dict(), **asked}).encode()


def _is_done(target: Path, stamp: bytes) -> bool:
    """Whether a Parquet file was written whole from the same source by the same map."""
    if not target.exists() or target.suffix == ".csv":
        return False
    try:
        metadata = pq.read_schema(target).metadata or {}
    except pa.ArrowInvalid:
        return False
    return bool(metadata.get(_STAMP) == stamp)
