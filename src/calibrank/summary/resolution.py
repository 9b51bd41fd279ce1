"""How well the bins of a summary resolve its scores."""

from __future__ import annotations

import numpy as np

from calibrank._validation import Floats
from calibrank.summary.summary import Summary

# A bin of a resolved summary holds far less than this fraction of the mass.
_LARGE_SHARE = 0.05
# Distances below this fraction of a bin's width come from ties, not from scores that differ.
_TIED = 1e-3


def concentration(summary: Summary) -> float:
    """The probability that two random units of mass are pooled although their scores differ.

    Near 0 for scores that the bins resolve, near 1 if nearly all share a bin: far from zero
    relative to their spread, or beside an outlier. Bins of tied scores do not count.
    """
    if summary.exact:
        return 0.0
    # Where most of a bin's mass is tied, the positives have nearly the mean score of the bin.
    distance = np.abs(summary.positive_scores - summary.scores)
    # A bin beside an outlier is so wide that only the size of the scores is a yardstick.
    yardstick = np.minimum(_bin_widths(summary), np.abs(summary.scores))
    differs = (distance > _TIED * yardstick) | (summary.positive == 0)
    shares = summary.total / summary.total.sum()
    # A bin without positives shows nothing: it counts only if it is large, as an outlier's
    # neighbours are.
    counted = shares[differs & ((summary.positive > 0) | (shares > _LARGE_SHARE))]
    return float((counted**2).sum())


def _bin_widths(summary: Summary) -> Floats:
    """The width of each bin of the grid, at most the range of the scores."""
    if summary.grid is None:
        return np.zeros(len(summary))
    inner = summary.grid.inner_edges(summary.keys)
    # Keys count away from zero on either side: ~k mirrors k.
    outwards = np.where(summary.keys < 0, summary.keys - 1, summary.keys + 1)
    widths = np.abs(summary.grid.inner_edges(outwards) - inner)
    return np.minimum(widths, summary.high - summary.low)
