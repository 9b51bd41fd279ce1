"""The population that a curve is for: a grid of its score quantiles, and ranks within it.

A replaced model has another population: the old map on the scale of ranks is its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import Floats, Numbers, add_up, score_column, starts_of
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, FitRecord, PiecewiseCurve
from calibrank.maps.calibration_map import require_map
from calibrank.maps.score_shift import ScoreComparison

# Scores that are enough to describe a distribution.
_MAX_POPULATION = 20_000
# Scores that stand for the range of the biased fit.
_RANGE_SCORES = 20

# Quantiles at the centres of 200 equal parts describe the bulk of a population. Lists are cut near
# the top, so a few more quantiles describe the outermost 0.2% at either end.
_GRID_SIZE = 200
_TAIL_LEVELS = (1e-4, 5e-4, 1.5e-3)

# Log odds gained over the population at least, so that different scores stay different.
_SMALLEST_RISE = 1e-6
_LARGEST_LOG_ODDS = 14.0


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

    def of_pairs(self, scores: Floats, masses: Floats) -> Self:
        """The same grid, weighted as other pairs lie on it: between two quantiles, by distance."""
        places = np.interp(scores, self.grid, np.arange(len(self.grid)))
        lower = places.astype(np.intp)
        shares = masses / masses.sum()
        above = shares * (places - lower)
        count = len(self.grid)
        # At the last quantile nothing lies above.
        weights = add_up(lower, shares - above, count)
        weights += add_up(np.minimum(lower + 1, count - 1), above, count)
        return replace(self, weights=weights)

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
        scores = np.concatenate([shown, np.linspace(*fitted.curve.span, _RANGE_SCORES)])
    step = max(1, len(scores) // _MAX_POPULATION)
    scores = np.sort(scores[::step].astype(np.float64))
    if np.count_nonzero(starts_of(scores)) < 2:
        raise DataError(
            "population", "hold scores that differ", "only one", "Pass scores of more pairs."
        )
    return Population.of(scores)


def transfer(fitted: CalibrationMap | Sequence[CalibrationMap], scores: Numbers) -> CalibrationMap:
    """The map of a model that was replaced, for the scores of the new one, by their ranks.

    `scores` are those that the new model gives to pairs like those of the old map's fit; of search,
    all scores of a run. The new model's tenth percentile gets the probability of the old one's, and
    so on. This is right if both rank equally well, so anchor the result on a few labels. Of several
    maps, such as those of other models of the same pairs, the probabilities are averaged, which is
    better than one of them; the record is that of the first, with the rows of all.

    >>> from calibrank import Platt
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.normal(size=4000)
    >>> old = Platt().fit(quality, rng.random(4000) < 1 / (1 + np.exp(-2 * quality)))
    >>> new = transfer(old, 100 + np.exp(quality))
    >>> bool(abs(new.predict(100 + np.exp(1.0)) - old.predict(1.0)) < 0.02)
    True
    """
    maps = [fitted] if isinstance(fitted, CalibrationMap) else list(fitted)
    if not maps:
        raise DataError("the maps to transfer", "be at least one", "none")
    for each in maps:
        require_map(each)
        if each.terms:
            found, remedy = f"terms of {', '.join(each.columns)}", "Use fitted.without_terms()."
            raise DataError("the map to transfer", "be one of scores alone", found, remedy)
    values = score_column(scores)[0].astype(np.float64)
    population = population_of(maps[0], values, values)
    moved = [at_ranks(each, population, _sketch(each.record)) for each in maps]
    return moved[0] if len(moved) == 1 else _mean(moved)


def _mean(moved: Sequence[CalibrationMap]) -> CalibrationMap:
    """The mean probability of maps with the same knots."""
    curves = [each.curve for each in moved if isinstance(each.curve, PiecewiseCurve)]
    log_odds = np.array([curve.values for curve in curves])
    # Total variance: how uncertain each is, and how far they are apart.
    errors = np.array([curve.value_errors for curve in curves])
    variances = (errors**2).mean(axis=0) + log_odds.var(axis=0)
    values = logit(expit(log_odds).mean(axis=0))
    numbers = [tuple(each.tolist()) for each in (values, np.sqrt(variances))]
    records = [each.record for each in moved]
    record = replace(
        records[0],
        rows=sum(each.rows for each in records),
        positive=sum(each.positive for each in records),
        total=sum(each.total for each in records),
        recipe=None,
        previous_map=None,
    )
    return CalibrationMap(replace(curves[0], values=numbers[0], value_errors=numbers[1]), record)


def at_ranks(
    fitted: CalibrationMap, population: Population, sketch: tuple[float, ...]
) -> CalibrationMap:
    """The map at the old scores that have the ranks of the new ones."""
    levels = np.linspace(0, 1, len(sketch))
    old_scores = np.interp(population.ranks, levels, sketch)
    log_odds = fitted.log_odds(old_scores).clip(-_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
    values = np.maximum.accumulate(log_odds)
    values = values + np.linspace(0, _SMALLEST_RISE, len(values))
    grid = population.grid
    end_slope = _SMALLEST_RISE / float(grid[-1] - grid[0])
    # Standard errors of the log odds, from the ends of their 95% interval.
    interval = fitted.sampling_interval(old_scores)
    low, high = [logit(end.clip(1e-9, 1 - 1e-9)) for end in interval]
    curve = PiecewiseCurve(
        knots=tuple(grid.tolist()),
        values=tuple(values.tolist()),
        end_slopes=(end_slope, end_slope),
        value_errors=tuple(((high - low) / 3.92).tolist()),
        slope_errors=(0.0, 0.0),
    )
    quantiles = tuple(np.quantile(population.scores, levels).tolist())
    known = fitted.record.population
    record = replace(
        fitted.record,
        base_rate_source="assumed",
        anchoring=None,
        base_rate_range=None,
        sensitivity=None,
        residual=None,
        score_quantiles=quantiles,
        population=None if known is None else replace(known, run_scores=quantiles),
        previous_map=fitted.digest,
    )
    return CalibrationMap(curve, record)


def _sketch(record: FitRecord) -> tuple[float, ...]:
    """Quantiles of what a map was fitted on: all scores of a run, or those of the fit."""
    known = record.population
    sketch = record.score_quantiles
    if known is not None and known.run_scores is not None:
        sketch = known.run_scores
    if sketch is None:
        raise DataError(
            "the map to transfer", "have a sketch of its scores", "none", "Fit it again."
        )
    return sketch


def moved_start(fitted: CalibrationMap, population: Population) -> CalibrationMap | None:
    """The map at the ranks of a population whose scores are not like those of the fit.

    None if they are like them, or if no sketch says.
    """
    record = fitted.record
    if record.score_quantiles is None:
        return None
    sketch = _sketch(record)
    comparison = ScoreComparison(replace(record, score_quantiles=sketch))
    comparison.add(population.scores)
    return at_ranks(fitted, population, sketch) if comparison.is_shifted else None
