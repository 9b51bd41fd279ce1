"""Rates of at most 1 in every cell, by moving positive mass to the nearest cells of the segment.

With inverse propensities a few rows may have more positive than total mass. The log loss of a
segment that may turn its slope towards them has no lower bound, and only the prior would limit its
log odds. What a cell cannot hold moves on, half of it to higher and half of it to lower scores.
"""

from __future__ import annotations

import numpy as np

from calibrank._internal.validation import Floats, Indices

# Segments computed at a time: 64 cells of each are 2 MB.
_BLOCK = 4096
# Sums round.
_TOLERANCE = 1e-9


def feasible(positive: Floats, total: Floats, starts: Indices) -> Floats:
    """Positive mass that is nowhere above the total; that of a segment stays, if it can."""
    full = np.flatnonzero(positive > total * (1 + _TOLERANCE))
    if not len(full):
        return positive
    sizes = np.diff(starts)
    exceeded = np.unique(np.searchsorted(starts, full, side="right") - 1)
    moved = positive.copy()
    for first in range(0, len(exceeded), _BLOCK):
        chosen = exceeded[first : first + _BLOCK]
        is_cell = np.arange(sizes[chosen].max()) < sizes[chosen][:, None]
        cells = (starts[chosen][:, None] + np.arange(is_cell.shape[1]))[is_cell]
        masses = np.zeros((2, *is_cell.shape))
        masses[:, is_cell] = positive[cells], total[cells]
        moved[cells] = _moved(*masses)[is_cell]
    return moved


def _moved(positive: Floats, total: Floats) -> Floats:
    """The same of segments (rows) with cells by score (columns), of which the last may be empty."""
    up, above = _flow(positive / 2, total / 2)
    down, below = _flow(positive[:, ::-1] / 2, total[:, ::-1] / 2)
    result = up + down[:, ::-1]
    # What has reached an end turns around.
    result += _filled((total - result)[:, ::-1], above)[:, ::-1]
    result += _filled(total - result, below)
    return np.minimum(result, total)


def _flow(positive: Floats, total: Floats) -> tuple[Floats, Floats]:
    """What each cell keeps if the rest moves on to the next one, and what leaves the last one.

    What is moved on from a cell follows Lindley's recursion: max(0, moved on to it + excess).
    """
    sums = np.cumsum(positive - total, axis=1)
    moved_on = sums - np.minimum(np.minimum.accumulate(sums, axis=1), 0)
    return positive - np.diff(moved_on, axis=1, prepend=0), moved_on[:, -1]


def _filled(room: Floats, mass: Floats) -> Floats:
    """What each cell gets of a mass that fills them one after the other."""
    held = np.minimum(np.cumsum(room, axis=1), mass[:, None])
    return np.diff(held, axis=1, prepend=0)
