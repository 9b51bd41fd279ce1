"""What a probability threshold does to all lists: users reached, items kept, positives expected."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, add_up
from calibrank.decisions.bounds import Ratios, accept_forward, log_capital
from calibrank.decisions.cuts import mass_shown
from calibrank.evidence import Evidence
from calibrank.metrics.clustered_bootstrap import Codes

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

# Precisions that may be guaranteed, and the confidence. Users are merged into this many clusters.
_GUARANTEED = np.arange(1, 20) / 20
_CONFIDENCE = 0.95
_CLUSTERS = 512


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
    by_length: dict[str, dict[str, Floats]] = {}
    for length in LIST_LENGTHS:
        by_length[str(length)] = {
            name: values[:length].sum(axis=0) for name, values in sums.items()
        }
    by_length["all"] = {name: values.sum(axis=0) for name, values in sums.items()}
    return {
        "grid": GRID,
        "users": int(users.max()) + 1,
        "rows": len(users),
        "users_with_at_least": sums["items"][:MOST_COUNTED],
        "lengths": by_length,
    }


def guaranteed_precision(
    probabilities: Floats, evidence: Evidence, users: Codes, clusters: Codes
) -> dict[str, list[float | None]]:
    """The largest precision that is guaranteed at each threshold, by list length; None if none is.

    For each precision the guarantee holds at all thresholds at once (`calibrank.decisions`). The
    map must not have been fitted to these rows, and the evidence must be unbiased. Without a limit
    on lists or weights nothing is guaranteed: one rare user could decide the precision.
    """
    order, rank, starts = sort_lists(probabilities, users)
    merged = np.unique(clusters % _CLUSTERS, return_inverse=True)[1]
    # Random clusters of users stand for users: their mean mass has the same limit.
    members = np.bincount(merged[order[starts]])[:, None]
    # Guarantees go from high thresholds to low ones, and nobody is shown items at threshold 0.
    grid = GRID[:0:-1]
    nothing: list[float | None] = [None] * len(GRID)
    found = {"all": nothing}
    is_limited = evidence.total.min() == evidence.total.max()
    for length in LIST_LENGTHS:
        rows = order[rank < length]
        first = np.searchsorted(-grid, -probabilities[rows], side="left")
        unwanted = evidence.total[rows] - evidence.positive[rows]
        largest = length * float(evidence.total.max()) * members
        ratios = Ratios(
            mass_shown(merged[rows], first, unwanted, len(grid)) / largest,
            mass_shown(merged[rows], first, evidence.total[rows], len(grid)) / largest,
        )
        best = _largest_precision(ratios) if is_limited else np.zeros(len(grid))
        found[str(length)] = [None, *(value or None for value in best[::-1].tolist())]
    return found


def _largest_precision(ratios: Ratios) -> Floats:
    error = 1 - _CONFIDENCE
    best = np.zeros(ratios.loss.shape[1])
    for precision in _GUARANTEED.tolist():
        capital = log_capital(ratios.excess(1 - precision), 1 - precision, error)
        best[accept_forward(capital, error)] = precision
    return best


def _sums_by_threshold(cells: Codes, mass: Floats | None) -> Floats:
    """Sum the mass that passes each threshold, ranks x thresholds."""
    size = len(GRID) + 1
    by_passed = add_up(cells, mass, (MOST_COUNTED + 1) * size).reshape(MOST_COUNTED + 1, size)
    # A row that passes k thresholds passes the first k: cumulate from the right, skip none passed.
    return by_passed[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
