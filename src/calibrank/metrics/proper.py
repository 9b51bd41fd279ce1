"""Proper scores: least when the probabilities are the true ones, so they may be compared across methods."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Additive, Better


@dataclass(frozen=True, slots=True)
class LogLoss(Additive):
    """Mean negative log likelihood (NLL). Probabilities are held `clip` away from 0 and 1, lest one row decide.

    With `clip=0` a positive at probability 0 costs infinity, as it should in theory.

    >>> round(LogLoss()([0.5, 0.5], [0, 1]), 4)
    0.6931
    """

    clip: float = 1e-12

    def __post_init__(self) -> None:
        if not 0 <= self.clip < 0.5:
            raise DataError(f"clip must lie in [0, 0.5), got {self.clip}.")

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        held = np.clip(probabilities.astype(np.float64), self.clip, 1 - self.clip)
        positive, negative = evidence.positive, evidence.total - evidence.positive
        with np.errstate(divide="ignore", invalid="ignore"):
            liked = np.where(positive == 0, 0, -positive * np.log(held))
            disliked = np.where(negative == 0, 0, -negative * np.log1p(-held))
        return np.array([liked + disliked, evidence.total])

    def compute(self, sums: Floats) -> float:
        return float(sums[0].sum() / sums[1].sum())


@dataclass(frozen=True, slots=True)
class Brier(Additive):
    """Mean squared error of the probability.

    >>> Brier()([0.5, 0.5], [0, 1])
    0.25
    """

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        held = probabilities.astype(np.float64)
        return np.array(
            [evidence.positive * (1 - 2 * held) + evidence.total * held**2, evidence.total]
        )

    def compute(self, sums: Floats) -> float:
        return float(sums[0].sum() / sums[1].sum())


@dataclass(frozen=True, slots=True)
class CalibrationInTheLarge(Additive):
    """Mean predicted over mean observed: above 1 is optimistic. The base rate, and nothing else.

    >>> CalibrationInTheLarge()([0.5, 0.5], [0, 1])
    1.0
    """

    better: ClassVar[Better] = Better.NEAR_ONE

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return np.array([evidence.total * probabilities.astype(np.float64), evidence.positive])

    def compute(self, sums: Floats) -> float:
        predicted, observed = sums.sum(axis=1)
        return float(predicted / observed) if observed > 0 else float("inf")
