"""Result rows: their files and columns, means over seeds with intervals, and paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import stats

from calibrank._internal.arguments import regular_file
from calibrank._internal.validation import Floats
from calibrank.errors import DataError

_KEYS = ("dataset", "spec", "split", "model", "method", "loss", "propensity")
SCHEMA = pa.schema(
    [(name, pa.string()) for name in _KEYS]
    + [("negatives", pa.int64()), ("seed", pa.int64())]
    + [("metric", pa.string()), ("value", pa.float64())]
    + [("note", pa.string()), ("provenance", pa.string())]
)


# The names of metrics in rows of older versions.
_RENAMED = {"ECE of top 5": "ECE@5"}


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of a number over seeds, with two 95% intervals (Student's t)."""

    mean: float
    half: float
    """Half the width of the confidence interval of the mean."""
    prediction_half: float
    """Half the width of the prediction interval of one more run.

    A published number, which is one run, is compared with this interval.
    """
    seeds: int

    @classmethod
    def of(cls, values: Floats) -> Spread:
        """The spread of one value per seed; intervals are NaN for a single seed."""
        count = len(values)
        mean = float(values.mean())
        if count < 2:
            return cls(mean, float("nan"), float("nan"), count)
        width = float(stats.t.ppf(0.975, count - 1)) * float(values.std(ddof=1))
        # The mean has variance s^2 / n; one more run differs from it with s^2 (1 + 1 / n).
        return cls(mean, width / count**0.5, width * (1 + 1 / count) ** 0.5, count)

    def covers(self, value: float) -> bool:
        """Whether the value lies in the prediction interval of one more run."""
        return abs(value - self.mean) <= self.prediction_half


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """A table of result rows, with queries by column value."""

    table: pa.Table

    @classmethod
    def read(cls, files: Sequence[Path]) -> Results:
        """The rows of files that `calibrank reproduce` wrote; any other file is an error."""
        return cls(pa.concat_tables([_read(file) for file in files]))

    def where(self, **equal: object) -> Results:
        """The rows whose columns have these values."""
        table = self.table
        for name, value in equal.items():
            table = table.filter(pc.equal(table[name], value))
        return Results(table)

    def distinct(self, name: str) -> list[str]:
        """The distinct values of a column, in order of appearance."""
        return list(dict.fromkeys(self.table[name].to_pylist()))


def paired_p(ours: Floats, theirs: Floats) -> float:
    """The p-value of a paired t-test over seeds; NaN where it is not defined."""
    differences = ours - theirs
    if len(differences) < 2 or np.allclose(differences, differences[0]):
        return float("nan")
    return float(stats.ttest_rel(ours, theirs).pvalue)


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
        raise DataError(file, "have the columns of result rows", f"none named {', '.join(missing)}")
    try:
        table = table.select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(file, f"have columns of result rows: {error}") from None
    metrics = [_RENAMED.get(name, name) for name in table["metric"].to_pylist()]
    return table.set_column(
        table.column_names.index("metric"), "metric", pa.array(metrics, pa.string())
    )
