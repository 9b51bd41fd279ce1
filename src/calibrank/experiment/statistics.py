"""From rows to numbers with intervals: over seeds, and paired by seed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from calibrank._validation import Floats


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over seeds: its mean, the mean's 95 % interval, and the range that one more seed would fall in."""

    mean: float
    half: float
    """Half the width of the mean's interval."""
    reach: float
    """Half the width of a single run's: what a published number, one run, is compared with."""
    seeds: int

    @classmethod
    def of(cls, values: Floats) -> "Spread":
        count = len(values)
        if count < 2:
            return cls(float(values.mean()), float("nan"), float("nan"), count)
        factor = float(stats.t.ppf(0.975, count - 1)) * float(values.std(ddof=1))
        return cls(
            float(values.mean()), factor / count**0.5, factor * (1 + 1 / count) ** 0.5, count
        )

    def covers(self, value: float) -> bool:
        """Whether one more run could well give this value."""
        return abs(value - self.mean) <= self.reach


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Rows of results, to be asked for numbers."""

    table: pa.Table

    def where(self, **equal: object) -> "Results":
        """Rows whose columns equal these."""
        mask: object = None
        for name, value in equal.items():
            this = pc.equal(self.table[name], value)
            mask = this if mask is None else pc.and_(mask, this)
        return Results(self.table.filter(mask))

    def values(self, **equal: object) -> Floats:
        """Values by seed, in seed order."""
        chosen = self.where(**equal).table
        order = np.argsort(_numpy(chosen["seed"]), kind="stable")
        return _numpy(chosen["value"]).astype(np.float64)[order]

    def spread(self, **equal: object) -> Spread | None:
        """A number over seeds; None if there is none."""
        values = self.values(**equal)
        return Spread.of(values) if len(values) else None

    def distinct(self, name: str) -> list[str]:
        """What a column holds, in order of appearance."""
        return list(dict.fromkeys(self.table[name].to_pylist()))


def paired_p(ours: Floats, theirs: Floats) -> float:
    """The p-value of a paired t-test over seeds; NaN where it is not defined."""
    differences = ours - theirs
    if len(differences) < 2 or np.allclose(differences, differences[0]):
        return float("nan")
    return float(stats.ttest_rel(ours, theirs).pvalue)


def best_of(spreads: Mapping[str, Spread]) -> str | None:
    """The name with the lowest mean."""
    return min(spreads, key=lambda name: spreads[name].mean) if spreads else None


def _numpy(column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    return np.array(column.to_pylist())
