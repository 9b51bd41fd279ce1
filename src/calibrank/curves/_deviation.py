"""How far the true curve may be from a fitted family: what the labels say, averaged over priors.

The log odds of the truth are those of the fit plus cosines of the normal score of the rank, minus
what the free coefficients of the family would take up. Cosine k has a standard deviation of
size / k, with sizes from 0 (the family is right) on, weighted by their marginal likelihood.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.maps.logistic import Deviation
from calibrank.summary import Summary

# Equally probable before the labels: with three quarters on 0, intervals of 1,000 labels hold 88%
# of a truth of another family instead of 94%, and 96% instead of 98% of one of the same. This was
# chosen on eight simulated truths, among them those of `benchmarks/claims.py`.
_SIZES = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
_COSINES = 16
# Normal scores are in bins of a quarter, up to 3 on either side.
_REACH = 3.0
_BINS = 24
_NORMAL_EDGES = np.linspace(-_REACH, _REACH, _BINS + 1)[1:-1].tolist()
_EDGES = np.array([NormalDist().cdf(edge) for edge in _NORMAL_EDGES])


def deviation_of(
    summary: Summary, free: Floats, probabilities: Floats, bread: Floats, squares: float
) -> Deviation:
    """The deviation from a fit in which the rows of `free` have coefficients that are not bound.

    `bread` is the inverse of their Hessian, and `squares` the sum of squared residuals.
    """
    total = summary.total
    middles = np.cumsum(total) - total / 2
    ends = np.searchsorted(middles, _EDGES * total.sum(), side="right")
    starts = np.concatenate([[0], ends])
    # A bin without points starts where the next one does, or beyond the last point.
    occupied = np.flatnonzero(np.append(starts[1:], len(total)) > starts)
    starts = starts[occupied]

    def sums(values: Floats) -> Floats:
        return np.add.reduceat(values, starts, axis=-1)

    weights = total * probabilities * (1 - probabilities)
    by_bin = np.maximum(sums(weights), 1e-300)
    taken_up = sums(free * weights)
    cosines = np.cos(np.pi * np.arange(_COSINES + 1)[:, None] * (occupied + 0.5) / _BINS)
    # Regressed on the free rows: at the optimum these have no residuals.
    share = cosines @ taken_up.T @ bread
    columns = cosines - share @ taken_up / by_bin
    # Labels that are probabilities may leave no residuals at all.
    dispersion = max(squares / max(float(weights.sum()), 1e-300), 1e-9)
    information = (columns * by_bin) @ columns.T / dispersion
    gradient = columns @ sums(summary.positive - total * probabilities) / dispersion
    mean, variance = _posterior(information, gradient, columns)
    return Deviation(
        tuple((sums(total * summary.scores) / sums(total)).tolist()),
        tuple(np.round(mean, 6).tolist()),
        tuple(np.round(np.sqrt(variance), 6).tolist()),
    )


def _posterior(information: Floats, gradient: Floats, columns: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the deviation in each bin, averaged over sizes of the prior."""
    orders = np.maximum(np.arange(len(gradient)), 1)
    sds = np.array(_SIZES)[:, None] / orders
    both = sds[:, :, None] * sds[:, None]
    # Relative to the prior, so that a size of 0 is exact.
    ratio = np.eye(len(orders)) + both * information
    covariance = both * np.linalg.inv(ratio)
    at = covariance @ gradient
    scores = (at @ gradient - np.linalg.slogdet(ratio)[1]) / 2
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    means = at @ columns
    squares = means**2 + ((covariance @ columns) * columns).sum(axis=1)
    mean: Floats = weights @ means
    return mean, np.maximum(weights @ squares - mean**2, 0)
