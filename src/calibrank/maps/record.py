"""The record of a map: its data, how well the fit was solved, and the source of its base rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrank._internal.arguments import real, shown
from calibrank._internal.json import Fields
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.errors import DataError

BASE_RATE_SOURCES = ("assumed", "random labels", "known rate")
"""Where the base rate of a map can come from."""

ASSUMPTIONS = ("item popularity", "relative propensities", "logged propensities")
"""What a sensitivity analysis can assume about exposure; only the last one fixes its scale."""

# So few labels of random pairs can be had anywhere: a range that is wider than theirs is no answer.
_FEW_LABELS = 30


def rate_margin(rate: float, labels: int) -> float:
    """Half the width of the 95% interval of a rate that is estimated from random labels.

    >>> round(rate_margin(0.5, 300), 3)
    0.057
    """
    return float(1.96 * np.sqrt(rate * (1 - rate) / labels))


@dataclass(frozen=True, slots=True)
class Anchoring:
    """The random labels of an anchored map, and how much of its curve they determined."""

    labels: int
    effective_labels: float
    """Effective sample size of the labels."""
    intercept: float
    """Fraction of the prior variance of the intercept that the labels removed; so below."""
    slope: float
    curvature: float

    @classmethod
    def read(cls, fields: Fields) -> Anchoring:
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        return cls(
            labels=fields.count("labels"),
            effective_labels=fields.number("effective_labels"),
            intercept=fields.number("intercept"),
            slope=fields.number("slope"),
            curvature=fields.number("curvature"),
        )


@dataclass(frozen=True, slots=True)
class Alternative:
    """One propensity model of a sensitivity analysis, and the mean preference under it."""

    name: str
    rate: float
    """Mean preference over all rows."""
    top_rate: float | None
    """Mean preference over the tenth with the highest scores; None without a finite fit."""

    @classmethod
    def read(cls, fields: Fields) -> Alternative:
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        return cls(fields.text("name"), fields.number("rate"), fields.optional("top_rate"))


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What a biased log leaves undetermined: a range of base rates and a band of log odds."""

    low_rate: float
    high_rate: float
    alternatives: tuple[Alternative, ...]
    scores: tuple[float, ...]
    """Scores at which the band is known."""
    low: tuple[float, ...]
    """Lower ends of the band, in log odds."""
    high: tuple[float, ...]
    assumption: str = "relative propensities"
    """What exposure is assumed to depend on; one of `ASSUMPTIONS`."""
    exposure_factor: float = 1.0
    """By which factor exposure may deviate from the assumption, through users and preference."""

    def __post_init__(self) -> None:
        lengths = {len(self.scores), len(self.low), len(self.high)}
        if len(lengths) > 1 or len(self.scores) < 2:
            raise DataError(
                "a sensitivity band must have one lower and one upper end per score, "
                f"for two or more scores, got lengths {sorted(lengths)}."
            )
        if not 0 <= self.low_rate <= self.high_rate <= 1:
            raise DataError(
                f"base rates must be increasing within [0, 1], "
                f"got {self.low_rate} to {self.high_rate}."
            )
        if self.assumption not in ASSUMPTIONS:
            known = ", ".join(ASSUMPTIONS)
            raise DataError(f"assumption must be one of {known}, got {self.assumption!r}.")
        if not 1 <= self.exposure_factor < np.inf:
            raise DataError(
                f"exposure_factor must be finite and 1 or more, got {self.exposure_factor}."
            )

    @property
    def is_informative(self) -> bool:
        """Whether the range of base rates is narrower than a few random labels would leave it."""
        middle = (self.low_rate + self.high_rate) / 2
        return self.high_rate - self.low_rate < 2 * rate_margin(middle, _FEW_LABELS)

    def ends(self, scores: Floats) -> tuple[Floats, Floats]:
        """Lower and upper probabilities of the band, constant beyond its first and last score."""
        low = np.interp(scores, self.scores, self.low)
        high = np.interp(scores, self.scores, self.high)
        return expit(low), expit(high)

    @classmethod
    def read(cls, fields: Fields) -> Sensitivity:
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        alternatives = [Alternative.read(child) for child in fields.children("alternatives")]
        return cls(
            low_rate=fields.number("low_rate"),
            high_rate=fields.number("high_rate"),
            alternatives=tuple(alternatives),
            scores=tuple(fields.numbers("scores")),
            low=tuple(fields.numbers("low")),
            high=tuple(fields.numbers("high")),
            # Files of older versions do not say.
            assumption=fields.text("assumption")
            if fields.holds("assumption")
            else "relative propensities",
            exposure_factor=fields.number("exposure_factor")
            if fields.holds("exposure_factor")
            else 1.0,
        )


