"""Whether a fitted family has the wrong shape: a comparison with the isotonic fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.isotonic import pool_adjacent_violators
from calibrank._internal.validation import Floats, add_up
from calibrank.metrics.proper import Brier
from calibrank.summary import Summary

_BRIER = Brier()

# Differences are stated over bins of 1% of the mass: smaller ones are mostly noise.
_BINS = 100

# A misfit matters from 2 points on, and if the isotonic fit gains 3.5 times a variance per block.
# It chooses its blocks, so it gains more than once even by chance: 1.2 to 1.3 times in the median,
# 2.0 to 2.9 in 1% of tables and 3.3 at most over 599 tables simulated from the fitted family
# itself (Platt, Gaussian, Gamma, GammaGaussian, Beta; 2,000 to 100,000 rows, rates of 2% to 35%,
# normal, heavy-tailed, exponential and uniform scores, with and without propensities).
# The factor was set after seeing these tables: 3 would have reported 3 of them.
_SMALLEST_DIFFERENCE = 0.02
_SMALLEST_RATIO = 3.5


class Misfit(NamedTuple):
    """How far probabilities are from the isotonic fit to the same evidence."""

    mean_difference: float
    largest_difference: float
    """Over bins of 1% of the mass, isotonic minus fitted."""
    gain: float
    """Sum of squared errors that the isotonic fit gains."""
    noise: float
    """What it gains by chance if the family is right: one variance per block (as in AIC)."""

    @property
    def matters(self) -> bool:
        is_large = abs(self.largest_difference) > _SMALLEST_DIFFERENCE
        return is_large and self.gain > _SMALLEST_RATIO * self.noise

    @property
    def size(self) -> str:
        """The differences in words."""
        direction = "low" if self.largest_difference > 0 else "high"
        return (
            "compared with isotonic regression the probabilities are off by "
            f"{100 * self.mean_difference:.2g} points on average, and too {direction} by "
            f"{100 * abs(self.largest_difference):.2g} points over 1% of the table"
        )

    @property
    def message(self) -> str:
        """The size of the misfit and what to do about it."""
        return (
            f"the shape does not fit the labels: {self.size}. Use the method auto, which "
            "compares methods by cross-validation, or spline or isotonic."
        )


def misfit(probabilities: Floats, summary: Summary) -> Misfit:
    """Compare the probabilities of a summary's scores with the isotonic fit to the summary.

    >>> summary = Summary.of([0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1])
    >>> misfit(np.array([0.0, 0.5, 0.5, 1.0]), summary).mean_difference
    0.25
    """
    total = summary.total
    blocks = pool_adjacent_violators(summary.positive, total)
    isotonic = np.repeat(blocks.values, np.diff([*blocks.starts, len(summary)]))
    difference = total * (isotonic - probabilities)
    mass = total.sum()
    position = (np.cumsum(total) - total / 2) / mass
    bins = (position * _BINS).astype(np.intp)
    # A bin that holds less than its share, beside a heavy score, is not overstated.
    by_bin = add_up(bins, difference) / np.maximum(add_up(bins, total), mass / _BINS)
    # Squared errors, not log losses: weighted rates above 1 make the log loss unbounded.
    fitted_loss = _BRIER.evaluate(probabilities, summary.evidence, None)
    isotonic_loss = _BRIER.evaluate(isotonic, summary.evidence, None)
    # The mean of a block has the variance (sum of r^2) / total^2, and gains total times that.
    residuals = np.add.reduceat(summary.squared_residuals(probabilities), blocks.starts)
    by_chance = residuals / np.add.reduceat(total, blocks.starts)
    return Misfit(
        mean_difference=float(np.abs(difference).sum() / mass),
        largest_difference=float(by_bin[np.argmax(np.abs(by_bin))]),
        gain=float(mass * (fitted_loss - isotonic_loss)),
        noise=float(by_chance.sum()),
    )
