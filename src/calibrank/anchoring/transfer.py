"""A replaced model: the old map on the scale of ranks is the start for the new scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrank._internal.validation import Floats, Numbers, score_column
from calibrank.anchoring._population import Population, population_of
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, FitRecord, PiecewiseCurve
from calibrank.maps.calibration_map import require_map
from calibrank.maps.score_shift import ScoreComparison

# Log odds gained over the population at least, so that different scores stay different.
_SMALLEST_RISE = 1e-6
_LARGEST_LOG_ODDS = 14.0


def transfer(fitted: CalibrationMap, scores: Numbers) -> CalibrationMap:
    """The map of a model that was replaced, for the scores of the new one, by their ranks.

    `scores` are those that the new model gives to pairs like those of the old map's fit; of search,
    all scores of a run. The new model's tenth percentile gets the probability of the old one's, and
    so on. This is right if both rank equally well, so anchor the result on a few labels.

    >>> from calibrank import Platt
    >>> rng = np.random.default_rng(0)
    >>> quality = rng.normal(size=4000)
    >>> old = Platt().fit(quality, rng.random(4000) < 1 / (1 + np.exp(-2 * quality)))
    >>> new = transfer(old, 100 + np.exp(quality))
    >>> bool(abs(new.predict(100 + np.exp(1.0)) - old.predict(1.0)) < 0.02)
    True
    """
    require_map(fitted)
    if fitted.terms:
        raise DataError(
            "the map to transfer",
            "be one of scores alone",
            f"terms of {', '.join(fitted.columns)}",
            "Use fitted.without_terms().",
        )
    values = score_column(scores)[0].astype(np.float64)
    return at_ranks(fitted, population_of(fitted, values, values), _sketch(fitted.record))


def at_ranks(
    fitted: CalibrationMap, population: Population, sketch: tuple[float, ...]
) -> CalibrationMap:
    """The map at the old scores that have the ranks of the new ones."""
    levels = np.linspace(0, 1, len(sketch))
    old_scores = np.interp(population.ranks, levels, sketch)
    log_odds = fitted.log_odds(old_scores).clip(-_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
    values = np.maximum.accumulate(log_odds)
    values = values + np.linspace(0, _SMALLEST_RISE, len(values))
    curve = PiecewiseCurve(
        knots=tuple(population.grid.tolist()),
        values=tuple(values.tolist()),
        end_slopes=(_end_slope(population.grid), _end_slope(population.grid)),
        value_errors=tuple(_errors(fitted, old_scores, log_odds).tolist()),
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


def _errors(fitted: CalibrationMap, scores: Floats, log_odds: Floats) -> Floats:
    """Standard errors of the log odds, from the ends of their 95% interval."""
    interval = fitted.sampling_interval(scores)
    low, high = interval.low.clip(1e-9, 1 - 1e-9), interval.high.clip(1e-9, 1 - 1e-9)
    width = np.log(high / (1 - high)) - np.log(low / (1 - low))
    return np.where(np.isfinite(log_odds), width / 3.92, 0.0)


def _end_slope(grid: Floats) -> float:
    return _SMALLEST_RISE / float(grid[-1] - grid[0])


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
