"""How well the bins of a summary resolve its scores, and what that means for a fit."""

from __future__ import annotations

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.summary.grid import Grid
from calibrank.summary.summary import Summary

# A bin with more than this fraction of the mass has rows enough to show a trend of its own.
_LARGE_SHARE = 0.01


def spreads(summary: Summary) -> Floats:
    """The standard deviation of the scores in each bin."""
    if summary.grid is None:
        return np.zeros(len(summary))
    masses = summary.masses
    mean = masses.moment / masses.total
    square = masses.second_moment / masses.total
    variance = np.maximum(square - mean**2, 0)
    # The difference of two nearly equal numbers is mostly rounding in narrow bins. There the mean
    # and the ends of the bin bound the variance (Bhatia and Davis).
    rounding = 100 * np.finfo(np.float64).eps * np.sqrt(summary.rows) * square
    low, high = _ends(summary, summary.grid)
    largest = np.maximum((mean - low) * (high - mean), 0)
    return np.sqrt(np.where(variance > rounding, variance, np.minimum(variance, largest)))


def _ends(summary: Summary, grid: Grid) -> tuple[Floats, Floats]:
    """The ends of each bin, as offsets, within the range of the scores."""
    # Keys count away from the origin on either side: the next bin outwards starts where this ends.
    outwards = np.where(summary.keys < 0, summary.keys - 1, summary.keys + 1)
    ends = np.sort([grid.inner_edges(summary.keys), grid.inner_edges(outwards)], axis=0)
    low, high = np.clip(ends, summary.low - grid.origin, summary.high - grid.origin)
    return low, high


def coarser(summary: Summary, bits: int) -> Summary:
    """The summary on a grid with so many bits fewer: each bit merges bins in pairs."""
    if summary.grid is None:
        return summary
    return summary.rebinned(summary.grid.placement, max(summary.bits - bits, 0))


def pooling_error(probabilities: Floats, summary: Summary) -> float:
    """How far pooling moves probabilities, on average over the mass.

    `probabilities` are those of the bins. A row differs from its bin's mean score by the spread of
    the bin, on average, so its probability differs by about the spread times the local slope.
    This is of first order in the width of bins, and an upper bound for smooth curves, whose error
    is of second order.
    """
    if summary.exact:
        return 0.0
    shares = summary.total / summary.total.sum()
    deviations = spreads(summary)
    rises, gaps = _rises_and_gaps(probabilities, summary.scores)
    relative = np.divide(deviations, gaps, out=np.full(len(summary), 0.5), where=gaps > 0)
    errors = rises * np.minimum(relative, 0.5)
    large = np.flatnonzero(shares > _LARGE_SHARE)
    if len(large):
        errors[large] = np.maximum(errors[large], _trends(summary, deviations)[large])
    return float((shares * errors).sum())


def _rises_and_gaps(probabilities: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """How much probability and score rise from the bin before to the bin after each bin."""
    padded = np.pad(probabilities, 1, mode="edge")
    rises = np.abs(padded[2:] - padded[:-2])
    padded = np.pad(scores, 1, mode="edge")
    return rises, padded[2:] - padded[:-2]


def _trends(summary: Summary, deviations: Floats) -> Floats:
    """How much the rate changes over one standard deviation of the scores inside each bin.

    The slope of a regression of labels on scores within the bin, beyond two standard errors.
    """
    masses = summary.masses
    rate = masses.positive / masses.total
    covariance = masses.positive_moment / masses.total - rate * masses.moment / masses.total
    trend = np.divide(
        np.abs(covariance), deviations, out=np.zeros(len(summary)), where=deviations > 0
    )
    residuals = summary.squared_residuals(rate)
    return np.maximum(trend - 2 * np.sqrt(residuals) / masses.total, 0)
