"""Checks of a table's rows, scores, users and items, whatever is fitted to it."""

from collections.abc import Iterator, Mapping

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.diagnosis.distribution import auc
from calibrank.diagnosis.finding import Finding, note, ok, warning
from calibrank.errors import Setting
from calibrank.summary import Summary
from calibrank.tabular.profile import Profile

# A score that more than this fraction of rows share is suspicious, unless scores are few anyway.
_REPEATED = 0.05
_FEW_DISTINCT = 20

# Lists look truncated if most of enough users have the same number of rows, sorted by score.
_SAME_LENGTH = 0.8
_SORTED = 0.95
_LEAST_USERS = 20
_LEAST_ROWS = 3

# An item with most of the rows is suspicious only if there are many others.
_LEAST_ITEMS = 20
_MOST_ROWS = 0.5

_CAUSES = {
    "missing": "probably never scored",
    "infinite": "probably masked, such as items the user already knows",
    "beyond 1e30": "probably padding",
}


def check_rows(found: Profile) -> Iterator[Finding]:
    """The number of rows, and those with an invalid score or label."""
    positives = 0.0 if found.summary is None else float(found.summary.positive.sum())
    rate = positives / found.rows
    yield note("rows", f"{found.rows:,} rows, {positives:,.0f} positive ({rate:.2%}).")
    for kind, count in found.bad_scores.items():
        yield warning(
            "scores",
            f"{count:,} scores are {kind} ({_CAUSES[kind]}).",
            ("Leave these rows out of the fit: ", Setting("on_bad_rows", "skip"), "."),
        )
    if found.bad_labels:
        yield warning(
            "labels",
            f"{found.bad_labels:,} labels are neither 0 nor 1. "
            "Turn ratings into likes first, e.g. rating > 3.",
        )


def check_skipped(skipped: Mapping[str, int]) -> Iterator[Finding]:
    """Rows with an invalid value in a column other than score and label."""
    for role, count in skipped.items():
        # `check_rows` reports these two in more detail.
        if role not in {"score", "label"}:
            yield warning(
                role, f"{count:,} rows have an invalid {role} and are left out of the checks below."
            )


def check_scores(found: Profile) -> Iterator[Finding]:
    """Repeated scores, scores in [0, 1], and whether higher scores mean more positives."""
    summary = found.summary
    if summary is None:
        return
    yield from _check_repeated(found.sample)
    if summary.low >= 0 and summary.high <= 1:
        yield note(
            "scores",
            "All scores lie in [0, 1]. They may or may not be probabilities: this is not inferred "
            "from their values. Evaluate them to see how well calibrated they already are.",
            ("If they are outputs of a sigmoid, try ", Setting("method", "beta"), "."),
        )
    # Without both classes nothing can be ranked; the check of the fit reports that.
    if 0 < summary.positive.sum() < summary.total.sum():
        yield _check_ranking(summary)


def _check_repeated(scores: Floats) -> Iterator[Finding]:
    values, counts = np.unique(scores, return_counts=True)
    most = int(np.argmax(counts))
    fraction = counts[most] / len(scores)
    if fraction > _REPEATED and len(values) > _FEW_DISTINCT:
        yield warning(
            "scores",
            f"{fraction:.0%} of scores are exactly {values[most]:.6g}: {_explain(values, most)}",
        )


def _explain(values: Floats, most: int) -> str:
    """What a score that many rows share may be, given all distinct scores."""
    lower, upper = np.quantile(values, [0.25, 0.75])
    spread = max(float(upper - lower), 1e-300)
    if values[most] < lower - 10 * spread or values[most] > upper + 10 * spread:
        return "far from all others, it may be a sentinel value or padding. If so, drop the rows."
    if most in (0, len(values) - 1):
        return "at the end of their range, they look clipped, and their order beyond it is lost."
    return "ties or padding? Rows with equal scores get equal probabilities."


def _check_ranking(summary: Summary) -> Finding:
    area, error = auc(summary)
    # Two standard errors: about a 95% interval.
    if area < 0.5 - 2 * error:
        return warning(
            "scores",
            f"Lower scores have more positives (AUC {area:.3f}). If they are distances, negate "
            "them first: a map never decreases.",
        )
    if area < 0.5 + 2 * error:
        return warning(
            "scores",
            f"Scores hardly separate positives from negatives (AUC {area:.3f}): "
            "a fitted map will be nearly flat.",
        )
    return ok("scores", f"Higher scores have more positives (AUC {area:.3f}).")


def check_lists(found: Profile, *, has_users: bool) -> Iterator[Finding]:
    """Whether users' lists look truncated, and whether one item dominates."""
    if not has_users:
        yield note("users", "No user column: truncated lists cannot be detected.")
        return
    yield _check_truncated(found)
    counts = found.per_item.counts
    if len(counts) > _LEAST_ITEMS and counts.max() > _MOST_ROWS * found.rows:
        item = found.per_item.ids[int(counts.argmax())].as_py()
        fraction = counts.max() / found.rows
        yield warning(
            "items",
            f"Item {item!r} makes up {fraction:.0%} of all rows. If it is padding, drop it.",
        )


def _check_truncated(found: Profile) -> Finding:
    lengths = found.per_user.counts
    longest = int(lengths.max())
    same_length = float((lengths == longest).mean())
    is_complete = longest == len(found.per_item.counts)
    is_long_enough = len(lengths) >= _LEAST_USERS and longest >= _LEAST_ROWS
    if is_complete or not is_long_enough or same_length <= _SAME_LENGTH:
        return ok(
            "users",
            f"{len(lengths):,} users with up to {longest:,} rows each: "
            "lists do not look truncated.",
        )
    is_sorted = found.falling / max(found.neighbours, 1) > _SORTED
    order = "sorted by score" if is_sorted else "not sorted by score"
    message = (
        f"{same_length:.0%} of users have exactly {longest} rows, {order}: these may be the top "
        f"{longest} of longer lists. If so, the table has no information on pairs below, and its "
        "rates hold for the top only. Export a random sample of pairs instead."
    )
    return warning("users", message) if is_sorted else note("users", message)
