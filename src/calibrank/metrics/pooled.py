"""Metrics of pooled probabilities, and comparisons with the isotonic fit to the same evidence.

Narrow bins of log odds are what such metrics are resampled over. `Miscalibration` and
`Discrimination` are parts of a proper score (Dimitriadis, Gneiting & Jordan, PNAS 2021: CORP, for
consistent, optimally binned, reproducible, by the pool-adjacent-violators algorithm). A misfit is
a family of curves of the wrong shape.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.isotonic import pool_adjacent_violators
from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats, Ids, Indices, add_up, starts_of
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Additive, Better, calibration_masses, mean_probabilities
from calibrank.metrics.proper import Brier
from calibrank.summary import Summary

# 1,024 bins between log odds of -12 and 12 (probabilities of 6e-6 and 1 - 6e-6): the odds within
# a bin differ by 2.3%, far below what an interval can resolve, and 2,048 clusters fit in memory.
LOG_ODDS_BINS = 1024
_LOG_ODDS_LIMIT = 12.0

# Differences are stated over bins of 1% of the mass: smaller ones are mostly noise.
_BINS = 100

# A misfit matters from 2 points on, and if the isotonic fit gains 3.5 times a variance per block.
# It chooses its blocks, so it gains more than once even by chance: 1.2 to 1.3 times in the median,
# 2.0 to 2.9 in 1% of tables and 3.3 at most over 599 tables simulated from the fitted family
# itself (Platt, Gaussian, Gamma, GammaGaussian, Beta; 2,000 to 100,000 rows, rates of 2% to 35%,
# normal, heavy-tailed, exponential and uniform scores, with and without propensities).
# The factor was set after seeing these tables: 3 would have reported 3 of them.
_SMALLEST_DIFFERENCE = 0.02
_SMALLEST_RATIO = 3.5

_BRIER = Brier()


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


def _require_score(score: object) -> None:
    remedy = "Use a proper score: Brier() or LogLoss()."
    found = instance("score", score, Additive, remedy)
    if found.n_bins > 1 or not found.has_fixed_bins:
        raise DataError("score", "be a sum over rows", found.name, remedy)


@dataclass(frozen=True, slots=True)
class Miscalibration(Pooled):
    """How much a proper score would fall after the best increasing recalibration (CORP).

    It is a calibration error without bins to choose. The score is the Brier score unless set.

    >>> Miscalibration()([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    0.0
    """

    better: ClassVar[Better] = Better.LOWER
    noise_adds: ClassVar[bool] = True
    score: Additive = _BRIER

    def __post_init__(self) -> None:
        _require_score(self.score)

    def evaluate_all(self, bins: PooledBins) -> Floats:
        parts = _parts(bins, self.score)
        return parts[0] - parts[2]

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        total = np.broadcast_to(weights, residuals.shape)
        p = np.broadcast_to(probabilities, residuals.shape)
        as_given, _, best = _parts(PooledBins(p, p * total + residuals, total), self.score)
        return as_given - best


@dataclass(frozen=True, slots=True)
class Discrimination(Pooled):
    """How much the order of the probabilities lowers a proper score (CORP).

    It is compared with a constant at the base rate. Calibration by an increasing map cannot
    improve it. The score is the Brier score unless set.

    >>> Discrimination()([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    0.25
    """

    better: ClassVar[Better] = Better.HIGHER
    score: Additive = _BRIER

    def __post_init__(self) -> None:
        _require_score(self.score)

    def evaluate_all(self, bins: PooledBins) -> Floats:
        parts = _parts(bins, self.score)
        return parts[1] - parts[2]


def _parts(bins: PooledBins, score: Additive) -> tuple[Floats, Floats, Floats]:
    """The score of each resample as given, at the base rate, and after isotonic regression."""
    p, positive, total = bins.probabilities, bins.positive, bins.total
    filled = total > 0
    # The bins of all resamples in one array, which is fitted once: a call per resample takes
    # longer than its sums.
    resample = np.nonzero(filled)[0]
    positive, total = positive[filled], total[filled]
    # Isotonic regression is the best increasing recalibration for every proper score.
    blocks = pool_adjacent_violators(positive, total, starts_of(resample))
    block_sizes = np.diff([*blocks.starts, len(total)])
    recalibrated = np.repeat(blocks.values, block_sizes)
    # Inverse-propensity weights can push the rate above 1, which no proper score accepts.
    rates = add_up(resample, positive) / add_up(resample, total)
    base_rate = np.clip(rates, 0, 1)[resample]
    evidence = Evidence.trusted(positive, total, "naive")
    found = []
    for predicted in (p[filled], base_rate, recalibrated):
        terms = score.terms(predicted, evidence)
        sums = np.array([add_up(resample, term) for term in terms])
        found.append(score.resampled(sums.T[:, :, None]))
    return found[0], found[1], found[2]


class Misfit(NamedTuple):
    """How far probabilities are from the isotonic fit to the same evidence."""

    mean_difference: float
    largest_difference: float
    """Over bins of 1% of the mass, isotonic minus fitted."""
    gain: float
    """Sum of squared errors that the isotonic fit gains."""
    noise: float
    """What it gains by chance if the family is right: one variance per block (as in AIC)."""

    @property
    def matters(self) -> bool:
        is_large = abs(self.largest_difference) > _SMALLEST_DIFFERENCE
        return is_large and self.gain > _SMALLEST_RATIO * self.noise

    @property
    def size(self) -> str:
        """The differences in words."""
        direction = "low" if self.largest_difference > 0 else "high"
        return (
            "compared with isotonic regression the probabilities are off by "
            f"{100 * self.mean_difference:.2g} points on average, and too {direction} by "
            f"{100 * abs(self.largest_difference):.2g} points over 1% of the table"
        )

    @property
    def message(self) -> str:
        """The size of the misfit and what to do about it."""
        return (
            f"the shape does not fit the labels: {self.size}. Use the method auto, which "
            "compares methods by cross-validation, or spline or isotonic."
        )


def misfit(probabilities: Floats, summary: Summary) -> Misfit:
    """Compare the probabilities of a summary's scores with the isotonic fit to the summary.

    >>> summary = Summary.of([0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1])
    >>> misfit(np.array([0.0, 0.5, 0.5, 1.0]), summary).mean_difference
    0.25
    """
    total = summary.total
    blocks = pool_adjacent_violators(summary.positive, total)
    isotonic = np.repeat(blocks.values, np.diff([*blocks.starts, len(summary)]))
    difference = total * (isotonic - probabilities)
    mass = total.sum()
    position = (np.cumsum(total) - total / 2) / mass
    bins = (position * _BINS).astype(np.intp)
    # A bin that holds less than its share, beside a heavy score, is not overstated.
    by_bin = add_up(bins, difference) / np.maximum(add_up(bins, total), mass / _BINS)
    # Squared errors, not log losses: weighted rates above 1 make the log loss unbounded.
    fitted_loss = _BRIER.evaluate(probabilities, summary.evidence, None)
    isotonic_loss = _BRIER.evaluate(isotonic, summary.evidence, None)
    # The mean of a block has the variance (sum of r^2) / total^2, and gains total times that.
    residuals = np.add.reduceat(summary.squared_residuals(probabilities), blocks.starts)
    by_chance = residuals / np.add.reduceat(total, blocks.starts)
    return Misfit(
        mean_difference=float(np.abs(difference).sum() / mass),
        largest_difference=float(by_bin[np.argmax(np.abs(by_bin))]),
        gain=float(mass * (fitted_loss - isotonic_loss)),
        noise=float(by_chance.sum()),
    )
