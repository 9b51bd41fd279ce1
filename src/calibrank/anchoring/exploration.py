"""Choose which pairs to show at random, with known probabilities.

Labels are worth most where the outcome is least certain, and every pair needs a known chance of
being shown. Pairs are sorted by segment and score and drawn at even distances of their cumulated
probabilities (systematic sampling, Madow 1949): each has exactly the probability it was given, and
no range of scores and no segment is left out by chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, real, seeded, whole
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
from calibrank.maps import CalibrationMap

# Enough halvings to find the factor at which the probabilities sum up to the number of labels.
_BISECTIONS = 60
# Multiples of it, modulo 1, are spread most evenly.
_GOLDEN = (5**0.5 - 1) / 2


class Exploration(NamedTuple):
    """The pairs to show, and the table to log: which row, and with what probability."""

    rows: Indices
    """Row numbers of the chosen pairs, in increasing order."""
    propensity: Floats
    """The probability with which each of them was chosen; `anchor` takes it."""


def choose_pairs(
    fitted: CalibrationMap,
    scores: Numbers,
    count: int,
    *,
    segments: IdsLike | None = None,
    importance: Numbers | None = None,
    smallest: float = 0.5,
    seed: int | np.random.Generator = 0,
) -> Exploration:
    """Choose about `count` of the pairs to show, stratified by score and segment.

    A pair is chosen with a probability proportional to `sqrt(p (1 - p))`, where p is its
    probability under the map (Neyman's allocation: the standard deviation of its label), times its
    `importance`. `smallest` is the least probability of a pair, as a fraction of the mean one: it
    limits the damage where the map is wrong. With 1, all pairs have the same probability.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> scores = np.random.default_rng(0).normal(size=10_000)
    >>> rows, propensity = choose_pairs(biased, scores, 200)
    >>> len(rows), round(float((1 / propensity).sum() / 10_000), 2)
    (200, 1.0)
    """
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")
    values = score_column(scores)[0].astype(np.float64)
    count = whole("count", count, 1, len(values))
    smallest = real("smallest", smallest, "(0, 1]", "It is a fraction of the mean probability.")
    weights = _weights(fitted, values, importance, smallest)
    propensity = _inclusion_probabilities(weights, count)
    order = np.argsort(values, kind="stable")
    rng = seeded(seed)
    if segments is not None:
        codes = np.unique(ids("segments", segments, len(values)), return_inverse=True)[1]
        order = _by_segment(order, codes, rng)
    cumulated = np.cumsum(propensity[order])
    points = np.arange(rng.random(), cumulated[-1], 1.0)
    rows = np.sort(order[np.searchsorted(cumulated, points, side="right")])
    return Exploration(rows, propensity[rows])


def _by_segment(order: Indices, codes: Indices, rng: np.random.Generator) -> Indices:
    """Rows segment by segment, and within each by score from another place on.

    Places follow the golden ratio. If each segment began at its lowest score, even distances could
    fall on the same rank of every segment: 50 pairs of 50 queries with 100 documents each.
    """
    sizes = np.bincount(codes)
    place = rng.permutation(len(sizes))[codes]
    grouped = order[np.argsort(codes[order], kind="stable")]
    within = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    turned = (within / np.repeat(sizes, sizes) + _GOLDEN * place[grouped]) % 1
    return grouped[np.lexsort((turned, place[grouped]))]


def _weights(
    fitted: CalibrationMap, scores: Floats, importance: Numbers | None, smallest: float
) -> Floats:
    """What inclusion probabilities are proportional to; their mean is 1, or a little more."""
    probabilities = fitted.predict(scores)
    weights = np.sqrt(probabilities * (1 - probabilities))
    if importance is not None:
        factors = column("importance", importance, len(scores))
        require_role("weight", "importance", factors)
        weights = weights * factors
    mean = float(weights.mean())
    if mean <= 0:
        return np.ones(len(scores))
    mixed: Floats = smallest + (1 - smallest) * weights / mean
    return mixed


def _inclusion_probabilities(weights: Floats, count: int) -> Floats:
    """Probabilities proportional to the weights, at most 1, that sum up to the count."""
    low, high = 0.0, count / float(weights.min())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if np.minimum(weights * middle, 1).sum() < count:
            low = middle
        else:
            high = middle
    result: Floats = np.minimum(weights * high, 1)
    return result
