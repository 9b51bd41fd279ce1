"""What the bins of a summary lose and how to make up for it, and what follows from their order."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from calibrank._internal.validation import Floats, starts_of
from calibrank.summary.grid import Grid
from calibrank.summary.summary import Summary

# A bin with more than this fraction of the mass has rows enough to show a trend of its own.
_LARGE_SHARE = 0.01

# Bins that stand for two scores each: with half as many, probabilities move by 1e-7.
_TWO_POINT_BINS = 8192
# Whoever compares methods fits several to the same summaries.
_KNOWN: WeakKeyDictionary[Summary, Summary] = WeakKeyDictionary()


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
    narrow = np.flatnonzero(variance <= rounding)
    if len(narrow):
        origin = summary.grid.origin
        ends = summary.grid.ends(summary.keys[narrow])
        low, high = np.clip(ends, summary.low - origin, summary.high - origin)
        largest = np.maximum((mean[narrow] - low) * (high - mean[narrow]), 0)
        variance[narrow] = np.minimum(variance[narrow], largest)
    return np.sqrt(variance)


def coarser(summary: Summary, bits: int) -> Summary:
    """The summary on a grid with so many bits fewer: each bit merges bins in pairs."""
    if summary.grid is None:
        return summary
    return summary.rebinned(summary.grid.placement, max(summary.bits - bits, 0))


def two_points(summary: Summary) -> Summary:
    """Two scores for each bin of a grid, with the mean and the variance of its rows.

    A smooth function of the scores has nearly the same sum as over the rows: the error is of fourth
    order in the width of bins where rows lie evenly, and that of one mean score of second order.
    So bins are first merged to at most `_TWO_POINT_BINS`.
    """
    if summary.grid is None:
        return summary
    if summary not in _KNOWN:
        _KNOWN[summary] = _of_two_points(summary, summary.grid)
    return _KNOWN[summary]


def _of_two_points(summary: Summary, whole: Grid) -> Summary:
    times = max(len(summary) - 1, 0) // _TWO_POINT_BINS
    dropped = min(times.bit_length(), summary.bits)
    grid = replace(whole, bits=summary.bits - dropped)
    bins = _merged_bins(summary, grid, dropped)
    offsets = bins.scores - grid.origin
    # Both points stay within the bin, so that all scores stay in order.
    span = summary.low - grid.origin, summary.high - grid.origin
    low, high = np.clip(grid.ends(bins.keys), *span)
    reach = np.minimum(offsets - low, high - offsets).clip(0)
    deviation = np.minimum(spreads(bins), reach)
    moves = np.stack([-deviation, deviation], axis=1)
    halves = bins.masses.each(lambda column: np.repeat(column / 2, 2))
    masses = halves.of_offsets((offsets[:, None] + moves).ravel())
    positive_moment = bins.masses.positive_moment[:, None] + bins.positive[:, None] * moves
    return replace(
        bins,
        scores=(bins.scores[:, None] + moves).ravel(),
        masses=masses._replace(positive_moment=positive_moment.ravel() / 2),
        keys=np.repeat(bins.keys, 2),
    )


def _merged_bins(summary: Summary, grid: Grid, dropped: int) -> Summary:
    """The summary in the bins of its grid without some bits, which neighbours share."""
    keys = summary.keys >> dropped
    starts = np.flatnonzero(starts_of(keys))
    masses = summary.masses.each(lambda column: np.add.reduceat(column, starts))
    means = np.clip(grid.origin + masses.moment / masses.total, summary.low, summary.high)
    return replace(summary, scores=means, masses=masses, grid=grid, keys=keys[starts])


def without_ends(summary: Summary, few: int) -> Summary:
    """The summary without so many bins at either end; the number of rows is not adjusted."""
    kept = slice(few, len(summary) - few)
    scores = summary.scores[kept]
    low, high = float(scores[0]), float(scores[-1])
    masses = summary.masses.take(kept)
    keys = summary.keys[kept]
    return replace(summary, scores=scores, masses=masses, low=low, high=high, keys=keys)


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
    rises, gaps = np.abs(_rises(probabilities)), _rises(summary.scores)
    relative = np.divide(deviations, gaps, out=np.full(len(summary), 0.5), where=gaps > 0)
    errors = rises * np.minimum(relative, 0.5)
    large = np.flatnonzero(shares > _LARGE_SHARE)
    if len(large):
        errors[large] = np.maximum(errors[large], _trends(summary, deviations)[large])
    return float((shares * errors).sum())


def _rises(values: Floats) -> Floats:
    """How much values rise from the bin before to the bin after each bin."""
    padded = np.pad(values, 1, mode="edge")
    return padded[2:] - padded[:-2]


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


def auc(summary: Summary) -> tuple[float, float]:
    """The probability that a positive scores above a negative, and its standard error.

    The standard error is an upper bound (Hanley and McNeil, 1982): the variance of the AUC is at
    most AUC (1 - AUC) / m, and hence 1 / (4 m), with m the mass of the smaller class.
    """
    positive = summary.positive
    negative = summary.total - summary.positive
    # Ties count one half.
    negative_below = np.cumsum(negative) - negative / 2
    pairs = max(float(positive.sum() * negative.sum()), 1e-300)
    area = float(positive @ negative_below) / pairs
    smaller_class = max(min(positive.sum(), negative.sum()), 1.0)
    return area, 0.5 / smaller_class**0.5
