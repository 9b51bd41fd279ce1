"""What does not go together, and why: the one table of refused combinations.

Everything else composes. `tests/laws/test_composition.py` walks all pairs, and the documentation
prints this table.
"""

from __future__ import annotations

from typing import NamedTuple

from calibrank.errors import DataError


class Refusal(NamedTuple):
    """Two parts that are refused together: the reason, and what to do instead."""

    first: str
    """One or more names, divided by commas."""
    second: str
    reason: str
    remedy: str


REFUSED = (
    Refusal(
        "MinMax",
        "terms, another base rate",
        "rescaled scores are no probabilities: they have no log odds to add to",
        "Use another method, such as Gaussian().",
    ),
    Refusal(
        "Position",
        "a fit",
        "what is at the top of a biased log was looked at because it was there",
        "Add it where labels are random: anchor(fitted, ..., terms=[Position()]).",
    ),
    Refusal(
        "Group",
        "other terms",
        "levels of groups never seen again are integrated out, and other terms would hold within "
        "a group only",
        "Use Level for groups that come again.",
    ),
    Refusal(
        "Group",
        "anchor",
        "labels of one group are alike, which is a matter of their weights and not of a term",
        "Pass groups=... to anchor.",
    ),
    Refusal(
        "Group",
        "Spark",
        "the levels of groups are integrated over all rows of each group at once",
        "Collect the judged rows, and fit them in memory.",
    ),
    Refusal(
        "positive_ips",
        "anchor, another base rate",
        "a positive counts as more than one pair, so that scores are not those of the population",
        "Fit with ips, impressions or naive evidence.",
    ),
    Refusal(
        "doubly_robust",
        "a saved summary",
        "masses of rows may be negative, which is how a damaged file is recognised",
        "Fit on the rows, or on the summary in memory.",
    ),
    Refusal(
        "doubly_robust",
        "metrics of each user's list",
        "the positive mass of one list may be 0 or negative",
        "Evaluate on labels, or with impressions evidence.",
    ),
    Refusal(
        "terms",
        "a tensor of scores",
        "the columns of terms are not tensors",
        "Use export.to_torch, or scores.numpy().",
    ),
    Refusal(
        "terms",
        "a search engine",
        "where an engine keeps other columns than the score is not known",
        "Export to SQL, or export fitted.without_terms().",
    ),
    Refusal(
        "Smooth, Position, Group, several levels",
        "refit",
        "the store of days keeps sums by the levels of one term, and these need rows",
        "Fit or anchor again on the rows.",
    ),
    Refusal(
        "weighted evidence, a rate assumed from activity",
        "refit",
        "the store of days has labels, and neither propensities nor the activity of users",
        "Fit again on the log, or anchor the map on the labels of the days.",
    ),
)
"""All refused combinations."""


def refusal(first: str, second: str) -> DataError:
    """The error about two parts of the table."""
    of_second = [each for each in REFUSED if each.second == second]
    found = next(each for each in of_second if first in each.first.split(", "))
    return DataError(first, f"not go with {second}: {found.reason}", remedy=found.remedy)
