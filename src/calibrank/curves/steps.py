"""Step curves: histogram binning, Bayesian averages of histograms, and isotonic regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import MOST_BINS, shown, whole
from calibrank._internal.isotonic import pool_adjacent_violators
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, add_up
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.errors import DataError
from calibrank.maps import StepCurve
from calibrank.summary import Summary
from calibrank.summary.grid import MOST_DISTINCT

_LEAST_PRIOR_MEAN = 1e-6
"""Prior means stay this far from 0 and 1: a saturated sigmoid must not make the prior certain."""
_LEAST_EFFECTIVE_ROWS = 1e-12
"""Avoids a division by zero where a bin holds no evidence."""

_STEP_MARGIN = 3.0
"""The error of pooling steps, in units of the change on coarser bins.

The change estimates the error (a ratio of 0.2 to 2.2 in 640 fits of 80,000 and 400,000 rows, more
where many scores are tied), and the margin makes it a bound.
"""

Bins = npt.NDArray[np.intp]
"""The bin of each score of a summary: numbers from 0, in the order of the scores."""


@dataclass(frozen=True, slots=True)
class Histogram(Calibrator):
    """The positive rate within each of `bins` bins of equal width (Zadrozny & Elkan 2001).

    An empty bin is interpolated between its neighbours. The paper uses 50 bins on Yahoo!R3 and 15
    on Coat. Desiderata: any score; not increasing, not expressive.

    >>> Histogram(bins=2).fit([0.0, 1.0, 3.0, 4.0], [0, 1, 1, 1]).predict([0.5, 3.5])
    array([0.5, 1. ])
    """

    meets = Desiderata(any_score=True, increasing=False, expressive=False)
    distinct_scores = MOST_DISTINCT
    refit_margin = _STEP_MARGIN
    bins: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", whole("bins", self.bins, 1, MOST_BINS))

    def _fit(self, summary: Summary) -> tuple[StepCurve, dict[str, Any]]:
        # A range of only a few floats has fewer distinct edges than asked for.
        ends = np.linspace(summary.low, summary.high, self.bins + 1)
        edges = np.unique(ends[1:-1])
        steps = np.searchsorted(edges, summary.scores, side="right")
        filled, bins = np.unique(steps, return_inverse=True)
        means = _bin_means(summary, bins)
        values = np.interp(np.arange(len(edges) + 1), filled, means)
        effective = np.zeros(len(edges) + 1)
        effective[filled] = _effective_rows(summary, bins, means)
        return _step_curve(edges, values, effective), {}


@dataclass(frozen=True, slots=True)
class BBQ(Calibrator):
    """Bayesian binning into quantiles: an average of equal-mass histograms (Naeini et al. 2015).

    Each number of bins in `bins` gives one histogram, weighted by its marginal likelihood. Scores
    pass through a sigmoid, as in the paper: the prior mean of a bin is its centre in (0, 1).
    Desiderata: any score (the paper's: only [0, 1]); not increasing, not expressive.

    >>> BBQ(bins=(2,)).fit([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1]).predict([-1.5, 1.5]).round(2)
    array([0.08, 0.92])
    """

    meets = Desiderata(any_score=True, increasing=False, expressive=False)
    distinct_scores = MOST_DISTINCT
    refit_margin = _STEP_MARGIN
    bins: tuple[int, ...] = (10, 20, 50, 100)

    def __post_init__(self) -> None:
        if (
            not isinstance(self.bins, Sequence)
            or isinstance(self.bins, str | bytes)
            or not self.bins
        ):
            raise DataError(
                "bins", "be a tuple of numbers of bins", shown(self.bins), "Use e.g. (10, 20)."
            )
        counts = tuple([whole("bins", count, 1, MOST_BINS) for count in self.bins])
        object.__setattr__(self, "bins", counts)

    def _fit(self, summary: Summary) -> tuple[StepCurve, dict[str, Any]]:
        from scipy.special import softmax  # noqa: PLC0415  (slow to load)

        models = [_QuantileModel.of(summary, count) for count in self.bins]
        weights = softmax([model.log_marginal_likelihood for model in models])
        edges = np.unique(np.concatenate([model.edges for model in models]))
        step_starts = np.concatenate([[-np.inf], edges])
        values = np.zeros(len(step_starts))
        # Variances average, so effective numbers of rows average harmonically.
        inverse_rows = np.zeros(len(step_starts))
        for model, weight in zip(models, weights, strict=True):
            steps = np.searchsorted(model.edges, step_starts, side="right")
            values += weight * model.values[steps]
            rows = np.maximum(model.effective[steps], _LEAST_EFFECTIVE_ROWS)
            inverse_rows += weight / rows
        values = np.clip(values, 0, 1)
        return _step_curve(edges, values, 1 / inverse_rows), {}


@dataclass(frozen=True, slots=True)
class Isotonic(Calibrator):
    """Isotonic regression of the labels on the scores (Menon et al. 2012).

    Edges lie halfway between the scores of neighbouring steps. Desiderata: any score, increasing;
    not expressive (many scores tie within a step, which makes the ranking coarser).

    >>> Isotonic().fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1]).predict([2.0, 3.0, 4.0])
    array([0.5, 0.5, 1. ])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)
    distinct_scores = MOST_DISTINCT
    refit_margin = _STEP_MARGIN

    def _fit(self, summary: Summary) -> tuple[StepCurve, dict[str, Any]]:
        blocks = pool_adjacent_violators(summary.positive, summary.total)
        sizes = np.diff([*blocks.starts, len(summary)])
        bins = np.repeat(np.arange(len(sizes)), sizes)
        edges = _midpoint_edges(summary.scores, bins)
        effective = _effective_rows(summary, bins, blocks.values)
        return _step_curve(edges, blocks.values, effective), {}


