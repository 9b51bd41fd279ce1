"""Sums of rows by segment and bin of the score, in C (`native_segments.h`) or NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal import native
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices, add_up
from calibrank.evidence import Evidence
from calibrank.summary.bins import contiguous, readable

BINS = 64
"""Score bins per segment: within a bin, only the mean score of a segment counts."""

# Fewer segments than this are not worth a thread.
_SEGMENTS_PER_THREAD = 2048
# Counts for each thread have to be worth the time of merging them.
_ROWS_PER_CELL = 4
# Counts are of 32 bits.
_MOST_COUNTED = 2**31

Codes = npt.NDArray[np.integer[Any]]


class Occupied(NamedTuple):
    """Cells that have rows, those of one segment after the other."""

    positive: Floats
    total: Floats
    scores: Floats
    """Mean score of each cell."""
    starts: Indices
    """The first cell of each segment, and the number of cells."""


class Cells:
    """Sums by segment (first axis), which grow with the number of segments."""

    def __init__(self, segments: int = 0) -> None:
        self._used = segments
        # Some segments more than are in use.
        self._by_bin: Floats = np.zeros((segments, BINS, 3))
        self._has_sums = False
        # Rows without weights, which are counted faster than summed, in cells of 16 bytes that only
        # the loops can read; None if there are none.
        self._counts: Floats | None = None
        self._counted = 0
        # As `by_segment`; None as long as it follows from the cells.
        self._squares: Floats | None = None

    @classmethod
    def of(cls, by_bin: Floats, squares: Floats | None) -> Cells:
        """Cells with these sums."""
        cells = cls()
        cells._by_bin, cells._squares = by_bin, squares
        cells._used = len(by_bin)
        cells._has_sums = True
        return cells

    def __len__(self) -> int:
        return self._used

    @property
    def by_bin(self) -> Floats:
        """Positive mass, total mass and total mass times score, by segment and bin."""
        if self._counts is not None:
            native.loops.add_counts(contiguous(self._counts[: self._used]), self._by_bin)
            self._counts = None
            self._counted = 0
        self._has_sums = True
        return self._by_bin[: self._used]

    @property
    def flat(self) -> Floats:
        """The cells one after the other, `BINS` per segment."""
        return self.by_bin.reshape(len(self) * BINS, 3)

    @property
    def by_score(self) -> Floats:
        """Total mass, and total mass times score, by bin."""
        return self.by_bin.sum(axis=0)[:, 1:].T

    @property
    def by_segment(self) -> Floats:
        """Squares of positive and of total mass, and rows, by segment."""
        if self._squares is not None:
            return self._squares[: self._used]
        # Without weights, a mass is 0 or 1 and equals its square.
        positive, total, _, starts = self.occupied()
        segment = np.repeat(np.arange(len(self)), np.diff(starts))
        rows = add_up(segment, total, len(self))
        return np.array([add_up(segment, positive, len(self)), rows, rows]).T.copy()

    @property
    def is_weighted(self) -> bool:
        """Whether `by_segment` is more than the sums over the bins of each segment."""
        return self._squares is not None

    def _weighted(self) -> Floats:
        """`by_segment`, which from now on need not follow from the cells."""
        if self._squares is None:
            squares = np.zeros((len(self._by_bin), 3))
            squares[: self._used] = self.by_segment
            self._squares = squares
        return self.by_segment

    @property
    def _only_counts(self) -> Floats | None:
        """The counts of all rows; None if there are others."""
        return None if self._counts is None or self._has_sums else self._counts[: self._used]

    def reserve(self, segments: int) -> None:
        """Make room for at least so many segments."""
        count = len(self._by_bin)
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
            counts = np.zeros((size, BINS, 2))
            counts[:count] = self._counts
            self._counts = counts
        if self._squares is not None:
            self._squares = np.pad(self._squares, ((0, size - count), (0, 0)))

    def add(self, other: Cells, numbers: Codes) -> None:
        """Add the sums of other cells to those of distinct segments."""
        if self._squares is not None or other._squares is not None:
            self._weighted()[numbers] += other.by_segment
        if not native.READY:
            self.by_bin[numbers] += other.by_bin
            return
        counts = other._only_counts
        mine = self.by_bin if counts is None else self._counts_for(other._counted)
        theirs = contiguous(other.by_bin if counts is None else counts)
        places = _as_int32(numbers)
        # Distinct segments: no two threads write to one.
        in_threads(
            lambda some: native.loops.add_cells(theirs[some], places[some], mine),
            _parts_of(len(other)),
        )

    def merged(self, rows: Indices, starts: Indices) -> Cells:
        """Sums over runs of some segments, from each start up to the next."""
        squares = None
        if self._squares is not None:
            squares = np.add.reduceat(self._squares[rows], starts)
        return Cells.of(np.add.reduceat(self.by_bin[rows], starts), squares)

    def pool(
        self, scores: Floats, evidence: Evidence, codes: Codes, numbers: Codes, edges: Floats
    ) -> None:
        """Add rows: `numbers` holds the segment of each code, -1 for rows to leave out."""
        if self._squares is None and not (evidence.unit_weights and evidence.kind == "naive"):
            self._weighted()
        if not native.READY:
            self._pool_with_numpy(scores, evidence, codes, numbers, edges)
            return
        if scores.dtype != np.float32:
            scores = scores.astype(np.float64, copy=False)
        total = None if evidence.unit_weights else evidence.total

        def add(rows: slice) -> Cells:
            cells = self
            if rows.start:
                cells = Cells(self._used)
                cells._squares = None if self._squares is None else np.zeros((self._used, 3))
            columns = (
                contiguous(scores[rows]),
                _as_int32(codes[rows]),
                _as_int32(numbers),
                readable(evidence.positive[rows]),
                contiguous(edges.astype(np.float64, copy=False)),
            )
            if cells._squares is None:
                native.loops.count_segments(*columns, cells._counts_for(len(columns[0])))
            else:
                weights = None if total is None else readable(total[rows])
                native.loops.pool_segments(*columns, weights, cells.by_bin, cells.by_segment)
            return cells

        is_worth_it = len(scores) >= _ROWS_PER_CELL * BINS * self._used
        slices = row_slices(len(scores)) if is_worth_it else [slice(0, len(scores))]
        for part in in_threads(add, slices)[1:]:
            self.add(part, np.arange(self._used))

    def _counts_for(self, rows: int) -> Floats:
        """Counts that have room for more rows."""
        if self._counted + rows >= _MOST_COUNTED:
            _ = self.by_bin
        if self._counts is None:
            self._counts = np.zeros((len(self._by_bin), BINS, 2))
        self._counted += rows
        return self._counts

    def _pool_with_numpy(
        self, scores: Floats, evidence: Evidence, codes: Codes, numbers: Codes, edges: Floats
    ) -> None:
        segments = numbers[codes].astype(np.intp)
        known = np.flatnonzero(segments >= 0)
        segments, scores, evidence = segments[known], scores[known], evidence.rows(known)
        positive = np.asarray(evidence.positive, dtype=np.float64)
        total = np.asarray(evidence.total, dtype=np.float64)
        places = segments * BINS + np.searchsorted(edges, scores, side="right")
        np.add.at(self.flat, places, np.array([positive, total, total * scores]).T)
        if self._squares is not None:
            squares = np.array([positive**2, total**2, np.ones(len(segments))]).T
            np.add.at(self.by_segment, segments, squares)

    def with_edges(self, edges: Floats) -> Cells:
        """The same sums in other bins: each cell moves to the bin of its mean score."""
        flat = self.flat
        occupied = np.flatnonzero(flat[:, 1] > 0)
        found = flat[occupied]
        means = found[:, 2] / found[:, 1]
        places = occupied // BINS * BINS + np.searchsorted(edges, means, side="right")
        moved = np.array([add_up(places, field, len(flat)) for field in found.T])
        squares = None if self._squares is None else self.by_segment
        return Cells.of(moved.T.reshape(len(self), BINS, 3).copy(), squares)

    def occupied(self) -> Occupied:
        """The cells that have rows."""
        counts = self._only_counts
        if native.READY:
            return _occupied(self.by_bin if counts is None else counts)
        occupied = self.by_bin[:, :, 1] > 0
        starts = np.append(0, np.cumsum(occupied.sum(axis=1)))
        positive, total, moment = self.by_bin[occupied].T.copy()
        return Occupied(positive, total, moment / total, starts)


def _occupied(cells: Floats) -> Occupied:
    """The cells that have rows, of sums or of counts."""
    cells = contiguous(cells)
    starts = np.zeros(len(cells) + 1, dtype=np.int64)

    def count(some: slice) -> None:
        native.loops.count_occupied(cells[some], starts[1:][some])

    slices = _parts_of(len(cells))
    in_threads(count, slices)
    np.cumsum(starts, out=starts)
    found = np.empty((3, int(starts[-1])))

    def copy(some: slice) -> None:
        native.loops.copy_occupied(cells[some], *found[:, starts[some.start] :])

    in_threads(copy, slices)
    return Occupied(found[0], found[1], found[2], starts)


def _parts_of(segments: int) -> list[slice]:
    """The segments of each thread."""
    return row_slices(segments) if segments > _SEGMENTS_PER_THREAD else [slice(0, segments)]


def _as_int32(values: npt.NDArray[Any]) -> Codes:
    return contiguous(values.astype(np.int32, copy=False))
