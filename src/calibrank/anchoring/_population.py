"""The population that a curve is for: a grid of its score quantiles, and ranks within it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from calibrank._internal.validation import Floats, starts_of

# Quantiles at the centres of 200 equal parts describe the bulk of a population. Lists are cut near
# the top, so a few more quantiles describe the outermost 0.2% at either end.
_GRID_SIZE = 200
_TAIL_LEVELS = (1e-4, 5e-4, 1.5e-3)


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Sorted scores of the pairs that probabilities are wanted for, and a grid of quantiles."""

    scores: Floats
    grid: Floats
    """Quantiles in increasing order, without ties."""
    ranks: Floats
    """The rank of each grid score in the population, in (0, 1)."""
    weights: Floats
    """The fraction of the population that each grid score stands for."""

    @classmethod
    def of(cls, scores: Floats) -> Self:
        """Summarize sorted scores."""
        distinct = scores[starts_of(scores)]
        tails = np.array(_TAIL_LEVELS)
        centres = (np.arange(_GRID_SIZE) + 0.5) / _GRID_SIZE
        levels = np.sort(np.concatenate([centres, tails, 1 - tails]))
        # Each quantile stands for the levels up to halfway to its neighbours.
        halfway = (levels[1:] + levels[:-1]) / 2
        masses = np.diff(np.concatenate([[0.0], halfway, [1.0]]))
        quantiles = np.quantile(scores, levels)
        if not quantiles[0] < quantiles[-1]:
            # Nearly all scores are tied: use each distinct score once.
            quantiles = np.quantile(distinct, levels)
        starts = np.flatnonzero(starts_of(quantiles))
        weights = np.add.reduceat(masses, starts)
        grid = quantiles[starts]
        return cls(scores, grid, _ranks(scores, grid), weights)

    def rank(self, scores: Floats) -> Floats:
        """Mid-ranks in the population, in (0, 1); tied scores have the same rank."""
        return _ranks(self.scores, scores)

    def mean(self, values: Floats) -> float:
        """The mean over the population of values at the grid."""
        return float(values @ self.weights)

    def spread(self, values: Floats) -> float:
        """The standard deviation over the population of values at the grid."""
        deviations = values - self.mean(values)
        return float(np.sqrt(self.mean(deviations**2)))


def _ranks(population: Floats, scores: Floats) -> Floats:
    below = np.searchsorted(population, scores, side="left")
    up_to = np.searchsorted(population, scores, side="right")
    size = len(population)
    # Half a row from either end keeps logarithms and normal quantiles finite.
    return np.clip((below + up_to) / (2 * size), 0.5 / size, 1 - 0.5 / size)
