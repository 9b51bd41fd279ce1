"""Tables and figures from result rows alone, without the data they were computed from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from calibrank.errors import DataError
from calibrank.experiment.runner import SCHEMA
from calibrank.experiment.statistics import Results


def read_results(files: Sequence[Path]) -> Results:
    """The rows of several files that `calibrank reproduce` wrote."""
    return Results(pa.concat_tables([_read(file) for file in files]))


def _read(file: Path) -> pa.Table:
    if not file.is_file():
        raise DataError(
            f"{file} must be a file of result rows, got no such file. "
            "Name the rows.parquet of a run."
        )
    try:
        table = pq.read_table(file)
    except pa.ArrowInvalid as error:
        raise DataError(f"{file} must be a Parquet file: {error}.") from None
    missing = [name for name in SCHEMA.names if name not in table.column_names]
    if missing:
        raise DataError(
            f"{file} must have the columns of result rows, got none named {', '.join(missing)}."
        )
    return table.select(SCHEMA.names).cast(SCHEMA)
