"""Ids of a model's rows: libraries number users and items, and callers use their own ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Ids, IdsLike, ids
from calibrank.errors import DataError
from calibrank.tables import Index

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
                kind,
                "be distinct",
                got=f"{ordered[repeated[0]].item()!r} twice",
                remedy="Drop the repeats.",
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
