"""The population that a curve is for: a grid of its score quantiles, and ranks within it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import Floats, score_column, starts_of
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap

# Scores that are enough to describe a distribution.
_MAX_POPULATION = 20_000
# Scores that stand for the range of the biased fit.
_RANGE_SCORES = 20

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


def population_scores(population: Any) -> Floats | None:
    """The scores of a population: an array, or the column `score` of a mapping or dataframe."""
    if population is None:
        return None
    if hasattr(population, "keys"):
        population = column_of("population", "score", population)
    return score_column(population, "population")[0]


def population_of(fitted: CalibrationMap, shown: Floats, population: Any) -> Population:
    """The population, thinned to a manageable number of scores.

    By default it is that of the map's fit, or of the pairs shown if no sketch of it is known.
    """
    scores = population_scores(population)
    sketch = fitted.record.score_quantiles
    if scores is None and sketch is not None and sketch[0] < sketch[-1]:
        return Population.of(np.array(sketch))
    if scores is None:
        # Two or three shown pairs do not span a curve, so the range of the biased fit is added.
        scores = np.concatenate([shown, np.linspace(*fitted.span, _RANGE_SCORES)])
    step = max(1, len(scores) // _MAX_POPULATION)
    scores = np.sort(scores[::step].astype(np.float64))
    if np.count_nonzero(starts_of(scores)) < 2:
        raise DataError(
            "population", "hold scores that differ", "only one", "Pass scores of more pairs."
        )
    return Population.of(scores)
