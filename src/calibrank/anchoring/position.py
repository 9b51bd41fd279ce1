"""A curve of its own for the first positions of each list, and pairs to label there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import real, seeded, whole
from calibrank._internal.logit import expit
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Indices,
    Numbers,
    column,
    ids,
    require_role,
    score_column,
)
from calibrank.anchoring._anchored_curve import anchored_curve
from calibrank.anchoring._list_position import Pairs, TopCurve, fit_positions
from calibrank.anchoring._population import population_of, population_scores
from calibrank.anchoring.exploration import Exploration, choose_pairs
from calibrank.anchoring.posterior import RandomLabels
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, PiecewiseCurve, PositionTerm
from calibrank.maps.term import number_column
from calibrank.metrics import LogLoss
from calibrank.metrics.metric import rank_by_user
from calibrank.terms import Position

# The curve of all labels counts for as much at the top as this many labels there. Few labels would
# make the top worse than that curve is; dozens of them should not be diluted.
_PRIOR_LABELS = 5.0
_FOLDS = 5
# Pairs that are enough to describe the mean score at each position.
_MAX_POPULATION = 20_000

FEWEST_LABELS = 10
"""With fewer labels at the top, nothing says which of the two curves predicts better there."""


def fit_position(
    spec: Position,
    start: CalibrationMap,
    anchored: PiecewiseCurve,
    scores: Floats,
    evidence: Evidence,
    columns: Any,
    population: Any,
) -> PositionTerm:
    """A curve for the first positions of lists, as far as the labels support it.

    A map that is right for all pairs can be wrong at the top: few labels are there, some of the
    best scores are best by luck, and the best score of one user is an ordinary one of another.
    Ranks are positions in the lists that would be shown (`list_ranks`), of all candidates and not
    of the labelled pairs alone.

    Uniformly random labels hardly ever are at the top, but labels at all ranks say how the odds
    fall along a list: close to a power of the rank, which is continued to the top. The log odds
    there are those of the map of all pairs, changed to this level; how much of the change is made
    depends on how well it predicts the labels at the top.

    Better, draw some of the labels at the top, as `choose_top_pairs` does, and pass its
    probabilities as `propensity`: with 10 or more labels there, a curve is fitted to them alone.
    The log odds are a mean of the two, in which the curve of all labels counts as much as 5 labels,
    and for more where the other one predicts held-out labels worse.
    """
    n = spec.n
    ranks = number_column(spec.column, columns, len(scores), "rank")
    shares = evidence.positive / np.maximum(evidence.total, 1e-300)
    inside = ranks < n + 0.5
    weights = _normalized(evidence.total[inside])
    pairs = Pairs(scores, ranks, evidence.total)
    everything = _population(population, spec.column)
    curve = fit_positions(anchored, pairs, shares, weights, n, spec.column, everything)
    if len(weights) >= FEWEST_LABELS:
        scores_there = None if everything is None else everything.first(n)
        data = _TopLabels(scores[inside], ranks[inside], shares[inside], weights, scores_there)
        curve = data.mixed(start.without_terms(), curve)
    return PositionTerm(spec.column, n, curve.curve, curve.by_rank)


def _normalized(weights: Floats) -> Floats:
    """Weights that sum to their effective sample size."""
    if not len(weights):
        return weights
    # Kish: (sum of w)^2 / sum of w^2 labels of equal weight have the same variance.
    normalized: Floats = weights * weights.sum() / (weights**2).sum()
    return normalized


class _TopLabels(NamedTuple):
    """Labels of pairs at the top, and scores of the population there."""

    scores: Floats
    ranks: Floats
    labels: Floats
    weights: Floats
    population: Floats | None

    def mixed(self, fitted: CalibrationMap, other: TopCurve) -> TopCurve:
        """The mean of a curve of these labels alone and another one."""
        own = self.curve(fitted, np.arange(len(self.scores)))
        effective = float(self.weights.sum())
        weight = effective / (effective + _PRIOR_LABELS) * float(expit(self.gain(fitted, other)))
        values = tuple((1 - weight) * value for value in other.by_rank.values)
        by_rank = replace(other.by_rank, values=values)
        return TopCurve(_mean_curve(own, other.curve, weight), by_rank)

    def curve(self, fitted: CalibrationMap, rows: Indices) -> PiecewiseCurve:
        """The curve anchored on some of the labels."""
        weights = _normalized(self.weights[rows])
        labels = RandomLabels(self.scores[rows], weights, weights * self.labels[rows])
        population = population_of(fitted, labels.scores, self.population)
        return anchored_curve([fitted], labels, population, fitted.record.base_rate_range)[0]

    def gain(self, fitted: CalibrationMap, other: TopCurve) -> float:
        """The log likelihood of held-out labels under curves of the rest, minus that of `other`."""
        count = len(self.scores)
        # By score and label, so that the folds are alike and the order of rows does not matter.
        order = np.lexsort((self.labels, self.scores))
        fold = np.arange(count) % _FOLDS
        others = other.predict(self.scores, self.ranks)
        gain = 0.0
        for number in range(_FOLDS):
            held_out = order[fold == number]
            curve = self.curve(fitted, order[fold != number])
            own = curve.probabilities(self.scores[held_out])
            labels = Evidence.trusted(self.labels[held_out], np.ones(len(held_out)), "naive")
            gain += len(held_out) * LogLoss()(others[held_out], labels)
            gain -= len(held_out) * LogLoss()(own, labels)
        return gain


def choose_top_pairs(
    fitted: CalibrationMap,
    scores: Numbers,
    ranks: Numbers,
    count: int,
    n: int = 5,
    share: float = 0.3,
    *,
    seed: int | np.random.Generator = 0,
) -> Exploration:
    """Choose about `count` pairs to label, a share of them among the first n of the lists.

    Within the first n, and among the other pairs, it is `choose_pairs`. The result has the
    probability of each chosen pair, which `anchor` takes.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> scores = np.random.default_rng(0).normal(size=10_000)
    >>> ranks = list_ranks(scores, np.arange(10_000) // 100)
    >>> rows, propensity = choose_top_pairs(biased, scores, ranks, 200)
    >>> int((ranks[rows] <= 5).sum()), round(float((1 / propensity).sum() / 10_000), 1)
    (60, 1.0)
    """
    values = score_column(scores)[0].astype(np.float64)
    positions = _positions("ranks", ranks, len(values))
    n = whole("n", n, 1)
    share = real("share", share, "(0, 1)", "It is the part of the labels at the top.")
    inside = positions < n + 0.5
    rng = seeded(seed)
    at_top = round(share * whole("count", count, 2))
    rows, chances = [], []
    for part, size in ((np.flatnonzero(inside), at_top), (np.flatnonzero(~inside), count - at_top)):
        if not 0 < size <= len(part):
            raise DataError(
                "count",
                ("be at most the number of pairs at the top and elsewhere, and at least 1 of each"),
                f"{size} of {len(part)} pairs",
                "Change count or share.",
            )
        chosen = choose_pairs(fitted, values[part], size, seed=rng)
        rows.append(part[chosen.rows])
        chances.append(chosen.propensity)
    joined = np.concatenate(rows)
    order = np.argsort(joined)
    return Exploration(joined[order], np.concatenate(chances)[order])


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


def _positions(name: str, ranks: Numbers, rows: int) -> Floats:
    positions = column(name, ranks, rows)
    require_role("rank", name, positions)
    return positions


def _population(population: Any, rank: str) -> Pairs | None:
    """Scores and ranks of the population, thinned, if both are known."""
    scores = population_scores(population)
    if scores is None or not hasattr(population, "keys") or rank not in population:
        return None
    scores = scores.astype(np.float64)
    ranks = number_column(rank, population, len(scores), "rank")
    step = max(1, len(scores) // _MAX_POPULATION)
    return Pairs(scores[::step], ranks[::step], np.ones(len(scores[::step])))


def _mean_curve(first: PiecewiseCurve, second: PiecewiseCurve, weight: float) -> PiecewiseCurve:
    """The weighted mean of two curves' log odds, which is linear between the knots of both."""
    knots = np.union1d(first.knots, second.knots)
    values = weight * first.log_odds(knots) + (1 - weight) * second.log_odds(knots)
    errors = weight * first.errors_at(knots) + (1 - weight) * second.errors_at(knots)
    shares = (weight, 1 - weight)
    slopes = np.average([first.end_slopes, second.end_slopes], axis=0, weights=shares)
    slope_errors = np.average([first.slope_errors, second.slope_errors], axis=0, weights=shares)
    return PiecewiseCurve(
        knots=tuple(knots.tolist()),
        # Rounding may not reverse the order of two knots.
        values=tuple(np.maximum.accumulate(values).tolist()),
        end_slopes=(float(slopes[0]), float(slopes[1])),
        value_errors=tuple(errors.tolist()),
        slope_errors=(float(slope_errors[0]), float(slope_errors[1])),
    )
