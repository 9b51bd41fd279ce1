"""Statistics over seeds: means with intervals, and paired tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from calibrank._internal.validation import Floats


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

    def where(self, **equal: object) -> Results:
        """The rows whose columns have these values."""
        mask: object = None
        for name, value in equal.items():
            matches = pc.equal(self.table[name], value)
            mask = matches if mask is None else pc.and_(mask, matches)
        return Results(self.table.filter(mask))

    def values(self, **equal: object) -> Floats:
        """The values of the selected rows, ordered by seed."""
        chosen = self.where(**equal).table
        order = np.argsort(_numpy(chosen["seed"]), kind="stable")
        return _numpy(chosen["value"]).astype(np.float64)[order]

    def spread(self, **equal: object) -> Spread | None:
        """The spread of the selected values over seeds; None if there are none."""
        values = self.values(**equal)
        return Spread.of(values) if len(values) else None

    def distinct(self, name: str) -> list[str]:
        """The distinct values of a column, in order of appearance."""
        return list(dict.fromkeys(self.table[name].to_pylist()))


def paired_p(ours: Floats, theirs: Floats) -> float:
    """The p-value of a paired t-test over seeds; NaN where it is not defined."""
    differences = ours - theirs
    if len(differences) < 2 or np.allclose(differences, differences[0]):
        return float("nan")
    return float(stats.ttest_rel(ours, theirs).pvalue)


def _numpy(column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    return np.array(column.to_pylist())
