"""The log loss of the best constant prediction, and the gain of the probabilities over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Additive, Better
from calibrank.metrics.proper import LogLoss

_LOG_LOSS = LogLoss()


@dataclass(frozen=True, slots=True)
class ConstantLogLoss(Additive):
    """The log loss of predicting the base rate for every row: the entropy of the labels.

    No constant has a lower one. Probabilities that do not beat it are useless as probabilities,
    however well they rank.

    >>> round(ConstantLogLoss()([0.1, 0.9], [0, 1]), 4)
    0.6931
    """

    better: ClassVar[Better] = Better.REFERENCE
    explanation: ClassVar[str] = (
        "Log loss of the best constant, which predicts the observed base rate for every row. It "
        "depends on the labels alone, and every useful map has a lower log loss."
    )

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return np.array([evidence.positive, evidence.total])

    def compute(self, sums: Floats) -> float:
        positive, total = sums.sum(axis=1)
        return constant_log_loss(positive, total)


@dataclass(frozen=True, slots=True)
class LogLossGain(Additive):
    """How much lower the log loss is than that of the best constant; negative if it is higher.

    >>> round(LogLossGain()([0.5, 0.5], [0, 1]), 4)
    0.0
    """

    better: ClassVar[Better] = Better.HIGHER
    minimum: ClassVar[float] = float("-inf")
    explanation: ClassVar[str] = (
        "Log loss of the best constant minus log loss of the probabilities, in nats. Below 0, "
        "predicting the base rate for every row would be better than the probabilities."
    )

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
    loss, mass = _LOG_LOSS.terms(rate, evidence)
    return float(loss[0] / mass[0])
