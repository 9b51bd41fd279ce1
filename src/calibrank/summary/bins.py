"""Pool rows into a grid of bins: in C or, where that was not compiled, in blocks of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from calibrank._internal import native
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import (
    Floats,
    Integers,
    Mask,
    Numbers,
    add_up,
    on_gpu,
    score_column,
    starts_of,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, as_evidence
from calibrank.summary.grid import (
    AROUND_ZERO,
    CAPACITY,
    DOUBLE,
    Grid,
    Keys,
    Placement,
    with_both_zeros,
)

# Rows that NumPy pools at a time: large enough that adding a block's sums to the table is cheap.
_BLOCK = 2**19

# Each thread fills a table of its own; with fewer rows, merging these takes as long as pooling.
_THREADS_FROM = 3_000_000

# Scores compared at a time while the distinct ones are collected.
_COMPARED = 2**20

# The column types that the loops of `native.c` read.
_TYPES = (np.int8, np.bool_, np.float32, np.float64)


class Batch(NamedTuple):
    """Scores and evidence of rows with nonzero weight, and the range of these scores."""

    scores: Floats
    evidence: Evidence
    low: float
    high: float

    @classmethod
    def of(cls, scores: Numbers, labels: Labels) -> Batch:
        """Check scores and labels, and drop rows whose total is zero."""
        scores, low, high = score_column(scores)
        evidence = as_evidence(labels, len(scores))
        if evidence.unit_weights or evidence.total.all():
            return cls(scores, evidence, low, high)
        kept = evidence.total > 0
        if not kept.any():
            raise DataError("weights", "not all be zero", f"{len(scores):,} rows of weight zero")
        scores = scores[kept]
        return cls(scores, evidence.rows(kept), float(scores.min()), float(scores.max()))


def has_few_distinct(scores: Floats, limit: int) -> bool:
    """Whether at most `limit` scores are distinct.

    Continuous scores are recognised from the first rows, without sorting all of them.
    """
    if len(scores) <= limit:
        return True
    # An eighth more than the limit: some ties among continuous scores do no harm.
    first = np.sort(scores[: limit + limit // 8])
    seen = first[starts_of(first)]
    for start in range(0, len(scores), _COMPARED):
        if len(seen) > limit:
            return False
        seen = np.union1d(seen, scores[start : start + _COMPARED])
    return len(seen) <= limit


class Masses(NamedTuple):
    """Sums over the rows of each bin, one array entry per bin.

    The moments (mass times the offset of the score from an origin) keep the mean score of a bin
    and that of its positives; with both, the loss of a pooled bin is correct to second order in
    its width. The second moment (mass times offset^2) keeps the spread of its scores. The sums of
    squares are needed for standard errors. Of rows of weight 1, several sums are one array.
    """

    positive: Floats
    total: Floats
    positive_moment: Floats
    moment: Floats
    second_moment: Floats
    positive_squared: Floats
    cross: Floats
    total_squared: Floats

    def each(self, change: Callable[[Floats], Floats]) -> Masses:
        """The same change of every sum; an array that is several of them is changed once."""
        columns = {id(column): column for column in self}
        changed = {number: change(column) for number, column in columns.items()}
        return Masses(*[changed[id(column)] for column in self])

    def take(self, selected: Integers | Mask | slice) -> Masses:
        """Only the selected bins."""
        return self.each(lambda column: column[selected])

    def gather(self, bins: Integers, size: int) -> Masses:
        """Add up bins that fall into the same one of `size` new bins."""
        return self.each(lambda column: add_up(bins, column, size))

    def of_offsets(self, offsets: Floats) -> Masses:
        """The sums of bins that hold one offset each."""
        moment = self.total * offsets
        positive_moment = self.positive * offsets
        return self._moments(positive_moment, moment, moment * offsets)

    def moved(self, change: float) -> Masses:
        """The sums for an origin that is lower by `change`, so that all offsets are larger."""
        # total * (offset + change)^2, multiplied out
        second_moment = self.second_moment + change * (2 * self.moment + change * self.total)
        positive_moment = self.positive_moment + change * self.positive
        return self._moments(positive_moment, self.moment + change * self.total, second_moment)

    def _moments(self, positive_moment: Floats, moment: Floats, second_moment: Floats) -> Masses:
        return self._replace(
            positive_moment=positive_moment, moment=moment, second_moment=second_moment
        )

    def followed_by(self, other: Masses) -> Masses:
        """These bins and then the other ones."""
        pairs = zip(self, other, strict=True)
        return Masses(*[np.concatenate(pair) for pair in pairs])


class Sums(NamedTuple):
    """Sums per bin, one array row per bin.

    Every row of a table changes `totals`, only its positives change `positives`, and without
    weights `squares` need no loop at all. Apart, the array that is used most stays in the cache.
    """

    totals: npt.NDArray[np.float64]
    """Total, total * offset, total * offset^2, for the offset of the score from the origin."""
    positives: npt.NDArray[np.float64]
    """Positive, positive * offset, positive^2, positive * total."""
    squares: npt.NDArray[np.float64]
    """Total^2 (one dimension)."""

    @classmethod
    def zeros(cls, size: int) -> Self:
        """Sums over no rows."""
        return cls(np.zeros((size, 3)), np.zeros((size, 4)), np.zeros(size))


class Table:
    """Mutable sums over consecutive bins of a grid, from bin `first` on."""

    def __init__(self, grid: Grid, first: int, size: int) -> None:
        self.grid = grid
        self.first = first
        self.sums = Sums.zeros(size)
        self.totals, self.positives, self.squares = self.sums

    @classmethod
    def spanning(
        cls,
        low: float,
        high: float,
        capacity: int = CAPACITY,
        bits: int = DOUBLE.mantissa,
        placement: Placement = AROUND_ZERO,
    ) -> Table:
        """Empty bins for scores in [low, high], with at most `bits` bits of the mantissa."""
        grid = Grid.spanning(low, high, capacity, placement, bits)
        return cls.of_offsets(grid, low - grid.origin, high - grid.origin)

    @classmethod
    def of_offsets(cls, grid: Grid, low: float, high: float) -> Table:
        """Empty bins of a grid for offsets in [low, high]."""
        ends = np.array(with_both_zeros(low, high))
        first, last = grid.keys_of_offsets(ends).tolist()
        return cls(grid, first, last - first + 1)

    def __len__(self) -> int:
        return len(self.squares)

    def masses(self) -> Masses:
        """The sums so far."""
        # Transposed copies: the columns of a table are read one at a time from here on.
        total, moment, second_moment = self.totals.T.copy()
        positive, positive_moment, squares, cross = self.positives.T.copy()
        if np.array_equal(squares, positive) and np.array_equal(cross, positive):
            squares = cross = positive
        total_squared = total if np.array_equal(self.squares, total) else self.squares.copy()
        moments = (positive_moment, moment, second_moment)
        return Masses(positive, total, *moments, squares, cross, total_squared)

    def add(self, masses: Masses, bins: Integers | slice) -> None:
        """Add sums to distinct bins of the table."""
        # Column by column: a copy of all of them would take longer.
        for place, sums in enumerate((masses.total, masses.moment, masses.second_moment)):
            self.totals[bins, place] += sums
        positives = (masses.positive, masses.positive_moment, masses.positive_squared, masses.cross)
        for place, sums in enumerate(positives):
            self.positives[bins, place] += sums
        self.squares[bins] += masses.total_squared

    def add_in_order(self, masses: Masses, keys: Keys) -> None:
        """Add sums to the bins with the given keys, which must not decrease."""
        # A mean may round to just beyond the outermost bin.
        bins = (keys - self.first).clip(0, len(self) - 1)
        starts = starts_of(bins)
        merged = masses.gather(np.cumsum(starts) - 1, int(starts.sum()))
        self.add(merged, bins[starts])

    def merge(self, sums: Sums) -> None:
        """Add the sums of another table of the same bins."""
        for mine, theirs in zip(self.sums, sums, strict=True):
            mine += theirs

    def pool(self, scores: Floats, evidence: Evidence) -> None:
        """Add rows whose scores lie within the table's range."""
        if on_gpu(scores):
            self._pool_tensors(scores, evidence)
        elif native.READY:
            self._pool_native(scores, evidence)
        else:
            self.pool_with_numpy(scores, evidence)

    def pool_with_numpy(self, scores: Floats, evidence: Evidence) -> None:
        """Add rows as `pool` does, without compiled code."""
        buffer = np.empty(min(_BLOCK, len(scores)), dtype=np.int64)
        for start in range(0, len(scores), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(scores)))
            bins = buffer[: rows.stop - rows.start]
            offsets = self.grid.offsets(scores[rows])
            self.grid.write_keys(offsets, self.first, bins)
            masses = pool_bins(offsets, evidence.rows(rows), bins, len(self))
            self.add(masses, slice(None))

    def _pool_tensors(self, scores: Any, evidence: Evidence) -> None:
        from calibrank.summary import _tensors  # noqa: PLC0415  (needs torch)

        sums = _tensors.pool(
            self.grid,
            self.first,
            len(self),
            scores,
            evidence.positive,
            None if evidence.unit_weights else evidence.total,
            binary=evidence.kind == "naive",
        )
        self.merge(sums)

    def _pool_native(self, scores: Floats, evidence: Evidence) -> None:
        if len(scores) < _THREADS_FROM:
            self._run_loop(self.sums, scores, evidence)
            return

        def pool(rows: slice) -> Sums:
            sums = Sums.zeros(len(self))
            self._run_loop(sums, scores[rows], evidence.rows(rows))
            return sums

        for sums in in_threads(pool, row_slices(len(scores))):
            self.merge(sums)

    def _run_loop(self, sums: Sums, scores: Floats, evidence: Evidence) -> None:
        grid = self.grid
        layout = grid.layout(single=scores.dtype == np.float32)
        counts = sums.totals[:, 0].copy()
        native.loops.pool(
            contiguous(scores.astype(layout.float, copy=False)),
            readable(evidence.positive),
            None if evidence.unit_weights else readable(evidence.total),
            *sums,
            grid.origin,
            layout.mantissa - grid.bits,
            grid.offset(layout),
            1 << grid.bits,
            self.first,
            grid.bits - grid.floor,
        )
        if evidence.unit_weights:
            # The loop leaves the squared totals out: they grow by the row counts.
            sums.squares[:] += sums.totals[:, 0] - counts


