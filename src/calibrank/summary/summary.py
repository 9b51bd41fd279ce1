"""Summaries: evidence pooled over score bins, small and mergeable.

Rows with equal scores can be summed without changing any result, so a summary is exact for up to
`CAPACITY` distinct scores. Beyond that, scores in one bin of a `Grid` are pooled at their mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import Self

import numpy as np

from calibrank._internal.arguments import instance, whole
from calibrank._internal.npz import Arrays
from calibrank._internal.validation import Floats, Numbers, on_gpu
from calibrank.evidence import Evidence, Labels
from calibrank.summary import _file
from calibrank.summary import grid as grids
from calibrank.summary.bins import Batch, Masses, Table, has_few_distinct, pool_bins
from calibrank.summary.grid import CAPACITY, DOUBLE, MOST_DISTINCT, Grid, Keys, Placement

# Rows whose scores are sorted at a time: sorting a block and merging is faster than sorting all.
_BLOCK = 2**20

# A summary of 2**20 distinct scores takes 80 MB.
_LARGEST_FILE = 2**27

# A grid with bins on both sides of its origin has at least one per octave.
_FEWEST_BINS = 512


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Summary:
    """Evidence pooled by score; `+` merges two summaries, in any order, to the same result.

    `sum` merges many.

    >>> monday = Summary.of([0.1, 0.5, 0.5], [0, 0, 1])
    >>> tuesday = Summary.of([0.5, 0.9], [1, 1])
    >>> both = sum([monday, tuesday])
    >>> both
    Summary(5 rows in 3 bins over [0.1, 0.9], positive=3, total=5, kind='naive')
    """

    scores: Floats
    """Mean score of each bin, in increasing order."""
    masses: Masses
    rows: int
    """Rows with nonzero weight."""
    low: float
    high: float
    kind: str
    """Kind of the evidence, or "mixed"."""
    grid: Grid | None = None
    """None if each bin is one distinct score."""
    keys: Keys = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Bin numbers in the grid; empty without a grid."""

    @classmethod
    def of(cls, scores: Numbers, labels: Labels, *, distinct: int = CAPACITY) -> Self:
        """Pool one table without rows of weight 0; up to `distinct` scores get a bin each."""
        distinct = whole("distinct", distinct, 1, MOST_DISTINCT)
        batch = Batch.of(scores, labels)
        gpu = on_gpu(batch.scores)
        if not gpu and has_few_distinct(batch.scores, distinct):
            return cls._exact(batch.scores, batch.evidence)
        # On a GPU pooling is so fast that the work on the host counts; half the bins halve it.
        capacity = CAPACITY // 2 if gpu else CAPACITY
        placement = grids.place(batch.low, batch.high, grids.look(batch.scores), capacity=capacity)
        table = Table.spanning(batch.low, batch.high, capacity, placement=placement)
        table.pool(batch.scores, batch.evidence)
        rows = len(batch.scores)
        return cls.of_table(table, batch.low, batch.high, rows, batch.evidence.kind)

    @classmethod
    def _exact(cls, scores: Floats, evidence: Evidence) -> Self:
        """Pool rows by distinct score."""
        if len(scores) > _BLOCK:
            middle = len(scores) // 2
            first, second = [
                cls._exact(scores[half], evidence.rows(half))
                for half in (slice(0, middle), slice(middle, None))
            ]
            return first.merged(second, MOST_DISTINCT)
        # Adding 0.0 turns -0.0 into 0.0, which is the same score.
        distinct, bins = np.unique(scores.astype(np.float64) + 0.0, return_inverse=True)
        masses = pool_bins(distinct[bins], evidence, bins, len(distinct))
        return cls._of_distinct(distinct, masses, len(scores), evidence.kind)

    @classmethod
    def _of_distinct(cls, scores: Floats, masses: Masses, rows: int, kind: str) -> Self:
        low = float(scores[0]) if len(scores) else np.nan
        high = float(scores[-1]) if len(scores) else np.nan
        return cls(scores, masses, rows, low, high, kind)

    @classmethod
    def of_table(cls, table: Table, low: float, high: float, rows: int, kind: str) -> Self:
        """Summarize the bins of a table that hold any mass."""
        occupied = np.flatnonzero(table.totals[:, 0] > 0)
        masses = table.masses().take(occupied)
        # Rounding may move the mean of an outermost bin beyond the range.
        means = np.clip(table.grid.origin + masses.moment / masses.total, low, high)
        return cls(means, masses, rows, low, high, kind, table.grid, occupied + table.first)

    def __add__(self, other: Self) -> Self:
        instance("other", other, Summary, "Make one of rows with Summary.of(scores, labels).")
        # Whoever asked for more distinct scores than usual wants them in sums as well.
        unusual = max(len(self), len(other)) > CAPACITY
        return self.merged(other, MOST_DISTINCT if unusual else CAPACITY)

    def merged(self, other: Self, most_distinct: int) -> Self:
        """The sum, in which up to `most_distinct` scores have a bin each if both are exact."""
        kind = self.kind if self.kind == other.kind else "mixed"
        rows = self.rows + other.rows
        scores = np.concatenate([self.scores, other.scores])
        if self.exact and other.exact:
            distinct, bins = np.unique(scores, return_inverse=True)
            if len(distinct) <= most_distinct:
                masses = self.masses.followed_by(other.masses).gather(bins, len(distinct))
                return self._of_distinct(distinct, masses, rows, kind)
        low = min(self.low, other.low)
        high = max(self.high, other.high)
        both = [each.grid for each in (self, other) if each.grid is not None]
        preferred = both[0].placement if both else grids.AROUND_ZERO
        total = np.concatenate([self.total, other.total])
        order = np.argsort(scores, kind="stable")
        sample = grids.look_at_bins(scores[order], total[order])
        placement = grids.place(low, high, sample, preferred)
        # A finer grid than that of a summary would only spread its bins.
        finest = [grid.bits for grid in both if grid.placement == placement]
        bits = min(finest, default=DOUBLE.mantissa)
        table = Table.spanning(low, high, bits=bits, placement=placement)
        self.add_to(table)
        other.add_to(table)
        return self.of_table(table, low, high, rows, kind)

    def __radd__(self, other: object) -> Self:
        # The built-in `sum` starts from the number 0.
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def rebinned(self, placement: Placement, bits: int, capacity: int = CAPACITY) -> Self:
        """The summary in the bins of a grid with at most so many bits of the mantissa."""
        table = Table.spanning(self.low, self.high, capacity, bits, placement)
        self.add_to(table)
        return self.of_table(table, self.low, self.high, self.rows, self.kind)

    def coarsened(self, capacity: int) -> Self:
        """The summary pooled into at most `capacity` bins of a grid, if it has more.

        >>> len(Summary.of(np.linspace(1, 2, 5000), np.zeros(5000)).coarsened(1024)) <= 1024
        True
        """
        whole(
            "capacity", capacity, _FEWEST_BINS, remedy="Fewer bins cannot span a range of scores."
        )
        if len(self) <= capacity:
            return self
        if self.grid is None:
            sample = grids.look_at_bins(self.scores, self.total)
            placement = grids.place(self.low, self.high, sample, capacity=capacity)
        else:
            # Bins of one placement can be merged exactly; others would have to be divided.
            placement = self.grid.placement
        return self.rebinned(placement, self.bits, capacity)

    def add_to(self, table: Table) -> None:
        """Add the bins to a table: to its bins that contain them or, failing that, their means."""
        masses = self.masses
        if self.grid is None:
            masses = masses.of_offsets(table.grid.offsets(self.scores))
        elif self.grid.origin != table.grid.origin:
            masses = masses.moved(self.grid.origin - table.grid.origin)
        if self.grid is not None and table.grid.contains(self.grid):
            # The whole bin lies in one bin of the coarser grid; any score in it tells which.
            keys = table.grid.keys_of_offsets(self.grid.inner_edges(self.keys))
        else:
            keys = table.grid.keys(self.scores)
        table.add_in_order(masses, keys)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the summary to a file, atomically, for `Summary.load`.

        The file holds arrays and their digest, in NumPy's npz format.
        """
        _file.save(path, self.kind, self.to_arrays())

    def to_arrays(self) -> Arrays:
        """The arrays of the summary by name, for files that hold it among other things."""
        return _file.pack_summary(self)

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        """Rebuild a summary; a `ValueError` says what is wrong with other arrays."""
        summary = cls(**_file.unpack_summary(arrays))
        _file.check_summary(summary)
        return summary

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a summary that `save` wrote, to update it or to merge it with others.

        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/monday.npz"
        >>> Summary.of([0.1, 0.5], [0, 1]).save(path)
        >>> Summary.load(path) + Summary.of([0.7], [1])
        Summary(3 rows in 3 bins over [0.1, 0.7], positive=2, total=3, kind='naive')
        """
        return _file.load(path, _LARGEST_FILE, "a summary that calibrank saved", cls.of_arrays)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        size = f"{self.rows:,} rows in {len(self):,} bins over [{self.low:.6g}, {self.high:.6g}]"
        masses = f"positive={self.positive.sum():.6g}, total={self.total.sum():.6g}"
        return f"Summary({size}, {masses}, kind={self.kind!r})"

    @property
    def positive(self) -> Floats:
        """Positive mass of each bin."""
        return self.masses.positive

    @property
    def total(self) -> Floats:
        """Total mass of each bin."""
        return self.masses.total

    @property
    def evidence(self) -> Evidence:
        """The bins as evidence: a metric of `map.predict(summary.scores)` is that of all rows."""
        return Evidence.trusted(self.positive, self.total, self.kind)

    @property
    def positive_scores(self) -> Floats:
        """Mean score of the positive mass of each bin (the bin's mean where there is none)."""
        if self.grid is None:
            return self.scores
        origin = self.grid.origin
        means = np.divide(
            self.masses.positive_moment,
            self.positive,
            out=self.scores - origin,
            where=self.positive > 0,
        )
        return np.clip(origin + means, self.low, self.high)

    @property
    def bits(self) -> int:
        """Bits of the mantissa that bins distinguish: all of them if bins are distinct scores."""
        return DOUBLE.mantissa if self.grid is None else self.grid.bits

    @property
    def exact(self) -> bool:
        """Whether each bin is one distinct score."""
        return self.grid is None

    @property
    def effective_rows(self) -> float:
        """Kish's effective sample size: as many rows of equal weight have the same variance."""
        return float(self.total.sum() ** 2 / self.masses.total_squared.sum())

    def squared_residuals(self, probabilities: Floats) -> Floats:
        """Sum over the rows of each bin of (positive - total * probability)^2.

        They weight the middle matrix of a sandwich (robust) covariance.
        """
        masses = self.masses
        squares = masses.positive_squared - 2 * probabilities * masses.cross
        # Rounding may leave a small negative number.
        return np.maximum(squares + probabilities**2 * masses.total_squared, 0)
