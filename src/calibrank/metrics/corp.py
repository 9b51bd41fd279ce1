"""The CORP decomposition of a proper score (Dimitriadis, Gneiting & Jordan, PNAS 2021).

CORP: consistent, optimally binned, reproducible, by the pool-adjacent-violators algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.isotonic import pool_adjacent_violators
from calibrank._internal.validation import Floats, Numbers, add_up, probability_column, starts_of
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import Additive, Better
from calibrank.metrics.pooled import Pooled, PooledBins
from calibrank.metrics.proper import Brier

_BRIER = Brier()


class Decomposition(NamedTuple):
    """`score = miscalibration - discrimination + uncertainty`, none negative but for rounding."""

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def corp(probabilities: Numbers, labels: Labels, score: Additive = _BRIER) -> Decomposition:
    """Decompose a proper score by comparing it with that of the isotonic recalibration.

    Unlike a binned error it has no bins to choose.

    >>> corp([0.2, 0.2, 0.8, 0.8], [0, 0, 0, 1]).uncertainty
    0.1875
    """
    _require_score(score)
    probabilities = probability_column(probabilities)
    evidence = nonzero_evidence(labels, len(probabilities))
    parts = _parts(PooledBins.distinct(probabilities, evidence), score)
    as_given, constant, best = [float(part[0]) for part in parts]
    return Decomposition(as_given, as_given - best, constant - best, constant)


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
        parts = _kept_parts(bins, self.score)
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
        parts = _kept_parts(bins, self.score)
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


# Both parts are asked for one after the other, of the same bins.
_kept_parts = lru_cache(maxsize=1)(_parts)
