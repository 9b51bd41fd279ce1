"""Item popularity and user activity: columns of every log, and default terms of `anchor`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrank._internal.validation import Floats, Ids, IdsLike, ids
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.tables import Frame, Interactions, alike, as_interactions
from calibrank.terms import Smooth

POPULARITY = "item_popularity"
ACTIVITY = "user_activity"


def count_columns(log: Interactions | Frame, users: IdsLike, items: IdsLike) -> dict[str, Floats]:
    """Columns for `anchor` and `predict`: how many positives of a log each item and user has.

    They are logarithms of 1 plus the count; a user or item that is not in the log has 0 positives.

    >>> log = Interactions(users=["ann", "ann", "bob"], items=[7, 9, 7])
    >>> columns = count_columns(log, users=["ann", "new"], items=[7, 8])
    >>> {name: np.expm1(column).round().tolist() for name, column in columns.items()}
    {'item_popularity': [2.0, 0.0], 'user_activity': [2.0, 0.0]}
    """
    table = as_interactions(log)
    liked = table.labels == 1
    asked = ids("items", items)
    return {
        POPULARITY: _log_counts("items", table.items[liked], asked),
        ACTIVITY: _log_counts("users", table.users[liked], ids("users", users, len(asked))),
    }


def _log_counts(name: str, logged: Ids, asked: Ids) -> Floats:
    # Comparing text with numbers would silently match nothing.
    if (logged.dtype.kind in "iuf") != (asked.dtype.kind in "iuf"):
        raise DataError(
            name, f"be ids as in the log ({logged.dtype})", asked.dtype, "Convert them."
        )
    if not len(logged):
        return np.zeros(len(asked))
    logged, asked = alike(name, [logged, asked])
    known, counts = np.unique(logged, return_counts=True)
    rows = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.log1p(np.where(known[rows] == asked, counts[rows], 0.0))


def default_terms(fitted: CalibrationMap, given: Sequence[str]) -> list[Smooth]:
    """Smooth terms of the columns of `count_columns` that are given and not terms already."""
    names = set(given) - set(fitted.columns)
    return [Smooth(name) for name in (POPULARITY, ACTIVITY) if name in names]
