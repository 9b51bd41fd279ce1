"""Sum rows by segment with the C loops of `native_segments.h`."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal import native
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices
from calibrank.evidence import Evidence
from calibrank.summary._pool_native import contiguous, readable

BINS = 64
"""Score bins per segment: within a bin, only the mean score of a segment counts."""

# Fewer segments than this are not worth a thread.
_SEGMENTS_PER_THREAD = 2048

Codes = npt.NDArray[np.integer[Any]]


class Batch(NamedTuple):
    """Rows with a code each; `numbers` holds the segment of each code, -1 for none."""

    scores: Floats
    evidence: Evidence
    codes: Codes
    numbers: Codes
    edges: Floats

    def rows(self, chosen: slice) -> "Batch":
        """Some of the rows."""
        return self._replace(
            scores=self.scores[chosen],
            evidence=self.evidence.rows(chosen),
            codes=self.codes[chosen],
        )


def pool_segments(batch: Batch, by_bin: Floats, squares: Floats) -> None:
    """Add rows to the cells and to the squares of segments."""
    total = None if batch.evidence.unit_weights else readable(batch.evidence.total)
    native.loops.pool_segments(*_columns(batch), total, by_bin, squares)


def no_counts(segments: int) -> Floats:
    """Cells of 16 bytes each, for rows without weights: only the loops know what is in them."""
    return np.zeros((segments, BINS, 2))


def count_segments(batch: Batch, counts: Floats) -> None:
    """Count rows without weights."""
    native.loops.count_segments(*_columns(batch), counts)


def add_counts(counts: Floats, by_bin: Floats) -> None:
    """Add what `count_segments` counted to as many cells."""
    native.loops.add_counts(contiguous(counts), by_bin)


def add_cells(cells: Floats, numbers: Codes, result: Floats) -> None:
    """Add cells, which are sums or counts, to those of distinct segments."""
    native.loops.add_cells(contiguous(cells), _as_int32(numbers), result)


def occupied_cells(cells: Floats) -> tuple[Floats, Floats, Floats, Indices]:
    """Positive, total and mean score of cells with rows, and the first cell of each segment.

    The cells are sums, or counts.
    """
    cells = contiguous(cells)
    starts = np.zeros(len(cells) + 1, dtype=np.int64)

    def count(some: slice) -> None:
        native.loops.count_occupied(cells[some], starts[1:][some])

    slices = row_slices(len(cells)) if len(cells) > _SEGMENTS_PER_THREAD else [slice(0, len(cells))]
    in_threads(count, slices)
    np.cumsum(starts, out=starts)
    found = np.empty((3, int(starts[-1])))

    def copy(some: slice) -> None:
        native.loops.copy_occupied(cells[some], *found[:, starts[some.start] :])

    in_threads(copy, slices)
    return found[0], found[1], found[2], starts


def _columns(batch: Batch) -> tuple[npt.NDArray[Any] | None, ...]:
    """What the loops read of rows first, in the types they read."""
    scores, evidence = batch.scores, batch.evidence
    if scores.dtype != np.float32:
        scores = scores.astype(np.float64, copy=False)
    return (
        contiguous(scores),
        _as_int32(batch.codes),
        _as_int32(batch.numbers),
        None if evidence.no_positives else readable(evidence.positive),
        contiguous(batch.edges.astype(np.float64, copy=False)),
    )


def _as_int32(values: npt.NDArray[Any]) -> Codes:
    return contiguous(values.astype(np.int32, copy=False))
