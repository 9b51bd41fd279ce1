"""Anchor a map on a few labels that can be trusted more than those of its fit.

A biased log determines the shape of P(preferred | score) partly and the base rate hardly at all.
Labels collected under random exposure (or by people instead of a judge) determine both without
bias, but there are few of them. `anchor` combines the two by Bayesian model averaging
(`posterior`), with priors centred at the biased fit. The result is a piecewise curve, whose log
odds are linear between quantiles of the population, plus the terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibrank._internal.json import digest_of_rows, sketch_of_rows
from calibrank._internal.logit import expit, logit
from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.segment_keys import names_of
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Numbers,
    add_up,
    column,
    ids,
    require,
    score_column,
)
from calibrank.anchoring._laplace import LogisticPosteriors
from calibrank.anchoring._population import Population, moved_start, population_of
from calibrank.anchoring._terms_of import Anchored, anchored_terms, default_terms, start_log_odds
from calibrank.anchoring.posterior import PosteriorCurve, RandomLabels, posterior_curve
from calibrank.composition import refusal
from calibrank.evidence import Evidence, Labels, as_evidence
from calibrank.maps import Anchoring, CalibrationMap, FitRecord, PiecewiseCurve
from calibrank.maps.calibration_map import require_map
from calibrank.metrics import LogLoss
from calibrank.terms import TermSpec

# The correlation of two labels of one group before the labels, and how many groups it counts for.
# Queries of judged pools have 0.1 to 0.3.
PRIOR_CORRELATION = 0.2
PRIOR_GROUPS = 5.0
_SMALLEST_VARIANCE = 1e-6
# Evidence in which each positive counts as several rows.
_INVERSE_POSITIVES = ("ips", "doubly_robust")
# Standard errors within which 95% of estimates are.
_BY_CHANCE = 1.96
# Log odds gained over the population at least, so that different scores stay different.
_SMALLEST_RISE = 1e-6
# Beyond the outermost quantiles, the slope is that over this fraction of the population.
_END_FRACTION = 0.02
# Ends that are nearer than this to the outermost quantile, relative to the range, are left out.
_NEGLIGIBLE_END = 1e-3
# Beyond these log odds a probability is 0 or 1, and a knot would only be a large number.
_LARGEST_LOG_ODDS = 100.0
# Log odds stay finite where every curve rounds to 0 or 1.
_SMALLEST_PROBABILITY = 1e-12


def anchor(
    fitted: CalibrationMap,
    scores: Numbers,
    labels: Labels,
    columns: Any = None,
    *,
    propensity: Numbers | None = None,
    groups: IdsLike | None = None,
    population: Numbers | None = None,
    terms: Sequence[TermSpec] | None = None,
) -> CalibrationMap:
    """Combine a map with a few labels that can be trusted more than those of its fit.

    The map may be any: of a biased log, of a judge's labels, at a known rate, with terms, or
    anchored already. It matters most while labels are few: with thousands of them the result is as
    flexible as an isotonic fit, and smoother. `labels` are 0 and 1, or any evidence: counts, soft
    labels, inverse propensities. A row of naive evidence with weight k counts as k labels.

    `columns` has the columns of the map's terms. How the map's levels and functions differ is as
    uncertain as its base rate: the labels decide how much of them is kept, and change them as far
    as they support it. `terms` adds further ones, such as `Level("country")` or `Position("rank")`.
    By default they are smooth terms of item popularity and user activity, where `columns` has them
    (`calibrank.anchoring.count_columns`); `terms=()` leaves them out.

    `propensity` is the exploration policy's probability of showing each pair, if it was not the
    same for all. `groups` are queries or users: labels of one group are alike, and count for less.
    `population` holds scores of the pairs that probabilities are wanted for; by default they are
    those of the map's fit, of which its record has a sketch. Where they do not look like the
    sketch, because the model was replaced, the map on the scale of ranks is a second start
    (`transfer`), and the labels decide. `record.anchoring` has the base rate before and after: that
    of `population`, or of pairs like the labelled ones where those of the fit were others.

    Where the map has an interval of its base rate (`record.base_rate_range`), the intercept's prior
    has that width with probability 0.9. The slope is as uncertain as without an interval, unless
    the interval is the sampling error of labels that the map was anchored on before.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> anchored = anchor(biased, scores=[-1.0, 0.5, 2.0, 2.5], labels=[0, 0, 0, 1])
    >>> bool(anchored.predict(2.0) < biased.predict(2.0))
    True
    """
    require_map(fitted)
    if fitted.record.evidence == "positive_ips":
        raise refusal("positive_ips", "anchor, another base rate")
    shown = score_column(scores)[0].astype(np.float64)
    given = as_evidence(labels, len(shown))
    weights = label_weights(propensity, len(shown)) / _excess_variance(given)
    offset, has_terms = start_log_odds(fitted, shown, columns)
    pairs = population_of(fitted, shown, population)
    shares = weights * given.total
    alone = fitted.without_terms()
    if groups is not None:
        weights = weights * group_weights(alone, shown, given, offset, groups)
    total, positive = weights * given.total, weights * given.positive
    random_labels = RandomLabels(shown, total, positive, offset, has_terms)
    moved = None if population is None else moved_start(alone, pairs)
    starts = [alone] if moved is None else [alone, moved]
    is_judged = fitted.record.population is not None
    curve = posterior_curve(
        starts, random_labels, pairs, fitted.record.base_rate_range, is_judged=is_judged
    )
    # A start at ranks stands for the population alone: the old scores are on another scale.
    ends = np.array([*starts[-1].curve.span, shown.min(), shown.max(), *pairs.scores[[0, -1]]])
    piecewise = _piecewise_curve(curve, float(ends.min()), float(ends.max()))
    all_pairs, variance = pairs, 0.0
    if population is None and not is_judged:
        all_pairs, variance = _pairs_of_rate(curve, pairs, shown, shares)
    rate, rate_range = _rate(curve, all_pairs, variance)
    start_rate = pairs.mean(expit(alone.log_odds(pairs.grid)))
    anchoring = Anchoring(
        labels=len(shown),
        effective_labels=float(total.sum()),
        intercept=curve.intercept,
        slope=curve.slope,
        curvature=curve.curvature,
        rate=rate,
        rate_range=rate_range,
        start_rate=start_rate,
        term_factor=curve.term_factor if has_terms else None,
        digest=digest_of_rows(shown, given.positive),
        row_hashes=sketch_of_rows(shown, given.positive),
    )
    record = _record_of(fitted, anchoring, _rate(curve, pairs)[1])
    evidence = Evidence.trusted(positive, total, "naive")
    if terms is None:
        terms = default_terms(fitted, [] if columns is None else names_of("columns", columns))
    start = Anchored(fitted, piecewise, record, curve.term_factor)
    result = anchored_terms(start, terms, shown, evidence, columns, population)
    loss = LogLoss()(result.predict(shown, columns), evidence)
    # Terms are fitted with the curve, which is another one then: the rate is of that before.
    pairs_of_maps = ((result, start.curve), (fitted, alone))
    moves = [_move_of_terms(*maps, shown, columns, total) for maps in pairs_of_maps]
    anchoring = _moved(anchoring, *moves)
    return replace(result, record=replace(result.record, loss=loss, anchoring=anchoring))


def _record_of(
    fitted: CalibrationMap, anchoring: Anchoring, rate_range: tuple[float, float]
) -> FitRecord:
    """The record; the range is for pairs like those of the fit, from which labels start again."""
    return replace(
        fitted.record,
        base_rate_source="random labels",
        anchoring=anchoring,
        base_rate=None,
        base_rate_range=rate_range,
        top_rate=None,
        sensitivity=None,
        # These describe the solution of the biased fit, which the anchored curve is not.
        residual=None,
        iterations=0,
        at_bound=(),
    )


def _move_of_terms(
    each: CalibrationMap, curve: CalibrationMap, shown: Floats, columns: Any, total: Floats
) -> float:
    """How far the log odds of a map's mean probability over labelled pairs are from a curve's."""
    if not each.terms:
        return 0.0
    pair = np.average([each.predict(shown, columns), curve.predict(shown)], axis=1, weights=total)
    whole, alone = logit(pair.clip(1e-9, 1 - 1e-9))
    return float(whole - alone)


def _moved(anchoring: Anchoring, move: float, start_move: float) -> Anchoring:
    """With the rates of the map instead of its curve, which is that of a typical level."""
    found = [anchoring.rate, *(anchoring.rate_range or ()), anchoring.start_rate]
    moves = [move, move, move, start_move]
    rate, low, high, start = expit(logit(np.array(found, dtype=float)) + moves).tolist()
    return replace(anchoring, rate=rate, rate_range=(low, high), start_rate=start)


def _pairs_of_rate(
    curve: PosteriorCurve, pairs: Population, shown: Floats, shares: Floats
) -> tuple[Population, float]:
    """The pairs that the base rate is stated for, and the variance of it that sampling them adds.

    Pairs shown at random are a sample of all pairs. Where their mean probability differs by more
    than chance from that of the fit's pairs, the fit was on others, such as those that a ranker
    chose to show, and the rate is that of the labelled pairs.
    """
    labelled = pairs.of_pairs(shown, shares)
    effective = shares.sum() ** 2 / (shares**2).sum()
    variance = labelled.spread(curve.probabilities) ** 2 / float(effective)
    difference = labelled.mean(curve.probabilities) - pairs.mean(curve.probabilities)
    if difference**2 > _BY_CHANCE**2 * variance:
        return labelled, variance
    return pairs, 0.0


def _rate(
    curve: PosteriorCurve, population: Population, sampling_variance: float = 0.0
) -> tuple[float, tuple[float, float]]:
    """The mean probability over the population and its 95% interval, in log odds."""
    rate = population.mean(curve.probabilities)
    gradient = population.weights * curve.probabilities * (1 - curve.probabilities)
    variance = float(gradient @ curve.covariance @ gradient) + sampling_variance
    error = float(np.sqrt(max(variance, 0.0)))
    rate = min(max(rate, 1e-9), 1 - 1e-9)
    margin = _BY_CHANCE * max(error / (rate * (1 - rate)), 1e-6)
    return rate, (float(expit(logit(rate) - margin)), float(expit(logit(rate) + margin)))


def label_weights(propensity: Numbers | None, rows: int) -> Floats:
    """Inverse propensities of the exploration policy; they sum to the effective sample size."""
    if propensity is None:
        return np.ones(rows)
    chances = column("propensity", propensity, rows)
    rule = COLUMN_RULES["propensity"]
    remedy = "Log the policy's probabilities."
    require(rule.holds, "propensity", rule.statement_for, chances, remedy)
    inverse = 1 / chances
    # Kish: (sum of w)^2 / sum of w^2 labels of equal weight have the same variance.
    return inverse * inverse.sum() / (inverse**2).sum()


def _excess_variance(evidence: Evidence) -> float:
    """How many times the variance of as many 0/1 labels the sums of the evidence have.

    A row of weight k is k rows, but one that stands for 1 / propensity of them is a single one.
    """
    positive, total = evidence.positive, evidence.total
    if evidence.kind == "impressions":
        # Kish, as in `label_weights`.
        return float((total**2).sum() / total.sum())
    if evidence.kind not in _INVERSE_POSITIVES:
        return 1.0
    rate = float(np.clip(positive.sum() / total.sum(), 0, 1))
    expected = rate * (1 - rate) * float(total.sum())
    found = float(((positive - rate * total) ** 2).sum())
    return max(found / max(expected, _SMALLEST_VARIANCE), 1.0)


def group_weights(
    fitted: CalibrationMap, scores: Floats, evidence: Evidence, offset: Floats, groups: IdsLike
) -> Floats:
    """The weight of each label: m labels with correlation r count as m / (1 + (m - 1) r).

    The correlation is that of the residuals of two labels of one group, after the level and the
    slope of the map were fitted to all labels; with few groups it stays near its prior.
    """
    names, codes = np.unique(ids("groups", groups, len(scores)), return_inverse=True)
    sizes = np.bincount(codes)
    pairs = float((sizes * (sizes - 1)).sum())
    if not pairs:
        return np.ones(len(scores))
    log_odds = fitted.curve.log_odds(scores).clip(-14, 14) + offset
    shares = evidence.positive / np.maximum(evidence.total, 1e-300)
    design = np.vstack([np.ones_like(log_odds), log_odds])
    prior = (np.array([[0.0, 1.0]]), np.array([[2.0, 0.5]]))
    modes, _ = LogisticPosteriors(design, np.ones(len(scores)), shares, *prior).solve()
    probabilities = expit(modes[0] @ design)
    variances = np.maximum(probabilities * (1 - probabilities), _SMALLEST_VARIANCE)
    residuals = (shares - probabilities) / np.sqrt(variances)
    products = float((add_up(codes, residuals) ** 2).sum() - (residuals**2).sum())
    count = len(names)
    # A level and a slope were fitted to the same labels, which takes two groups' worth from them.
    found = np.clip(products / pairs * count / max(count - 2, 1), 0, 1)
    weight = max(float((sizes > 1).sum()) - 2, 0.0)
    correlation = (weight * found + PRIOR_GROUPS * PRIOR_CORRELATION) / (weight + PRIOR_GROUPS)
    weights: Floats = 1 / (1 + (sizes - 1) * correlation)
    return weights[codes]


def _piecewise_curve(posterior: PosteriorCurve, lowest: float, highest: float) -> PiecewiseCurve:
    """The curve through a posterior curve, rising at least a little, over all of the scores."""
    smallest, largest = _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY
    values = logit(np.clip(posterior.probabilities, smallest, largest))
    values = values + np.linspace(0, _SMALLEST_RISE, len(values))
    knots, covariance = posterior.scores, posterior.covariance
    errors = np.sqrt(np.maximum(np.diag(covariance), 0))
    reach = max(1, round(_END_FRACTION * len(knots)))
    slopes, slope_errors = [], []
    for outer, inner in ((0, reach), (-1, -1 - reach)):
        distance = knots[outer] - knots[inner]
        variance = covariance[outer, outer] + covariance[inner, inner]
        variance = variance - 2 * covariance[outer, inner]
        slopes.append(float((values[outer] - values[inner]) / distance))
        slope_errors.append(float(np.sqrt(max(variance, 0.0)) / abs(distance)))
    negligible = _NEGLIGIBLE_END * (highest - lowest)
    for side, end in ((0, lowest), (-1, highest)):
        distance = end - knots[side]
        value = values[side] + slopes[side] * distance
        if abs(distance) > negligible and abs(value) < _LARGEST_LOG_ODDS:
            error = errors[side] + slope_errors[side] * abs(distance)
            place = len(knots) if side else 0
            knots = np.insert(knots, place, end)
            values = np.insert(values, place, value)
            errors = np.insert(errors, place, error)
    return PiecewiseCurve(
        knots=tuple(knots.tolist()),
        values=tuple(values.tolist()),
        end_slopes=(slopes[0], slopes[1]),
        value_errors=tuple(errors.tolist()),
        slope_errors=(slope_errors[0], slope_errors[1]),
    )
