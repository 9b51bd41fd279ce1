"""Tables and figures from result rows alone, without the data they were computed from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from calibrank._internal.arguments import regular_file
from calibrank.experiment.row_files import read_row_file
from calibrank.experiment.statistics import Results


def read_results(files: Sequence[Path]) -> Results:
    """The rows of several files that `calibrank reproduce` wrote."""
    return Results(pa.concat_tables([_read(file) for file in files]))


def _read(file: Path) -> pa.Table:
    rule = "a file of result rows"
    return read_row_file(regular_file(file, rule, "Name the rows.parquet of a run."))
