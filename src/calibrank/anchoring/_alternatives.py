"""Propensity models, and refits under alternative ones on groups of neighbouring scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import real
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, add_up, starts_of
from calibrank.anchoring.known_rate import clipped_log_odds, shift_for, top_tenth
from calibrank.curves.calibrator import Calibrator
from calibrank.errors import CalibrankError, FlatMapWarning
from calibrank.evidence import Evidence
from calibrank.maps import Alternative, CalibrationMap
from calibrank.propensity.estimators import power_law
from calibrank.summary import Summary

EvidenceOf = Callable[..., Evidence]
"""A constructor of evidence from labels, propensities and weights, such as `ips`."""

_POWER_FACTORS = (0.5, 1.5, 2.0)
_CLIPS_FOR_UNCLIPPED = (0.05, 0.1)
# A sample of this size determines the band.
_MAX_POSITIVES = 50_000
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


@dataclass(frozen=True, slots=True)
class PropensityModel:
    """How relative exposure becomes a propensity, and the weight of unobserved pairs.

    The propensity is exposure ** power, at least `clip`. `negatives` is the weight of each
    unobserved pair in the fit.
    """

    power: float = 0.5
    clip: float = 0.1
    negatives: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "power", real("power", self.power, "[0, inf)"))
        object.__setattr__(self, "clip", real("clip", self.clip, "[0, 1]"))
        object.__setattr__(self, "negatives", real("negatives", self.negatives, "(0, inf)"))

    def propensity(self, exposure: Floats) -> Floats:
        """P(observed) of pairs with this relative exposure."""
        return power_law(exposure, self.power, self.clip)

    def alternatives(self, *, scale_known: bool) -> Iterator[tuple[str, PropensityModel]]:
        """Other plausible models, each with a name; known propensities keep their power.

        No propensity exceeds 1, so the rate if all pairs were exposed is a lower limit.
        """
        if self.power and not scale_known:
            yield "all pairs exposed", replace(self, power=0.0)
            for factor in _POWER_FACTORS:
                power = self.power * factor
                yield f"power {power:g}", replace(self, power=power)
        clips = _CLIPS_FOR_UNCLIPPED
        if self.clip:
            clips = (self.clip / 2, min(self.clip * 2, 1.0))
        for clip in clips:
            if clip != self.clip:
                yield f"clip {clip:g}", replace(self, clip=clip)
        yield "half the negatives", replace(self, negatives=self.negatives / 2)
        yield "twice the negatives", replace(self, negatives=self.negatives * 2)


@dataclass(frozen=True, slots=True, eq=False)
class Positives:
    """The observed positives of a log: the only rows whose evidence a propensity model changes."""

    scores: Floats
    exposure: Floats
    weights: Floats

    def sample(self) -> Positives:
        """Every n-th positive with n times the weight, if there are very many."""
        step = -(-len(self.scores) // _MAX_POSITIVES)
        if step <= 1:
            return self
        return Positives(self.scores[::step], self.exposure[::step], self.weights[::step] * step)


@dataclass(frozen=True, slots=True, eq=False)
class AlternativeCurve:
    """The log odds under one propensity model, at the scores of the band."""

    alternative: Alternative
    log_odds: Floats
    smallest_scale: float
    """A lower bound on the true scale of the propensities: the highest preference at any scores."""
    rate_error: float
    """The sampling error of the base rate."""


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
    ) -> Iterator[AlternativeCurve]:
        """A curve per propensity model; the first model is the one that the fit used.

        Groups are coarser than the data, so only differences of refits on groups are used.
        """
        size = len(self.scores)
        points = np.concatenate([self.scores, scores])
        first: CalibrationMap | None = None
        for index, (name, model) in enumerate(models):
            evidence, squares = self.evidence(model)
            refit = self._refit(calibrator, evidence)
            first = refit if index == 0 else first
            mass = evidence.total / evidence.total.sum()
            mean = min(_overall_rate(evidence), 1.0)
            log_odds = clipped_log_odds(fitted.log_odds(points))
            smallest_scale = 1.0
            if first is None or refit is None:
                # Without a finite fit, a model counts by its base rate.
                log_odds = log_odds + shift_for(log_odds[:size], mass, min(mean, 1 - 1e-6))
            else:
                change = clipped_log_odds(refit.log_odds(points))
                change = change - clipped_log_odds(first.log_odds(points))
                log_odds = clipped_log_odds(log_odds + change)
                smallest_scale = _highest_preference(evidence, squares)
            top_rate = float(top_tenth(self.scores, mass) @ expit(log_odds[:size]))
            alternative = Alternative(name, mean, None if refit is None else top_rate)
            error = _rate_error(evidence, squares)
            yield AlternativeCurve(alternative, log_odds[size:], smallest_scale, error)

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


def cumulative_fractions(mass: Floats) -> Floats:
    """The position of each group's middle in the cumulative mass, from 0 to 1."""
    return (np.cumsum(mass) - mass / 2) / mass.sum()
