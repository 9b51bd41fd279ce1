"""Files of result rows: their columns, and how one is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from calibrank._internal.arguments import regular_file
from calibrank.errors import DataError

SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("spec", pa.string()),
        ("split", pa.string()),
        ("model", pa.string()),
        ("method", pa.string()),
        ("loss", pa.string()),
        ("propensity", pa.string()),
        ("negatives", pa.int64()),
        ("seed", pa.int64()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("note", pa.string()),
        ("provenance", pa.string()),
    ]
)


def read_row_files(files: Sequence[Path]) -> pa.Table:
    """The rows of files that `calibrank reproduce` wrote; any other file is an error."""
    return pa.concat_tables([_read(file) for file in files])


def _read(file: Path) -> pa.Table:
    regular_file(file, "a file of result rows", "Name the rows.parquet of a run.")
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(file, f"be a Parquet file: {error}") from None
    if "note" not in table.column_names:  # rows of older versions
        table = table.append_column("note", pa.nulls(len(table), pa.string()))
    missing = [name for name in SCHEMA.names if name not in table.column_names]
    if missing:
        raise DataError(
            file, "have the columns of result rows", got=f"none named {', '.join(missing)}"
        )
    try:
        return table.select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(file, f"have columns of result rows: {error}") from None
