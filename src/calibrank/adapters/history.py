"""What users have had already, and should not be recommended again."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._validation import Ids
from calibrank.adapters.numbering import Numbering
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A log that can be asked about pairs of ids."""

    users: Numbering
    items: Numbering
    cells: npt.NDArray[np.intp]
    """Sorted: user row * items + item row."""

    @classmethod
    def of(cls, log: Interactions | None) -> "History":
        """The pairs of a log; without one, nothing."""
        if log is None:
            log = Interactions([], [])
        people, rows = np.unique(log.users, return_inverse=True)
        things, columns = np.unique(log.items, return_inverse=True)
        cells = np.unique(rows * max(len(things), 1) + columns)
        return cls(Numbering.of("users", people), Numbering.of("items", things), cells)

    def has(self, users: Ids, items: Ids) -> npt.NDArray[np.bool_]:
        """Whether each pair is in the log."""
        if not len(self.cells):
            return np.zeros(len(users), dtype=bool)
        (rows, known), (columns, sold) = self.users.find(users), self.items.find(items)
        return known & sold & np.isin(rows * len(self.items) + columns, self.cells)

    def hidden(self, users: Ids, items: Ids) -> npt.NDArray[np.bool_]:
        """Whether each slot of the users' lists is in the log."""
        pairs = np.repeat(users, items.shape[1]), items.reshape(-1)
        return self.has(*pairs).reshape(items.shape)

    def longest(self, users: Ids) -> int:
        """The most items that one of these users has had."""
        rows, known = self.users.find(users)
        if not known.any():
            return 0
        counts = np.bincount(self.cells // max(len(self.items), 1), minlength=len(self.users))
        return int(counts[rows[known]].max())
