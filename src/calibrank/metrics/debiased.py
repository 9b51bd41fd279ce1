"""A binned calibration error that is about 0, not above it, for calibrated probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._internal.validation import Floats, Ids, add_up
from calibrank.evidence import Evidence
from calibrank.metrics.binned import ECE
from calibrank.metrics.metric import Better, calibration_masses

# Halvings of the bracket that the size of the gaps is searched in: 1e-12 of its width.
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class DebiasedECE(ECE):
    """Expected calibration error without the part that chance adds.

    Calibrated probabilities have 0 on average, and values below 0 are chance. Errors smaller than
    chance come out too small: it is a lower bound then. The plain ECE is above 0 even for
    calibrated probabilities, the more so the fewer rows there are.

    It is the size of true gaps, in the proportions of the observed ones, whose ECE would be as
    large as the observed one on average, given the noise of each bin. The plain ECE of calibrated
    probabilities is above 0, the more so the fewer rows there are; this one is about 0 on
    average, and so below 0 in about half of all tables.

    Errors that are smaller than their noise look like it, so that their mean is too low: of an ECE
    of 0.026 it is 0.011 at 300 rows, 0.016 at 1,000 and 0.026 at 10,000 (15 bins). It is right
    within 0.01 for an ECE of 0.15 from 300 rows on. No estimate is right for both 0 and small
    errors; whether there is an error at all is what `calibration_test` is for. With `users`, the
    variance of a gap is that of sums per user. Its interval is that of `ECE`.

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
