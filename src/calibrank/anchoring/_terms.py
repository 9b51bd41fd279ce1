"""The terms of a log-odds curve: an intercept, a base curve and deviations from it.

The right scale differs between rankers. Scores of matrix factorization and of boosted trees pile up
at some values, where a curve must be described by ranks; scores of others are close to normal, and
a line in the score is best. So there are several base curves and two kinds of deviations, and the
labels decide between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.anchoring._population import Population
from calibrank.maps import CalibrationMap

TAIL = 0.005
"""Fraction of the population at either end on which polynomials are constant."""
COSINES = 16
"""Number of cosines of the normal score of the rank. Unlike cosines of the rank, they resolve the
outer percents of the population, where scores may pile up and lists are cut."""
OUTERMOST = 5e-4
"""Fraction of the population at either end on which cosines are constant."""
MAX_DEGREE = 4
"""The highest power among the polynomials of the score."""

# Isotonic and histogram maps predict 0 and 1: a base curve stays within these log odds.
_LARGEST_LOG_ODDS = 14.0
# A base curve must increase.
_SMALLEST_SLOPE = 1e-6
# A term of which less than this fraction is left after removing the others is redundant.
_REDUNDANT = 1e-6

BASE_CURVES = {"biased": 0.15, "line": 0.35, "normal": 0.1, "upper": 0.35, "lower": 0.05}
"""Probabilities of the base curves before the labels (see `posterior`)."""

Curve: TypeAlias = Callable[[Floats, Floats], Floats]
"""A function of scores and their ranks in the population."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """One base curve and the deviations from it, over the population and at the labels."""

    population: Floats
    """One row per term, one column per grid score: the intercept and base curve come first."""
    labels: Floats
    """The same at the labels."""
    base_curve: Floats
    """Log odds of the base curve over the population."""
    are_cosines: bool
    """Whether the deviations are cosines of the rank, or polynomials of the score."""
    probability: float
    """That of the base curve before the labels."""


def candidate_terms(
    biased: CalibrationMap, population: Population, scores: Floats
) -> Iterator[Terms]:
    """Every base curve with cosines of the rank, and the line with polynomials of the score."""
    scale = _Scale.of(population)
    ranks = population.rank(scores)
    log_odds = _bounded_log_odds(biased, scale, population.grid)
    cosines = (_cosines(population.ranks), _cosines(ranks))
    powers = (scale.powers(population.grid), scale.powers(scores))
    line = _fitted_to(scale.line, log_odds, population)
    curves: dict[str, Curve] = {
        "biased": lambda x, _: _bounded_log_odds(biased, scale, x),
        "line": line,
        "normal": _fitted_to(_normal_quantile, log_odds, population),
        "upper": _fitted_to(_upper_tail, log_odds, population),
        "lower": _fitted_to(_lower_tail, log_odds, population),
    }
    for name, curve in curves.items():
        terms = _terms(curve, cosines, population, scores, ranks)
        yield Terms(*terms, are_cosines=True, probability=BASE_CURVES[name])
    terms = _terms(line, powers, population, scores, ranks)
    yield Terms(*terms, are_cosines=False, probability=1.0)


def _terms(
    curve: Curve,
    deviations: tuple[Floats, Floats],
    population: Population,
    scores: Floats,
    ranks: Floats,
) -> tuple[Floats, Floats, Floats]:
    base_curve = curve(population.grid, population.ranks)
    at_grid = np.vstack([np.ones_like(population.grid), base_curve, deviations[0]])
    at_labels = np.vstack([np.ones_like(scores), curve(scores, ranks), deviations[1]])
    transform = orthonormalize(at_grid, population.weights)
    return transform @ at_grid, transform @ at_labels, base_curve


@dataclass(frozen=True, slots=True)
class _Scale:
    """The range of scores that holds all but the tails of the population."""

    low: float
    high: float

    @classmethod
    def of(cls, population: Population) -> _Scale:
        low, high = np.quantile(population.scores, [TAIL, 1 - TAIL]).tolist()
        if not low < high:
            low, high = population.grid[[0, -1]].tolist()
        return cls(low, high)

    def line(self, scores: Floats, _: Floats) -> Floats:
        """Scores rescaled so that the range becomes [-1, 1]."""
        return (2 * self.bounded(scores) - self.low - self.high) / (self.high - self.low)

    def bounded(self, scores: Floats) -> Floats:
        """Scores at most one range outside.

        Curves are for the population: a label far outside counts as one nearby, so that an
        extrapolated curve cannot dominate the fit.
        """
        return scores.clip(2 * self.low - self.high, 2 * self.high - self.low)

    def powers(self, scores: Floats) -> Floats:
        """Powers of the position in the range, constant in the tails, where labels are few."""
        position = self.line(scores, scores).clip(-1, 1)
        return np.array([position**degree for degree in range(2, MAX_DEGREE + 1)])


def _bounded_log_odds(biased: CalibrationMap, scale: _Scale, scores: Floats) -> Floats:
    log_odds: Floats = biased.log_odds(scale.bounded(scores))
    return log_odds.clip(-_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)


def _normal_quantile(_: Floats, ranks: Floats) -> Floats:
    """A line in the score if the scores were normal, whatever their distribution is."""
    quantile = NormalDist().inv_cdf
    return np.array([quantile(rank) for rank in ranks.tolist()])


def _upper_tail(_: Floats, ranks: Floats) -> Floats:
    """Rises most at the top, as preference does if few items are liked by a user."""
    return -np.log1p(-ranks)


def _lower_tail(_: Floats, ranks: Floats) -> Floats:
    """Rises most at the bottom and levels off."""
    return np.log(ranks)


def _cosines(ranks: Floats) -> Floats:
    waves = np.arange(1, COSINES + 1)
    end = NormalDist().inv_cdf(OUTERMOST)
    places = (_normal_quantile(ranks, ranks).clip(end, -end) - end) / (-2 * end)
    return np.cos(np.pi * waves[:, None] * places)


def _fitted_to(curve: Curve, log_odds: Floats, population: Population) -> Curve:
    """The curve, scaled and shifted to the least-squares fit to the biased log odds."""
    values = curve(population.grid, population.ranks)
    centre = population.mean(values)
    variance = population.spread(values) ** 2
    covariance = population.mean((values - centre) * log_odds)
    slope = max(covariance / max(variance, 1e-300), _SMALLEST_SLOPE)
    intercept = population.mean(log_odds) - slope * centre

    def fitted(scores: Floats, ranks: Floats) -> Floats:
        return intercept + slope * curve(scores, ranks)

    return fitted


def orthonormalize(terms: Floats, weights: Floats) -> Floats:
    """The matrix T for which the rows of T @ terms are orthonormal under the weights.

    Gram-Schmidt in the order of the terms; those that the earlier ones explain are left out.
    """
    identity = np.eye(len(terms))
    rows: list[Floats] = [identity[0]]
    for index, term in enumerate(terms[1:], start=1):
        row = identity[index]
        # The second pass removes the rounding error of the first.
        for _ in range(2):
            known = np.array(rows)
            overlaps = (row @ terms * weights) @ (known @ terms).T
            row = row - overlaps @ known
        spread = float(np.sqrt((row @ terms) ** 2 @ weights))
        size = float(np.sqrt(term**2 @ weights))
        if spread > _REDUNDANT * max(size, 1e-300):
            rows.append(row / spread)
    return np.array(rows)
