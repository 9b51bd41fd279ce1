"""Lists of users: what a threshold does to all of them, and a sample that the page shows."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, add_up
from calibrank.evidence import Evidence
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.report.rows import Categorical, ReportRows

GRID: Floats = np.round(
    np.concatenate(
        [
            # Most recommenders predict small probabilities, so steps start at 0.1%.
            np.arange(0, 20) / 1000,
            np.arange(20, 100, 5) / 1000,
            np.arange(10, 101) / 100,
        ]
    ),
    4,
)
"""The thresholds that the slider can take."""

LIST_LENGTHS = (1, 3, 5, 10, 20)
"""The maximum list lengths to choose from, besides no limit."""

MOST_COUNTED = 20
"""Users are counted by their number of items up to this many."""


class ListOrder(NamedTuple):
    """Rows sorted user by user, most probable first."""

    order: Codes
    """Row numbers in sorted order."""
    rank: Codes
    """The rank of each sorted row in its user's list, counted from 0."""
    starts: Codes
    """Where each user's list starts in the sorted order."""


def sort_lists(values: Floats, users: Codes) -> ListOrder:
    """Sort rows into one list per user, highest value first."""
    order = np.lexsort((-values, users))
    starts = np.concatenate([[0], np.cumsum(np.bincount(users))[:-1]])
    rank = np.arange(len(order)) - starts[users[order]]
    return ListOrder(order, rank, starts)


def threshold_table(probabilities: Floats, evidence: Evidence, users: Codes) -> dict[str, Any]:
    """Compute the sums of every threshold on the grid, exact for all rows.

    A row at rank m passes all thresholds up to its probability, and the number of rows at rank m
    that pass is the number of users who get more than m items. So one table of sums by rank and
    by number of thresholds passed answers every question of the page.
    """
    order, rank, _ = sort_lists(probabilities, users)
    passed = np.searchsorted(GRID, probabilities[order], side="right")
    cells = np.minimum(rank, MOST_COUNTED) * (len(GRID) + 1) + passed
    sums = {
        "items": _sums_by_threshold(cells, None),
        "expected_positives": _sums_by_threshold(cells, probabilities[order]),
        "positive": _sums_by_threshold(cells, evidence.positive[order]),
        "total": _sums_by_threshold(cells, evidence.total[order]),
    }
    by_length = {}
    for name, length in [*((str(length), length) for length in LIST_LENGTHS), ("all", None)]:
        by_length[name] = {what: values[:length].sum(axis=0) for what, values in sums.items()}
    return {
        "grid": GRID,
        "users": int(users.max()) + 1,
        "rows": len(users),
        "users_with_at_least": sums["items"][:MOST_COUNTED],
        "lengths": by_length,
    }


def _sums_by_threshold(cells: Codes, mass: Floats | None) -> Floats:
    """Sum the mass that passes each threshold, ranks x thresholds."""
    size = len(GRID) + 1
    by_passed = add_up(cells, mass, (MOST_COUNTED + 1) * size).reshape(MOST_COUNTED + 1, size)
    # A row that passes k thresholds passes the first k: cumulate from the right, skip none passed.
    return by_passed[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]


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
