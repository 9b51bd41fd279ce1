"""Metrics of pooled probabilities, and the narrow bins of log odds that they are resampled over."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats, Ids, Indices, add_up
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Additive, calibration_masses, mean_probabilities

# 1,024 bins between log odds of -12 and 12 (probabilities of 6e-6 and 1 - 6e-6): the odds within
# a bin differ by 2.3%, far below what an interval can resolve, and 2,048 clusters fit in memory.
LOG_ODDS_BINS = 1024
_LOG_ODDS_LIMIT = 12.0


@dataclass(frozen=True, slots=True, eq=False)
class PooledBins:
    """The masses of bins, resamples x bins; a bin without rows has mass 0 and any probability."""

    probabilities: Floats
    positive: Floats
    total: Floats

    @classmethod
    def of(cls, sums: Floats) -> PooledBins:
        """From summed `calibration_masses`, resamples x terms x bins."""
        positive, total, predicted = sums.transpose(1, 0, 2)
        return cls(mean_probabilities(total, predicted), positive, total)

    @classmethod
    def distinct(cls, probabilities: Floats, evidence: Evidence) -> PooledBins:
        """A single sample, each distinct probability a bin."""
        distinct, groups = np.unique(probabilities.astype(np.float64), return_inverse=True)
        positive = add_up(groups, evidence.positive)
        total = add_up(groups, evidence.total)
        return cls(distinct[None], positive[None], total[None])

    @property
    def mass(self) -> Floats:
        """The total of each resample, as a column."""
        return self.total.sum(axis=1, keepdims=True)


class Pooled(Additive):
    """A metric that depends only on the masses of each distinct probability.

    It is computed for many resamples at once: a pass over arrays instead of one per resample. Its
    value needs every distinct probability; sums over 1,024 bins of log odds, so close to it that
    an interval does not tell the difference, can be resampled.
    """

    @abstractmethod
    def evaluate_all(self, bins: PooledBins) -> Floats:
        """Compute the metric of each resample; probabilities increase along the bins."""

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        return float(self.evaluate_all(PooledBins.distinct(probabilities, evidence))[0])

    @property
    def n_bins(self) -> int:
        return LOG_ODDS_BINS

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        return log_odds_bins(probabilities)

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return calibration_masses(probabilities, evidence)

    def compute(self, sums: Floats) -> float:
        return float(self.resampled(sums[None])[0])

    def resampled(self, sums: Floats) -> Floats:
        return self.evaluate_all(PooledBins.of(sums))


def log_odds_bins(probabilities: Floats) -> Indices:
    """The number of each row's bin of log odds."""
    log_odds = np.clip(logit(probabilities), -_LOG_ODDS_LIMIT, _LOG_ODDS_LIMIT)
    position = (log_odds + _LOG_ODDS_LIMIT) * (LOG_ODDS_BINS / (2 * _LOG_ODDS_LIMIT))
    return np.minimum(position.astype(np.intp), LOG_ODDS_BINS - 1)


def pooled_bins(sums: Floats) -> tuple[Floats, Evidence]:
    """Return the mean probability and the evidence of each nonempty bin."""
    positive, total, predicted = sums[:, sums[1] > 0]
    evidence = Evidence.trusted(positive, total, "naive")
    return mean_probabilities(total, predicted), evidence
