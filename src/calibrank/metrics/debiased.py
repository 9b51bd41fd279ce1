"""A binned calibration error that is about 0, not above it, for calibrated probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._internal.validation import Floats, Ids, add_up
from calibrank.evidence import Evidence
from calibrank.metrics.binned import ECE, calibration_masses
from calibrank.metrics.metric import Better

# With a gap of g ~ N(true gap, variance), sign(g^2 - c variance) sqrt(|g^2 - c variance|) has the
# mean 0 at a true gap of 0 if c is this: the root of that mean over a standard normal z, which has
# no closed form. For large gaps it tends to |g|, so nothing is subtracted where noise adds nothing.
# Subtracting the mean of |noise| instead is 0 at 0 too, but 0.8 standard deviations too low at
# every large gap; there is no unbiased estimator of an absolute value.
_NOISE_SHARE = 0.7257402


@dataclass(frozen=True, slots=True)
class DebiasedECE(ECE):
    """ECE with the part that chance adds to each bin's gap removed.

    The plain ECE of calibrated probabilities is above 0, the more so the fewer rows there are;
    this one is 0 on average, and so below 0 in about half of all tables. With `users`, the
    variance of a gap is that of sums per user.

    >>> from calibrank.metrics import ECE
    >>> probabilities, labels = [0.5] * 6, [0, 1, 0, 1, 1, 0]
    >>> ECE()(probabilities, labels), round(DebiasedECE()(probabilities, labels), 3)
    (0.0, -0.174)
    """

    # Values below 0 are as far from the truth as those above it.
    better: ClassVar[Better] = Better.NEAR_ZERO
    explanation: ClassVar[str] = (
        "Expected calibration error without the part that chance adds: calibrated probabilities "
        "have 0 on average, and values below 0 are chance. The plain ECE is above 0 even for "
        "them, the more so the fewer rows there are."
    )
    minimum: ClassVar[float] = float("-inf")
    weight_is_repetition: ClassVar[bool] = False
    is_debiased: ClassVar[bool] = True

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

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
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
    squared = gaps**2 - _NOISE_SHARE * variances
    signed_roots = np.sign(squared) * np.sqrt(np.abs(squared))
    return float(signed_roots.sum() / mass)
