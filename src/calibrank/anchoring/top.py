"""Anchor a map for the first positions of each list, on labels of pairs at these positions."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, real, seeded, text, whole
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
from calibrank.anchoring._list_position import Pairs, TopCurve, fit_positions
from calibrank.anchoring.anchor import anchor, label_weights
from calibrank.anchoring.exploration import Exploration, choose_pairs
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, FitRecord, PiecewiseMap, TopMap
from calibrank.metrics import LogLoss
from calibrank.metrics.ranking import rank_by_user

RANK = "rank"
"""The column of ranks, unless it is named otherwise."""

# The curve of all labels counts for as much at the top as this many labels there. Few labels would
# make the top worse than that curve is; dozens of them should not be diluted.
_PRIOR_LABELS = 5.0
_FOLDS = 5
# Pairs that are enough to describe the mean score at each position.
_MAX_POPULATION = 20_000

FEWEST_LABELS = 10
"""With fewer labels at the top, nothing says which of the two curves predicts better there."""


def anchor_top(
    fitted: CalibrationMap,
    scores: Numbers,
    labels: Numbers,
    ranks: Numbers,
    n: int = 5,
    propensity: Numbers | None = None,
    population: Numbers | None = None,
    population_ranks: Numbers | None = None,
    *,
    rank_column: str = RANK,
    record: FitRecord | None = None,
) -> TopMap:
    """Anchor a map on all labels, and change it for ranks 1 to n as far as the labels support.

    A map that is right for all pairs can be wrong at the top: few labels are there, some of the
    best scores are best by luck, and the best score of one user is an ordinary one of another.
    `ranks` are positions in the lists that would be shown (`list_ranks`), of all candidates and
    not of the labelled pairs alone.

    Uniformly random labels hardly ever are at the top, but labels at all ranks say how the odds
    fall along a list: close to a power of the rank, which is continued to the top. The log odds
    there are those of the map of all pairs, changed to this level; how much of the change is made
    depends on how well it predicts the labels at the top.

    Better, draw some of the labels at the top, as `choose_top_pairs` does, and pass its
    probabilities as `propensity`: with 10 or more labels there, a curve is fitted to them alone.
    The log odds are a mean of the two, in which the curve of all labels counts as much as 5 labels,
    and for more where the other one predicts held-out labels worse. The result holds for this model
    and this length of list. `record` replaces the record of the fit.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> scores, ranks = [2.0, 1.5, 0.1, -1.0] * 100, [1, 2, 3, 4] * 100
    >>> labels = [0, 0, 1, 0] * 50 + [1, 0, 1, 0] * 50
    >>> fitted = anchor_top(biased, scores, labels, ranks, n=2)
    >>> bool(fitted.predict(1.5, ranks=2) < fitted.predict(1.5, ranks=3))
    True
    """
    text("rank_column", rank_column, "It names the column of ranks.")
    if record is not None:
        instance("record", record, FitRecord, "Use the record of a map: fitted.record.")
    shown = score_column(scores)[0].astype(np.float64)
    labels = column("labels", labels, len(shown))
    positions = _positions("ranks", ranks, len(shown))
    n = whole("n", n, 1)
    alone = getattr(fitted, "base", fitted)
    base = anchor(alone, shown, labels, propensity, population)
    inside = positions < n + 0.5
    chances = None if propensity is None else column("propensity", propensity, len(shown))
    chosen = None if chances is None else chances[inside]
    weights = label_weights(chosen, int(inside.sum())) if inside.any() else np.zeros(0)
    pairs = Pairs(shown, positions, label_weights(chances, len(shown)))
    everything = _population(population, population_ranks)
    curve = fit_positions(base, pairs, labels, weights, n, rank_column, everything)
    if len(weights) >= FEWEST_LABELS:
        scores_there = None if everything is None else everything.first(n)
        data = _TopLabels(shown[inside], positions[inside], labels[inside], chosen, scores_there)
        curve = data.mixed(alone, curve, float(weights.sum()))
    kept = base.record if record is None else record
    method = f"{base.method} by {rank_column}"
    return TopMap(method, base, curve.map, rank_column, n, kept, curve.term)


class _TopLabels(NamedTuple):
    """Labels of pairs at the top, and scores of the population there."""

    scores: Floats
    ranks: Floats
    labels: Floats
    propensity: Floats | None
    population: Floats | None

    def mixed(self, fitted: CalibrationMap, other: TopCurve, effective: float) -> TopCurve:
        """The mean of a curve of these labels alone and another one."""
        own = self.curve(fitted, np.arange(len(self.scores)))
        weight = effective / (effective + _PRIOR_LABELS) * float(expit(self.gain(fitted, other)))
        values = tuple((1 - weight) * value for value in other.term.values)
        return TopCurve(_mean_map(own, other.map, weight), replace(other.term, values=values))

    def curve(self, fitted: CalibrationMap, rows: Indices) -> PiecewiseMap:
        """The map anchored on some of the labels."""
        propensity = None if self.propensity is None else self.propensity[rows]
        return anchor(fitted, self.scores[rows], self.labels[rows], propensity, self.population)

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
            own = self.curve(fitted, order[fold != number]).predict(self.scores[held_out])
            gain += len(held_out) * LogLoss()(others[held_out], self.labels[held_out])
            gain -= len(held_out) * LogLoss()(own, self.labels[held_out])
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
    probability of each chosen pair, which `anchor_top` and `anchor` take.

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
                f"count must be at most the number of pairs at the top and elsewhere, and at least "
                f"1 of each, got {size} of {len(part)} pairs. Change count or share."
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


def _population(population: Numbers | None, population_ranks: Numbers | None) -> Pairs | None:
    """Scores and ranks of the population, thinned, if both are known."""
    if population is None or population_ranks is None:
        return None
    scores = score_column(population)[0].astype(np.float64)
    ranks = _positions("population_ranks", population_ranks, len(scores))
    step = max(1, len(scores) // _MAX_POPULATION)
    return Pairs(scores[::step], ranks[::step], np.ones(len(scores[::step])))


def _mean_map(first: PiecewiseMap, second: PiecewiseMap, weight: float) -> PiecewiseMap:
    """The weighted mean of two maps' log odds, which is linear between the knots of both."""
    knots = np.union1d(first.knots, second.knots)
    own, other = first.log_odds(knots), second.log_odds(knots)
    values = weight * own + (1 - weight) * other
    errors = weight * _errors_at(first, knots) + (1 - weight) * _errors_at(second, knots)
    slopes = np.average([first.end_slopes, second.end_slopes], axis=0, weights=[weight, 1 - weight])
    slope_errors = np.average(
        [first.slope_errors, second.slope_errors], axis=0, weights=[weight, 1 - weight]
    )
    return replace(
        first,
        knots=tuple(knots.tolist()),
        # Rounding may not reverse the order of two knots.
        values=tuple(np.maximum.accumulate(values).tolist()),
        end_slopes=(float(slopes[0]), float(slopes[1])),
        value_errors=tuple(errors.tolist()),
        slope_errors=(float(slope_errors[0]), float(slope_errors[1])),
    )


def _errors_at(fitted: PiecewiseMap, scores: Floats) -> Floats:
    """Standard errors of the log odds, as intervals take them."""
    below = np.maximum(fitted.knots[0] - scores, 0)
    above = np.maximum(scores - fitted.knots[-1], 0)
    errors: Floats = np.interp(scores, fitted.knots, fitted.value_errors)
    return errors + fitted.slope_errors[0] * below + fitted.slope_errors[1] * above