@dataclass(frozen=True, slots=True)
class CandidateLoss:
    """The cross-validated log loss of one method that a selection compared."""

    name: str
    loss: float | None
    """Mean log loss of the held-out folds; None if the method could not be fitted."""
    standard_error: float | None
    """Of the difference from the lowest loss, paired by fold; None as above."""

    @classmethod
    def read(cls, fields: Fields) -> CandidateLoss:
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        return cls(fields.text("name"), fields.optional("loss"), fields.optional("standard_error"))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which method was best, and the cross-validated loss of every candidate."""

    chosen: str
    folds: int
    candidates: tuple[CandidateLoss, ...]
    """In the order of preference, the simplest method first."""
    averaged: bool = False
    """Whether the map is a mean of the candidates, weighted by loss, and not the chosen one."""

    def __post_init__(self) -> None:
        fitted = [candidate.name for candidate in self.candidates if candidate.loss is not None]
        if self.chosen not in fitted:
            raise DataError(
                f"the chosen method must be a candidate that has a loss, got {self.chosen!r} "
                f"and {fitted}."
            )

    @property
    def margins(self) -> dict[str, float]:
        """By how much the loss of every other method that was fitted exceeds the chosen one's."""
        losses = {each.name: each.loss for each in self.candidates if each.loss is not None}
        chosen = losses.pop(self.chosen)
        return {name: loss - chosen for name, loss in losses.items()}

    @classmethod
    def read(cls, fields: Fields) -> Selection:
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        candidates = [CandidateLoss.read(child) for child in fields.children("candidates")]
        # Files of older versions do not say.
        averaged = fields.flag("averaged") if fields.holds("averaged") else False
        return cls(fields.text("chosen"), fields.count("folds"), tuple(candidates), averaged)


@dataclass(frozen=True, slots=True)
class Population:
    """Which documents a map of search results is for, and what its probabilities are about."""

    documents: str
    """In words, e.g. "judged documents of this run"."""
    relevant: str | None
    """Which grades are relevant, e.g. "grade >= 2"; None for a judge's probabilities."""
    queries: int
    top_k: int | None = None
    """How many documents of each query it is for, the first ones; None for any number."""

    @classmethod
    def read(cls, fields: Fields) -> Population:
        """Rebuild from a saved map."""
        fields.only(*cls.__slots__)
        return cls(
            documents=fields.text("documents"),
            relevant=fields.text("relevant") if fields.holds("relevant") else None,
            queries=fields.count("queries"),
            top_k=fields.count("top_k") if fields.holds("top_k") else None,
        )


