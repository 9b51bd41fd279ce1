"""Pool rows into a grid of bins: in C or, where that was not compiled, in blocks of NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal import native
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import (
    Floats,
    Indices,
    Integers,
    Mask,
    add_up,
    on_gpu,
    starts_of,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.summary import _pool_native
from calibrank.summary._pool_native import Sums
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

# A difference this small, relative to the mass of its bin, is the rounding of sums: a bin of it
# is empty. It is far below one row in the largest bins, and far above the error of their sums.
_ROUNDING = 1e-9


class Masses(NamedTuple):
    """Sums over the rows of each bin, one array entry per bin.

    The moments (mass times the offset of the score from an origin) keep the mean score of a bin
    and that of its positives; with both, the loss of a pooled bin is correct to second order in
    its width. The second moment (mass times offset^2) keeps the spread of its scores. The sums of
    squares are needed for standard errors.
    """

    positive: Floats
    total: Floats
    positive_moment: Floats
    moment: Floats
    second_moment: Floats
    positive_squared: Floats
    cross: Floats
    total_squared: Floats

    def take(self, selected: Integers | Mask) -> Masses:
        """Only the selected bins."""
        return Masses(*[column[selected] for column in self])

    def gather(self, bins: Integers, size: int) -> Masses:
        """Add up bins that fall into the same one of `size` new bins."""
        return Masses(*[add_up(bins, column, size) for column in self])

    def minus(self, other: Masses) -> Masses:
        """The difference of two sets of sums over the same bins."""
        pairs = zip(self, other, strict=True)
        return Masses(*[mine - theirs for mine, theirs in pairs])

    def scaled(self, factor: float) -> Masses:
        """The sums that rows of `factor` times the weight have: squares scale by its square."""
        squares = [factor**2 * column for column in self[5:]]
        return Masses(*[factor * column for column in self[:5]], *squares)

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

    def empty_copy(self) -> Table:
        """A table of the same bins without rows."""
        return Table(self.grid, self.first, len(self))

    def masses(self) -> Masses:
        """The sums so far."""
        # Transposed copies: the columns of a table are read one at a time from here on.
        total, moment, second_moment = self.totals.T.copy()
        positive, positive_moment, squares, cross = self.positives.T.copy()
        moments = (positive_moment, moment, second_moment)
        return Masses(positive, total, *moments, squares, cross, self.squares.copy())

    def add(self, masses: Masses, bins: Integers | slice) -> None:
        """Add sums to distinct bins of the table."""
        positives = [masses.positive, masses.positive_moment, masses.positive_squared, masses.cross]
        totals = [masses.total, masses.moment, masses.second_moment]
        self.totals[bins] += np.array(totals).T
        self.positives[bins] += np.array(positives).T
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

    def replace_evidence(self, batches: Iterable[tuple[Floats, Evidence, Evidence]]) -> None:
        """Replace the evidence of rows, given as (scores, new evidence, evidence pooled before)."""
        new = self.empty_copy()
        old = self.empty_copy()
        for scores, evidence, pooled in batches:
            new.pool(scores, evidence)
            old.pool(scores, pooled)
        for mine, added, removed in zip(self.sums, new.sums, old.sums, strict=True):
            mine += added - removed
        self._move_positives_to_totals()

    def _move_positives_to_totals(self) -> None:
        """Move positive mass in bins without rows to the nearest bin with rows.

        Rows that were pooled before the grid was changed count where the mean of their old bin
        lies, which may be another bin than the one of their score.
        """
        orphans = np.flatnonzero((self.positives[:, 0] != 0) & (self.totals[:, 0] <= 0))
        if not len(orphans):
            return
        occupied = np.flatnonzero(self.totals[:, 0] > 0)
        after = np.searchsorted(occupied, orphans).clip(1, len(occupied) - 1)
        is_lower = orphans - occupied[after - 1] < occupied[after] - orphans
        np.add.at(self.positives, occupied[after - is_lower], self.positives[orphans])
        self.positives[orphans] = 0

    def pool_with_numpy(self, scores: Floats, evidence: Evidence) -> None:
        """Add rows as `pool` does, without compiled code."""
        buffer = np.empty(min(_BLOCK, len(scores)), dtype=np.int64)
        for start in range(0, len(scores), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(scores)))
            bins = buffer[: rows.stop - rows.start]
            offsets = self.grid.offsets(scores[rows])
            self.grid.write_keys(offsets, self.first, bins)
            masses = pool_bins(offsets, evidence.rows(rows), bins, len(self))
            self._add_to_all(masses)

    def _add_to_all(self, masses: Masses) -> None:
        """Add sums to every bin, column by column: faster than `add`, which copies them first."""
        for place, sums in enumerate((masses.total, masses.moment, masses.second_moment)):
            self.totals[:, place] += sums
        self.squares += masses.total_squared
        if masses.positive.any():
            positives = (masses.positive, masses.positive_moment, masses.positive_squared)
            for place, sums in enumerate((*positives, masses.cross)):
                self.positives[:, place] += sums

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
            _pool_native.pool(self.grid, self.first, self.sums, scores, evidence)
            return

        def pool(rows: slice) -> Sums:
            sums = Sums.zeros(len(self))
            _pool_native.pool(self.grid, self.first, sums, scores[rows], evidence.rows(rows))
            return sums

        for sums in in_threads(pool, row_slices(len(scores))):
            self.merge(sums)


def pool_bins(offsets: Floats, evidence: Evidence, bins: Integers, size: int) -> Masses:
    """Sum rows over bins, given the bin of each row and the offset of its score."""
    # Most rows are negative, so the sums over positives cost little.
    rows = np.empty(0, dtype=np.intp)
    if not evidence.no_positives:
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


def difference(mine: Masses, theirs: Masses) -> tuple[Masses, Indices]:
    """Subtract sums of the same bins; return those that keep mass, and their numbers."""
    masses = mine.minus(theirs)
    smallest = _ROUNDING * mine.total
    lacking = np.flatnonzero((masses.total < -smallest) | (masses.positive < -smallest))
    if len(lacking):
        bins = "a bin" if len(lacking) == 1 else f"{len(lacking):,} bins"
        raise not_contained(f"more mass than it in {bins}")
    left = np.flatnonzero(masses.total > smallest)
    if not len(left):
        raise DataError(
            "a difference of summaries",
            "leave some mass",
            "none",
            "Add new rows before subtracting old ones.",
        )
    kept = masses.take(left)
    # What remains of a sum of no positives or of equal squares may be a little below zero.
    squares = [np.maximum(column, 0) for column in kept[5:]]
    return Masses(np.maximum(kept.positive, 0), *kept[1:5], *squares), left


def not_contained(got: str) -> DataError:
    """The error for a summary that holds what the other does not."""
    return DataError(
        "a summary to subtract",
        "be part of the other",
        got,
        "Subtract only what was added before, with the same weights.",
    )
