"""Count scores and labels in bins on a GPU, in one pass over memory; needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from calibrank.summary.grid import SINGLE, Grid

_BLOCK = 1024


def count(grid: Grid, first: int, scores: Tensor, positive: Tensor, counts: Tensor) -> None:
    """Add 1 for each row to the bin of its score, and 2**32 for each positive row."""
    rows = len(scores)
    _count[(triton.cdiv(rows, _BLOCK),)](
        scores.contiguous(),
        positive.contiguous(),
        counts,
        rows,
        first,
        grid.offset(SINGLE),
        *grid.scales,
        SINGLE.mantissa - grid.bits,
        1 << grid.bits,
        _BLOCK,
    )


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def _count(  # type: ignore[no-untyped-def]  # Triton reads annotations as types of its own
    scores,
    positive,
    counts,
    rows,
    first,
    offset,
    scale,
    other_scale,
    shift: tl.constexpr,
    floor: tl.constexpr,
    block: tl.constexpr,
):
    """`_tensors._keys` of a block of float32 scores, and the additions."""
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_row = row < rows
    score = tl.load(scores + row, mask=is_row, other=0.0)
    label = tl.load(positive + row, mask=is_row, other=0).to(tl.int64)
    bits = score.to(tl.int32, bitcast=True)
    magnitude = ((bits & 0x7FFFFFFF) >> shift) - offset
    below_floor = (tl.abs(score) * scale * other_scale).to(tl.int32)
    magnitude = tl.where(magnitude < floor, below_floor, magnitude)
    key = (magnitude ^ (bits >> 31)) - first
    tl.atomic_add(counts + key, (label << 32) + 1, mask=is_row, sem="relaxed")
