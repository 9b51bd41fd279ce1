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
    rate: float | None = None
    """Mean probability over the population; None for maps that older versions saved."""
    rate_range: tuple[float, float] | None = None
    """Its 95% interval."""
    start_rate: float | None = None
    """Mean probability over the population before anchoring."""
    term_factor: float | None = None
    """How much of the terms of the start was kept; None if it had none."""
    digest: str | None = None
    """Of the labels, to know them again."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One propensity model of a sensitivity analysis, and the mean preference under it."""

    name: str
    rate: float
    """Mean preference over all rows."""
    top_rate: float | None
    """Mean preference over the tenth with the highest scores; None without a finite fit."""


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
                "a sensitivity band",
                "have one lower and one upper end per score, for two or more scores",
                f"lengths {sorted(lengths)}",
            )
        is_below = all(low <= high for low, high in zip(self.low, self.high, strict=True))
        if list(self.scores) != sorted(self.scores) or not is_below:
            raise DataError(
                "a sensitivity band", "have increasing scores, and no lower end above the upper one"
            )
        if not 0 <= self.low_rate <= self.high_rate <= 1:
            raise DataError(
                "base rates", "be increasing within [0, 1]", f"{self.low_rate} to {self.high_rate}"
            )
        if self.assumption not in ASSUMPTIONS:
            known = ", ".join(ASSUMPTIONS)
            raise DataError("assumption", f"be one of {known}", f"{self.assumption!r}")
        if not 1 <= self.exposure_factor < np.inf:
            raise DataError("exposure_factor", "be finite and 1 or more", self.exposure_factor)

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


@dataclass(frozen=True, slots=True)
class CandidateLoss:
    """The cross-validated log loss of one method that a selection compared."""

    name: str
    loss: float | None
    """Mean log loss of the held-out folds; None if the method could not be fitted."""
    standard_error: float | None
    """Of the difference from the lowest loss, paired by fold; None as above."""


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
                "the chosen method",
                "be a candidate that has a loss",
                f"{self.chosen!r} and {fitted}",
            )

    @property
    def margins(self) -> dict[str, float]:
        """By how much the loss of every other method that was fitted exceeds the chosen one's."""
        losses = {each.name: each.loss for each in self.candidates if each.loss is not None}
        chosen = losses.pop(self.chosen)
        return {name: loss - chosen for name, loss in losses.items()}


@dataclass(frozen=True, slots=True)
class JudgementSource:
    """Where judgements came from: a file by its name, and which of its grades are relevant."""

    name: str
    rule: str
    """E.g. "grade >= 2" or "probability(grade)"."""


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
    sources: tuple[JudgementSource, ...] = ()
    """Whose judgements the map was fitted on; () if that was not said."""
    anchored_on: tuple[JudgementSource, ...] = ()
    """Whose judgements it was anchored on, in this order."""
    run_scores: tuple[float, ...] | None = None
    """Evenly spaced quantiles of the scores of the run, judged or not."""
    effective_rows: float | None = None
    """How many unrelated scores those of the run are worth: scores of one query are alike."""


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
    """How `Auto` chose the method or `Group` weighted its candidates."""
    negatives_kept: float | None = None
    """The fraction of negatives in the table, where `undo_undersampling` has corrected for it."""
    pooling_error: float | None = None
    """How far pooling scores may have moved probabilities, on average; None if it did not."""
    previous_map: str | None = None
    """The digest of the map that this one replaced, where it is a refit."""
    population: Population | None = None
    """Which documents the map is for, where it was fitted on a judged run."""
    method: str = ""
    """The name of the method, for people."""
    recipe: str | None = None
    """The model as text that parses back, e.g. "Gaussian() + Level('country')"."""
    top_rate: float | None = None
    """The rate among the tenth with the highest scores, where that is known too."""


def read_record(fields: Fields) -> FitRecord:
    """Rebuild a record from a saved map, and check what no type says."""
    record = fields.build(FitRecord)
    rules = {
        ("total", "be above 0"): record.total > 0,
        ("base_rate_source", f"be one of {', '.join(BASE_RATE_SOURCES)}"): (
            record.base_rate_source in BASE_RATE_SOURCES
        ),
        ("score_quantiles", "be two or more numbers in increasing order"): (
            _are_quantiles(record.score_quantiles)
        ),
        ("negatives_kept", "lie in (0, 1]"): 0 < (record.negatives_kept or 1) <= 1,
        ("pooling_error", "lie in [0, 1]"): 0 <= (record.pooling_error or 0) <= 1,
    }
    for (name, rule), holds in rules.items():
        if not holds:
            value = fields.values.get(name)
            raise DataError(f"{fields.where}, {name}", rule, shown(value))
    for ends in (record.base_rate_range, record.anchoring and record.anchoring.rate_range):
        if ends is not None:
            require_rate_range(ends)
    return record


def _are_quantiles(values: tuple[float, ...] | None) -> bool:
    return values is None or (len(values) >= 2 and sorted(values) == list(values))


def require_rate_range(ends: Any) -> tuple[float, float]:
    """The ends of an interval of base rates, checked."""
    if not isinstance(ends, Sequence) or isinstance(ends, str | bytes) or len(ends) != 2:
        raise DataError("a range of base rates", "be two numbers", shown(ends), "E.g. (0.05, 0.2).")
    low, high = ends
    numbers = [real("an end of a range of base rates", end) for end in (low, high)]
    if not 0 < numbers[0] < numbers[1] < 1:
        raise DataError(
            "a range of base rates", "be increasing between 0 and 1", f"{low} to {high}"
        )
    return numbers[0], numbers[1]
