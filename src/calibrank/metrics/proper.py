"""Proper scoring rules, that of the best constant, and predicted over observed positives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.validation import Floats
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Additive, Better


@dataclass(frozen=True, slots=True)
class LogLoss(Additive):
    """Mean negative log likelihood of the labels (NLL), in nats.

    It is a proper score: it is lowest when the probabilities are the true ones, so methods can be
    compared by it.

    Probabilities are clipped to `[clip, 1 - clip]` so that one row cannot make the mean infinite.
    With `clip=0` a positive with probability 0 costs infinity, as the definition says.

    >>> round(LogLoss()([0.5, 0.5], [0, 1]), 4)
    0.6931
    """

    better: ClassVar[Better] = Better.LOWER
    clip: float = 1e-12

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", real("clip", self.clip, "[0, 0.5)"))

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        clipped = np.clip(probabilities.astype(np.float64), self.clip, 1 - self.clip)
        positive = evidence.positive
        negative = evidence.total - positive
        # A class without mass costs nothing even where its log is infinite (0 * inf is NaN).
        with np.errstate(divide="ignore", invalid="ignore"):
            positive_loss = np.where(positive == 0, 0, -positive * np.log(clipped))
            negative_loss = np.where(negative == 0, 0, -negative * np.log1p(-clipped))
        return np.array([positive_loss + negative_loss, evidence.total])


@dataclass(frozen=True, slots=True)
class Brier(Additive):
    """Mean squared difference between probability and label.

    It is a proper score like log loss, and it penalizes confident mistakes less.

    >>> Brier()([0.5, 0.5], [0, 1])
    0.25
    """

    better: ClassVar[Better] = Better.LOWER

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        p = probabilities.astype(np.float64)
        # positive (1 - p)^2 + (total - positive) p^2, multiplied out.
        squared_error = evidence.positive * (1 - 2 * p) + evidence.total * p**2
        return np.array([squared_error, evidence.total])


@dataclass(frozen=True, slots=True)
class CalibrationInTheLarge(Additive):
    """Mean predicted probability divided by the observed base rate (PCOC).

    Above 1 the probabilities are too high on average, below 1 too low. Only the base rate is
    tested: a constant prediction at the base rate scores 1.

    >>> CalibrationInTheLarge()([0.5, 0.5], [0, 1])
    1.0
    """

    better: ClassVar[Better] = Better.NEAR_ONE
    is_ratio: ClassVar[bool] = True

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        predicted = evidence.total * probabilities.astype(np.float64)
        return np.array([predicted, evidence.positive])


_LOG_LOSS = LogLoss()


@dataclass(frozen=True, slots=True)
class ConstantLogLoss(Additive):
    """Log loss of the best constant, which predicts the observed base rate for every row.

    It is the entropy of the labels and depends on nothing else. Probabilities that do not have a
    lower log loss are useless as probabilities, however well they rank.

    >>> round(ConstantLogLoss()([0.1, 0.9], [0, 1]), 4)
    0.6931
    """

    better: ClassVar[Better] = Better.REFERENCE

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return np.array([evidence.positive, evidence.total])

    def compute(self, sums: Floats) -> float:
        positive, total = sums.sum(axis=1)
        return constant_log_loss(positive, total)


@dataclass(frozen=True, slots=True)
class LogLossGain(Additive):
    """Log loss of the best constant minus log loss of the probabilities, in nats.

    Below 0, predicting the base rate for every row would be better than the probabilities.

    >>> round(LogLossGain()([0.5, 0.5], [0, 1]), 4)
    0.0
    """

    better: ClassVar[Better] = Better.HIGHER
    minimum: ClassVar[float] = float("-inf")

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        loss, total = _LOG_LOSS.terms(probabilities, evidence)
        return np.array([loss, evidence.positive, total])

    def compute(self, sums: Floats) -> float:
        loss, positive, total = sums.sum(axis=1)
        return constant_log_loss(positive, total) - float(loss / total)


def constant_log_loss(positive: float, total: float) -> float:
    """The log loss of the base rate; weighted positives above the total count as a rate of 1.

    >>> round(constant_log_loss(1.0, 2.0), 4)
    0.6931
    """
    evidence = Evidence.trusted(np.array([positive]), np.array([total]), "naive")
    rate = np.clip(evidence.positive / evidence.total, 0, 1)
    return _LOG_LOSS.evaluate(rate, evidence, None)