@dataclass(frozen=True, slots=True)
class _QuantileModel:
    """One equal-mass histogram with a Beta prior in each bin, and its marginal likelihood."""

    edges: Floats
    values: Floats
    """The posterior mean of each bin's rate."""
    effective: Floats
    log_marginal_likelihood: float

    @classmethod
    def of(cls, summary: Summary, count: int) -> _QuantileModel:
        from scipy.special import gammaln  # noqa: PLC0415  (slow to load)

        bins = _equal_mass_bins(summary, count)
        total = add_up(bins, summary.total)
        positive = _bin_means(summary, bins) * total
        edges = _midpoint_edges(summary.scores, bins)
        # The prior of bin b is Beta(strength * mean_b, strength * (1 - mean_b)): two pseudo rows
        # in all, centred where the sigmoid puts the bin.
        strength = 2 / len(total)
        ends = expit(np.concatenate([[-np.inf], edges, [np.inf]]))
        centres = (ends[:-1] + ends[1:]) / 2
        prior_mean = centres.clip(_LEAST_PRIOR_MEAN, 1 - _LEAST_PRIOR_MEAN)
        prior_positive = strength * prior_mean
        prior_negative = strength - prior_positive
        after_positive = positive + prior_positive
        after_negative = total - positive + prior_negative
        # The beta-binomial likelihood, without the constant number of orderings.
        log_likelihood = gammaln(strength) - gammaln(total + strength)
        log_likelihood += gammaln(after_positive) - gammaln(prior_positive)
        log_likelihood += gammaln(after_negative) - gammaln(prior_negative)
        values = after_positive / (total + strength)
        effective = _effective_rows(summary, bins, values)
        return cls(edges, values, effective, float(log_likelihood.sum()))


def _equal_mass_bins(summary: Summary, count: int) -> Bins:
    """At most `count` bins of about equal mass; equal scores always share a bin."""
    total = summary.total
    # Each score goes to the bin that holds the middle of its mass.
    middle = np.cumsum(total) - total / 2
    quantiles = (count * middle / total.sum()).astype(np.intp)
    quantiles = np.minimum(quantiles, count - 1)
    # Empty bins are skipped, so that bins are numbered without gaps.
    return np.unique(quantiles, return_inverse=True)[1]


def _midpoint_edges(scores: Floats, bins: Bins) -> Floats:
    """Bin edges halfway between the last score of a bin and the first score of the next."""
    last = np.flatnonzero(np.diff(bins))
    # Halving before adding cannot overflow. Two neighbouring floats have no float between them:
    # the upper one is the edge then, since a score on an edge belongs to the bin above.
    middle = scores[last] / 2 + scores[last + 1] / 2
    return np.where(middle > scores[last], middle, scores[last + 1])


def _bin_means(summary: Summary, bins: Bins) -> Floats:
    """The positive rate of each bin, clipped to [0, 1]: inverse-propensity rates may exceed 1."""
    positive = add_up(bins, summary.positive)
    total = add_up(bins, summary.total)
    return np.clip(positive / total, 0, 1)


def _effective_rows(summary: Summary, bins: Bins, values: Floats) -> Floats:
    """The number of unweighted rows that would give each bin's value the same variance.

    A rate p over n unweighted rows has variance p (1 - p) / n, so n = p (1 - p) / variance. Kish's
    effective sample size, (sum of weights)^2 / (sum of squared weights), is the upper limit.
    """
    total = add_up(bins, summary.total)
    kish = total**2 / add_up(bins, summary.masses.total_squared)
    squared_residuals = summary.squared_residuals(values[bins])
    variance = add_up(bins, squared_residuals) / total**2
    binomial = values * (1 - values)
    defined = (binomial > 0) & (variance > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.where(defined, binomial / variance, kish)
    return np.minimum(rows, kish)


def _step_curve(edges: Floats, values: Floats, effective: Floats) -> StepCurve:
    """A curve with one step per value; there is one edge less than values."""
    return StepCurve(tuple(edges.tolist()), tuple(values.tolist()), tuple(effective.tolist()))
