"""Items that users have had already and that should not be recommended again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Ids
from calibrank.adapters.id_map import IdMap
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The set of pairs in a log, looked up by id."""

    users: IdMap
    items: IdMap
    cells: npt.NDArray[np.intp]
    """The pairs as user row * number of items + item row, sorted."""

    @classmethod
    def of(cls, log: Interactions | None) -> History:
        """The pairs of a log; without a log, no pairs."""
        if log is None:
            log = Interactions([], [])
        users, user_rows = np.unique(log.users, return_inverse=True)
        items, item_rows = np.unique(log.items, return_inverse=True)
        # Pairs as single numbers can be looked up with `isin`.
        cells = np.unique(user_rows * max(len(items), 1) + item_rows)
        return cls(IdMap.of("users", users), IdMap.of("items", items), cells)

    def has(self, users: Ids, items: Ids) -> npt.NDArray[np.bool_]:
        """Whether each pair is in the log."""
        if not len(self.cells):
            return np.zeros(len(users), dtype=bool)
        user_rows, known_users = self.users.find(users)
        item_rows, known_items = self.items.find(items)
        in_log = np.isin(user_rows * len(self.items) + item_rows, self.cells)
        return known_users & known_items & in_log

    def hidden(self, users: Ids, items: Ids) -> npt.NDArray[np.bool_]:
        """Whether each slot of the users' lists is in the log; `items` has one row per user."""
        repeated = np.repeat(users, items.shape[1])
        return self.has(repeated, items.reshape(-1)).reshape(items.shape)

    def longest(self, users: Ids) -> int:
        """The largest number of items in the log for one of these users."""
        rows, known = self.users.find(users)
        if not known.any():
            return 0
        counts = np.bincount(self.cells // max(len(self.items), 1), minlength=len(self.users))
        return int(counts[rows[known]].max())
