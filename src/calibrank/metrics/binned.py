"""Binned calibration errors and the reliability curve they are computed from.

These errors are easy to read and easy to game: a constant prediction at the base rate has an ECE
of 0. Always report a proper score beside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._internal.arguments import MOST_BINS, instance, whole
from calibrank._internal.validation import Floats, Indices, Numbers, add_up, probability_column
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import Additive, Better, calibration_masses, mean_probabilities


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
        # A probability of 1 belongs to the last bin.
        return np.minimum(position.astype(np.intp), self.bins - 1)


@dataclass(frozen=True, slots=True)
class EqualMass(Binning):
    """Bins of about equal total mass; rows with equal probabilities share a bin."""

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        _, groups = np.unique(probabilities, return_inverse=True)
        mass = add_up(groups, evidence.total)
        # The middle of a group's mass decides its bin, so a large group is placed fairly.
        middle = (np.cumsum(mass) - mass / 2) / mass.sum()
        bin_of_group = (middle * self.bins).astype(np.intp)
        return np.minimum(bin_of_group, self.bins - 1)[groups]


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

    It is the mean gap between predicted probability and observed rate. A constant prediction at
    the base rate has 0, so read it beside a proper score.

    >>> round(ECE(bins=10)([0.15, 0.15, 0.85, 0.85], [0, 0, 1, 1]), 4)
    0.15
    """

    better: ClassVar[Better] = Better.LOWER
    noise_adds: ClassVar[bool] = True
    binning: ClassVar[type[Binning]] = EqualWidth
    bins: int = 15

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", self.binning(self.bins).bins)

    @property
    def n_bins(self) -> int:
        return self.bins

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        return self.binning(self.bins).bin_indices(probabilities, evidence)

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return calibration_masses(probabilities, evidence)

    def compute(self, sums: Floats) -> float:
        return error_of_sums(self, sums)

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        return np.asarray(np.abs(residuals).sum(axis=1))


@dataclass(frozen=True, slots=True)
class EqualMassECE(ECE):
    """Expected calibration error over bins that hold equally many rows.

    It is the mean gap between predicted probability and observed rate, and varies less than ECE
    when most probabilities are small.

    >>> round(EqualMassECE(bins=2)([0.1, 0.2, 0.3, 0.4], [0, 0, 0, 1]), 4)
    0.15
    """

    has_fixed_bins: ClassVar[bool] = False
    binning: ClassVar[type[Binning]] = EqualMass


@dataclass(frozen=True, slots=True)
class MCE(ECE):
    """Maximum calibration error: the gap between prediction and rate in the worst bin (Eq. 5).

    Every nonempty bin counts, so a single row can determine it.

    >>> round(MCE(bins=10)([0.15, 0.15, 0.75, 0.85], [0, 0, 1, 1]), 4)
    0.25
    """

    least: ClassVar[float] = 0.0
    """Bins with a smaller share of the mass are ignored, and so are empty ones."""

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        kept = (weights[0] > 0) & (weights[0] >= self.least)
        return np.asarray((np.abs(residuals[:, kept]) / weights[:, kept]).max(axis=1))


@dataclass(frozen=True, slots=True)
class ReleasedECE(ECE):
    """Expected calibration error as the paper's released code computes it.

    It is the mean gap between the confidence in the likelier class and its accuracy, and differs
    from ECE only in the bin around 50%: there, gaps of both directions are added before the
    absolute value.

    >>> round(ReleasedECE(bins=1)([0.2, 0.8], [1, 0]), 4)
    0.8
    """

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        p = probabilities.astype(np.float64)
        is_positive = p >= 0.5
        negative = evidence.total - evidence.positive
        correct = np.where(is_positive, evidence.positive, negative)
        confidence = np.where(is_positive, p, 1 - p)
        return np.array([correct, evidence.total, evidence.total * confidence])


@dataclass(frozen=True, slots=True)
class ReleasedMCE(ReleasedECE, MCE):
    """Maximum calibration error as the paper's released code computes it.

    It is the gap between confidence and accuracy in the worst bin, ignoring bins with under 0.01%
    of the rows.

    >>> round(ReleasedMCE(bins=2)([0.2, 0.8], [0, 1]), 4)
    0.2
    """

    least: ClassVar[float] = 1e-4


def error_of_sums(metric: Additive, sums: Floats) -> float:
    """Compute a metric that has `errors` from summed `calibration_masses`, terms x bins."""
    positive, total, predicted = sums[:3]
    mass = total.sum()
    gaps = (positive - predicted) / mass
    probabilities = mean_probabilities(total, predicted)
    return float(metric.errors(gaps[None], probabilities[None], total[None] / mass)[0])
