"""Observed and predicted rates by bin, with intervals over resampled clusters of users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, add_up, row_parts
from calibrank.evidence import Evidence
from calibrank.metrics.clustered_bootstrap import Codes, draw_matrix
from calibrank.metrics.metric import calibration_masses

# The 97.5% quantile of the normal distribution, for Wilson's 95% interval.
_Z = 1.96
# With fewer clusters than this in a bin the bootstrap underestimates the variance noticeably.
_MINIMUM_CLUSTERS = 10


class Rates(NamedTuple):
    """What each bin predicts and what is observed there."""

    rows: Floats
    mass: Floats
    predicted: Floats
    """The mean probability, NaN in an empty bin."""
    observed: Ratios
    gap: Ratios
    """Observed minus predicted."""


class Ratios(NamedTuple):
    """One ratio per bin with its 95% interval; NaN where the bin is empty."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """The cluster of users that each row belongs to, and the resamples drawn from the clusters.

    >>> clusters = Clusters.of(np.array([0, 0, 1, 1]))
    >>> bins = np.array([0, 1, 0, 1])
    >>> clusters.sums(bins, np.array([1.0, 2.0, 3.0, 4.0]), 2).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    codes: Codes
    size: int
    draws: Floats
    """How often each cluster occurs in each resample, resamples x clusters."""

    @classmethod
    def of(cls, codes: Codes, seed: int | np.random.Generator = 0) -> Clusters:
        """Draw the resamples for rows that belong to clusters 0, 1, ... ."""
        size = int(codes.max()) + 1
        return cls(codes, size, draw_matrix(size, seed=seed))

    def sums(self, bins: Codes, mass: Floats, n_bins: int, rows: Codes | None = None) -> Floats:
        """Sum the mass of all rows, or of some, per cluster and bin: clusters x bins."""
        codes = self.codes if rows is None else self.codes[rows]
        flat = add_up(codes * n_bins + bins, mass, self.size * n_bins)
        return flat.reshape(self.size, n_bins)

    def rates(
        self,
        bins: Codes,
        probabilities: Floats,
        evidence: Evidence,
        n_bins: int,
        rows: Codes | None = None,
    ) -> Rates:
        """Compare observed with predicted rates per bin, over all rows or some.

        `bins`, `probabilities` and `evidence` are those of the rows.
        """
        codes = self.codes if rows is None else self.codes[rows]
        sums = np.zeros((3, self.size * n_bins))
        for part in row_parts(len(bins)):
            places = codes[part] * n_bins + bins[part]
            masses = calibration_masses(probabilities[part], evidence.rows(part))
            for each, mass in zip(sums, masses, strict=True):
                np.add.at(each, places, mass)
        positive, total, predicted = sums.reshape(3, self.size, n_bins)
        counts = add_up(bins, None, n_bins)
        mass = total.sum(axis=0)
        return Rates(
            counts,
            mass,
            _ratio(predicted.sum(axis=0), mass, np.nan),
            self.ratios(positive, total, counts),
            self.ratios(positive, total, counts, predicted),
        )

    def ratios(
        self, numerator: Floats, denominator: Floats, rows: Floats, offset: Floats | None = None
    ) -> Ratios:
        """Compute the ratio of two sums per bin, both given as clusters x bins.

        With an `offset`, it is subtracted from the numerator before dividing: observed minus
        predicted mass, for example. `rows` is the number of rows of each bin.

        Where all clusters agree (no positives, or only positives) resampling sees no variance,
        and where clusters are few it sees too little. The interval is then at least as wide as
        Wilson's, for as many trials as there are rows or clusters.
        """
        net = numerator if offset is None else numerator - offset
        value = _ratio(net.sum(axis=0), denominator.sum(axis=0), np.nan)
        low, high = self._quantiles(net, denominator, value)
        rate = np.clip(_ratio(numerator.sum(axis=0), denominator.sum(axis=0), 0.0), 0, 1)
        n_clusters = np.count_nonzero(denominator > 0, axis=0)
        wilson = _wilson(rate, _trials(rate, n_clusters, rows)) - rate + value
        low = np.minimum(low, wilson[0])
        high = np.maximum(high, wilson[1])
        return Ratios(value, np.minimum(low, value), np.maximum(high, value))

    def _quantiles(self, numerator: Floats, denominator: Floats, value: Floats) -> Floats:
        """Return the 2.5% and 97.5% quantiles of the resampled ratios, one line each."""
        below = self.draws @ denominator
        # A resample that misses every cluster of a bin has no ratio: it gets the value itself.
        ratios = np.broadcast_to(value, below.shape).copy()
        np.divide(self.draws @ numerator, below, out=ratios, where=below > 0)
        return np.quantile(ratios, [0.025, 0.975], axis=0)


def _ratio(numerator: Floats, denominator: Floats, empty: float) -> Floats:
    """Divide where the denominator is positive; elsewhere the ratio is `empty`."""
    result = np.full(len(denominator), empty)
    return np.divide(numerator, denominator, out=result, where=denominator > 0)


def _trials(rate: Floats, n_clusters: Codes, rows: Floats) -> Floats:
    """Return the number of Bernoulli trials behind Wilson's interval; infinite where not needed."""
    constant = (rate == 0) | (rate == 1)
    enough = np.where(constant, np.maximum(rows, 1), np.inf)
    return np.where(n_clusters < _MINIMUM_CLUSTERS, np.maximum(n_clusters, 1), enough)


def _wilson(rate: Floats, trials: Floats) -> Floats:
    """Return both ends of Wilson's interval for a proportion, one line each."""
    variance = _Z**2 / trials
    centre = (rate + variance / 2) / (1 + variance)
    half_width = np.sqrt(variance * (rate * (1 - rate) + variance / 4)) / (1 + variance)
    return np.array([centre - half_width, centre + half_width])
