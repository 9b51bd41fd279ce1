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
from calibrank._internal.validation import (
    Floats,
    Ids,
    Indices,
    Numbers,
    add_up,
    bins_between,
    probability_column,
    starts_of,
)
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import Additive, Better, calibration_masses, mean_probabilities

# Halvings of the bracket that the size of the gaps is searched in: 1e-12 of its width.
_HALVINGS = 40


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
        position = np.multiply(probabilities, self.bins, dtype=np.float64)
        # A probability of 1 belongs to the last bin.
        return np.minimum(position.astype(np.intp), self.bins - 1)


@dataclass(frozen=True, slots=True)
class EqualMass(Binning):
    """Bins of about equal total mass; rows with equal probabilities share a bin."""

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        totals = evidence.total
        if totals.min() == totals.max():
            edges = _equal_counts(np.sort(probabilities), self.bins)
        else:
            edges = _equal_masses(probabilities, totals, self.bins)
        return bins_between(edges, probabilities)


def _equal_counts(ordered: Floats, bins: int) -> Floats:
    """The lowest probability of each bin but the first; a bin behind the last group has none.

    The middle of a group of equal probabilities decides its bin, so a large one is placed fairly.
    """
    # The first group with its middle in a bin has the row at which the bin begins, or follows it.
    ends = np.arange(1, bins) * len(ordered)
    start, stop = (
        np.searchsorted(ordered, ordered[ends // bins], side) for side in ("left", "right")
    )
    first = np.where((start + stop) * bins >= 2 * ends, start, stop)
    return ordered[first[first < len(ordered)]]


def _equal_masses(probabilities: Floats, totals: Floats, bins: int) -> Floats:
    """The same for rows of unequal masses."""
    order = np.argsort(probabilities, kind="stable")
    ordered = probabilities[order]
    is_start = starts_of(ordered)
    starts = np.flatnonzero(is_start)
    mass = add_up(np.cumsum(is_start) - 1, totals[order])
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    first = np.searchsorted(middle * bins, np.arange(1, bins))
    return ordered[starts[first[first < len(starts)]]]


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
        positive, total, predicted = sums[:3]
        mass = total.sum()
        gaps = (positive - predicted) / mass
        probabilities = mean_probabilities(total, predicted)
        return float(self.errors(gaps[None], probabilities[None], total[None] / mass)[0])

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


@dataclass(frozen=True, slots=True)
class DebiasedECE(ECE):
    """What chance does not explain of the expected calibration error: a lower bound of the error.

    Calibrated probabilities have 0 on average, or slightly more with few rows per bin (0.02 at 100
    rows, where the plain ECE is 0.12), and values below 0 are chance. Errors larger than the noise
    of their bins have their size, and smaller ones come out too small.

    It is the size of true gaps, in the proportions of the observed ones, whose ECE would be as
    large as the observed one on average, given the noise of each bin. The plain ECE of calibrated
    probabilities is above 0, the more so the fewer rows there are.

    It does not estimate the true ECE without bias: of 0.026 its mean is 0.014 at 100 rows, 0.015 at
    300, 0.019 at 1,000 and 0.026 at 10,000 (15 bins), where the plain ECE is 0.115, 0.072, 0.044
    and 0.028. Of 0.152 it is 0.140 at 100 rows and right from 300 on. An absolute value has a kink
    at 0, so no estimate is right on average for both no error and small ones; whether there is any
    error is what `calibration_test` is for. With `users`, the variance of a gap is that of sums per
    user. Its interval is that of `ECE`.

    >>> from calibrank.metrics import ECE
    >>> probabilities, labels = [0.5] * 6, [0, 1, 0, 1, 1, 0]
    >>> ECE()(probabilities, labels), round(DebiasedECE()(probabilities, labels), 3)
    (0.0, -0.315)
    """

    # Values below 0 are as far from the truth as those above it.
    better: ClassVar[Better] = Better.NEAR_ZERO
    minimum: ClassVar[float] = float("-inf")
    weight_is_repetition: ClassVar[bool] = False

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        masses = calibration_masses(probabilities, evidence)
        # Under calibration, squared residuals add up to the variance of their sum.
        squares = (masses[0] - masses[2]) ** 2
        return np.vstack([masses, squares])

    def compute(self, sums: Floats) -> float:
        positive, total, predicted, squares = sums
        return _debiased(positive - predicted, squares, total.sum())

    def compute_clusters(self, sums: Floats) -> float:
        residuals = sums[:, 0] - sums[:, 2]
        squares = (residuals**2).sum(axis=0)
        return _debiased(residuals.sum(axis=0), squares, sums[:, 1].sum())

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        if users is None:
            # Not `super()`: a dataclass with slots is another class than the one it names.
            return ECE.evaluate(self, probabilities, evidence, users)
        bins = self.bin_indices(probabilities, evidence)
        masses = calibration_masses(probabilities, evidence)
        codes = np.unique(users, return_inverse=True)[1]
        # Only pairs of a user and a bin that occur: there may be millions of users.
        pairs, places = np.unique(codes * self.n_bins + bins, return_inverse=True)
        residuals = add_up(places, masses[0] - masses[2])
        gaps = add_up(pairs % self.n_bins, residuals)
        squares = add_up(pairs % self.n_bins, residuals**2)
        return _debiased(gaps, squares, masses[1].sum())


def _debiased(gaps: Floats, variances: Floats, mass: float) -> float:
    """Solve `mean of sum |size * direction + noise| = sum |gaps|` for the size, over the mass.

    Below what noise alone has on average, the size is that of a sum as far above it, negated: an
    odd function of the excess has the mean 0 if the excess is symmetric around 0.
    """
    noise = np.sqrt(variances)
    sizes = np.abs(gaps)
    expected = float(_mean_absolute(np.zeros_like(noise), noise).sum())
    excess = sizes.sum() - expected
    shape = sizes if sizes.any() else noise
    if excess == 0 or not shape.any():
        return 0.0
    shape = shape / shape.sum()
    low, high = 0.0, expected + abs(excess)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _mean_absolute(middle * shape, noise).sum() > expected + abs(excess):
            high = middle
        else:
            low = middle
    return float(np.copysign(low, excess) / mass)


def _mean_absolute(means: Floats, deviations: Floats) -> Floats:
    """The mean of the absolute value of a normal variable."""
    from scipy.special import erf  # noqa: PLC0415  (slow to load)

    ratios = np.divide(means, deviations, out=np.full_like(means, np.inf), where=deviations > 0)
    near_zero = deviations * np.sqrt(2 / np.pi) * np.exp(-(ratios**2) / 2)
    return np.asarray(near_zero + means * erf(ratios / np.sqrt(2)))
