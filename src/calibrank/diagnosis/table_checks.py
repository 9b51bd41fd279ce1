"""A table's profile in one pass, and checks of its rows, scores, lists and propensities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.validation import Floats, Mask, column, require_role
from calibrank.errors import DataError, Remedy, Setting
from calibrank.evidence import checked_evidence, naive
from calibrank.metrics import calibration_test
from calibrank.summary import Summary, SummaryBuilder
from calibrank.summary.pooling import auc
from calibrank.tabular.arrow import indices_of
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Batch, Progress
from calibrank.tabular.read import Table
from calibrank.tabular.rows import IdCounts, labels_of

# A score that more than this fraction of rows share is suspicious, unless scores are few anyway.
_REPEATED = 0.05
_FEW_DISTINCT = 20

# Lists look truncated if most of enough users have the same number of rows, sorted by score.
_SAME_LENGTH = 0.8
_SORTED = 0.95
_LEAST_USERS = 20
_LEAST_ROWS = 3

_CAUSES = {
    "missing": "probably never scored",
    "infinite": "probably masked, such as items the user already knows",
    "beyond 1e30": "probably padding",
}

# Standardized differences of means from which on columns are called unbalanced (Austin, 2011).
_UNBALANCED = 0.1
# Standard errors that a difference must exceed, and p-values that contradict calibration.
_ERRORS = 2.5
_SIGNIFICANT = 0.01

# Enough scores to find ties and sentinels, and only 8 MB.
_SAMPLE_ROWS = 1_000_000


@dataclass(slots=True)
class Profile:
    """What one pass over a table found."""

    rows: int = 0
    bad_scores: Counter[str] = field(default_factory=Counter)
    """Number of invalid scores by kind: missing, infinite, or beyond 1e30."""
    bad_labels: int = 0
    """Number of labels other than 0 and 1, among rows with a valid score."""
    summary: Summary = field(init=False)
    """Naive evidence of all valid rows."""
    sample: Floats = field(default_factory=lambda: np.empty(0))
    """The first valid scores, at most a million."""
    per_user: IdCounts = field(default_factory=IdCounts)
    per_item: IdCounts = field(default_factory=IdCounts)
    neighbours: int = 0
    """Number of rows that directly follow a row of the same user."""
    falling: int = 0
    """Number of those whose score is not higher than the row before."""


def profile(table: Table, columns: Columns, progress: Progress | None = None) -> Profile:
    """Read a table once; invalid scores and labels are counted and do not raise an error."""
    found = Profile()
    builder = SummaryBuilder()
    sample: list[Floats] = []
    for batch in table.batches(columns.read, progress):
        scores, labels = _valid_pairs(batch, columns, found)
        if len(scores):
            builder.update(scores, checked_evidence(naive, labels, None, None, is_binary=False))
        if sum(len(scores) for scores in sample) < _SAMPLE_ROWS:
            sample.append(scores)
        _count_ids(batch, columns, found)
    invalid = found.bad_scores.total() + found.bad_labels
    if found.rows == invalid:
        raise DataError(table.name, "hold at least one valid row", f"none in {found.rows:,}")
    found.summary = builder.summary()
    found.sample = np.concatenate(sample)[:_SAMPLE_ROWS]
    return found


def _valid_pairs(batch: Batch, columns: Columns, found: Profile) -> tuple[Floats, Floats]:
    """Return the scores and labels of valid rows, and count the others."""
    scores = batch.numbers(columns.score)
    labels = labels_of(batch, columns)[0]
    found.rows += len(scores)
    valid_score: Mask = COLUMN_RULES["score"].holds(scores)
    missing, infinite = np.isnan(scores), np.isinf(scores)
    kinds = {"missing": missing, "infinite": infinite}
    kinds["beyond 1e30"] = ~(valid_score | missing | infinite)
    for kind, mask in kinds.items():
        if mask.any():
            found.bad_scores[kind] += int(mask.sum())
    role = "label" if columns.has_binary_labels else "soft label"
    valid: Mask = valid_score & COLUMN_RULES[role].holds(labels)
    found.bad_labels += int(valid_score.sum() - valid.sum())
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    return scores[valid], labels[valid].astype(np.float64)


def _count_ids(batch: Batch, columns: Columns, found: Profile) -> None:
    if columns.item is not None:
        found.per_item.add(batch.ids(columns.item))
    if columns.user is None:
        return
    users = batch.ids(columns.user)
    found.per_user.add(users)
    codes = indices_of(users.dictionary_encode(null_encoding="encode"))
    scores = batch.numbers(columns.score)
    same_user = codes[1:] == codes[:-1]
    found.neighbours += int(same_user.sum())
    found.falling += int((same_user & (scores[1:] <= scores[:-1])).sum())


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of a table."""

    subject: str
    severity: str
    """How serious it is: "ok", "note" or "warning"."""
    message: str
    remedy: Remedy = ""


