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


def deviation_of(summary: Summary, free: Floats, probabilities: Floats) -> Deviation:
    """The deviation from a fit in which the rows of `free` have coefficients that are not bound."""
    total = summary.total
    mass = total.sum()
    normal = NormalDist()
    places = np.linspace(-_REACH, _REACH, _BINS + 1)[1:-1]
    edges = [normal.cdf(place) for place in places.tolist()]
    bins = np.searchsorted(edges, (np.cumsum(total) - total / 2) / mass)
    occupied, starts = np.unique(bins, return_index=True)

    def sums(values: Floats) -> Floats:
        return np.add.reduceat(values, starts, axis=-1)

    weights = total * probabilities * (1 - probabilities)
    by_bin = np.maximum(sums(weights), 1e-300)
    taken_up = sums(free * weights)
    cosines = np.cos(np.pi * np.arange(_COSINES + 1)[:, None] * (occupied + 0.5) / _BINS)
    # Regressed on the free rows: at the optimum these have no residuals.
    share = cosines @ taken_up.T @ np.linalg.pinv((free * weights) @ free.T)
    columns = cosines - share @ taken_up / by_bin
    # Labels that are probabilities may leave no residuals at all.
    squares = float(summary.squared_residuals(probabilities).sum())
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
    scores = []
    moments = []
    for size in _SIZES:
        sds = size / orders
        # Relative to the prior, so that a size of 0 is exact.
        ratio = np.eye(len(sds)) + sds[:, None] * information * sds
        covariance = sds[:, None] * np.linalg.inv(ratio) * sds
        at = covariance @ gradient
        scores.append(float(gradient @ at - np.linalg.slogdet(ratio)[1]) / 2)
        mean = at @ columns
        moments.append([mean, mean**2 + ((covariance @ columns) * columns).sum(axis=0)])
    weights = np.exp(np.array(scores) - max(scores))
    mean, squares = np.tensordot(weights / weights.sum(), np.array(moments), axes=1)
    return mean, np.maximum(squares - mean**2, 0)
