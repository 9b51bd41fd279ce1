"""Refits under alternative propensity models, on groups of neighbouring scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, add_up, starts_of
from calibrank.anchoring.propensity_model import Positives, PropensityModel
from calibrank.anchoring.shift import shift_for, top_tenth
from calibrank.curves.calibrator import Calibrator
from calibrank.errors import CalibrankError, FlatMapWarning
from calibrank.evidence import Evidence
from calibrank.maps import Alternative, CalibrationMap
from calibrank.summary import Summary

EvidenceOf = Callable[..., Evidence]
"""A constructor of evidence from labels, propensities and weights, such as `ips`."""

# Groups of neighbouring scores: fine enough for a band.
_GROUPS = 2_000
# Bins in which the highest preference is looked for, by the fraction of scores below: 19 bins of
# 5%, and narrower ones at the top, where the likes of a large catalogue are.
_TAIL = (0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
_BIN_STARTS = np.concatenate([np.linspace(0, 0.9, 19), _TAIL])
# The largest of 25 standard normal deviates exceeds this with probability 5%.
_STANDARD_ERRORS = 2.88
# The smallest scale of propensities that is considered.
_SMALLEST_SCALE = 1e-3
# The band's probabilities stay this far from 0 and 1.
_MARGIN = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class AlternativeCurve:
    """The log odds under one propensity model, at the scores of the band."""

    alternative: Alternative
    log_odds: Floats
    smallest_scale: float
    """A lower bound on the true scale of the propensities: the highest preference at any scores."""
    rate_error: float = 0.0
    """The sampling error of the base rate; 0 where the rate is known."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreGroups:
    """A log in groups of neighbouring scores: unobserved mass, and the group of each positive.

    Only the positives are reweighted by another propensity model, so a refit takes milliseconds.
    """

    scores: Floats
    """The mean score of each group."""
    unobserved: Floats
    codes: npt.NDArray[np.intp]
    """The group of each positive."""
    positives: Positives
    evidence_of: EvidenceOf
    kind: str

    @classmethod
    def of(
        cls,
        summary: Summary,
        positives: Positives,
        propensity_model: PropensityModel,
        evidence_of: EvidenceOf,
    ) -> ScoreGroups:
        """Group a summary whose evidence was made with this propensity model."""
        mass_below = np.cumsum(summary.total) - summary.total
        quantiles = mass_below * _GROUPS // summary.total.sum()
        quantiles = np.minimum(quantiles, _GROUPS - 1)
        first = starts_of(quantiles)
        groups = np.cumsum(first) - 1
        total = add_up(groups, summary.total)
        scores = add_up(groups, summary.total * summary.scores) / total
        lowest = summary.scores[first]
        codes = np.searchsorted(lowest, positives.scores, side="right") - 1
        codes = np.maximum(codes, 0)
        evidence = _positive_evidence(positives, propensity_model, evidence_of)
        observed = add_up(codes, evidence.total, len(total))
        remaining = np.maximum(total - observed, 0)
        unobserved = remaining / propensity_model.negatives
        return cls(scores, unobserved, codes, positives, evidence_of, summary.kind)

    @property
    def total(self) -> Floats:
        """The number of pairs in each group, unobserved and observed."""
        observed = add_up(self.codes, self.positives.weights, len(self.scores))
        return self.unobserved + observed

    def evidence(self, propensity_model: PropensityModel) -> tuple[Evidence, Floats]:
        """The evidence of each group under a propensity model, and its sum of squared positives."""
        size = len(self.scores)
        rows = _positive_evidence(self.positives, propensity_model, self.evidence_of)
        positive = add_up(self.codes, rows.positive, size)
        observed = add_up(self.codes, rows.total, size)
        unobserved = self.unobserved * propensity_model.negatives
        # An empty group keeps a negligible mass, so that no division by zero follows.
        total = np.maximum(unobserved + observed, 1e-300)
        squares = add_up(self.codes, rows.positive**2, size)
        return Evidence.trusted(positive, total, self.kind), squares

    def curves(
        self,
        fitted: CalibrationMap,
        calibrator: Calibrator,
        models: Sequence[tuple[str, PropensityModel]],
        scores: Floats,
        rate: float | None,
    ) -> Iterator[AlternativeCurve]:
        """A curve per propensity model; the first model is the one that the fit used."""
        chosen: CalibrationMap | None = None
        for index, (name, model) in enumerate(models):
            evidence, squares = self.evidence(model)
            refit = self._refit(calibrator, evidence)
            if index == 0:
                chosen = refit
            mass = evidence.total / evidence.total.sum()
            mean = rate
            if mean is None:
                mean = min(_overall_rate(evidence), 1.0)
            error = 0.0 if rate is not None else _rate_error(evidence, squares)
            if chosen is None or refit is None:
                curve = self._shifted_curve(fitted, name, mass, mean, scores)
                yield replace(curve, rate_error=error)
                continue
            moved = _moved(fitted, chosen, refit, self.scores)
            shift = 0.0 if rate is None else shift_for(moved, mass, rate)
            top_rate = float(top_tenth(self.scores, mass) @ expit(moved + shift))
            log_odds = _moved(fitted, chosen, refit, scores) + shift
            alternative = Alternative(name, mean, top_rate)
            smallest_scale = _highest_preference(evidence, squares)
            yield AlternativeCurve(alternative, log_odds, smallest_scale, error)

    def _shifted_curve(
        self, fitted: CalibrationMap, name: str, mass: Floats, mean: float, scores: Floats
    ) -> AlternativeCurve:
        """The fit at another base rate, for a propensity model without a finite fit."""
        log_odds = clipped_log_odds(fitted.log_odds(self.scores))
        shift = shift_for(log_odds, mass, min(mean, 1 - _MARGIN))
        shifted = clipped_log_odds(fitted.log_odds(scores)) + shift
        return AlternativeCurve(Alternative(name, mean, None), shifted, 1.0)

    def _refit(self, calibrator: Calibrator, evidence: Evidence) -> CalibrationMap | None:
        try:
            # Weighted labels above 1 can make a fit diverge, which is no finite fit either.
            with warnings.catch_warnings(), np.errstate(over="raise"):
                warnings.simplefilter("ignore", FlatMapWarning)
                return calibrator.fit(self.scores, evidence)
        except (CalibrankError, FloatingPointError):
            return None


