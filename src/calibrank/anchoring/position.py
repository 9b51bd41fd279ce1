"""The first positions of each list: a slope of the curve and a function of the rank.

A map that is right for all pairs can be wrong at the top: some of the best scores are best by luck,
and the best score of one user is an ordinary one of another. Of 1,000 uniformly random labels,
about seven are among the first five of lists of 700. Labels at all other positions say how the odds
fall along the list, and they fall close to a power of the rank: log odds = a - c * log(rank - 1/2).
Where lists are long and positives rare, such a list has an AUC of 1 / (2 - c), which is how the
prior of c is known. Within a position, log odds follow those of the map of all pairs, as a
deviation from their mean at the position.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from calibrank._internal.isotonic import isotonic_values
from calibrank._internal.validation import Floats, IdsLike, Numbers, ids, score_column
from calibrank.anchoring._laplace import LogisticPosteriors, moderation
from calibrank.anchoring._population import population_scores
from calibrank.evidence import Evidence
from calibrank.maps import PiecewiseCurve, PositionTerm, SmoothTerm
from calibrank.maps.term import number_column
from calibrank.metrics.lists import rank_by_user
from calibrank.terms import Position

EXPONENTS = {0.6: (0.2, 0.9), 0.0: (0.1, 0.1)}
"""Prior means of c, with standard deviations and probabilities. The first is an AUC of 0.63 to 0.83
on random pairs, as rankers have; the second is a ranker that tells nothing."""
DEVIATION_SD = 0.3
"""Prior standard deviation of the slope of deviations from the mean at a position, around 1."""
TOP_SDS = (0.3, 0.3)
"""Prior standard deviations of the first n positions' own change of the intercept and slope."""

_INTERCEPT_SD = 5.0
_SMALLEST_SLOPE = 0.01
# Quantiles of positions between which the mean log odds are linear; the last only with many rows.
_MEAN_LEVELS = (0.0, 0.3, 0.6, 0.8, 0.95, 1.0)
_TOP_LEVEL = 0.99
_TOP_LEVEL_FROM = 2_000
# Positions up to here have a knot each, and one halfway to the next for ties.
_SINGLE_KNOTS = 10
_MOST_KNOTS = 40
# Pairs that are enough to describe the mean score at each position.
_MAX_POPULATION = 20_000


def fit_position(
    spec: Position,
    anchored: PiecewiseCurve,
    scores: Floats,
    evidence: Evidence,
    columns: Any,
    others: Floats,
    population: Any,
) -> PositionTerm:
    """What the first positions of lists change, from labels at all positions.

    Ranks are positions in the lists that would be shown (`list_ranks`), of all candidates and not
    of the labelled pairs alone. `others` is what other terms add to the log odds. Labels drawn at
    the top say most (`choose_pairs` with a larger `importance` there); its probabilities go to
    `anchor` as `propensity`.
    """
    ranks = number_column(spec.column, columns, len(scores), "rank")
    inside = ranks < spec.n + 0.5
    shares = evidence.positive / np.maximum(evidence.total, 1e-300)
    # Given the rank, it does not matter how often labels of the top were drawn.
    weights = np.empty(len(scores))
    for part in (inside, ~inside):
        weights[part] = _normalized(evidence.total[part])
    means = _mean_by_position(anchored, scores, ranks, evidence.total, spec.column, population)
    log_odds = anchored.log_odds(scores)
    positions = _log_positions(ranks)
    center = float(np.average(positions, weights=weights))
    deviations = log_odds - np.interp(positions, *means)
    design = np.array(
        [np.ones_like(ranks), positions - center, deviations, inside, inside * deviations]
    )
    labels = Evidence.trusted(weights * shares, weights, "naive")
    level = float(np.average(log_odds, weights=weights))
    modes, covariances, chances = _posteriors(design, labels, level, others)
    # Levels at ranks of the top, where deviations are 0.
    knots = _rank_knots(spec.n)
    ones, zeros = np.ones_like(knots), np.zeros_like(knots)
    at_top = np.array([ones, _log_positions(knots) - center, zeros, ones, zeros])
    levels = modes @ at_top
    variances = np.einsum("kr,pkl,lr->pr", at_top, covariances, at_top).mean(axis=1)
    factors = chances / moderation(variances)
    spread = levels.mean(axis=1) - chances @ levels.mean(axis=1)
    error = float(np.sqrt(chances @ (variances + spread**2)))
    slope = float(factors @ np.maximum(modes[:, 2] + modes[:, 4], _SMALLEST_SLOPE))
    values = factors @ levels - slope * np.interp(_log_positions(knots), *means)
    by_rank = SmoothTerm(spec.column, tuple(knots.tolist()), tuple(_falling(values).tolist()))
    low, high = anchored.end_slopes
    curve = replace(
        anchored,
        values=tuple((slope * np.array(anchored.values)).tolist()),
        end_slopes=(slope * low, slope * high),
        value_errors=(error,) * len(anchored.values),
    )
    return PositionTerm(spec.column, spec.n, curve, by_rank)


