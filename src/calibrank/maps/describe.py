"""Sentences about a base rate and its range, a population, and how a method was selected."""

from __future__ import annotations

from calibrank.maps.record import (
    CandidateLoss,
    FitRecord,
    JudgementSource,
    Population,
    Selection,
    Sensitivity,
    rate_margin,
)

# The condition under which a range of base rates holds.
_CONDITIONS = {
    "item popularity": "exposure depends only on item popularity",
    "relative propensities": "the propensities are right up to a factor and a power",
    "logged propensities": "the logged propensities are right",
}

# The number of random labels that a range of base rates is compared with.
_LABELS = 300


def is_base_rate_known(record: FitRecord) -> bool:
    """Whether the base rate is determined by more than the propensities of a biased log.

    >>> is_base_rate_known(FitRecord("ips", rows=10, positive=2.0, total=10.0, exact=True))
    False
    """
    if record.base_rate_source == "assumed" and record.base_rate is not None:
        return False
    return record.base_rate_source != "assumed" or record.evidence in ("naive", "impressions")


def describe_base_rate(record: FitRecord) -> str:
    """Where the base rate comes from, and when it can be trusted.

    >>> describe_base_rate(FitRecord("naive", rows=10, positive=2.0, total=10.0, exact=True))
    'The labels were treated as unbiased: this is right only if pairs were shown at random.'
    """
    if record.base_rate_source == "random labels":
        return _describe_random_labels(record)
    if record.base_rate_source == "known rate":
        rate = "" if record.base_rate is None else f" of {record.base_rate:.2%}"
        if record.base_rate_range is not None:
            low, high = record.base_rate_range
            rate += f" ({low:.2%} to {high:.2%})"
        return (
            f"Moved to a base rate{rate} that is known from elsewhere; "
            "the shape of the curve comes from the biased log."
        )
    if record.base_rate is not None:
        return _describe_assumed_rate(record.base_rate, record.base_rate_range)
    if record.population is not None:
        return (
            "The base rate is that of the judged documents: it is right for documents that were "
            "chosen as these were."
        )
    return _describe_assumption(record.evidence)


def describe_population(population: Population) -> str:
    """Which documents a map is for, what its probabilities are about, and whose judgements it has.

    >>> describe_population(Population("judged documents of this run", "grade >= 2", 50))
    'For judged documents of this run, 50 queries; relevant is "grade >= 2".'
    """
    relevant = "a judge's probability" if population.relevant is None else population.relevant
    about = f'relevant is "{relevant}"' if population.relevant else f"relevance is {relevant}"
    judged = ""
    if population.sources:
        judged = f" Judgements: {_names(population.sources)}"
        if population.anchored_on:
            judged += f", anchored on {_names(population.anchored_on)}"
        judged += "."
    return f"For {population.documents}, {population.queries:,} queries; {about}.{judged}"


def _names(sources: tuple[JudgementSource, ...]) -> str:
    return " and ".join([f"{source.name} ({source.rule})" for source in sources])


def describe_range(sensitivity: Sensitivity) -> str:
    """The range of base rates with its assumption, or that the log cannot tell the rate.

    Empty if the range is a single rate.

    >>> band = {"alternatives": (), "scores": (0.0, 1.0), "low": (-1.0, 0.0), "high": (0.0, 1.0)}
    >>> describe_range(Sensitivity(0.1, 0.2, **band, assumption="logged propensities"))[:78]
    'If the logged propensities are right, the base rate lies between 10.00% and 20'
    >>> describe_range(Sensitivity(0.1, 0.1, **band))
    ''
    """
    low = f"{sensitivity.low_rate:.2%}"
    high = f"{sensitivity.high_rate:.2%}"
    # A known rate leaves no range: every alternative is shifted to that rate.
    if low == high:
        return ""
    condition = _condition(sensitivity)
    if sensitivity.assumption == "logged propensities" or sensitivity.is_informative:
        return (
            f"If {condition}, the base rate lies between {low} and {high}. "
            "Exposure that depends on users or preference in other ways can put it outside."
        )
    margin = rate_margin(min(sensitivity.high_rate, 0.5), _LABELS)
    return (
        f"If the rows and weights stand for all pairs, the base rate is at least {low}. "
        "This log cannot tell how much higher it is: "
        f"if {condition}, it may still be as high as {high}. "
        f"{_LABELS} labels of randomly shown pairs would determine it to within "
        f"{100 * margin:.0f} percentage points."
    )


def _condition(sensitivity: Sensitivity) -> str:
    condition = _CONDITIONS[sensitivity.assumption]
    factor = sensitivity.exposure_factor
    if factor == 1:
        return condition
    return (
        f"{condition}, or exposure deviates from that by a factor of at most {factor:g} "
        "because of users and preference"
    )


