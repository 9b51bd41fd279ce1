"""The occupied cells of sums by segment, with the log odds of a global map at their mean score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._internal import native
from calibrank._internal.logit import softplus
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices
from calibrank.maps import CalibrationMap
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.summary.by_segment import SegmentSums
from calibrank.terms._shrinkage import sums_of_runs

# Cells computed at a time: temporary arrays of this size stay in the cache.
_BLOCK = 2**14
# Positive mass, in units of the mean weight, with which the dispersion of a segment is shrunk.
_DISPERSION_PRIOR = 10.0


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
            rows = sums_of_runs(total, starts)
            squares = np.array([sums_of_runs(positive, starts), rows, rows])
        return cls(positive, total, _log_odds(fitted, scores), starts, squares)

    def loss(self, intercepts: Floats, slopes: Floats) -> float:
        """Mean log loss, if log odds change by an intercept and a slope per segment."""
        if native.READY:
            columns = (self.positive, self.total, self.log_odds, self.starts)
            losses = np.empty(1)
            native.loops.changed_loss(*columns, intercepts, slopes, losses)
        else:
            z = self.changed_log_odds(intercepts, slopes)
            losses = self.total * softplus(z) - self.positive * z
        return float(losses.sum() / self.total.sum())

    def changed_log_odds(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Log odds that are changed by an intercept and a slope per segment."""
        if (slopes == 1).all() and not intercepts.any():
            return self.log_odds
        sizes = np.diff(self.starts)
        return np.repeat(intercepts, sizes) + np.repeat(slopes, sizes) * self.log_odds

    @property
    def dispersion(self) -> Floats:
        """By segment, how much the evidence varies relative to labels without weights.

        The sum of squares over the sum: the mean weight of a positive (or of a row) by mass.
        Segments with few positives borrow from the others.
        """
        ratios = []
        for mass, squares in zip((self.positive, self.total), self.squares[:2], strict=True):
            sums = sums_of_runs(mass, self.starts)
            mean = float(squares.sum() / max(sums.sum(), 1e-300))
            prior = _DISPERSION_PRIOR * mean
            ratios.append((squares + prior * mean) / (sums + max(prior, 1e-300)))
        return np.maximum(np.maximum(ratios[0], ratios[1]), 1e-300)


def _log_odds(fitted: CalibrationMap, scores: Floats) -> Floats:
    """Log odds of the global map, written over the scores: new memory takes time."""

    def write(rows: slice) -> None:
        for start in range(rows.start, rows.stop, _BLOCK):
            block = slice(start, min(start + _BLOCK, rows.stop))
            scores[block] = fitted.curve.log_odds_on(NumpyTarget(), scores[block])

    in_threads(write, row_slices(len(scores)) if len(scores) > _BLOCK else [slice(0, len(scores))])
    return scores
