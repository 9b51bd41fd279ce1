"""The occupied cells of sums by segment, with the log odds of a global map at their mean score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._internal import native
from calibrank._internal.logit import softplus
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices, add_up
from calibrank.maps import CalibrationMap
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.summary.by_segment import SegmentSums

# Cells computed at a time: temporary arrays of this size stay in the cache.
_BLOCK = 2**14


@dataclass(frozen=True, slots=True, eq=False)
class SegmentCells:
    """Cells (a bin of a segment, with rows), the cells of one segment after the other."""

    positive: Floats
    total: Floats
    log_odds: Floats
    """Of the global map, at the mean score of the cell."""
    starts: Indices
    """The first cell of each segment, and the number of cells."""
    squares: Floats
    """Sums of squares of positive and of total mass, and the number of rows, by segment."""

    @classmethod
    def of(cls, fitted: CalibrationMap, sums: SegmentSums) -> SegmentCells:
        """The cells of sums that have rows."""
        positive, total, scores, starts = sums.occupied()
        if sums.is_weighted:
            squares = sums.by_segment
        else:
            rows = _sums_of_runs(total, starts)
            squares = np.array([_sums_of_runs(positive, starts), rows, rows])
        return cls(positive, total, _log_odds(fitted, scores), starts, squares)

    def loss(self, intercepts: Floats, slopes: Floats) -> float:
        """Mean log loss, if log odds change by an intercept and a slope per segment."""
        if native.READY:
            columns = (self.positive, self.total, self.log_odds, self.starts)
            losses = np.empty(1)
            native.loops.changed_loss(*columns, intercepts, slopes, losses)
        else:
            z = self.spread(intercepts) + self.spread(slopes) * self.log_odds
            losses = self.total * softplus(z) - self.positive * z
        return float(losses.sum() / self.total.sum())

    def by_segment(self, masses: Floats) -> Floats:
        """Sums over the cells of each segment."""
        return _sums_of_runs(masses, self.starts)

    def spread(self, numbers: Floats) -> Floats:
        """A number per segment, repeated for each of its cells."""
        return np.repeat(numbers, np.diff(self.starts))


def _sums_of_runs(masses: Floats, starts: Indices) -> Floats:
    """Sums from each start up to the next; the last is the end."""
    sizes = np.diff(starts)
    if sizes.all():
        return np.add.reduceat(masses, starts[:-1])
    return add_up(np.repeat(np.arange(len(sizes)), sizes), masses, len(sizes))


def _log_odds(fitted: CalibrationMap, scores: Floats) -> Floats:
    """Log odds of the global map, written over the scores: new memory takes time."""

    def write(rows: slice) -> None:
        for start in range(rows.start, rows.stop, _BLOCK):
            block = slice(start, min(start + _BLOCK, rows.stop))
            scores[block] = fitted.curve.log_odds_on(NumpyTarget(), scores[block])

    in_threads(write, row_slices(len(scores)) if len(scores) > _BLOCK else [slice(0, len(scores))])
    return scores