def ok(subject: str, message: str) -> Finding:
    """A check that the table passed."""
    return Finding(subject, "ok", message)


def note(subject: str, message: str, remedy: Remedy = "") -> Finding:
    """Something to know about the table."""
    return Finding(subject, "note", message, remedy)


def warning(subject: str, message: str, remedy: Remedy = "") -> Finding:
    """Something that makes results wrong or uncertain."""
    return Finding(subject, "warning", message, remedy)


def check_rows(found: Profile, skipped: Mapping[str, int]) -> Iterator[Finding]:
    """The number of rows, and those with an invalid value; `skipped` counts them by role."""
    positives = float(found.summary.positive.sum())
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
    for role, count in skipped.items():
        if role not in {"score", "label"}:
            yield warning(
                role, f"{count:,} rows have an invalid {role} and are left out of the checks below."
            )


def check_scores(found: Profile) -> Iterator[Finding]:
    """Repeated scores, scores in [0, 1], and whether higher scores mean more positives."""
    summary = found.summary
    values, counts = np.unique(found.sample, return_counts=True)
    most = int(np.argmax(counts))
    share = counts[most] / len(found.sample)
    if share > _REPEATED and len(values) > _FEW_DISTINCT:
        text = f"{share:.0%} of scores are exactly {values[most]:.6g}"
        yield warning("scores", f"{text}: {_explain(values, most)}")
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
            f"Scores hardly separate positives from negatives (AUC {area:.3f}), or the rows are "
            "too few to tell.",
        )
    return ok("scores", f"Higher scores have more positives (AUC {area:.3f}).")


def check_lists(found: Profile, *, has_users: bool) -> Finding:
    """Whether users' lists look truncated."""
    if not has_users:
        return note("users", "No user column: truncated lists cannot be detected.")
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


def check_balance(
    propensity: Floats, columns: Mapping[str, Floats], exposed: Floats | None = None
) -> Iterator[Finding]:
    """Means of columns with and without weights of 1 / propensity, and calibration if it is known.

    `exposed` is 1 where a pair was shown, 0 where it was not, and NaN where this is not known; the
    weighted mean of shown pairs must then be that of all pairs with known exposure. Without it,
    all rows were shown, and the mean of all pairs is not in the table.

    >>> found = check_balance(np.array([0.5, 0.25]), {"price": np.array([1.0, 4.0])})
    >>> print(next(found).message)
    price has a mean of 2.5 in shown rows, and 3 with weights: compare with the mean of all pairs.
    """
    propensity = column("propensity", propensity).astype(np.float64)
    require_role("propensity", "propensity", propensity)
    shown = np.ones(len(propensity), dtype=np.bool_)
    known = shown
    if exposed is not None:
        known = ~np.isnan(exposed)
        shown = exposed == 1
        if not np.isin(exposed[known], (0, 1)).all() or not shown.any() or shown[known].all():
            raise DataError("exposed", "be 0 or 1 with both among the rows, or missing")
        yield _calibration(propensity[known], exposed[known])
    weights = 1 / propensity[shown]
    for name, given in columns.items():
        values = column(name, given, len(propensity)).astype(np.float64)
        require_role("feature", f"column {name!r}", values)
        plain = float(values[shown].mean())
        weighted = float(np.average(values[shown], weights=weights))
        text = f"{name} has a mean of {plain:.4g} in shown rows, and {weighted:.4g} with weights"
        if exposed is None:
            yield note("balance", f"{text}: compare with the mean of all pairs.")
            continue
        target = float(values[known].mean())
        # Of the weighted mean; that of the target is much smaller where few pairs are shown.
        error = np.sqrt((weights**2 * (values[shown] - weighted) ** 2).sum()) / weights.sum()
        gap = abs(weighted - target)
        text += f"; that of all pairs with known exposure is {target:.4g}"
        if gap > _UNBALANCED * values[known].std() and gap > _ERRORS * error:
            yield warning("balance", f"{text}. The propensities do not account for it.")
        else:
            yield ok("balance", f"{text}.")


def _calibration(propensity: Floats, exposed: Floats) -> Finding:
    """Whether pairs were shown as often as propensities say, overall and by their size."""
    p_value = calibration_test(propensity, exposed).p_value
    message = (
        f"Of {len(exposed):,} pairs with known exposure {exposed.mean():.2%} were shown, and the "
        f"propensities say {propensity.mean():.2%}. Test of their calibration: p = {p_value:.3f}."
    )
    is_right = p_value >= _SIGNIFICANT
    return ok("exposure", message) if is_right else warning("exposure", message)
