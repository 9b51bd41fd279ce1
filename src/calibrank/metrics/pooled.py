"""Metrics of pooled probabilities, and the narrow bins of log odds that they are resampled over."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats, Ids, Indices
from calibrank.evidence import Evidence
from calibrank.metrics.binned import calibration_masses
from calibrank.metrics.metric import Additive, Metric, Wrapper

# 1,024 bins between log odds of -12 and 12 (probabilities of 6e-6 and 1 - 6e-6): the odds within
# a bin differ by 2.3%, far below what an interval can resolve, and 2,048 clusters fit in memory.
_LOG_ODDS_BINS = 1024
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
    def of_rows(cls, probabilities: Floats, evidence: Evidence) -> PooledBins:
        """A single sample, each row a bin."""
        p = probabilities.astype(np.float64)
        return cls(p[None], evidence.positive[None], evidence.total[None])

    @property
    def mass(self) -> Floats:
        """The total of each resample, as a column."""
        return self.total.sum(axis=1, keepdims=True)


def mean_probabilities(total: Floats, predicted: Floats) -> Floats:
    """Return the mean probability of each bin, 0.5 where it is empty."""
    means = np.divide(predicted, total, out=np.full_like(total, 0.5), where=total > 0)
    # Rounding can move the mean of probabilities outside [0, 1].
    return np.clip(means, 0, 1)


class Pooled(Metric):
    """A metric that depends only on the masses of each distinct probability.

    It is computed for many resamples at once: a pass over arrays instead of one per resample.
    """

    @abstractmethod
    def evaluate_all(self, bins: PooledBins) -> Floats:
        """Compute the metric of each resample; probabilities increase along the bins."""

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        return float(self.evaluate_all(PooledBins.of_rows(probabilities, evidence))[0])


@dataclass(frozen=True, slots=True)
class LogOddsBinned(Wrapper, Additive):
    """A pooled metric over narrow bins of log odds, which makes it additive.

    The exact metric needs every distinct probability; this one needs 1,024 sums, so that it can
    be resampled.

    >>> from calibrank.metrics import Discrimination
    >>> round(LogOddsBinned(Discrimination())([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1]), 12)
    0.25
    """

    metric: Pooled

    @property
    def n_bins(self) -> int:
        return _LOG_ODDS_BINS

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        limit = _LOG_ODDS_LIMIT
        log_odds = np.clip(logit(probabilities), -limit, limit)
        bins_per_unit = _LOG_ODDS_BINS / (2 * limit)
        position = (log_odds + limit) * bins_per_unit
        indices = position.astype(np.intp)
        return np.minimum(indices, _LOG_ODDS_BINS - 1)

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return calibration_masses(probabilities, evidence)

    def compute(self, sums: Floats) -> float:
        return float(self.resampled(sums[None])[0])

    def resampled(self, sums: Floats) -> Floats:
        return self.metric.evaluate_all(PooledBins.of(sums))

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        return self.metric.errors(residuals, probabilities, weights)


def pooled_bins(sums: Floats) -> tuple[Floats, Evidence]:
    """Return the mean probability and the evidence of each nonempty bin."""
    positive, total, predicted = sums[:, sums[1] > 0]
    evidence = Evidence.trusted(positive, total, "naive")
    return mean_probabilities(total, predicted), evidence
