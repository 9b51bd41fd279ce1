"""Ids of users and items: a model's own row numbers, and pairs that users have had already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Ids, IdsLike, ids
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

Found = tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class IdMap:
    """The id of each row of a model, in the model's own order.

    >>> items = IdMap.of("items", ["[PAD]", "tea", "ale"])
    >>> items.find(["ale", "rum"]), items.names[[1, 2]]
    ((array([2, 1]), array([ True, False])), array(['tea', 'ale'], dtype='<U5'))
    """

    kind: str
    """"users" or "items", for messages."""
    names: Ids
    order: npt.NDArray[np.intp]
    """Row numbers sorted by id."""

    @classmethod
    def of(cls, kind: str, names: IdsLike) -> IdMap:
        """A map from the ids of all rows, which must be distinct."""
        checked = ids(kind, names)
        order = np.argsort(checked, kind="stable")
        ordered = checked[order]
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(repeated):
            raise DataError(
                kind, "be distinct", f"{ordered[repeated[0]].item()!r} twice", "Drop the repeats."
            )
        return cls(kind, checked, order)

    def __len__(self) -> int:
        return len(self.names)

    def find(self, wanted: IdsLike) -> Found:
        """The row number of each id, and whether the id is known."""
        if not len(self.names):
            return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=bool)
        # `Index` needs sorted ids; `order` leads back to the model's rows.
        places, known = Index(self.names[self.order]).find(self.kind, wanted)
        return self.order[places], known


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
