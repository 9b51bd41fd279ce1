"""What a threshold does, for the whole table: who gets how many items, what they are worth, what is pruned."""

from typing import Any

import numpy as np

from calibrank._validation import Floats, add_up
from calibrank.evidence import Evidence
from calibrank.report.ledger import Codes

GRID: Floats = np.round(
    np.concatenate(
        [
            np.arange(0, 20) / 1000,  # where most recommenders live, a tenth of a per cent counts
            np.arange(20, 100, 5) / 1000,
            np.arange(10, 101) / 100,
        ]
    ),
    4,
)
"""The thresholds of the slider."""
LENGTHS = (1, 3, 5, 10, 20)
"""Longest lists to choose from, besides no limit."""
COUNTED = 20
"""Users are counted by their number of items up to this many."""


def list_order(values: Floats, users: Codes) -> tuple[Codes, Codes, Codes]:
    """Rows user by user, best first; each one's place in its list from 0; and where each user's list starts."""
    order = np.lexsort((-values, users))
    starts = np.concatenate([[0], np.cumsum(np.bincount(users))[:-1]])
    return order, np.arange(len(order)) - starts[users[order]], starts


def threshold_table(probabilities: Floats, evidence: Evidence, users: Codes) -> dict[str, Any]:
    """Sums at every threshold of the grid, exact for all rows.

    A row stands at a place of its user's list, and passes thresholds up to its probability. Rows at place m that pass
    are therefore users who get more than m items: one table by place and by probability answers everything.
    """
    order, place, _ = list_order(probabilities, users)
    passes = np.searchsorted(GRID, probabilities[order], side="right")
    size = len(GRID) + 1
    cells = np.minimum(place, COUNTED) * size + passes

    def table(mass: Floats | None) -> Floats:
        counted = add_up(cells, mass, (COUNTED + 1) * size).reshape(COUNTED + 1, size)
        return counted[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]

    sums = {"shown": table(None), "expected": table(probabilities[order])}
    sums["positive"], sums["total"] = (
        table(mass[order]) for mass in (evidence.positive, evidence.total)
    )
    by_length = {
        str(length): {name: values[:length].sum(axis=0) for name, values in sums.items()}
        for length in LENGTHS
    }
    by_length["all"] = {name: values.sum(axis=0) for name, values in sums.items()}
    return {
        "grid": GRID,
        "users": int(users.max()) + 1,
        "rows": len(users),
        "at_least": sums["shown"][:COUNTED],
        "lengths": by_length,
    }
