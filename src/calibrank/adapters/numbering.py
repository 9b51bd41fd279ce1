"""Names of a model's rows: frameworks count users and items, people call them otherwise."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._validation import Ids, IdsLike, ids
from calibrank.errors import DataError
from calibrank.tables import Index

Found = tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """Which id each row of a table has, in the table's own order.

    >>> items = Numbering.of("items", ["[PAD]", "tea", "ale"])
    >>> items.find(["ale", "rum"]), items.names[[1, 2]]
    ((array([2, 1]), array([ True, False])), array(['tea', 'ale'], dtype='<U5'))
    """

    what: str
    names: Ids
    order: npt.NDArray[np.intp]
    """Rows by sorted name."""

    @classmethod
    def of(cls, what: str, names: IdsLike) -> "Numbering":
        """Names by row, each once."""
        called = ids(what, names)
        order = np.argsort(called, kind="stable")
        ordered = called[order]
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(again):
            raise DataError(
                f"{what} must be named once each, got {ordered[again[0]].item()!r} twice. Drop repeats."
            )
        return cls(what, called, order)

    def __len__(self) -> int:
        return len(self.names)

    def find(self, wanted: IdsLike) -> Found:
        """The row of each id, and whether it has one."""
        if not len(self.names):
            return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=bool)
        places, known = Index(self.names[self.order]).find(self.what, wanted)
        return self.order[places], known