def readable(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column in one of the types that the loops read."""
    return contiguous(values if values.dtype in _TYPES else values.astype(np.float64))


def contiguous(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column whose values follow each other in memory."""
    return np.require(values, requirements=["C", "ALIGNED"])


def pool_bins(offsets: Floats, evidence: Evidence, bins: Integers, size: int) -> Masses:
    """Sum rows over bins, given the bin of each row and the offset of its score."""
    # Most rows are negative, so the sums over positives cost little.
    rows = np.flatnonzero(evidence.positive != 0)
    positive_bins = bins[rows]
    mass = evidence.positive[rows].astype(np.float64)
    positive = add_up(positive_bins, mass, size)
    positive_moment = add_up(positive_bins, mass * offsets[rows], size)
    positive_squared = add_up(positive_bins, np.square(mass), size)
    offsets = offsets.astype(np.float64, copy=False)  # float32 products would be rounded
    weights = None if evidence.unit_weights else evidence.total.astype(np.float64, copy=False)
    total = add_up(bins, weights, size)
    # With unit weights, a mass is its own square.
    cross, total_squared = positive, total
    moment = offsets
    if weights is not None:
        cross = add_up(positive_bins, mass * weights[rows], size)
        total_squared = add_up(bins, np.square(weights), size)
        moment = weights * offsets
    moments = (positive_moment, add_up(bins, moment, size), add_up(bins, moment * offsets, size))
    return Masses(positive, total, *moments, positive_squared, cross, total_squared)
