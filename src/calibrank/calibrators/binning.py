"""Binning calibration: histograms, and Bayesian averages of them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._logit import expit
from calibrank._validation import Floats, add_up
from calibrank.calibrators._steps import Bins, bin_means, effective_rows, halfway_edges, step_map
from calibrank.calibrators.calibrator import Calibrator, Desiderata
from calibrank.errors import DataError
from calibrank.maps import StepMap
from calibrank.summary import Summary


@dataclass(frozen=True, slots=True)
class Histogram(Calibrator):
    """The positive share within each of `bins` equally wide score bins (Zadrozny & Elkan 2001).

    A bin without rows takes a straight line between its neighbours. The paper uses 50 bins on Yahoo!R3, 15 on Coat.
    Desiderata: any score; not increasing, not expressive.

    >>> Histogram(bins=2).fit([0.0, 1.0, 3.0, 4.0], [0, 1, 1, 1]).predict([0.5, 3.5])
    array([0.5, 1. ])
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=False, expressive=False)
    bins: int = 50

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise DataError(f"bins must be at least 1, got {self.bins}.")

    def _fit(self, summary: Summary) -> StepMap:
        edges = np.unique(np.linspace(summary.low, summary.high, self.bins + 1)[1:-1])
        homes = np.searchsorted(edges, summary.scores, side="right")
        filled, bins = np.unique(homes, return_inverse=True)
        means = bin_means(summary, bins)
        values = np.interp(np.arange(len(edges) + 1), filled, means)
        effective = np.zeros(len(edges) + 1)
        effective[filled] = effective_rows(summary, bins, means)
        return step_map(self.name, summary, edges, values, effective)


@dataclass(frozen=True, slots=True)
class BBQ(Calibrator):
    """Bayesian binning into quantiles: histograms of equal mass, averaged by their evidence (Naeini et al. 2015).

    Scores pass through a sigmoid, as in the paper: the prior expects a bin's share at its place in (0, 1).
    Desiderata: any score (the paper's: only [0, 1]); not increasing, not expressive.

    >>> BBQ(bins=(2,)).fit([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1]).predict([-1.5, 1.5]).round(2)
    array([0.08, 0.92])
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=False, expressive=False)
    bins: tuple[int, ...] = (10, 20, 50, 100)

    def __post_init__(self) -> None:
        if not self.bins or min(self.bins) < 1:
            raise DataError(f"bins must be numbers of at least 1, got {self.bins}.")

    def _fit(self, summary: Summary) -> StepMap:
        from scipy.special import softmax  # noqa: PLC0415  (slow to load)

        models = [_QuantileModel.of(summary, count) for count in self.bins]
        weights = softmax([model.log_evidence for model in models])
        edges = np.unique(np.concatenate([model.edges for model in models]))
        inside = np.concatenate([[-np.inf], edges])  # the left end of every step of the average
        values = np.zeros(len(inside))
        doubt = np.zeros(len(inside))
        for model, weight in zip(models, weights, strict=True):
            at = np.searchsorted(model.edges, inside, side="right")
            values += weight * model.values[at]
            doubt += weight / np.maximum(model.effective[at], 1e-12)
        return step_map(self.name, summary, edges, np.clip(values, 0, 1), 1 / doubt)


@dataclass(frozen=True, slots=True)
class _QuantileModel:
    """One equal-mass histogram with Beta priors, and how well it explains the data."""

    edges: Floats
    values: Floats
    effective: Floats
    log_evidence: float

    @classmethod
    def of(cls, summary: Summary, count: int) -> "_QuantileModel":
        from scipy.special import gammaln  # noqa: PLC0415  (slow to load)

        bins = _equal_mass(summary, count)
        total = add_up(bins, summary.total)
        liked = bin_means(summary, bins) * total
        edges = halfway_edges(summary.scores, bins)
        ends = expit(np.concatenate([[-np.inf], edges, [np.inf]]))
        strength = 2 / len(total)
        # A saturated sigmoid would make the prior certain; nothing is.
        prior_liked = strength * np.clip((ends[:-1] + ends[1:]) / 2, 1e-6, 1 - 1e-6)
        prior_disliked = strength - prior_liked
        log_evidence = gammaln(strength) - gammaln(total + strength)
        log_evidence += gammaln(liked + prior_liked) - gammaln(prior_liked)
        log_evidence += gammaln(total - liked + prior_disliked) - gammaln(prior_disliked)
        values = (liked + prior_liked) / (total + strength)
        return cls(edges, values, effective_rows(summary, bins, values), float(log_evidence.sum()))


def _equal_mass(summary: Summary, count: int) -> Bins:
    """Bins of about equal mass, numbered from 0; equal scores are never parted."""
    total = summary.total
    middle = np.cumsum(total) - total / 2
    homes = np.minimum((count * middle / total.sum()).astype(np.intp), count - 1)
    bins: Bins = np.unique(homes, return_inverse=True)[1]
    return bins