@dataclass(frozen=True, slots=True)
class FitRecord:
    """What a map was fitted on and how well the fit was solved; saved with the map."""

    evidence: str
    """How labels became evidence, e.g. "naive" or "ips"."""
    rows: int
    positive: float
    """Positive mass of all rows."""
    total: float
    """Total mass of all rows."""
    exact: bool
    """Whether every distinct score was used, rather than pooled ones."""
    loss: float | None = None
    residual: float | None = None
    """Karush-Kuhn-Tucker residual of the solution, relative to the positive rate."""
    iterations: int = 0
    at_bound: tuple[str, ...] = ()
    """Coefficients that the constraint of an increasing map keeps from being smaller."""
    base_rate_source: str = "assumed"
    """One of `BASE_RATE_SOURCES`."""
    anchoring: Anchoring | None = None
    """The random labels, where they are the source."""
    base_rate: float | None = None
    """The given rate, where a known rate is the source, or the one assumed from activity."""
    base_rate_range: tuple[float, float] | None = None
    """A 95% interval of the base rate, where its source gives one; anchoring starts from it."""
    sensitivity: Sensitivity | None = None
    score_quantiles: tuple[float, ...] | None = None
    """Evenly spaced quantiles of the scores, from the lowest to the highest, by total mass."""
    model_name: str | None = None
    """The model that gave the scores, and a date, if they were given."""
    date: str | None = None
    selection: Selection | None = None
    """How `Auto` chose the method or `RandomIntercept` weighted its candidates."""
    negatives_kept: float | None = None
    """The fraction of negatives in the table, where `undo_undersampling` has corrected for it."""
    pooling_error: float | None = None
    """How far pooling scores may have moved probabilities, on average; None if it did not."""
    previous_map: str | None = None
    """The digest of the map that this one replaced, where it is a refit."""
    population: Population | None = None
    """Which documents the map is for, where it was fitted on a judged run."""

    @classmethod
    def read(cls, fields: Fields) -> FitRecord:
        """Rebuild a record from a saved map."""
        fields.only(*cls.__slots__)
        anchoring = None
        if fields.holds("anchoring"):
            anchoring = Anchoring.read(fields.child("anchoring"))
        sensitivity = None
        if fields.holds("sensitivity"):
            sensitivity = Sensitivity.read(fields.child("sensitivity"))
        selection = None
        if fields.holds("selection"):
            selection = Selection.read(fields.child("selection"))
        population = None
        if fields.holds("population"):
            population = Population.read(fields.child("population"))
        return cls(
            evidence=fields.text("evidence"),
            rows=fields.count("rows"),
            positive=fields.number("positive"),
            total=_total(fields),
            exact=fields.flag("exact"),
            loss=fields.optional("loss"),
            residual=fields.optional("residual"),
            iterations=fields.count("iterations"),
            at_bound=tuple(fields.texts("at_bound")),
            base_rate_source=_base_rate_source(fields),
            anchoring=anchoring,
            base_rate=fields.number("base_rate") if fields.holds("base_rate") else None,
            base_rate_range=_base_rate_range(fields),
            sensitivity=sensitivity,
            score_quantiles=_score_quantiles(fields),
            previous_map=fields.text("previous_map") if fields.holds("previous_map") else None,
            model_name=fields.text("model_name") if fields.holds("model_name") else None,
            date=fields.text("date") if fields.holds("date") else None,
            selection=selection,
            negatives_kept=_negatives_kept(fields),
            pooling_error=_pooling_error(fields),
            population=population,
        )


def _score_quantiles(fields: Fields) -> tuple[float, ...] | None:
    if not fields.holds("score_quantiles"):
        return None
    quantiles = fields.numbers("score_quantiles")
    if len(quantiles) < 2 or sorted(quantiles) != quantiles:
        raise DataError(
            f"{fields.where}, score_quantiles must be two or more numbers in increasing order, "
            f"got {quantiles}."
        )
    return tuple(quantiles)


def _negatives_kept(fields: Fields) -> float | None:
    if not fields.holds("negatives_kept"):
        return None
    kept = fields.number("negatives_kept")
    if not 0 < kept <= 1:
        raise DataError(f"{fields.where}, negatives_kept must lie in (0, 1], got {kept}.")
    return kept


def require_rate_range(ends: Any) -> tuple[float, float]:
    """The ends of an interval of base rates, checked."""
    if not isinstance(ends, Sequence) or isinstance(ends, str | bytes) or len(ends) != 2:
        raise DataError(
            f"a range of base rates must be two numbers, got {shown(ends)}. E.g. (0.05, 0.2)."
        )
    low, high = ends
    numbers = [real("an end of a range of base rates", end) for end in (low, high)]
    if not 0 < numbers[0] < numbers[1] < 1:
        raise DataError(
            f"a range of base rates must be increasing between 0 and 1, got {low} to {high}."
        )
    return numbers[0], numbers[1]


def _total(fields: Fields) -> float:
    """The total mass of a fit, which rates are divided by."""
    total = fields.number("total")
    if total <= 0:
        raise DataError(f"{fields.where}, total must be above 0, got {total:g}.")
    return total


def _base_rate_range(fields: Fields) -> tuple[float, float] | None:
    if not fields.holds("base_rate_range"):
        return None
    ends = fields.numbers("base_rate_range")
    if len(ends) != 2:
        raise DataError(f"{fields.where}, base_rate_range must be two numbers, got {ends}.")
    return require_rate_range(ends)


def _base_rate_source(fields: Fields) -> str:
    source = fields.text("base_rate_source")
    if source not in BASE_RATE_SOURCES:
        known = ", ".join(BASE_RATE_SOURCES)
        raise DataError(f"{fields.where}, base_rate_source must be one of {known}, got {source!r}.")
    return source


def _pooling_error(fields: Fields) -> float | None:
    if not fields.holds("pooling_error"):
        return None
    error = fields.number("pooling_error")
    if not 0 <= error <= 1:
        raise DataError(f"{fields.where}, pooling_error must lie in [0, 1], got {error}.")
    return error