def _positive_evidence(
    positives: Positives, propensity_model: PropensityModel, evidence_of: EvidenceOf
) -> Evidence:
    propensity = propensity_model.propensity(positives.exposure)
    labels = np.ones(len(positives.scores))
    return evidence_of(labels, propensity, weights=positives.weights)


def _overall_rate(evidence: Evidence) -> float:
    return float(evidence.positive.sum() / evidence.total.sum())


def _rate_error(evidence: Evidence, squares: Floats) -> float:
    """How far sampling error may put the overall rate from its expectation."""
    return float(_STANDARD_ERRORS * np.sqrt(squares.sum()) / evidence.total.sum())


def _moved(
    fitted: CalibrationMap, chosen: CalibrationMap, refit: CalibrationMap, scores: Floats
) -> Floats:
    """The log odds of the fit plus the difference that another propensity model makes.

    Groups are coarser than the data, so only differences of refits on groups are used.
    """
    log_odds = clipped_log_odds(fitted.log_odds(scores))
    before = clipped_log_odds(chosen.log_odds(scores))
    after = clipped_log_odds(refit.log_odds(scores))
    return clipped_log_odds(log_odds + after - before)


def _highest_preference(evidence: Evidence, squares: Floats) -> float:
    """A lower confidence bound on the highest positive rate among bins of scores."""
    below = cumulative_fractions(evidence.total)
    bins = np.searchsorted(_BIN_STARTS, below, side="right") - 1
    size = len(_BIN_STARTS)
    positive = add_up(bins, evidence.positive, size)
    total = add_up(bins, evidence.total, size)
    squared = add_up(bins, squares, size)
    filled = total > 0
    # The sum of squared positives estimates the variance of a sum of inverse-propensity positives.
    errors = _STANDARD_ERRORS * np.sqrt(squared[filled])
    lower = (positive[filled] - errors) / total[filled]
    overall = _overall_rate(evidence) - _rate_error(evidence, squares)
    highest = max(lower.max(), overall)
    return float(np.clip(highest, _SMALLEST_SCALE, 1))


def clipped_log_odds(log_odds: Floats) -> Floats:
    """Log odds whose probabilities stay away from 0 and 1."""
    return np.clip(log_odds, logit(_MARGIN), logit(1 - _MARGIN))


def clipped_logit(probabilities: Floats) -> Floats:
    """Log odds of probabilities clipped away from 0 and 1."""
    return logit(np.clip(probabilities, _MARGIN, 1 - _MARGIN))


def cumulative_fractions(mass: Floats) -> Floats:
    """The position of each group's middle in the cumulative mass, from 0 to 1."""
    return (np.cumsum(mass) - mass / 2) / mass.sum()
