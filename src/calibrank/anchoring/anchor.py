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

from calibrank._internal.json import digest_of_rows
from calibrank._internal.logit import expit, logit
from calibrank._internal.segment_keys import names_of
from calibrank._internal.validation import Floats, IdsLike, Numbers, column, require, score_column
from calibrank.anchoring._anchored_curve import anchored_curve
from calibrank.anchoring._groups import group_weights
from calibrank.anchoring._population import Population, population_of
from calibrank.anchoring._terms_of import Anchored, anchored_terms, start_log_odds
from calibrank.anchoring.count_columns import default_terms
from calibrank.anchoring.posterior import PosteriorCurve, RandomLabels
from calibrank.anchoring.transfer import moved_start
from calibrank.composition import refusal
from calibrank.evidence import Evidence, Labels, as_evidence, is_usable
from calibrank.maps import Anchoring, CalibrationMap
from calibrank.maps.calibration_map import require_map
from calibrank.metrics import LogLoss
from calibrank.terms import TermSpec


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
    labels, weights.

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
    (`transfer`), and the labels decide. `record.anchoring` has the base rate before and after.

    Where the map has an interval for its base rate (`record.base_rate_range`), the intercept's
    prior has that width or less with probability 0.98. Otherwise the prior is as wide as if there
    were no interval.

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
    weights = label_weights(propensity, len(shown))
    offset = start_log_odds(fitted, shown, columns)
    pairs = population_of(fitted, shown, population)
    alone = fitted.without_terms()
    if groups is not None:
        weights = weights * group_weights(alone, shown, given, offset, groups)
    total, positive = weights * given.total, weights * given.positive
    random_labels = RandomLabels(shown, total, positive, offset)
    moved = None if population is None else moved_start(alone, pairs)
    anchored, curve = anchored_curve(
        [alone] if moved is None else [alone, moved],
        random_labels,
        pairs,
        fitted.record.base_rate_range,
        is_judged=fitted.record.population is not None,
    )
    rate, rate_range = _rate(curve, pairs)
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
        term_factor=None if offset is None else curve.term_factor,
        digest=digest_of_rows(shown, given.positive),
    )
    record = replace(
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
    evidence = Evidence.trusted(positive, total, "naive")
    if terms is None:
        terms = default_terms(fitted, [] if columns is None else names_of("columns", columns))
    start = Anchored(fitted, anchored, record, curve.term_factor)
    result = anchored_terms(start, terms, shown, evidence, columns, population)
    loss = LogLoss()(result.predict(shown, columns), evidence)
    return replace(result, record=replace(result.record, loss=loss))


def _rate(curve: PosteriorCurve, population: Population) -> tuple[float, tuple[float, float]]:
    """The mean probability over the population and its 95% interval, in log odds."""
    rate = population.mean(curve.probabilities)
    gradient = population.weights * curve.probabilities * (1 - curve.probabilities)
    variance = float(gradient @ curve.covariance @ gradient)
    error = float(np.sqrt(max(variance, 0.0)))
    rate = min(max(rate, 1e-9), 1 - 1e-9)
    margin = 1.96 * max(error / (rate * (1 - rate)), 1e-6)
    return rate, (float(expit(logit(rate) - margin)), float(expit(logit(rate) + margin)))


def label_weights(propensity: Numbers | None, rows: int) -> Floats:
    """Inverse propensities of the exploration policy; they sum to the effective sample size."""
    if propensity is None:
        return np.ones(rows)
    chances = column("propensity", propensity, rows)
    remedy = "Log the policy's probabilities."
    require(is_usable, "propensity", "lie in (0, 1]", chances, remedy)
    inverse = 1 / chances
    # Kish: (sum of w)^2 / sum of w^2 labels of equal weight have the same variance.
    return inverse * inverse.sum() / (inverse**2).sum()
