"""The CORP decomposition of a proper score (Dimitriadis, Gneiting & Jordan, PNAS 2021).

CORP: consistent, optimally binned, reproducible, by the pool-adjacent-violators algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.isotonic import pool_adjacent_violators
from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats, Ids, Numbers, add_up, probability_column
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.binned import calibration_masses
from calibrank.metrics.metric import Additive, Better, BinIndices, Metric
from calibrank.metrics.proper import Brier

_BRIER = Brier()

# 1,024 bins between log odds of -12 and 12 (probabilities of 6e-6 and 1 - 6e-6): the odds within
# a bin differ by 2.3%, far below what an interval can resolve, and 2,048 clusters fit in memory.
_LOG_ODDS_BINS = 1024
_LOG_ODDS_LIMIT = 12.0


class Decomposition(NamedTuple):
    """`score = miscalibration - discrimination + uncertainty`, none negative but for rounding."""

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def corp(
    probabilities: Numbers,
    labels: Labels,
    score: Additive = _BRIER,
) -> Decomposition:
    """Decompose a proper score by comparing it with that of the isotonic recalibration.

    Unlike a binned error it has no bins to choose.

    >>> corp([0.2, 0.2, 0.8, 0.8], [0, 0, 0, 1]).uncertainty
    0.1875
    """
    _require_score(score)
    probabilities = probability_column(probabilities)
    evidence = nonzero_evidence(labels, len(probabilities))
    return _decompose(probabilities, evidence, score)


def _require_score(score: object) -> None:
    instance("score", score, Additive, "Use a proper score: Brier() or LogLoss().")


@dataclass(frozen=True, slots=True)
class Miscalibration(Metric):
    """The part of a proper score that isotonic recalibration would remove (CORP).

    >>> Miscalibration()([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    0.0
    """

    better: ClassVar[Better] = Better.LOWER
    explanation: ClassVar[str] = (
        "How much a proper score (the Brier score unless set) would fall after the best "
        "increasing recalibration: a calibration error without bins to choose."
    )
    score: Additive = _BRIER

    def __post_init__(self) -> None:
        _require_score(self.score)

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        return _decompose(probabilities, evidence, self.score).miscalibration


@dataclass(frozen=True, slots=True)
class Discrimination(Metric):
    """The part of a proper score that the order of the probabilities explains (CORP).

    Every strictly increasing map leaves it unchanged.

    >>> Discrimination()([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    0.25
    """

    better: ClassVar[Better] = Better.HIGHER
    explanation: ClassVar[str] = (
        "How much the order of the probabilities lowers a proper score (the Brier score unless "
        "set), compared with a constant at the base rate. Calibration by an increasing map "
        "cannot improve it."
    )
    score: Additive = _BRIER

    def __post_init__(self) -> None:
        _require_score(self.score)

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        return _decompose(probabilities, evidence, self.score).discrimination


@dataclass(frozen=True, slots=True)
class LogOddsBinned(Additive):
    """Miscalibration or discrimination over narrow bins of log odds, which makes it additive.

    The exact metrics need every distinct probability; this one needs 1,024 sums, so that it can
    be resampled.

    >>> round(LogOddsBinned(Discrimination())([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1]), 12)
    0.25
    """

    metric: Miscalibration | Discrimination

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def better(self) -> Better:  # type: ignore[override]  # a property, to follow `metric`
        return self.metric.better

    @property
    def explanation(self) -> str:  # type: ignore[override]  # a property, to follow `metric`
        return self.metric.explanation

    @property
    def n_bins(self) -> int:
        return _LOG_ODDS_BINS

    def bin_indices(
        self,
        probabilities: Floats,
        evidence: Evidence,
    ) -> BinIndices:
        limit = _LOG_ODDS_LIMIT
        log_odds = np.clip(logit(probabilities), -limit, limit)
        bins_per_unit = _LOG_ODDS_BINS / (2 * limit)
        position = (log_odds + limit) * bins_per_unit
        indices = position.astype(np.intp)
        return np.minimum(indices, _LOG_ODDS_BINS - 1)

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return calibration_masses(probabilities, evidence)

    def compute(self, sums: Floats) -> float:
        return self.metric.evaluate(*pooled_bins(sums), users=None)


def decompose_sums(sums: Floats, score: Additive = _BRIER) -> Decomposition:
    """Decompose a proper score from the sums of a `LogOddsBinned` metric, terms x bins."""
    probabilities, evidence = pooled_bins(sums)
    return _decompose(probabilities, evidence, score)


def pooled_bins(sums: Floats) -> tuple[Floats, Evidence]:
    """Return the mean probability and the evidence of each nonempty bin."""
    positive, total, predicted = sums[:, sums[1] > 0]
    # Rounding can move the mean of probabilities outside [0, 1].
    probabilities = np.clip(predicted / total, 0, 1)
    return probabilities, Evidence.trusted(positive, total, "naive")


def _decompose(
    probabilities: Floats,
    evidence: Evidence,
    score: Additive,
) -> Decomposition:
    weighted = evidence.total > 0
    distinct, groups = np.unique(probabilities[weighted], return_inverse=True)
    positive = add_up(groups, evidence.positive[weighted])
    total = add_up(groups, evidence.total[weighted])
    pooled = Evidence.trusted(positive, total, evidence.kind)
    # Isotonic regression is the best increasing recalibration for every proper score.
    blocks = pool_adjacent_violators(positive, total)
    block_sizes = np.diff([*blocks.starts, len(total)])
    recalibrated = np.repeat(blocks.values, block_sizes)
    # Inverse-propensity weights can push the rate above 1, which no proper score accepts.
    base_rate = np.clip(positive.sum() / total.sum(), 0, 1)
    as_given = score.evaluate(distinct, pooled, None)
    best = score.evaluate(recalibrated, pooled, None)
    constant = score.evaluate(np.full(len(total), base_rate), pooled, None)
    return Decomposition(
        score=as_given,
        miscalibration=as_given - best,
        discrimination=constant - best,
        uncertainty=constant,
    )
