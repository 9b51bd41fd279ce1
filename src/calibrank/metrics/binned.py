"""Binned calibration errors and the reliability curve behind them.

These are easy to read and easy to game (a constant prediction at the base rate has ECE 0): always report a proper
score beside them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, Numbers, add_up, probability_column
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import Additive

Cells = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Binning(ABC):
    """A way to cut [0, 1] into bins."""

    bins: int = 15

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise DataError(f"bins must be at least 1, got {self.bins}.")

    @abstractmethod
    def cells(self, probabilities: Floats, evidence: Evidence) -> Cells:
        """The bin of each row, from 0."""


@dataclass(frozen=True, slots=True)
class EqualWidth(Binning):
    """Bins [k / bins, (k + 1) / bins), the last one closed."""

    def cells(self, probabilities: Floats, evidence: Evidence) -> Cells:
        return np.minimum(
            (probabilities.astype(np.float64) * self.bins).astype(np.intp), self.bins - 1
        )


@dataclass(frozen=True, slots=True)
class EqualMass(Binning):
    """Bins of about equal total mass; equal probabilities are never parted."""

    def cells(self, probabilities: Floats, evidence: Evidence) -> Cells:
        _, groups = np.unique(probabilities, return_inverse=True)
        mass = add_up(groups, evidence.total)
        middle = (np.cumsum(mass) - mass / 2) / mass.sum()
        return np.minimum((middle * self.bins).astype(np.intp), self.bins - 1)[groups]


class ReliabilityCurve(NamedTuple):
    """One point a filled bin: what was predicted, what happened, how much mass."""

    predicted: Floats
    observed: Floats
    total: Floats


def reliability(
    probabilities: Numbers, labels: Labels, binning: Binning = EqualWidth()
) -> ReliabilityCurve:  # noqa: B008  (frozen)
    """The curve that a reliability diagram draws.

    >>> reliability([0.1, 0.1, 0.9], [0, 1, 1]).observed
    array([0.5, 1. ])
    """
    probabilities = probability_column(probabilities)
    evidence = nonzero_evidence(labels, len(probabilities))
    cells = binning.cells(probabilities, evidence)
    positive, total, predicted = (
        add_up(cells, term) for term in mass_and_prediction(probabilities, evidence)
    )
    filled = total > 0
    return ReliabilityCurve(
        predicted[filled] / total[filled], positive[filled] / total[filled], total[filled]
    )


@dataclass(frozen=True, slots=True)
class ECE(Additive):
    """Expected calibration error over equally wide bins (Eq. 4).

    >>> round(ECE(bins=10)([0.15, 0.15, 0.85, 0.85], [0, 0, 1, 1]), 4)
    0.15
    """

    bins: int = 15
    binning: Binning = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "binning", EqualWidth(self.bins))

    @property
    def size(self) -> int:
        return self.bins

    def cells(self, probabilities: Floats, evidence: Evidence) -> Cells:
        return self.binning.cells(probabilities, evidence)

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return np.array(mass_and_prediction(probabilities, evidence))

    def compute(self, sums: Floats) -> float:
        positive, total, predicted = sums
        return float(np.abs(positive - predicted).sum() / total.sum())


@dataclass(frozen=True, slots=True)
class EqualMassECE(ECE):
    """ECE over bins of equal mass: steadier when most predictions are small.

    >>> round(EqualMassECE(bins=2)([0.1, 0.2, 0.3, 0.4], [0, 0, 0, 1]), 4)
    0.15
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "binning", EqualMass(self.bins))


@dataclass(frozen=True, slots=True)
class MCE(ECE):
    """Maximum calibration error: the worst bin (Eq. 5). One lonely row can decide it.

    >>> round(MCE(bins=10)([0.15, 0.15, 0.75, 0.85], [0, 0, 1, 1]), 4)
    0.25
    """

    def compute(self, sums: Floats) -> float:
        positive, total, predicted = sums[:, sums[1] > 0]
        return float((np.abs(positive - predicted) / total).max())


@dataclass(frozen=True, slots=True)
class ReleasedECE(ECE):
    """ECE as the paper's released code has it: accuracy of the likelier class, so the middle bin mixes both.

    Below 0.5 a row counts as right when it is negative. The same as `ECE` save in a bin that straddles 0.5.

    >>> round(ReleasedECE(bins=1)([0.2, 0.8], [1, 0]), 4)
    0.8
    """

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        held = probabilities.astype(np.float64)
        likely = held >= 0.5
        right = np.where(likely, evidence.positive, evidence.total - evidence.positive)
        return np.array([right, evidence.total, evidence.total * np.where(likely, held, 1 - held)])


@dataclass(frozen=True, slots=True)
class ReleasedMCE(ReleasedECE):
    """MCE as the paper's released code has it: bins holding under 0.01 % of the rows are passed over.

    >>> round(ReleasedMCE(bins=2)([0.2, 0.8], [0, 1]), 4)
    0.2
    """

    def compute(self, sums: Floats) -> float:
        right, total, confidence = sums[:, sums[1] >= 1e-4 * sums[1].sum()]
        return float((np.abs(right - confidence) / total).max())


def mass_and_prediction(probabilities: Floats, evidence: Evidence) -> tuple[Floats, Floats, Floats]:
    """Each row's positive mass, total mass and predicted mass: what calibration errors add up over bins."""
    return evidence.positive, evidence.total, evidence.total * probabilities.astype(np.float64)
