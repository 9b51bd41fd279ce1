"""Pool rows into bins with the C loops of `native.c`."""

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from calibrank._internal import native
from calibrank._internal.validation import Floats
from calibrank.evidence import Evidence
from calibrank.summary.grid import Grid

# The column types that the loops read.
_TYPES = (np.int8, np.bool_, np.float32, np.float64)


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


def pool(grid: Grid, first: int, sums: Sums, scores: Floats, evidence: Evidence) -> None:
    """Add rows to sums over the bins of a grid, from bin `first` on."""
    if not evidence.unit_weights:
        _run_loop(grid, first, sums, scores, evidence)
        return
    # With unit weights the loop leaves the squared totals out: they grow by the row counts.
    counts = sums.totals[:, 0].copy()
    _run_loop(grid, first, sums, scores, evidence)
    sums.squares[:] += sums.totals[:, 0] - counts


def _run_loop(grid: Grid, first: int, sums: Sums, scores: Floats, evidence: Evidence) -> None:
    layout = grid.layout(single=scores.dtype == np.float32)
    scores = contiguous(scores.astype(layout.float, copy=False))
    positive = None if evidence.no_positives else readable(evidence.positive)
    total = None if evidence.unit_weights else readable(evidence.total)
    native.loops.pool(
        scores,
        positive,
        total,
        sums.totals,
        sums.positives,
        sums.squares,
        grid.origin,
        layout.mantissa - grid.bits,
        grid.offset(layout),
        1 << grid.bits,
        first,
        grid.bits - grid.floor,
    )


def readable(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column in one of the types that the loops read."""
    return contiguous(values if values.dtype in _TYPES else values.astype(np.float64))


def contiguous(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column whose values follow each other in memory."""
    return np.require(values, requirements=["C", "ALIGNED"])
