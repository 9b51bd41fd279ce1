"""Sums of rows by segment and bin of the score, with C loops or with NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal import native
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices, add_up
from calibrank.evidence import Evidence
from calibrank.summary._segment_native import (
    BINS,
    Batch,
    Codes,
    add_cells,
    add_counts,
    count_segments,
    no_counts,
    occupied_cells,
    pool_segments,
)

__all__ = ["BINS", "Cells", "Codes", "Occupied"]

# Counts for each thread have to be worth the time of merging them.
_ROWS_PER_CELL = 4
# Counts are of 32 bits.
_MOST_COUNTED = 2**31


class Cells:
    """Sums by segment (first axis), which grow with the number of segments."""

    def __init__(self, segments: int = 0) -> None:
        # Some segments more than are in use.
        self._by_bin: Floats = np.zeros((segments, BINS, 3))
        self._used = segments
        self._has_sums = False
        # Rows without weights, which are counted faster than summed; None if there are none.
        self._counts: Floats | None = None
        self._counted = 0
        # As `by_segment`; None as long as it follows from the cells.
        self._squares: Floats | None = None

    def __len__(self) -> int:
        return len(self._by_bin)

    @property
    def by_bin(self) -> Floats:
        """Positive mass, total mass and total mass times score, by segment and bin."""
        if self._counts is not None:
            add_counts(self._counts[: self._used], self._by_bin)
            self._counts = None
            self._counted = 0
        self._has_sums = True
        return self._by_bin

    @by_bin.setter
    def by_bin(self, sums: Floats) -> None:
        self._by_bin = sums
        self._used = len(sums)
        self._has_sums = True

    @property
    def flat(self) -> Floats:
        """The cells one after the other, `BINS` per segment."""
        return self.by_bin.reshape(len(self) * BINS, 3)

    @property
    def by_segment(self) -> Floats:
        """Squares of positive and of total mass, and rows, by segment."""
        if self._squares is not None:
            return self._squares
        # Without weights, a mass is 0 or 1 and equals its square.
        positive, total, _, starts = self.occupied()
        segment = np.repeat(np.arange(len(self)), np.diff(starts))
        rows = add_up(segment, total, len(self))
        return np.array([add_up(segment, positive, len(self)), rows, rows]).T.copy()

    @by_segment.setter
    def by_segment(self, squares: Floats) -> None:
        self._squares = squares

    @property
    def is_weighted(self) -> bool:
        """Whether `by_segment` is more than the sums over the bins of each segment."""
        return self._squares is not None

    def reserve(self, segments: int) -> None:
        """Make room for at least so many segments."""
        count = len(self)
        self._used = max(self._used, segments)
        if segments <= count:
            return
        # Memory that is not used yet takes none, and copying takes time.
        size = 2 * segments
        before = self._by_bin
        self._by_bin = np.zeros((size, BINS, 3))
        if self._has_sums:
            self._by_bin[:count] = before
        if self._counts is not None:
            counts = no_counts(size)
            counts[:count] = self._counts
            self._counts = counts
        if self._squares is not None:
            self._squares = np.pad(self._squares, ((0, size - count), (0, 0)))

    def add(self, other: Cells, numbers: Codes) -> None:
        """Add the sums of other cells to those of distinct segments."""
        if self._squares is not None or other._squares is not None:
            squares = self.by_segment
            squares[numbers] += other.by_segment
            self._squares = squares
        if other._counts is not None and not other._has_sums:
            add_cells(other._counts, numbers, self._counts_for(other._counted))
        elif native.READY:
            add_cells(other.by_bin, numbers, self.by_bin)
        else:
            self.by_bin[numbers] += other.by_bin

    def take(self, rows: slice | Indices) -> Cells:
        """The cells of some segments."""
        some = Cells()
        some._squares = None if self._squares is None else self._squares[rows]
        if self._counts is None or self._has_sums:
            some.by_bin = self.by_bin[rows]
            return some
        some._counts, some._counted = self._counts[rows], self._counted
        some._by_bin = np.zeros((len(some._counts), BINS, 3))
        some._used = len(some._counts)
        return some

    def scaled(self, factor: float) -> Cells:
        """The cells with every weight multiplied by a factor."""
        result = Cells()
        result.by_segment = self.by_segment * [factor**2, factor**2, 1.0]
        result.by_bin = self.by_bin * factor
        return result

    def merged(self, starts: Indices) -> Cells:
        """The sums over runs of segments, from each start up to the next."""
        result = Cells()
        result.by_bin = np.add.reduceat(self.by_bin, starts)
        if self._squares is not None:
            result.by_segment = np.add.reduceat(self._squares, starts)
        return result

    def pool(
        self, scores: Floats, evidence: Evidence, codes: Codes, numbers: Codes, edges: Floats
    ) -> None:
        """Add rows: `numbers` holds the segment of each code, -1 for rows to leave out."""
        is_binary = evidence.kind == "naive" or evidence.no_positives
        if self._squares is None and not (evidence.unit_weights and is_binary):
            self._squares = self.by_segment
        if not native.READY:
            self._pool_with_numpy(scores, evidence, codes, numbers, edges)
            return
        batch = Batch(scores, evidence, codes, numbers, edges)
        slices = [slice(0, len(scores))]
        if len(scores) >= _ROWS_PER_CELL * BINS * self._used:
            slices = row_slices(len(scores))
        if self._squares is None:
            self._count(batch, slices)
        else:
            self._sum(batch, slices)

    def _count(self, batch: Batch, slices: list[slice]) -> None:
        """Count rows without weights, one slice per thread."""
        counts = self._counts_for(len(batch.scores))

        def count(rows: slice) -> Floats:
            mine = counts if rows.start == 0 else no_counts(self._used)
            count_segments(batch.rows(rows), mine)
            return mine

        for part in in_threads(count, slices)[1:]:
            add_cells(part, np.arange(self._used), counts)

    def _counts_for(self, rows: int) -> Floats:
        """Counts that have room for more rows."""
        if self._counted + rows >= _MOST_COUNTED:
            _ = self.by_bin
        if self._counts is None:
            self._counts = no_counts(len(self))
        self._counted += rows
        return self._counts

    def _sum(self, batch: Batch, slices: list[slice]) -> None:
        """Sum rows with weights, one slice per thread."""

        def pool(rows: slice) -> Cells:
            cells: Cells = self if rows.start == 0 else Cells(self._used)
            if rows.start:
                cells.by_segment = np.zeros((self._used, 3))
            pool_segments(batch.rows(rows), cells.by_bin, cells.by_segment)
            return cells

        for part in in_threads(pool, slices)[1:]:
            self.add(part, np.arange(self._used))

    def _pool_with_numpy(
        self, scores: Floats, evidence: Evidence, codes: Codes, numbers: Codes, edges: Floats
    ) -> None:
        segments = numbers[codes].astype(np.intp)
        known = segments >= 0
        if not known.all():
            segments, scores, evidence = segments[known], scores[known], evidence.rows(known)
        positive = np.asarray(evidence.positive, dtype=np.float64)
        total = np.asarray(evidence.total, dtype=np.float64)
        places = segments * BINS + np.searchsorted(edges, scores, side="right")
        by_bin = self.flat
        for field, masses in enumerate((positive, total, total * scores)):
            _add_at(by_bin[:, field], places, masses)
        if self._squares is not None:
            squares = (positive**2, total**2, np.ones(len(segments)))
            for field, masses in enumerate(squares):
                _add_at(self._squares[:, field], segments, masses)

    def with_edges(self, edges: Floats) -> Cells:
        """The same sums in other bins: each cell moves to the bin of its mean score."""
        moved = Cells(len(self))
        moved._squares = self._squares
        flat = self.flat
        occupied = np.flatnonzero(flat[:, 1] > 0)
        found = flat[occupied]
        means = found[:, 2] / found[:, 1]
        places = occupied // BINS * BINS + np.searchsorted(edges, means, side="right")
        size = len(flat)
        for field in range(3):
            moved.flat[:, field] = add_up(places, found[:, field], size)
        return moved

    def occupied(self) -> Occupied:
        """The cells that have rows."""
        if self._counts is not None and not self._has_sums:
            return Occupied(*occupied_cells(self._counts))
        if native.READY:
            return Occupied(*occupied_cells(self.by_bin))
        occupied = self.by_bin[:, :, 1] > 0
        starts = np.append(0, np.cumsum(occupied.sum(axis=1)))
        positive, total, moment = self.by_bin[occupied].T.copy()
        return Occupied(positive, total, moment / total, starts)


class Occupied(NamedTuple):
    """Cells that have rows, those of one segment after the other."""

    positive: Floats
    total: Floats
    scores: Floats
    """Mean score of each cell."""
    starts: Indices
    """The first cell of each segment, and the number of cells."""


def _add_at(sums: Floats, places: Indices, masses: Floats) -> None:
    """Add masses to a few or to many sums, in the faster way."""
    if len(sums) <= 4 * len(places):
        sums += add_up(places, masses, len(sums))
    else:
        np.add.at(sums, places, masses)
