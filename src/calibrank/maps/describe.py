"""Sentences about the source of a base rate: random labels, a known rate, or an assumption."""

from __future__ import annotations

from calibrank.maps.record import FitRecord, Sensitivity


def is_base_rate_known(record: FitRecord) -> bool:
    """Whether the base rate is determined by more than the propensities of a biased log.

    >>> is_base_rate_known(FitRecord("ips", rows=10, positive=2.0, total=10.0, exact=True))
    False
    """
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
        return (
            f"Moved to a base rate{rate} that is known from elsewhere; "
            "the shape of the curve comes from the biased log."
        )
    return _describe_assumption(record.evidence)


def describe_rates(sensitivity: Sensitivity) -> str:
    """The range of base rates that a log leaves open; empty where the rate is known.

    >>> open_rates = Sensitivity(0.1, 0.25, (), (0.0, 1.0), (-2.0, -1.0), (-1.0, 0.0))
    >>> describe_rates(open_rates)
    '10.00% to 25.00%'
    """
    low = f"{sensitivity.low_rate:.2%}"
    high = f"{sensitivity.high_rate:.2%}"
    return "" if low == high else f"{low} to {high}"


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
    if record.total <= 0:
        return "base rate assumed"
    return f"base rate {_percent(record.positive / record.total)} assumed"


def _describe_random_labels(record: FitRecord) -> str:
    anchoring = record.anchoring
    if anchoring is None:
        return "The base rate comes from labels of randomly shown pairs."
    return (
        f"Anchored on {anchoring.labels:,} randomly shown pairs "
        f"(effective number {anchoring.effective_labels:,.0f}): "
        "the base rate comes from these random labels. "
        f"They determined {anchoring.intercept:.0%} of the intercept, "
        f"{anchoring.slope:.0%} of the slope and {anchoring.curvature:.0%} of the curvature."
    )


def _describe_assumption(evidence: str) -> str:
    if evidence == "impressions":
        return (
            "The base rate comes from impressions and the policy that chose them: "
            "it is right if the policy could show every pair."
        )
    if evidence == "naive":
        return (
            "The labels were treated as unbiased: this is right only if pairs were shown at random."
        )
    return (
        "The log does not identify the base rate: propensities give the relative exposure of "
        "items, and the number of negatives sets the base rate. "
        "Labels of a few hundred randomly shown pairs (--anchor) or a known rate (--base-rate) "
        "would determine it."
    )


def _percent(rate: float) -> str:
    return f"{100 * rate:.3g}%"
