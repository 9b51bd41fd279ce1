"""The terms of a log-odds curve: intercept, base curve and curvature terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from calibrank._validation import Floats
from calibrank.maps import LogisticMap

TAIL = 0.005
"""Fraction of the population beyond either end of the range on which curves are curved."""
MAX_DEGREE = 4
"""The highest power among the curvature terms."""

# A linear base curve must increase.
_SMALLEST_SLOPE = 1e-6
# A term of which less than this fraction is left after removing the others is redundant.
_REDUNDANT = 1e-6


@dataclass(frozen=True, slots=True)
class Terms:
    """Functions of the score: a constant, the base curve, then polynomials.

    The base curve is the log odds of the biased fit or, if `line` is given, a line near it. The
    polynomials of degree 2 and more are constant in the tails, where there are few labels.
    """

    biased: LogisticMap
    low: float
    high: float
    line: tuple[float, float] | None
    """Slope and intercept of a linear base curve."""

    @classmethod
    def of(cls, biased: LogisticMap, population: Floats, *, linear: bool) -> Self:
        """The terms over a sorted population; the base curve is linear or the biased fit."""
        low, high = np.quantile(population, [TAIL, 1 - TAIL]).tolist()
        if not low < high:
            low, high = population[[0, -1]].tolist()
        terms = cls(biased, low, high, None)
        if not linear:
            return terms
        position = terms.position(population)
        log_odds = biased.log_odds(population)
        slope, intercept = np.polyfit(position, log_odds, 1).tolist()
        return cls(biased, low, high, (max(slope, _SMALLEST_SLOPE), intercept))

    def position(self, scores: Floats) -> Floats:
        """Scores rescaled so that [low, high] becomes [-1, 1]."""
        return (2 * scores - self.low - self.high) / (self.high - self.low)

    def at(self, scores: Floats) -> Floats:
        """One row per term, one column per score."""
        # Curves are wanted for the population: a label far outside counts as one nearby, so that
        # an extrapolated curve cannot dominate the fit.
        scores = scores.clip(2 * self.low - self.high, 2 * self.high - self.low)
        position = self.position(scores)
        inner = position.clip(-1, 1)
        powers = [inner**degree for degree in range(2, MAX_DEGREE + 1)]
        constant = np.ones_like(position)
        if self.line is None:
            base_curve = self.biased.log_odds(scores)
            return np.array([constant, base_curve, position, *powers])
        slope, intercept = self.line
        base_curve = intercept + slope * position
        return np.array([constant, base_curve, *powers])


def orthonormalize(terms: Floats) -> Floats:
    """The matrix T for which the rows of T @ terms are orthogonal with mean square 1.

    Gram-Schmidt in the order of the terms; those that the earlier ones explain are left out.
    """
    size = terms.shape[1]
    identity = np.eye(len(terms))
    rows: list[Floats] = [identity[0]]
    for index, term in enumerate(terms[1:], start=1):
        row = identity[index]
        # The second pass removes the rounding error of the first.
        for _ in range(2):
            known = np.array(rows)
            overlaps = (row @ terms) @ (known @ terms).T / size
            row = row - overlaps @ known
        spread = float(np.sqrt(np.mean((row @ terms) ** 2)))
        if spread > _REDUNDANT * max(float(np.std(term)), 1e-300):
            rows.append(row / spread)
    return np.array(rows)
