"""Isotonic regression on pooled evidence, for isotonic calibration and the CORP decomposition."""

from typing import NamedTuple

import numpy as np

from calibrank._internal import native
from calibrank._internal.validation import Floats, Indices, Mask

# As long as a round of merging removes this fraction of the blocks, rounds on whole arrays are
# faster than a loop over the blocks, and all rounds together take time in proportion to the points.
_WORTHWHILE = 0.1


class Blocks(NamedTuple):
    """A nondecreasing step function: the first point of each block, and the block's value."""

    starts: Indices
    values: Floats


def pool_adjacent_violators(
    positive: Floats, total: Floats, separate: Mask | None = None
) -> Blocks:
    """The best nondecreasing fit of positive / total within [0, 1], weighted by total.

    `separate` marks the first point of each fit where there are several, one after another.

    The same fit is optimal for log loss and Brier score. Inverse-propensity targets may exceed 1;
    clipping the unbounded fit to [0, 1] gives the optimum of the bounded problem.

    `scipy.optimize.isotonic_regression` would do, but takes longer to import than a fit to run.
    """
    if separate is None:
        separate = np.zeros(len(total), dtype=bool)
    starts = np.arange(len(total), dtype=np.intp)
    merged = len(starts)
    while merged > _WORTHWHILE * len(starts):
        before = len(starts)
        starts, positive, total = _merge_runs(starts, positive, total, separate)
        merged = before - len(starts)
    if merged:
        starts, positive, total = _merge_in_order(starts, positive, total, separate)
    return Blocks(starts, np.clip(positive / total, 0, 1))


def isotonic_values(values: Floats, weights: Floats) -> Floats:
    """The nondecreasing values in [0, 1] that are closest to the given ones."""
    blocks = pool_adjacent_violators(values * weights, weights)
    lengths = np.diff(blocks.starts, append=len(values))
    return np.repeat(blocks.values, lengths)


def _merge_runs(
    starts: Indices, positive: Floats, total: Floats, separate: Mask
) -> tuple[Indices, Floats, Floats]:
    """Merge every run of blocks that does not increase; each is part of one block of the fit."""
    values = positive / total
    rises = separate[starts]
    rises[:1] = True
    rises[1:] |= values[1:] > values[:-1]
    first = np.flatnonzero(rises)
    return starts[first], np.add.reduceat(positive, first), np.add.reduceat(total, first)


def _merge_in_order(
    starts: Indices, positive: Floats, total: Floats, separate: Mask
) -> tuple[Indices, Floats, Floats]:
    """Merge each block with those before it in the same fit that are not below it."""
    if native.READY:
        size = np.zeros(1, dtype=np.int64)
        first = starts.astype(np.int64)
        positive = positive.astype(np.float64)
        total = total.astype(np.float64)
        native.loops.merge_blocks(first, positive, total, separate[starts], size)
        end = int(size[0])
        return first[:end].astype(np.intp), positive[:end], total[:end]
    kept: list[tuple[int, float, float]] = []
    firsts = set(starts[separate[starts]].tolist())
    for start, mass, weight in zip(starts.tolist(), positive.tolist(), total.tolist(), strict=True):
        while kept and start not in firsts and kept[-1][1] / kept[-1][2] >= mass / weight:
            start, mass_before, weight_before = kept.pop()
            mass += mass_before
            weight += weight_before
        kept.append((start, mass, weight))
    columns = [np.array(column) for column in zip(*kept, strict=True)]
    return columns[0].astype(np.intp), columns[1], columns[2]
