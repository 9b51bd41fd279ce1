"""Where a map's base rate comes from, in words."""

from calibrank.maps.record import FitRecord


def is_level_known(record: FitRecord) -> bool:
    """Whether anything besides propensities of a biased log tells the map's level.

    >>> is_level_known(FitRecord("ips", rows=10, positive=2.0, total=10.0, exact=True))
    False
    """
    return record.door != "none" or record.evidence in ("naive", "exposed")


def door_words(record: FitRecord) -> str:
    """The door that the base rate came through, and what that is worth.

    >>> door_words(FitRecord("naive", rows=10, positive=2.0, total=10.0, exact=True))
    'The labels were taken at their word: right if the pairs were shown at random, and only then.'
    """
    if record.anchoring is not None:
        by = record.anchoring
        shares = f"level {by.level:.0%}, slope {by.slope:.0%}, bend {by.bend:.0%}"
        return f"Anchored on {by.labels:,} randomly shown pairs (worth {by.worth:,.0f}). What they decided: {shares}."
    if record.door == "base rate":
        given = "" if record.base_rate is None else f" of {record.base_rate:.2%}"
        return f"Moved to a base rate{given} that was given; its shape is that of the biased log."
    if record.evidence == "exposed":
        return "The base rate comes from impressions and the policy that chose them: right if it could show all."
    if record.evidence == "naive":
        return "The labels were taken at their word: right if the pairs were shown at random, and only then."
    return (
        "The base rate is not known: propensities rank exposure, the number of negatives sets the level. "
        "Labels of a few hundred randomly shown pairs (--anchor) or a known rate (--base-rate) would tell it."
    )
