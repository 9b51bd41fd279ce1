"""Choose the origin of a grid and its number of octaves, from a look at the scores.

A grid around 0 resolves most scores. It fails where scores are far from 0 compared with their
spread, or where an outlier is so large that all the others are near 0 next to it. Then nearly all
scores share a few bins, which a small sample shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, on_gpu
from calibrank.summary.grid import AROUND_ZERO, CAPACITY, Grid, Placement

SAMPLE = 1024
"""Scores in a look: enough to tell a probability of 1e-4 that two of them share a bin."""

RESOLVED = 2.5e-4
"""Two scores share a bin of a good grid with at most this probability.

Around zero it is 1.1e-4 for normal scores and 1.6e-4 for uniform ones.
"""

# The default first, then more for outliers and heavy tails, then fewer for separate clusters.
_OCTAVES = (31, 39, 47, 55, 63, 71, 79, 87, 95, 111, 127, 160, 200, 15, 7, 3, 1)

# Origins to try, as quantiles of the sample: the median first.
_QUANTILES = (0.5, 0.35, 0.65, 0.2, 0.8, 0.05, 0.95)


def look(scores: Any) -> Floats:
    """A sample of scores in increasing order, the same whenever it is drawn from the same rows."""
    if len(scores) > SAMPLE:
        # Random rows rather than every nth: tables repeat patterns, one user after another.
        rows = np.random.default_rng(0).integers(len(scores), size=SAMPLE)
        scores = scores[rows]
    if on_gpu(scores):
        scores = scores.cpu().numpy()
    return np.sort(scores.astype(np.float64))


def look_at_bins(scores: Floats, total: Floats) -> Floats:
    """A sample of bins in increasing order of their scores, in proportion to their mass."""
    cumulative = np.cumsum(total)
    # Evenly spaced levels would share bins less often than random rows do.
    levels = np.sort(np.random.default_rng(0).random(SAMPLE)) * cumulative[-1]
    return scores[np.searchsorted(cumulative, levels).clip(max=len(scores) - 1)]


def shared_bins(grid: Grid, sample: Floats) -> float:
    """The probability that two scores of a sample differ and share a bin all the same."""
    keys = grid.keys(sample)
    return (_equal_pairs(keys) - _equal_pairs(sample)) / max(len(sample), 1) ** 2


def place(
    low: float,
    high: float,
    sample: Floats,
    preferred: Placement = AROUND_ZERO,
    capacity: int = CAPACITY,
) -> Placement:
    """The preferred placement if it resolves the sample over [low, high], or one that does.

    The first one that does is taken, so that parts of a table mostly agree on it.
    """
    best = preferred
    fewest = shared_bins(Grid.spanning(low, high, capacity, preferred), sample)
    if fewest <= RESOLVED:
        return preferred
    # A change has to be worth the error of moving bins from one grid to another.
    fewest /= 2
    for placement in _candidates(sample):
        shared = shared_bins(Grid.spanning(low, high, capacity, placement), sample)
        if shared <= RESOLVED:
            return placement
        if shared < fewest:
            best, fewest = placement, shared
    return best


def _candidates(sample: Floats) -> Iterator[Placement]:
    origins = [0.0]
    origins += [_rounded_quantile(sample, quantile) for quantile in _QUANTILES]
    origins.append(float(sample[0] + sample[-1]) / 2)
    for octaves in _OCTAVES:
        for origin in dict.fromkeys(origins):
            yield Placement(origin, octaves)


def _rounded_quantile(sample: Floats, quantile: float) -> float:
    """A quantile as a round number near it, so that two samples mostly agree."""
    levels = np.clip([quantile - 0.1, quantile, quantile + 0.1], 0, 1)
    below, value, above = np.quantile(sample, levels).tolist()
    if above <= below:
        return float(value)
    step = np.ldexp(1.0, int(np.floor(np.log2(above - below))))
    return float(np.round(value / step) * step)


def _equal_pairs(values: Any) -> float:
    """The number of ordered pairs of equal values."""
    counts = np.unique(values, return_counts=True)[1]
    return float(np.square(counts).sum())
