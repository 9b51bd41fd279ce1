"""Profile a table in one pass: counts that reveal padding, invalid labels and truncated lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import checked_evidence, naive
from calibrank.summary import Summary, SummaryBuilder
from calibrank.tabular.batch import Batch, indices_of
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Progress
from calibrank.tabular.propensity import IdCounts
from calibrank.tabular.read import Table
from calibrank.tabular.rows import labels_of
from calibrank.tabular.rules import Mask

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
    summary: Summary | None = None
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
    soft = columns.label_rule is not None and not columns.label_rule.is_binary
    valid = _count_invalid(scores, labels, found, "soft label" if soft else "label")
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    return scores[valid], labels[valid].astype(np.float64)


def _count_invalid(scores: Floats, labels: Floats, found: Profile, role: str) -> Mask:
    """Count invalid scores and labels, and return which rows are valid."""
    valid_score: Mask = COLUMN_RULES["score"].holds(scores)
    for kind, mask in _invalid_kinds(scores, valid_score):
        if mask.any():
            found.bad_scores[kind] += int(mask.sum())
    valid: Mask = valid_score & COLUMN_RULES[role].holds(labels)
    found.bad_labels += int(valid_score.sum() - valid.sum())
    return valid


def _invalid_kinds(scores: Floats, valid: Mask) -> Iterator[tuple[str, Mask]]:
    missing = np.isnan(scores)
    infinite = np.isinf(scores)
    yield "missing", missing
    yield "infinite", infinite
    yield "beyond 1e30", ~(valid | missing | infinite)


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
