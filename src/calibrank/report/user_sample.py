"""A random sample of users with the top of their lists, small enough to embed in the page."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.report.rows import Categorical, ReportRows
from calibrank.report.thresholds import sort_lists

MOST_USERS = 3000
LIST_LENGTH = 20

MOST_CHARACTERS = 1_400_000
"""The size of the sample as JSON at most; with long names it has fewer users."""

LONGEST_NAME = 160


def sample_users(
    rows: ReportRows, probabilities: Floats, seed: int | np.random.Generator = 0
) -> dict[str, Any] | None:
    """Draw users at random, each with the top of the list; None if there are no users."""
    if rows.users is None:
        return None
    n_users = len(rows.users.names)
    drawn = np.random.default_rng(seed).permutation(n_users)
    size = min(MOST_USERS, n_users)
    while True:
        sample = _describe_sample(rows, rows.users, probabilities, np.sort(drawn[:size]))
        if size == 1 or len(json.dumps(sample)) <= MOST_CHARACTERS:
            return sample
        size //= 2


def _describe_sample(
    rows: ReportRows, users: Categorical, probabilities: Floats, chosen: Codes
) -> dict[str, Any]:
    order, _, starts = sort_lists(probabilities, users.codes)
    row_counts = users.counts()
    # Item names are long and repeat, so lists refer to them by position.
    item_positions: dict[int, int] = {}
    described = []
    for user in chosen.tolist():
        length = min(int(row_counts[user]), LIST_LENGTH)
        top = order[starts[user] : starts[user] + length]
        user_list = _describe_list(rows, probabilities, top, item_positions)
        name = shorten(users.names[user])
        described.append({"name": name, "rows": int(row_counts[user]), **user_list})
    items = []
    if rows.items is not None:
        items = [shorten(rows.items.names[code]) for code in item_positions]
    return {
        "users": described,
        "items": items,
        "users_in_table": len(users.names),
        "list_length": LIST_LENGTH,
    }


def _describe_list(
    rows: ReportRows, probabilities: Floats, top: Codes, item_positions: dict[int, int]
) -> dict[str, Any]:
    items = None
    if rows.items is not None:
        codes = rows.items.codes[top].tolist()
        items = [item_positions.setdefault(code, len(item_positions)) for code in codes]
    # A few digits are enough to read, and keep the page small.
    return {
        "scores": [float(f"{score:.5g}") for score in rows.scores[top]],
        "probabilities": [float(f"{value:.6g}") for value in probabilities[top]],
        "labels": rows.labels[top].astype(int).tolist(),
        "items": items,
    }


def shorten(name: str) -> str:
    """Cut a name that is longer than a line or two, visibly.

    >>> shorten("a name"), len(shorten("x" * 500))
    ('a name', 160)
    """
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
