"""The CORP decomposition: how much of a proper score is miscalibration (Dimitriadis, Gneiting & Jordan 2021)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._isotonic import pool_adjacent_violators
from calibrank._logit import logit
from calibrank._validation import Floats, Ids, Numbers, add_up, probability_column
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.binned import Cells, mass_and_prediction
from calibrank.metrics.metric import Additive, Better, Metric
from calibrank.metrics.proper import Brier

_BRIER = Brier()
_CELLS, _FURTHEST = 1024, 12.0


class Decomposition(NamedTuple):
    """score = miscalibration - discrimination + uncertainty; no part is negative, save by rounding."""

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def corp(probabilities: Numbers, labels: Labels, score: Additive = _BRIER) -> Decomposition:
    """Split a proper score by recalibrating with the best increasing function: no bins to choose.

    >>> corp([0.2, 0.2, 0.8, 0.8], [0, 0, 0, 1]).uncertainty
    0.1875
    """
    probabilities = probability_column(probabilities)
    return _decompose(probabilities, nonzero_evidence(labels, len(probabilities)), score)


@dataclass(frozen=True, slots=True)
class Miscalibration(Metric):
    """What the best increasing recalibration would take off a proper score: calibration error without bins.

    >>> Miscalibration()([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    0.0
    """

    score: Additive = _BRIER

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        return _decompose(probabilities, evidence, self.score).miscalibration


@dataclass(frozen=True, slots=True)
class Discrimination(Metric):
    """What the order of the probabilities is worth, in a proper score: the same for every increasing map.

    >>> Discrimination()([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    0.25
    """

    better: ClassVar[Better] = Better.HIGHER
    score: Additive = _BRIER

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        return _decompose(probabilities, evidence, self.score).discrimination


@dataclass(frozen=True, slots=True)
class OnCells(Additive):
    """One of the above over narrow cells of log odds, not every distinct probability: sums that can be resampled.

    >>> round(OnCells(Discrimination())([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1]), 12)
    0.25
    """

    metric: Miscalibration | Discrimination

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def better(self) -> Better:  # type: ignore[override]  # that of what it stands for
        return self.metric.better

    @property
    def size(self) -> int:
        return _CELLS

    def cells(self, probabilities: Floats, evidence: Evidence) -> Cells:
        place = (np.clip(logit(probabilities), -_FURTHEST, _FURTHEST) + _FURTHEST) * (
            _CELLS / (2 * _FURTHEST)
        )
        return np.minimum(place.astype(np.intp), _CELLS - 1)

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return np.array(mass_and_prediction(probabilities, evidence))

    def compute(self, sums: Floats) -> float:
        positive, total, predicted = sums[:, sums[1] > 0]
        return self.metric.evaluate(
            np.clip(predicted / total, 0, 1), Evidence.trusted(positive, total, "naive"), None
        )


def _decompose(probabilities: Floats, evidence: Evidence, score: Additive) -> Decomposition:
    heard = evidence.total > 0
    distinct, groups = np.unique(probabilities[heard], return_inverse=True)
    positive = add_up(groups, evidence.positive[heard])
    total = add_up(groups, evidence.total[heard])
    pooled = Evidence.trusted(positive, total, evidence.kind)
    blocks = pool_adjacent_violators(positive, total)
    recalibrated = np.repeat(blocks.values, np.diff([*blocks.starts, len(total)]))
    rate = np.full(len(total), np.clip(positive.sum() / total.sum(), 0, 1))
    as_is, best, constant = (
        score.evaluate(p, pooled, None) for p in (distinct, recalibrated, rate)
    )
    return Decomposition(as_is, as_is - best, constant - best, constant)
