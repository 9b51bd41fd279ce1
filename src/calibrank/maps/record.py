"""The record of a map: its data, how well the fit was solved, and the source of its base rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibrank._internal.arguments import real, shown
from calibrank.errors import DataError
from calibrank.maps.checks import require, require_one_of
from calibrank.maps.sensitivity import Sensitivity

BASE_RATE_SOURCES = ("assumed", "random labels", "known rate")
"""Where the base rate of a map can come from."""

# What the base rate rests on where nothing but the evidence gives it.
_ASSUMED = {
    "naive": (
        "The labels were treated as unbiased: this is right only if pairs were shown at random."
    ),
    "impressions": (
        "The base rate is that of the impressions. It is right if every pair could be shown, and "
        "if users looked at all that they were shown and did not choose it by what they like. "
        "Labels of about 100 randomly shown pairs would test it (calibrank anchor)."
    ),
}
# Whose level the probabilities then have.
_LEVELS = {"naive": "the labels", "impressions": "the impressions"}
_NOT_IDENTIFIED = (
    "The log does not identify the base rate: propensities are relative, and the number of "
    "negatives sets the level. Labels of a few hundred randomly shown pairs, or a known rate, "
    "would determine it (calibrank anchor)."
)


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
    """Mean probability over all pairs; None for maps that older versions saved."""
    rate_range: tuple[float, float] | None = None
    """Its 95% interval."""
    start_rate: float | None = None
    """Mean probability of the map before anchoring, over the pairs of its fit."""
    term_factor: float | None = None
    """How much of the terms of the start was kept; None if it had none."""
    digest: str | None = None
    """Of the labels, to know them again."""
    row_hashes: tuple[int, ...] = ()
    """The smallest hashes of their rows, to know a part of them; none where scores repeat."""


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
        found, rule = f"{self.chosen!r} and {fitted}", "be a candidate that has a loss"
        require(self.chosen in fitted, "the chosen method", rule, found)

    @property
    def margins(self) -> dict[str, float]:
        """By how much the loss of every other method that was fitted exceeds the chosen one's."""
        losses = {each.name: each.loss for each in self.candidates if each.loss is not None}
        chosen = losses.pop(self.chosen)
        return {name: loss - chosen for name, loss in losses.items()}

    @property
    def description(self) -> str:
        """What was chosen, and the difference of every other method's cross-validated loss.

        >>> platt = CandidateLoss("Platt", loss=0.5, standard_error=0.02)
        >>> spline = CandidateLoss("Spline", loss=0.49, standard_error=0.0)
        >>> Selection("Platt", folds=5, candidates=(platt, spline)).description[42:]
        'log loss 0.50000; Spline -0.01000 (within one standard error, 0.02000)'
        """
        chosen = next(each for each in self.candidates if each.name == self.chosen)
        by = f"by {self.folds}-fold cross-validation"
        if self.averaged:
            lead = f"mean of {len(self.candidates)} curves, weighted {by}; the best one is "
            return f"{lead}{chosen.name}: log loss {chosen.loss:.5f}"
        margins = self.margins
        others = {name: f"{name} {margin:+.5f}" for name, margin in margins.items()}
        # The rule compares the chosen method with the best one: this difference has the error.
        best = min(margins, key=margins.__getitem__, default=chosen.name)
        if margins.get(best, 0) < 0:
            others[best] += f" (within one standard error, {chosen.standard_error:.5f})"
        unfitted = [each.name for each in self.candidates if each.loss is None]
        compared = ", ".join([*others.values(), *[f"{name} has no fit" for name in unfitted]])
        text = f"{chosen.name}, chosen {by}: log loss {chosen.loss:.5f}"
        return f"{text}; {compared}" if compared else text


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

    @property
    def description(self) -> str:
        """Which documents the map is for, what its probabilities are about, and whose judgements.

        >>> Population("judged documents of this run", "grade >= 2", 50).description
        'For judged documents of this run, 50 queries; relevant is "grade >= 2".'
        """
        about = f'relevant is "{self.relevant}"'
        if self.relevant is None:
            about = "relevance is a judge's probability"
        judged = f" Judgements: {_names(self.sources)}" if self.sources else ""
        if judged and self.anchored_on:
            judged += f", anchored on {_names(self.anchored_on)}"
        text = f"For {self.documents}, {self.queries:,} queries; {about}."
        return f"{text}{judged}." if judged else text


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

    def __post_init__(self) -> None:
        require(self.total > 0, "total", "be above 0", self.total)
        require_one_of("base_rate_source", self.base_rate_source, BASE_RATE_SOURCES)
        quantiles = self.score_quantiles or (0.0, 1.0)
        are_quantiles = len(quantiles) >= 2 and sorted(quantiles) == list(quantiles)
        rule = "be two or more numbers in increasing order"
        require(are_quantiles, "score_quantiles", rule, shown(list(quantiles)))
        kept, error = self.negatives_kept or 1, self.pooling_error or 0
        require(0 < kept <= 1, "negatives_kept", "lie in (0, 1]", kept)
        require(0 <= error <= 1, "pooling_error", "lie in [0, 1]", error)
        for name, rate in (("base_rate", self.base_rate), ("top_rate", self.top_rate)):
            require(rate is None or 0 < rate < 1, name, "lie in (0, 1)", rate)
        for ends in (self.base_rate_range, self.anchoring and self.anchoring.rate_range):
            if ends is not None:
                require_rate_range(ends)

    @property
    def is_base_rate_known(self) -> bool:
        """Whether the base rate is determined by more than the propensities of a biased log.

        >>> FitRecord("ips", rows=10, positive=2.0, total=10.0, exact=True).is_base_rate_known
        False
        """
        if self.base_rate_source == "assumed" and self.base_rate is not None:
            return False
        return self.base_rate_source != "assumed" or self.evidence in _ASSUMED

    @property
    def level_of(self) -> str | None:
        """Whose level the probabilities have, where no random labels or known rate have set it.

        None also where the level is not known at all, and for judged documents, which a map of
        them is about.

        >>> FitRecord("naive", rows=10, positive=2.0, total=10.0, exact=True).level_of
        'the labels'
        """
        is_set = self.base_rate_source != "assumed" or self.population is not None
        return None if is_set or self.base_rate is not None else _LEVELS.get(self.evidence)

    @property
    def interval_name(self) -> str:
        """What to write beside a 95% interval: its caveat stands in the same line."""
        if not self.is_base_rate_known:
            return "by chance alone: the level is not known"
        whose = self.level_of
        return "95% interval" if whose is None else f"95% interval, at the level of {whose}"

    @property
    def base_rate_description(self) -> str:
        """Where the base rate comes from, and when it can be trusted.

        >>> FitRecord("naive", rows=10, positive=2.0, total=10.0, exact=True).base_rate_description
        'The labels were treated as unbiased: this is right only if pairs were shown at random.'
        """
        if self.base_rate_source == "random labels":
            return self._describe_random_labels()
        rate = "" if self.base_rate is None else f" of {self.base_rate:.2%}"
        if self.base_rate_range is not None:
            low, high = self.base_rate_range
            rate += f" ({low:.2%} to {high:.2%})"
        if self.base_rate_source == "known rate":
            return (
                f"Moved to a base rate{rate} that is known from elsewhere; "
                "the shape of the curve comes from the biased log."
            )
        if self.base_rate is not None:
            return (
                f"Moved to a base rate{rate}, assumed from how the share of likes falls with "
                "users' activity. It is right if a user's activity says little about what the user "
                "likes; a log can fit this and still have another rate. About 100 labels of "
                "randomly shown pairs (calibrank anchor) would test it."
            )
        if self.population is not None:
            return (
                "The base rate is that of the judged documents: it is right for documents that "
                "were chosen as these were."
            )
        return _ASSUMED.get(self.evidence, _NOT_IDENTIFIED)

    def looks_fitted_on(self, rows: int, low: float, high: float, positive: float) -> bool:
        """Whether so many rows, with scores from `low` to `high`, are probably those of the fit.

        Of labels that were used as they are, the positive mass is compared, too.

        >>> record = FitRecord("naive", 3, 1.0, 3.0, exact=True, score_quantiles=(0.0, 2.0))
        >>> record.looks_fitted_on(3, 0.0, 2.0, positive=1)
        True
        """
        ends = self.score_quantiles or (math.nan,)
        if (self.rows, ends[0], ends[-1]) != (rows, low, high):
            return False
        as_they_are = self.evidence == "naive" and self.total == self.rows
        return not as_they_are or math.isclose(self.positive, positive)

    def _describe_random_labels(self) -> str:
        anchoring = self.anchoring
        if anchoring is None:
            return "The base rate comes from labels of randomly shown pairs."
        population = self.population
        of_whom, subject, start = "randomly shown pairs", "pairs are liked", "the log"
        if population is not None:
            names = _names(population.anchored_on[-1:])
            of_whom = f"judgements of {names}" if names else "judgements"
            subject = "such documents are relevant"
            start = _names(population.anchored_on[-2:-1] or population.sources) or "the map before"
        labels = (
            f"Anchored on {anchoring.labels:,} {of_whom} "
            f"(effective number {anchoring.effective_labels:,.0f})"
        )
        rate, ends, before = anchoring.rate, anchoring.rate_range, anchoring.start_rate
        # Older versions saved none of them.
        if rate is None or ends is None or before is None:
            return f"{labels}: the base rate comes from these random labels."
        # As many decimals as give the lowest one two digits: 7.4 to 13.3%, 0.35 to 2.10%.
        places = max(1, 1 - math.floor(math.log10(max(100 * ends[0], 1e-6))))
        low, high, now, then = [f"{100 * each:.{places}f}" for each in (*ends, rate, before)]
        interval = f"95% interval {low} to {high}%"
        return f"{now}% of all {subject} ({interval}); {start} said {then}%. {labels}."


def _names(sources: tuple[JudgementSource, ...]) -> str:
    return " and ".join([f"{source.name} ({source.rule})" for source in sources])


def require_rate_range(ends: Any) -> tuple[float, float]:
    """The ends of an interval of base rates, checked."""
    if not isinstance(ends, Sequence) or isinstance(ends, str | bytes) or len(ends) != 2:
        raise DataError("a range of base rates", "be two numbers", shown(ends), "E.g. (0.05, 0.2).")
    low, high = ends
    numbers = [real("an end of a range of base rates", end) for end in (low, high)]
    is_range = 0 < numbers[0] < numbers[1] < 1
    rule = "be increasing between 0 and 1"
    require(is_range, "a range of base rates", rule, f"{low} to {high}")
    return numbers[0], numbers[1]
