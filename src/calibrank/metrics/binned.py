"""Binned calibration errors and the reliability curve they are computed from.

These errors are easy to read and easy to game: a constant prediction at the base rate has an ECE
of 0. Always report a proper score beside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._internal.arguments import MOST_BINS, instance, whole
from calibrank._internal.validation import Floats, Indices, Numbers, add_up, probability_column
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import Additive, Better


@dataclass(frozen=True, slots=True)
class Binning(ABC):
    """A partition of the probabilities into bins."""

    bins: int = 15

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", whole("bins", self.bins, 1, MOST_BINS))

    @abstractmethod
    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        """Assign each row to a bin, counted from 0."""


@dataclass(frozen=True, slots=True)
class EqualWidth(Binning):
    """Bins of equal width: `[k / bins, (k + 1) / bins)`, the last one including 1."""

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        # In float64, so that float32 probabilities do not round up into the next bin.
        position = probabilities.astype(np.float64) * self.bins
        indices = position.astype(np.intp)
        # A probability of 1 belongs to the last bin.
        return np.minimum(indices, self.bins - 1)


@dataclass(frozen=True, slots=True)
class EqualMass(Binning):
    """Bins of about equal total mass; rows with equal probabilities share a bin."""

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        _, groups = np.unique(probabilities, return_inverse=True)
        mass = add_up(groups, evidence.total)
        # The middle of a group's mass decides its bin, so a large group is placed fairly.
        middle = (np.cumsum(mass) - mass / 2) / mass.sum()
        bin_of_group = (middle * self.bins).astype(np.intp)
        bin_of_group = np.minimum(bin_of_group, self.bins - 1)
        return bin_of_group[groups]


class ReliabilityCurve(NamedTuple):
    """One point per nonempty bin: mean prediction, observed rate and total mass."""

    predicted: Floats
    observed: Floats
    total: Floats


def reliability(
    probabilities: Numbers,
    labels: Labels,
    binning: Binning = EqualWidth(),  # noqa: B008  (frozen)
) -> ReliabilityCurve:
    """Compute the curve of a reliability diagram.

    >>> reliability([0.1, 0.1, 0.9], [0, 1, 1]).observed
    array([0.5, 1. ])
    """
    probabilities = probability_column(probabilities)
    evidence = nonzero_evidence(labels, len(probabilities))
    instance("binning", binning, Binning, "Use e.g. EqualWidth(15).")
    bins = binning.bin_indices(probabilities, evidence)
    masses = calibration_masses(probabilities, evidence)
    sums = np.array([add_up(bins, mass) for mass in masses])
    positive, total, predicted = sums[:, sums[1] > 0]
    return ReliabilityCurve(predicted / total, positive / total, total)


@dataclass(frozen=True, slots=True)
class ECE(Additive):
    """Expected calibration error over bins of equal width (Eq. 4).

    >>> round(ECE(bins=10)([0.15, 0.15, 0.85, 0.85], [0, 0, 1, 1]), 4)
    0.15
    """

    better: ClassVar[Better] = Better.LOWER
    explanation: ClassVar[str] = (
        "Expected calibration error: the mean gap between predicted probability and observed "
        "rate over bins of equal width. A constant prediction at the base rate has 0, so read it "
        "beside a proper score."
    )
    noise_adds: ClassVar[bool] = True
    bins: int = 15
    binning: Binning = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Subclasses with other bins replace this; the dataclass is frozen.
        object.__setattr__(self, "binning", EqualWidth(self.bins))
        object.__setattr__(self, "bins", self.binning.bins)

    @property
    def n_bins(self) -> int:
        return self.bins

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        return self.binning.bin_indices(probabilities, evidence)

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return calibration_masses(probabilities, evidence)

    def compute(self, sums: Floats) -> float:
        positive, total, predicted = sums
        gaps = np.abs(positive - predicted)
        return float(gaps.sum() / total.sum())

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        return np.asarray(np.abs(residuals).sum(axis=1))


@dataclass(frozen=True, slots=True)
class EqualMassECE(ECE):
    """ECE over bins of equal mass; it varies less when most probabilities are small.

    >>> round(EqualMassECE(bins=2)([0.1, 0.2, 0.3, 0.4], [0, 0, 0, 1]), 4)
    0.15
    """

    explanation: ClassVar[str] = (
        "Expected calibration error over bins that hold equally many rows: the mean gap between "
        "predicted probability and observed rate. It varies less than ECE when most "
        "probabilities are small."
    )
    has_fixed_bins: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "binning", EqualMass(self.bins))
        object.__setattr__(self, "bins", self.binning.bins)


@dataclass(frozen=True, slots=True)
class MCE(ECE):
    """Maximum calibration error: the gap of the worst bin (Eq. 5).

    Every nonempty bin counts, so a single row can determine it.

    >>> round(MCE(bins=10)([0.15, 0.15, 0.75, 0.85], [0, 0, 1, 1]), 4)
    0.25
    """

    explanation: ClassVar[str] = (
        "Maximum calibration error: the gap between predicted probability and observed rate in "
        "the worst bin. A bin with a single row can determine it."
    )

    least: ClassVar[float] = 0.0
    """Bins with a smaller share of the mass are ignored, and so are empty ones."""

    def compute(self, sums: Floats) -> float:
        kept = (sums[1] > 0) & (sums[1] >= self.least * sums[1].sum())
        positive, total, predicted = sums[:, kept]
        gaps = np.abs(positive - predicted) / total
        return float(gaps.max())

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        kept = (weights[0] > 0) & (weights[0] >= self.least)
        return np.asarray((np.abs(residuals[:, kept]) / weights[:, kept]).max(axis=1))


@dataclass(frozen=True, slots=True)
class ReleasedECE(ECE):
    """ECE as the paper's released code computes it: by accuracy of the likelier class.

    Below 0.5 the negative class is the likelier one. The result differs from `ECE` only through a
    bin that straddles 0.5, where gaps of both directions are added before the absolute value.

    >>> round(ReleasedECE(bins=1)([0.2, 0.8], [1, 0]), 4)
    0.8
    """

    explanation: ClassVar[str] = (
        "Expected calibration error as the paper's released code computes it: the mean gap "
        "between the confidence in the likelier class and its accuracy. It differs from ECE only "
        "in the bin around 50%."
    )

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        p = probabilities.astype(np.float64)
        is_positive = p >= 0.5
        negative = evidence.total - evidence.positive
        correct = np.where(is_positive, evidence.positive, negative)
        confidence = np.where(is_positive, p, 1 - p)
        return np.array([correct, evidence.total, evidence.total * confidence])


@dataclass(frozen=True, slots=True)
class ReleasedMCE(ReleasedECE, MCE):
    """MCE as the paper's released code computes it: bins with under 0.01% of the rows are ignored.

    >>> round(ReleasedMCE(bins=2)([0.2, 0.8], [0, 1]), 4)
    0.2
    """

    explanation: ClassVar[str] = (
        "Maximum calibration error as the paper's released code computes it: the gap between "
        "confidence and accuracy in the worst bin, ignoring bins with under 0.01% of the rows."
    )

    least: ClassVar[float] = 1e-4


def calibration_masses(probabilities: Floats, evidence: Evidence) -> Floats:
    """Return each row's positive, total and predicted mass, an array of 3 x rows."""
    predicted = evidence.total * probabilities.astype(np.float64)
    return np.array([evidence.positive, evidence.total, predicted])