def summarize_base_rate(record: FitRecord) -> str:
    """The base rate and its source in a few words.

    >>> summarize_base_rate(FitRecord("ips", rows=10, positive=2.0, total=10.0, exact=True))
    'base rate 20% assumed'
    """
    if record.base_rate_source == "random labels":
        return "base rate from random labels"
    if record.base_rate_source == "known rate":
        return (
            "known base rate"
            if record.base_rate is None
            else f"base rate {_percent(record.base_rate)} known"
        )
    if record.base_rate is not None:
        return f"base rate {_percent(record.base_rate)} assumed"
    if record.total <= 0:
        return "base rate assumed"
    return f"base rate {_percent(record.positive / record.total)} assumed"


def describe_selection(selection: Selection) -> str:
    """What was chosen, and the difference of every other method's cross-validated loss.

    >>> from calibrank.maps import CandidateLoss
    >>> platt = CandidateLoss("Platt", loss=0.5, standard_error=0.02)
    >>> spline = CandidateLoss("Spline", loss=0.49, standard_error=0.0)
    >>> describe_selection(Selection("Platt", folds=5, candidates=(platt, spline)))[42:]
    'log loss 0.50000; Spline -0.01000 (within one standard error, 0.02000)'
    """
    chosen = next(each for each in selection.candidates if each.name == selection.chosen)
    if selection.averaged:
        return _describe_average(selection, chosen)
    margins = selection.margins
    others = {name: f"{name} {margin:+.5f}" for name, margin in margins.items()}
    # The rule compares the chosen method with the best one: this difference has the error.
    best = min(margins, key=margins.__getitem__, default=chosen.name)
    if margins.get(best, 0) < 0:
        others[best] += f" (within one standard error, {chosen.standard_error:.5f})"
    for candidate in selection.candidates:
        if candidate.loss is None:
            others[candidate.name] = f"{candidate.name} has no fit"
    compared = "; " + ", ".join(others.values()) if others else ""
    return (
        f"{chosen.name}, chosen by {selection.folds}-fold cross-validation: "
        f"log loss {chosen.loss:.5f}{compared}"
    )


def _describe_average(selection: Selection, best: CandidateLoss) -> str:
    simplest = selection.candidates[0]
    compared = ""
    if simplest.name != best.name and simplest.loss is not None and best.loss is not None:
        compared = f", of a {simplest.name} {simplest.loss:.5f}"
    return (
        f"mean of {len(selection.candidates)} curves, weighted by {selection.folds}-fold "
        f"cross-validation; the best one is {best.name}: log loss {best.loss:.5f}{compared}"
    )


def _describe_random_labels(record: FitRecord) -> str:
    anchoring = record.anchoring
    if anchoring is None:
        return "The base rate comes from labels of randomly shown pairs."
    population = record.population
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
    if anchoring.rate is None:
        return f"{labels}: the base rate comes from these random labels."
    interval = ""
    if anchoring.rate_range is not None:
        low, high = anchoring.rate_range
        interval = f" (95% interval {100 * low:.3g} to {_percent(high)})"
    before = ""
    if anchoring.start_rate is not None:
        before = f"; {start} said {_percent(anchoring.start_rate)}"
    return f"{_percent(anchoring.rate)} of all {subject}{interval}{before}. {labels}."


def _describe_assumed_rate(rate: float, band: tuple[float, float] | None) -> str:
    between = "" if band is None else f", between {band[0]:.2%} and {band[1]:.2%}"
    return (
        f"Moved to a base rate of {rate:.2%}{between}, assumed from how the share of likes falls "
        "with users' activity. It is right if a user's activity says little about what the user "
        "likes; a log can fit this and still have another rate. About 100 labels of randomly shown "
        "pairs (calibrank anchor) would test it."
    )


def _describe_assumption(evidence: str) -> str:
    if evidence == "impressions":
        return (
            "The base rate comes from impressions and the policy that chose them: "
            "it is right if every pair could be shown, if users looked at all that they were shown "
            "(of ranked lists, declare their positions), and if they did not choose what they saw "
            "by what they like. Labels of about 100 randomly shown pairs would test it "
            "(calibrank anchor)."
        )
    if evidence == "naive":
        return (
            "The labels were treated as unbiased: this is right only if pairs were shown at random."
        )
    return (
        "The log does not identify the base rate: propensities give the relative exposure of "
        "items, and the number of negatives sets the base rate. "
        "Labels of a few hundred randomly shown pairs, or a known rate, would determine it "
        "(calibrank anchor). Intervals treat propensities as known: those of propensities that "
        "were estimated from these positives are too narrow."
    )


def _percent(rate: float) -> str:
    return f"{100 * rate:.3g}%"
