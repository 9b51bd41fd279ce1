"""Sums of rows by segment and bin of the score, with the C loops of `_native.c` or with NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank import _native
from calibrank._threads import in_threads, row_slices
from calibrank._validation import Floats, Indices, add_up
from calibrank.evidence import Evidence
from calibrank.summary._segment_native import (
    BINS,
    Batch,
    Codes,
    add_cells,
    add_counts,
    count_segments,
    occupied_cells,
    pool_segments,
)

__all__ = ["BINS", "Cells", "Codes", "Occupied"]

# A table per thread has to be worth the time of merging it.
_ROWS_PER_CELL = 4


class Cells:
    """Sums by segment (first axis), which grow with the number of segments."""

    def __init__(self, segments: int = 0) -> None:
        # Positive mass, total mass and total mass times score, by segment and bin.
        self.by_bin = np.zeros((segments, BINS, 3))
        # As `by_segment`; None as long as it follows from the cells, which saves half of the time.
        self._squares: Floats | None = None

    def __len__(self) -> int:
        return len(self.by_bin)

    @property
    def by_segment(self) -> Floats:
        """Squares of positive and of total mass, and rows, by segment."""
        if self._squares is not None:
            return self._squares
        # Without weights, a mass is 0 or 1 and equals its square. A product with a matrix sums over
        # bins ten times as fast as `sum` does.
        fields = np.tile([[1.0, 0, 0], [0, 1, 1], [0, 0, 0]], (BINS, 1))
        by_segment: Floats = self.by_bin.reshape(len(self), -1) @ fields
        return by_segment

    @by_segment.setter
    def by_segment(self, squares: Floats) -> None:
        self._squares = squares

    def reserve(self, segments: int) -> None:
        """Make room for at least so many segments."""
        count = len(self)
        if segments <= count:
            return
        # Memory that is not used yet takes none.
        larger = Cells(max(segments, 4 * count))
        larger.by_bin[:count] = self.by_bin
        self.by_bin = larger.by_bin
        if self._squares is not None:
            self._squares = np.pad(self._squares, ((0, len(self) - count), (0, 0)))

    def add(self, other: Cells, numbers: Codes) -> None:
        """Add the sums of other cells to those of distinct segments."""
        if self._squares is not None or other._squares is not None:
            squares = self.by_segment
            squares[numbers] += other.by_segment
            self._squares = squares
        if not _native.READY:
            self.by_bin[numbers] += other.by_bin
            return
        add_cells(other.by_bin, numbers, self.by_bin)

    def take(self, rows: slice | Indices) -> Cells:
        """The cells of some segments."""
        some = Cells()
        some.by_bin = self.by_bin[rows]
        some._squares = None if self._squares is None else self._squares[rows]
        return some

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
        if not _native.READY:
            self._pool_with_numpy(scores, evidence, codes, numbers, edges)
            return
        if len(scores) < _ROWS_PER_CELL * BINS * len(self):
            rows = Batch(scores, evidence, codes, numbers, edges)
            pool_segments(rows, self.by_bin, self._squares)
            return

        def pool(rows: slice) -> Cells | Floats:
            part = Batch(scores[rows], evidence.rows(rows), codes[rows], numbers, edges)
            if self._squares is None:
                return count_segments(part, len(self))
            cells = Cells(len(self))
            cells._squares = np.zeros_like(self._squares)
            pool_segments(part, cells.by_bin, cells._squares)
            return cells

        for part in in_threads(pool, row_slices(len(scores))):
            if isinstance(part, Cells):
                self.add(part, np.arange(len(self)))
            else:
                add_counts(part, self.by_bin)

    def _pool_with_numpy(
        self, scores: Floats, evidence: Evidence, codes: Codes, numbers: Codes, edges: Floats
    ) -> None:
        segments = numbers[codes].astype(np.intp)
        if segments.min() < 0:
            known = np.flatnonzero(segments >= 0)
            segments, scores, evidence = segments[known], scores[known], evidence.rows(known)
        positive = np.asarray(evidence.positive, dtype=np.float64)
        total = np.asarray(evidence.total, dtype=np.float64)
        places = segments * BINS + np.searchsorted(edges, scores, side="right")
        by_bin = self.by_bin.reshape(-1, 3)
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
        flat = self.by_bin.reshape(-1, 3)
        occupied = np.flatnonzero(flat[:, 1] > 0)
        found = flat[occupied]
        means = found[:, 2] / found[:, 1]
        places = occupied // BINS * BINS + np.searchsorted(edges, means, side="right")
        size = len(flat)
        for field in range(3):
            moved.by_bin.reshape(-1, 3)[:, field] = add_up(places, found[:, field], size)
        return moved

    def occupied(self) -> Occupied:
        """The cells that have rows."""
        if not _native.READY:
            return self._occupied_with_numpy()
        return Occupied(*occupied_cells(self.by_bin))

    def _occupied_with_numpy(self) -> Occupied:
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
