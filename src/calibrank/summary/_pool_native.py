"""Pool rows into bins with the C loops of `native.c`."""

import ctypes
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from calibrank._internal import native
from calibrank._internal.native import DOUBLE_POINTER, FLOAT_POINTER
from calibrank._internal.validation import Floats
from calibrank.evidence import Evidence
from calibrank.summary._sums import Sums
from calibrank.summary.grid import SINGLE, Grid

# The column types that the loops read, numbered as in `native.c`.
_ABSENT = 0
_TYPES = {
    np.dtype(np.int8): 1,
    np.dtype(np.bool_): 1,
    np.dtype(np.float32): 2,
    np.dtype(np.float64): 3,
}


def pool(
    grid: Grid,
    first: int,
    sums: Sums,
    scores: Floats,
    evidence: Evidence,
) -> None:
    """Add rows to sums over the bins of a grid, from bin `first` on."""
    if not evidence.unit_weights:
        _run_loop(grid, first, sums, scores, evidence)
        return
    # With unit weights the loop leaves the squared totals out: they grow by the row counts.
    counts = sums.totals[:, 0].copy()
    _run_loop(grid, first, sums, scores, evidence)
    sums.squares[:] += sums.totals[:, 0] - counts


def _run_loop(
    grid: Grid,
    first: int,
    sums: Sums,
    scores: Floats,
    evidence: Evidence,
) -> None:
    layout = grid.layout(single=scores.dtype == np.float32)
    scores = contiguous(scores.astype(layout.float, copy=False))
    positive = None if evidence.no_positives else readable(evidence.positive)
    total = None if evidence.unit_weights else readable(evidence.total)
    library = cast("ctypes.CDLL", native.library)
    loop = library.pool_float32 if layout is SINGLE else library.pool_float64
    outside = loop(
        scores.ctypes.data_as(FLOAT_POINTER if layout is SINGLE else DOUBLE_POINTER),
        len(scores),
        grid.origin,
        address(positive),
        column_type(positive),
        address(total),
        column_type(total),
        layout.mantissa - grid.bits,
        grid.offset(layout),
        1 << grid.bits,
        first,
        grid.bits - grid.floor,
        len(sums.squares),
        sums.totals.ctypes.data_as(DOUBLE_POINTER),
        sums.positives.ctypes.data_as(DOUBLE_POINTER),
        sums.squares.ctypes.data_as(DOUBLE_POINTER),
    )
    if outside:
        raise AssertionError("a score fell outside the table")


def readable(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column in one of the types that the loops read."""
    return contiguous(values if values.dtype in _TYPES else values.astype(np.float64))


def contiguous(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column that the loops can read from its address on."""
    return np.require(values, requirements=["C", "ALIGNED"])


def column_type(values: npt.NDArray[Any] | None) -> int:
    """The number of a readable column's type."""
    return _ABSENT if values is None else _TYPES[values.dtype]


def address(values: npt.NDArray[Any] | None) -> int | None:
    """Where a column starts in memory."""
    return None if values is None else values.ctypes.data
