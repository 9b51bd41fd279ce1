"""Sum rows by segment with the C loops of `_native_segments.h`."""

import ctypes
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from calibrank._internal import native
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices
from calibrank.evidence import Evidence
from calibrank.summary._pool_native import address, column_type, contiguous, readable

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
    columns = _Columns.of(batch, len(by_bin))
    total = None if batch.evidence.unit_weights else readable(batch.evidence.total)
    outside = columns.loop("pool_segments")(
        *columns.arguments(),
        address(total),
        column_type(total),
        by_bin.ctypes.data,
        squares.ctypes.data,
    )
    _require_inside(outside)


def no_counts(segments: int) -> Floats:
    """Cells of 16 bytes each, for rows without weights: only the loops know what is in them."""
    return np.zeros((segments, BINS, 2))


def count_segments(batch: Batch, counts: Floats) -> None:
    """Count rows without weights."""
    columns = _Columns.of(batch, len(counts))
    outside = columns.loop("count_segments")(*columns.arguments(), counts.ctypes.data)
    _require_inside(outside)


def merge_counts(counts: Floats, numbers: Codes, result: Floats) -> None:
    """Add counts to those of distinct segments."""
    counts, numbers = contiguous(counts), _as_int32(numbers)
    _library().merge_counts(
        counts.ctypes.data, numbers.ctypes.data, len(counts), result.ctypes.data
    )


def add_counts(counts: Floats, by_bin: Floats) -> None:
    """Add what `count_segments` counted to as many cells."""
    counts = contiguous(counts)
    _library().add_counts(counts.ctypes.data, len(counts) * BINS, by_bin.ctypes.data)


def add_cells(cells: Floats, numbers: Codes, by_bin: Floats) -> None:
    """Add cells to those of distinct segments."""
    cells, numbers = contiguous(cells), _as_int32(numbers)
    _library().add_cells(cells.ctypes.data, numbers.ctypes.data, len(cells), by_bin.ctypes.data)


def occupied_cells(cells: Floats) -> tuple[Floats, Floats, Floats, Indices]:
    """Positive, total and mean score of cells with rows, and the first cell of each segment.

    The cells are sums, or counts.
    """
    cells = contiguous(cells)
    kind = "counts" if cells.shape[2] == 2 else "cells"
    count_occupied = getattr(_library(), f"count_occupied_{kind}")
    copy_occupied = getattr(_library(), f"copy_occupied_{kind}")
    starts = np.zeros(len(cells) + 1, dtype=np.int64)

    def count(some: slice) -> None:
        sizes = starts[1:][some]
        count_occupied(cells[some].ctypes.data, len(sizes), sizes.ctypes.data)

    slices = row_slices(len(cells)) if len(cells) > _SEGMENTS_PER_THREAD else [slice(0, len(cells))]
    in_threads(count, slices)
    np.cumsum(starts, out=starts)
    found = np.empty((3, int(starts[-1])))

    def copy(some: slice) -> None:
        part = cells[some]
        columns = [column.ctypes.data for column in found[:, starts[some.start] :]]
        copy_occupied(part.ctypes.data, len(part), *columns)

    in_threads(copy, slices)
    return found[0], found[1], found[2], starts


def _library() -> ctypes.CDLL:
    return cast("ctypes.CDLL", native.library)


class _Columns(NamedTuple):
    """What both loops read of rows, in the types they read; it must live until they have."""

    scores: npt.NDArray[Any]
    codes: Codes
    numbers: Codes
    positive: npt.NDArray[Any] | None
    edges: Floats
    segments: int

    @classmethod
    def of(cls, batch: Batch, segments: int) -> "_Columns":
        scores, evidence = batch.scores, batch.evidence
        if scores.dtype != np.float32:
            scores = scores.astype(np.float64, copy=False)
        return cls(
            contiguous(scores),
            _as_int32(batch.codes),
            _as_int32(batch.numbers),
            None if evidence.no_positives else readable(evidence.positive),
            contiguous(batch.edges.astype(np.float64, copy=False)),
            segments,
        )

    def loop(self, name: str) -> Any:
        """The loop for the type of the scores."""
        return getattr(_library(), f"{name}_{self.scores.dtype}")

    def arguments(self) -> tuple[Any, ...]:
        """The arguments that both loops start with."""
        return (
            self.scores.ctypes.data,
            len(self.scores),
            self.codes.ctypes.data,
            self.numbers.ctypes.data,
            len(self.numbers),
            address(self.positive),
            column_type(self.positive),
            self.edges.ctypes.data,
            len(self.edges),
            self.segments,
        )


def _as_int32(values: npt.NDArray[Any]) -> Codes:
    return contiguous(values.astype(np.int32, copy=False))


def _require_inside(outside: int) -> None:
    if outside:
        raise AssertionError("a row's segment fell outside the table")