def _posteriors(
    design: Floats, labels: Evidence, level: float, others: Floats
) -> tuple[Floats, Floats, Floats]:
    """The mode and covariance under each prior of the exponent, and the probability of each."""
    means = np.array([[level, exponent, 1.0, 0.0, 0.0] for exponent in EXPONENTS])
    sds = np.array([[_INTERCEPT_SD, sd, DEVIATION_SD, *TOP_SDS] for sd, _ in EXPONENTS.values()])
    problem = LogisticPosteriors(design, labels.total, labels.positive, means, sds, others)
    modes, hessians = problem.solve()
    evidence = -problem.loss(modes) - np.linalg.slogdet(hessians)[1] / 2
    evidence += np.log([probability for _, probability in EXPONENTS.values()])
    chances = np.exp(evidence - evidence.max())
    covariances = np.linalg.inv(hessians) * sds[:, :, None] * sds[:, None]
    return modes, covariances, chances / chances.sum()


def _normalized(weights: Floats) -> Floats:
    """Weights that sum to their effective sample size."""
    # Kish: (sum of w)^2 / sum of w^2 labels of equal weight have the same variance.
    return weights * (weights.sum() / max(float((weights**2).sum()), 1e-300))


def _mean_by_position(
    curve: PiecewiseCurve,
    scores: Floats,
    ranks: Floats,
    weights: Floats,
    rank: str,
    population: Any,
) -> tuple[Floats, Floats]:
    """Knots and values of the mean log odds, linear in the logarithm of the position.

    Of the population where its scores and ranks are known, otherwise of the labelled pairs.
    """
    if hasattr(population, "keys") and rank in population:
        scores = np.asarray(population_scores(population), dtype=np.float64)
        step = max(1, len(scores) // _MAX_POPULATION)
        ranks = number_column(rank, population, len(scores), "rank")[::step]
        scores = scores[::step]
        weights = np.ones(len(scores))
    positions = _log_positions(ranks)
    levels = _MEAN_LEVELS if len(positions) < _TOP_LEVEL_FROM else (*_MEAN_LEVELS, _TOP_LEVEL)
    knots = np.unique(np.quantile(positions, levels))
    hats = np.array([np.interp(positions, knots, unit) for unit in np.eye(len(knots))])
    root = np.sqrt(weights)
    values = np.linalg.lstsq((hats * root).T, curve.log_odds(scores) * root, rcond=None)[0]
    return knots, values


def _log_positions(ranks: Floats) -> Floats:
    """Minus the logarithm of the position, where position k of a list covers k - 1 to k."""
    return -np.log(ranks - 0.5)


def _falling(values: Floats) -> Floats:
    """The nearest values that do not rise with the rank, which keeps the order of each list."""
    highest = float(values.max())
    span = max(highest - float(values.min()), 1e-12)
    rising = isotonic_values((highest - values) / span, np.ones(len(values)))
    return highest - span * rising


def _rank_knots(n: int) -> Floats:
    """Ranks 1 to n and a half, on which the function of the rank is given."""
    single = np.arange(1.0, min(n, _SINGLE_KNOTS) + 0.75, 0.5)
    further = np.geomspace(single[-1], n + 0.5, _MOST_KNOTS)
    return np.union1d(single, further) if n > _SINGLE_KNOTS else single


def list_ranks(scores: Numbers, lists: IdsLike) -> Floats:
    """The position of each row in its list, the highest score first, counted from 1.

    Equal scores share the mean of their positions.

    >>> list_ranks([0.1, 0.9, 0.5, 0.5], ["a", "a", "b", "b"]).tolist()
    [2.0, 1.0, 1.5, 1.5]
    """
    values = score_column(scores)[0].astype(np.float64)
    ranking = rank_by_user(values, ids("lists", lists, len(values)))
    ranks: Floats = np.empty(len(values))
    ranks[ranking.order] = ranking.rank + (ranking.ties + 1) / 2
    return ranks
