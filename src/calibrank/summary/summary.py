"""Summaries: evidence pooled over score bins, small and mergeable.

Rows with equal scores can be summed without changing any result, so a summary is exact for up to
`CAPACITY` distinct scores. Beyond that, scores in one bin of a `Grid` are pooled at their mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import ClassVar, Self

import numpy as np

from calibrank._internal.arguments import path_of, real, regular_file, whole
from calibrank._internal.npz import Arrays, read_arrays, write_arrays
from calibrank._internal.validation import Floats, Numbers, on_gpu
from calibrank.composition import refusal
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels
from calibrank.summary import _file
from calibrank.summary._batch import Batch, has_few_distinct
from calibrank.summary.bins import Masses, Table, difference, not_contained, pool_bins
from calibrank.summary.grid import (
    AROUND_ZERO,
    CAPACITY,
    DOUBLE,
    MOST_DISTINCT,
    Grid,
    Keys,
    Placement,
)
from calibrank.summary.placement import look, look_at_bins, place

# Rows whose scores are sorted at a time: sorting a block and merging is faster than sorting all.
_BLOCK = 2**20

# A grid with bins on both sides of its origin has at least one per octave.
_FEWEST_BINS = 512


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Evidence pooled by score; `+` merges two summaries, in any order, to the same result.

    `sum` merges many, `-` removes rows that were merged before (a sliding window), and a factor
    multiplies the weights of all rows (exponential decay).

    >>> monday = Summary.of([0.1, 0.5, 0.5], [0, 0, 1])
    >>> tuesday = Summary.of([0.5, 0.9], [1, 1])
    >>> both = sum([monday, tuesday])
    >>> both
    Summary(5 rows in 3 bins over [0.1, 0.9], positive=3, total=5, kind='naive')
    >>> both - monday
    Summary(2 rows in 2 bins over [0.5, 0.9], positive=2, total=2, kind='naive')
    >>> 0.5 * monday + tuesday
    Summary(5 rows in 3 bins over [0.1, 0.9], positive=2.5, total=3.5, kind='naive')
    """

    # NumPy's numbers would treat a summary as an array; this leaves `*` to the summary.
    __array_ufunc__: ClassVar[None] = None

    scores: Floats
    """Mean score of each bin, in increasing order."""
    masses: Masses
    rows: int
    """Rows with nonzero weight."""
    low: float
    high: float
    kind: str
    """Kind of the evidence, or "mixed"."""
    grid: Grid | None
    """None if each bin is one distinct score."""
    keys: Keys
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
        placement = place(batch.low, batch.high, look(batch.scores), capacity=capacity)
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
        return cls(scores, masses, rows, low, high, kind, None, np.empty(0, dtype=np.int64))

    @classmethod
    def of_table(cls, table: Table, low: float, high: float, rows: int, kind: str) -> Self:
        """Summarize the bins of a table that hold any mass."""
        occupied = np.flatnonzero(table.totals[:, 0] > 0)
        masses = table.masses().take(occupied)
        means = _means(masses, table.grid, low, high)
        return cls(means, masses, rows, low, high, kind, table.grid, occupied + table.first)

    def __add__(self, other: Self) -> Self:
        _require_summary("a sum", other)
        # Whoever asked for more distinct scores than usual wants them in sums as well.
        unusual = max(len(self), len(other)) > CAPACITY
        return self.merged(other, MOST_DISTINCT if unusual else CAPACITY)

    def merged(self, other: Self, most_distinct: int) -> Self:
        """The sum, in which up to `most_distinct` scores have a bin each if both are exact."""
        kind = self._common_kind(other)
        rows = self.rows + other.rows
        if self.exact and other.exact:
            scores = np.concatenate([self.scores, other.scores])
            distinct, bins = np.unique(scores, return_inverse=True)
            if len(distinct) <= most_distinct:
                masses = self.masses.followed_by(other.masses).gather(bins, len(distinct))
                return self._of_distinct(distinct, masses, rows, kind)
        low = min(self.low, other.low)
        high = max(self.high, other.high)
        placement, bits = self._common_grid(other, low, high)
        table = Table.spanning(low, high, bits=bits, placement=placement)
        self.add_to(table)
        other.add_to(table)
        return self.of_table(table, low, high, rows, kind)

    def _common_grid(self, other: Self, low: float, high: float) -> tuple[Placement, int]:
        """A placement that resolves the bins of both over a range, and the most bits to keep."""
        grids = [each.grid for each in (self, other) if each.grid is not None]
        preferred = grids[0].placement if grids else AROUND_ZERO
        scores = np.concatenate([self.scores, other.scores])
        total = np.concatenate([self.total, other.total])
        order = np.argsort(scores, kind="stable")
        placement = place(low, high, look_at_bins(scores[order], total[order]), preferred)
        # A finer grid than that of a summary would only spread its bins.
        bits = [grid.bits for grid in grids if grid.placement == placement]
        return placement, min(bits, default=DOUBLE.mantissa)

    def __radd__(self, other: object) -> Self:
        # The built-in `sum` starts from the number 0.
        if isinstance(other, int) and other == 0:
            return self
        _require_summary("a sum", other)
        raise AssertionError("a sum of two summaries starts at the first one")

    def __sub__(self, other: Self) -> Self:
        """The summary without rows that were merged into it before.

        Where rows were pooled, the result keeps the range of scores of the larger summary.
        """
        _require_summary("a difference", other)
        rows = self.rows - other.rows
        kind = self._common_kind(other)
        if self.exact and other.exact:
            scores, bins = np.unique(
                np.concatenate([self.scores, other.scores]), return_inverse=True
            )
            mine = self.masses.gather(bins[: len(self)], len(scores))
            theirs = other.masses.gather(bins[len(self) :], len(scores))
            masses, left = difference(mine, theirs)
            return self._of_distinct(scores[left], masses, max(rows, len(left)), kind)
        return self._pooled_minus(other, rows, kind)

    def _pooled_minus(self, other: Self, rows: int, kind: str) -> Self:
        if other.low < self.low or other.high > self.high:
            raise not_contained(f"scores over [{other.low:.6g}, {other.high:.6g}]")
        table = self._table_to_subtract_in(other)
        others = table.empty_copy()
        self.add_to(table)
        other.add_to(others)
        masses, left = difference(table.masses(), others.masses())
        means = _means(masses, table.grid, self.low, self.high)
        keys = left + table.first
        rows = max(rows, len(left))
        return type(self)(means, masses, rows, self.low, self.high, kind, table.grid, keys)

    def __rsub__(self, other: object) -> Self:
        _require_summary("a difference", other)
        raise AssertionError("a difference of two summaries starts at the first one")

    def _table_to_subtract_in(self, other: Self) -> Table:
        """Empty bins in which bins of the other summary are where they were merged."""
        placement = AROUND_ZERO if self.grid is None else self.grid.placement
        bits = self.bits
        if other.grid is not None and other.grid.placement == placement:
            bits = min(bits, other.bits)
        return Table.spanning(self.low, self.high, bits=bits, placement=placement)

    def __mul__(self, factor: float) -> Self:
        """The summary of the same rows with `factor` times the weight.

        The number of rows stays, as with row weights. Sums of squares scale by the square, so that
        standard errors are those of weighted rows.
        """
        # Squares of masses are scaled by the square of the factor.
        factor = real("a factor of a summary", factor, "[1e-100, 1e100]", "E.g. 0.9 * summary.")
        return replace(self, masses=self.masses.scaled(factor))

    __rmul__ = __mul__

    def _common_kind(self, other: Self) -> str:
        return self.kind if self.kind == other.kind else "mixed"

    def update(self, scores: Numbers, labels: Labels) -> Self:
        """The summary with one more batch of rows; `SummaryBuilder` is faster for many batches."""
        return self + self.of(scores, labels)

    def minus(self, other: Self) -> Self:
        """The difference of two summaries of the same scores.

        Its masses may be negative: it is not a valid summary, only a correction to add to one.
        """
        return replace(self, masses=self.masses.minus(other.masses), rows=0)

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
            sample = look_at_bins(self.scores, self.total)
            placement = place(self.low, self.high, sample, capacity=capacity)
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
        table.add_in_order(masses, self._keys_in(table.grid))

    def _keys_in(self, grid: Grid) -> Keys:
        """The bin of another grid for each bin."""
        if self.grid is not None and grid.contains(self.grid):
            # The whole bin lies in one bin of the coarser grid; any score in it tells which.
            return grid.keys_of_offsets(self.grid.inner_edges(self.keys))
        return grid.keys(self.scores)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the summary to a file, atomically, for `Summary.load`.

        The file holds arrays and their digest, in NumPy's npz format.
        """
        if self.kind == "doubly_robust":
            raise refusal("doubly_robust", "a saved summary")
        write_arrays(path_of("path", path), self.to_arrays())

    def to_arrays(self) -> Arrays:
        """The arrays of the summary by name, for files that hold it among other things."""
        return _file.pack(self)

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        """Rebuild a summary; a `ValueError` says what is wrong with other arrays."""
        return cls(**_file.unpack(arrays)._asdict())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a summary that `save` wrote, to update it or to merge it with others.

        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/monday.npz"
        >>> Summary.of([0.1, 0.5], [0, 1]).save(path)
        >>> Summary.load(path) + Summary.of([0.7], [1])
        Summary(3 rows in 3 bins over [0.1, 0.7], positive=2, total=3, kind='naive')
        """
        rule = "a summary that calibrank saved"
        file = regular_file(path_of("path", path), rule, "Write one with summary.save(path).")
        try:
            return cls.of_arrays(read_arrays(file, _file.LARGEST_FILE))
        except ValueError as error:
            raise DataError(
                path, f"be {rule}", f"another or a damaged file: {error}", "Create it again."
            ) from None

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


def _means(masses: Masses, grid: Grid, low: float, high: float) -> Floats:
    """The mean score of each bin of a grid."""
    # Rounding may move the mean of an outermost bin beyond the range.
    return np.clip(grid.origin + masses.moment / masses.total, low, high)


def _require_summary(operation: str, other: object) -> None:
    if not isinstance(other, Summary):
        raise DataError(
            operation,
            "be of two summaries",
            type(other).__name__,
            "Make one of rows with Summary.of(scores, labels).",
        )
