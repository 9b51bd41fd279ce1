"""Statistics over seeds: means with intervals, and paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from calibrank._internal.validation import Floats
from calibrank.experiment.row_files import read_row_files


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
        """The rows of files that `calibrank reproduce` wrote."""
        return cls(read_row_files(files))

    def where(self, **equal: object) -> Results:
        """The rows whose columns have these values."""
        mask: object = None
        for name, value in equal.items():
            matches = pc.equal(self.table[name], value)
            mask = matches if mask is None else pc.and_(mask, matches)
        return Results(self.table.filter(mask))

    def distinct(self, name: str) -> list[str]:
        """The distinct values of a column, in order of appearance."""
        return list(dict.fromkeys(self.table[name].to_pylist()))


def paired_p(ours: Floats, theirs: Floats) -> float:
    """The p-value of a paired t-test over seeds; NaN where it is not defined."""
    differences = ours - theirs
    if len(differences) < 2 or np.allclose(differences, differences[0]):
        return float("nan")
    return float(stats.ttest_rel(ours, theirs).pvalue)
