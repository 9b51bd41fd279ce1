"""Which pairs to label, and how many.

Labels are worth most where the outcome is least certain, and every pair needs a known chance of
being shown. Pairs are sorted by segment and score and drawn at even distances of their cumulated
probabilities (systematic sampling, Madow 1949): each has exactly the probability it was given, and
no range of scores and no segment is left out by chance.

How many labels are needed is found by simulation.
True curves are drawn around a fit, random labels are drawn from each curve, the fit is anchored on
them, and the error against the true curve is averaged. Around a fit with a sensitivity band, curves
are those of the band. Around that of a judge, they differ by a level and a slope.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, real, seeded, whole, whole_numbers
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import (
    Floats,
    Ids,
    IdsLike,
    Indices,
    Numbers,
    column,
    ids,
    require_role,
    score_column,
)
from calibrank.anchoring.anchor import anchor
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, Sensitivity

# Enough halvings to find the factor at which the probabilities sum up to the number of labels.
_BISECTIONS = 60
# Multiples of it, modulo 1, are spread most evenly.
_GOLDEN = (5**0.5 - 1) / 2
SIZES = (0, 30, 100, 300, 1_000, 3_000)
# Scores: each is predicted for every draw and size.
_MAX_POPULATION = 2_000
# Each draw anchors a map; more draws, or more labels than anyone collects, only take time.
_MOST_DRAWS = 10_000
_MOST_LABELS = 10**7
# Where the band reaches probability 1, that is a bound and not a plausible truth.
_HIGHEST_LOG_ODDS = 3.0
# How far a judge's odds may be off: 33 judges of one collection called 2% to 60% relevant where
# 27% were, which is a standard deviation of about 1. Their slopes are too steep as often as not.
_LEVEL_SD = 1.0
_SLOPES = (1.0, 0.5, 0.75, 1.25)
# Levels of queries: two labels of one query have the correlation that `_groups` expects.
_GROUP_SD = 0.9
# A logistic curve averaged over normal levels is flatter by this part of their variance.
_FLATTENED = 0.346
# Log odds of a curve stay within these.
_LARGEST = 14.0
# Standard deviations between the ends of a 95% interval.
_INTERVAL = 3.92


class ExpectedError(NamedTuple):
    """The expected error after anchoring on a number of labels of randomly shown pairs."""

    labels: int
    error: float
    """Mean absolute difference of predicted and true probabilities: an ECE without bins."""


def plan_labels(
    fitted: CalibrationMap,
    population: Numbers,
    sizes: Sequence[int] = SIZES,
    draws: int = 10,
    seed: int | np.random.Generator = 0,
    *,
    groups: IdsLike | None = None,
) -> list[ExpectedError]:
    """Estimate how the expected error decreases with the number of random labels.

    True curves are drawn from the map's sensitivity band (`fit_with_sensitivity`). They have the
    shape that the log says: where it is wrong, few labels leave more error than planned (0.07 to
    0.09 after 30 labels where 0.05 to 0.06 was planned, on rankers of randomly exposed datasets).
    `population` holds scores of the pairs that probabilities are wanted for. With `groups`, their
    queries, the map may be one of a judge's labels. Labels are then chosen by `choose_pairs`, and
    queries differ as they do in judged collections.

    >>> from calibrank import Platt, fit_with_sensitivity
    >>> rng = np.random.default_rng(0)
    >>> scores, exposure = rng.normal(size=2000), rng.uniform(0.2, 1, 2000)
    >>> labels = rng.random(2000) < exposure * 0.3 / (1 + np.exp(-scores))
    >>> fitted = fit_with_sensitivity(Platt(), scores, labels, exposure)
    >>> without, few = plan_labels(fitted, scores, sizes=(0, 300), draws=5)
    >>> few.error < without.error
    True
    """
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")
    band = fitted.record.sensitivity
    if band is None and groups is None:
        found, remedy = f"a {fitted.method} without", "Use fit_with_sensitivity."
        raise DataError("the map to plan for", "carry a sensitivity band", found, remedy)
    draws = whole("draws", draws, 1, _MOST_DRAWS)
    sizes = whole_numbers("sizes", sizes, 0, _MOST_LABELS, "E.g. (0, 300).")
    rng = seeded(seed)
    scores = score_column(population, "population")[0].astype(np.float64)
    queries = None if groups is None else ids("groups", groups, len(scores))
    step = max(1, len(scores) // _MAX_POPULATION)
    scores = scores[::step]
    queries = None if queries is None else queries[::step]
    # The same true curves for all sizes, so that the errors are comparable.
    truths = _judged_curves(fitted, scores, draws)
    if band is not None:
        truths = _true_curves(band, scores, draws)
    plan = []
    for size in sizes:
        if queries is not None and size > len(scores):
            continue
        errors = [_error_after(fitted, scores, truth, size, rng, queries) for truth in truths]
        plan.append(ExpectedError(size, float(np.mean(errors))))
    return plan


def labels_needed(plan: Sequence[ExpectedError], error: float) -> int | None:
    """The number of labels whose expected error is the wanted one; None where no size reaches it.

    Between sizes the logarithm of the error is a line in that of the number.

    >>> labels_needed([ExpectedError(30, 0.08), ExpectedError(120, 0.04)], 0.056569)
    60
    """
    for before, after in zip([*plan[:1], *plan], plan, strict=False):
        if after.error <= error:
            if before.labels < 1 or after.labels == before.labels:
                return after.labels
            ends = np.log([before.error, after.error])
            part = (ends[0] - np.log(error)) / max(ends[0] - ends[1], 1e-300)
            return int(np.ceil(before.labels * (after.labels / before.labels) ** part - 1e-3))
    return None


def _judged_curves(fitted: CalibrationMap, scores: Floats, count: int) -> list[Floats]:
    """Curves with other levels and slopes than the map, as those of people differ from a judge's.

    A known interval of the base rate limits the levels.
    """
    log_odds = fitted.without_terms().log_odds(scores).clip(-_LARGEST, _LARGEST)
    deviation = _LEVEL_SD
    if fitted.record.base_rate_range is not None:
        low, high = fitted.record.base_rate_range
        deviation = float(logit(high) - logit(low)) / _INTERVAL
    centre = log_odds.mean()
    curves = []
    for index in range(count):
        shift = deviation * NormalDist().inv_cdf((index + 0.5) / count)
        slope = _SLOPES[index % len(_SLOPES)]
        curves.append(expit(centre + shift + slope * (log_odds - centre)))
    return curves


def _true_curves(band: Sensitivity, scores: Floats, count: int) -> list[Floats]:
    """Evenly spaced curves of probabilities from the lower to the upper end of the band."""
    band_low = np.minimum(band.low, _HIGHEST_LOG_ODDS)
    band_high = np.minimum(band.high, _HIGHEST_LOG_ODDS)
    low = np.interp(scores, band.scores, band_low)
    high = np.interp(scores, band.scores, band_high)
    fractions = (np.arange(count) + 0.5) / count
    return [expit(low + fraction * (high - low)) for fraction in fractions]


def _error_after(
    fitted: CalibrationMap,
    scores: Floats,
    truth: Floats,
    size: int,
    rng: np.random.Generator,
    queries: Ids | None,
) -> float:
    """The error of the map after anchoring on `size` labels drawn from the true curve."""
    anchored = fitted
    if size:
        propensity = groups = None
        if queries is None:
            pairs = rng.integers(len(scores), size=size)
        else:
            pairs, propensity = choose_pairs(fitted, scores, size, segments=queries, seed=rng)
            groups = queries[pairs]
        chances = truth if queries is None else _by_query(truth, queries, rng)
        labels = (rng.random(len(pairs)) < chances[pairs]).astype(np.float64)
        anchored = anchor(
            fitted, scores[pairs], labels, propensity=propensity, groups=groups, population=scores
        )
    return float(np.abs(anchored.predict(scores) - truth).mean())


def _by_query(truth: Floats, queries: Ids, rng: np.random.Generator) -> Floats:
    """Probabilities with a level per query, whose mean over queries is the truth."""
    names, codes = np.unique(queries, return_inverse=True)
    levels = rng.normal(0, _GROUP_SD, len(names))
    typical = logit(truth.clip(1e-9, 1 - 1e-9)) * np.sqrt(1 + _FLATTENED * _GROUP_SD**2)
    return expit(typical + levels[codes])


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
    probabilities = fitted.predict(values)
    weights = np.sqrt(probabilities * (1 - probabilities))
    if importance is not None:
        factors = column("importance", importance, len(values))
        require_role("weight", "importance", factors)
        weights = weights * factors
    mean = float(weights.mean())
    # The mean is 1; where every outcome is certain, all pairs are alike.
    weights = smallest + (1 - smallest) * weights / mean if mean > 0 else np.ones(len(values))
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


def _inclusion_probabilities(weights: Floats, count: int) -> Floats:
    """Probabilities proportional to the weights, at most 1, that sum up to the count."""
    low, high = 0.0, count / float(weights.min())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if np.minimum(weights * middle, 1).sum() < count:
            low = middle
        else:
            high = middle
    return np.minimum(weights * high, 1)
