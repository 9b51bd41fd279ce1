"""Where a map's base rate comes from, in words."""

from calibrank.maps.record import FitRecord


def is_base_rate_known(record: FitRecord) -> bool:
    """Whether anything besides propensities of a biased log tells the map's level.

    >>> is_base_rate_known(FitRecord("ips", rows=10, positive=2.0, total=10.0, exact=True))
    False
    """
    return record.base_rate_source != "assumed" or record.evidence in ("naive", "impressions")


def describe_base_rate(record: FitRecord) -> str:
    """The door that the base rate came through, and what that is worth.

    >>> describe_base_rate(FitRecord("naive", rows=10, positive=2.0, total=10.0, exact=True))
    'The labels were taken at their word: right if the pairs were shown at random, and only then.'
    """
    if record.anchoring is not None:
        by = record.anchoring
        shares = f"intercept {by.intercept:.0%}, slope {by.slope:.0%}, curvature {by.curvature:.0%}"
        pairs = f"{by.labels:,} randomly shown pairs (effective number {by.effective_labels:,.0f})"
        return f"Anchored on {pairs}. Determined by these labels: {shares}."
    if record.base_rate_source == "known rate":
        given = "" if record.base_rate is None else f" of {record.base_rate:.2%}"
        return f"Moved to a base rate{given} that was given; its shape is that of the biased log."
    if record.evidence == "impressions":
        return "The base rate comes from impressions and the policy that chose them: right if it could show all."
    if record.evidence == "naive":
        return "The labels were taken at their word: right if the pairs were shown at random, and only then."
    return (
        "The base rate is not known: propensities rank exposure, the number of negatives sets the level. "
        "Labels of a few hundred randomly shown pairs (--anchor) or a known rate (--base-rate) would tell it."
    )
