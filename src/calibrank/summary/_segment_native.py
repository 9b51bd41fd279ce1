"""Sum rows by segment with the C loops of `_native.c`."""

import ctypes
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from calibrank import _native
from calibrank._native import DOUBLE_POINTER
from calibrank._validation import Floats, Indices
from calibrank.evidence import Evidence
from calibrank.summary._pool_native import address, column_type, contiguous, readable

BINS = 64
"""Score bins per segment: within a bin, only the mean score of a segment counts."""

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


def pool_segments(batch: Batch, by_bin: Floats, squares: Floats | None) -> None:
    """Add rows to the cells of segments, and to their squares if there are any."""
    columns, is_single = _rows_of(batch)
    total = None if batch.evidence.unit_weights else readable(batch.evidence.total)
    positive, edges = _positive(batch.evidence), _padded(batch.edges)
    loop = _library().pool_segments_float32 if is_single else _library().pool_segments_float64
    outside = loop(
        *_arguments(columns, positive),
        address(total),
        column_type(total),
        edges.ctypes.data_as(DOUBLE_POINTER),
        len(by_bin),
        by_bin.ctypes.data,
        address(squares),
    )
    _require_inside(outside)


def no_counts(segments: int) -> Floats:
    """Cells of 16 bytes each, for rows without weights: only the loops know what is in them."""
    return np.zeros((segments, BINS, 2))


def count_segments(batch: Batch, counts: Floats) -> None:
    """Count rows without weights."""
    columns, is_single = _rows_of(batch)
    positive, edges = _positive(batch.evidence), _padded(batch.edges)
    loop = _library().count_segments_float32 if is_single else _library().count_segments_float64
    outside = loop(
        *_arguments(columns, positive),
        edges.ctypes.data_as(DOUBLE_POINTER),
        len(counts),
        counts.ctypes.data,
    )
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
    positive, total, means = np.empty((3, len(cells) * BINS))
    starts = np.empty(len(cells) + 1, dtype=np.int64)
    columns = (positive, total, means, starts)
    cells = contiguous(cells)
    are_counts = cells.shape[2] == 2
    loop = _library().occupied_counts if are_counts else _library().occupied_cells
    loop(cells.ctypes.data, len(cells), *[column.ctypes.data for column in columns])
    count = int(starts[-1])
    return positive[:count], total[:count], means[:count], starts


def _library() -> ctypes.CDLL:
    return cast("ctypes.CDLL", _native.library)


def _rows_of(batch: Batch) -> tuple[tuple[npt.NDArray[Any], Codes, Codes], bool]:
    """Scores, codes and numbers as the loops read them, and whether scores are float32."""
    is_single = batch.scores.dtype == np.float32
    scores = batch.scores if is_single else batch.scores.astype(np.float64, copy=False)
    return (contiguous(scores), _as_int32(batch.codes), _as_int32(batch.numbers)), is_single


def _arguments(
    columns: tuple[npt.NDArray[Any], Codes, Codes], positive: npt.NDArray[Any] | None
) -> tuple[Any, ...]:
    """What both loops read of rows; the caller keeps the arrays until they have."""
    scores, codes, numbers = columns
    return (
        scores.ctypes.data,
        len(scores),
        codes.ctypes.data,
        numbers.ctypes.data,
        len(numbers),
        address(positive),
        column_type(positive),
    )


def _positive(evidence: Evidence) -> npt.NDArray[Any] | None:
    return None if evidence.no_positives else readable(evidence.positive)


def _padded(edges: Floats) -> Floats:
    padded = np.full(BINS - 1, np.finfo(np.float64).max)
    padded[: len(edges)] = edges
    return padded


def _as_int32(values: npt.NDArray[Any]) -> Codes:
    return contiguous(values.astype(np.int32, copy=False))


def _require_inside(outside: int) -> None:
    if outside:
        raise AssertionError("a row's segment fell outside the table")
