"""implicit: factor models and neighbours."""

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, Ids, IdsLike
from calibrank.adapters.lists import Lists
from calibrank.adapters.numbering import Numbering
from calibrank.adapters.outputs import Margin, Outputs
from calibrank.adapters.pair_model import PairModel
from calibrank.errors import DataError

_MARGIN = Margin()
_PAIRS = 2**16  # factors gathered at a time
_PEOPLE = 2**10  # neighbour models fill a row of items a user


class Implicit(PairModel):
    """A trained implicit model, with the matrix of users and items it was trained on.

    `users` and `items` name the matrix's rows and columns; by default they are called by their numbers. History and
    padding never come back, whichever way the model marks them: -3.4e38 with a real id, id -1, id 0 at score 0, or,
    in neighbour models, history at score 0.

    >>> from types import SimpleNamespace
    >>> from scipy.sparse import csr_matrix
    >>> model = SimpleNamespace(user_factors=np.eye(2), item_factors=np.array([[3.0, 1.0], [0.5, 2.0]]))  # or trained
    >>> Implicit(model, csr_matrix((2, 2)), users=["ann", "bob"]).score(["ann", "bob"], [1, 1])
    array([0.5, 2. ], dtype=float32)
    """

    def __init__(
        self,
        model: Any,
        user_items: Any,
        users: IdsLike | None = None,
        items: IdsLike | None = None,
        outputs: Outputs = _MARGIN,
    ) -> None:
        self.model, self.user_items, self.outputs = model, user_items.tocsr(), outputs
        rows, columns = user_items.shape
        self.users = Numbering.of("users", np.arange(rows) if users is None else users)
        self.items = Numbering.of("items", np.arange(columns) if items is None else items)
        for names, size in ((self.users, rows), (self.items, columns)):
            if len(names) != size:
                raise DataError(
                    f"{names.what} must name the {size:,} of the matrix, got {len(names):,} names."
                )

    def _score(self, users: Ids, items: Ids) -> Floats:
        (rows, known), (columns, sold) = self.users.find(users), self.items.find(items)
        heard = known & sold
        scores = np.full(len(users), np.nan, dtype=np.float32)
        scores[heard] = self._score_rows(rows[heard], columns[heard])
        return scores

    def _score_rows(self, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]) -> Floats:
        if hasattr(self.model, "user_factors"):
            return _products(
                _array(self.model.user_factors), _array(self.model.item_factors), rows, columns
            )
        if hasattr(self.model, "similarity"):
            return _sums(self.user_items, self.model.similarity, rows, columns)
        raise DataError(
            f"model must have factors or similarities to score with, got {type(self.model).__name__}."
        )

    def _lists(self, users: Ids, k: int) -> Lists:
        rows, known = self.users.find(users)
        asked = min(k, len(self.items))
        columns, scores = (
            np.zeros((len(users), asked), dtype=np.intp),
            np.full((len(users), asked), np.nan),
        )
        if known.any():
            mine = self.user_items[rows[known]]
            columns[known], scores[known] = self.model.recommend(rows[known], mine, N=asked)
        empty = columns < 0
        scores[empty] = np.nan
        return Lists(
            self.items.names[np.where(empty, 0, columns)],
            scores,
            asked * int(np.count_nonzero(~known)),
        )

    def _hidden(self, users: Ids, lists: Lists) -> npt.NDArray[np.bool_]:
        rows, known = self.users.find(users)
        columns, _ = self.items.find(lists.items.reshape(-1))
        pairs = np.repeat(rows, lists.items.shape[1]), columns
        had = np.asarray(self.user_items[pairs]).reshape(lists.items.shape) != 0
        return had & known[:, None]


def _array(factors: Any) -> Floats:
    return (
        factors.to_numpy() if hasattr(factors, "to_numpy") else factors
    )  # those on a GPU are no arrays


def _products(
    users: Floats, items: Floats, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]
) -> Floats:
    scores = np.empty(len(rows), dtype=users.dtype)
    for start in range(0, len(rows), _PAIRS):
        some = slice(start, start + _PAIRS)
        scores[some] = np.einsum("pf,pf->p", users[rows[some]], items[columns[some]])
    return scores


def _sums(
    user_items: Any, similarity: Any, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]
) -> Floats:
    """What a user's items add up to at an item, a few users at a time."""
    scores = np.empty(len(rows))
    people, which = np.unique(rows, return_inverse=True)
    for start in range(0, len(people), _PEOPLE):
        some = (which >= start) & (which < start + _PEOPLE)
        grid = (user_items[people[start : start + _PEOPLE]] @ similarity).toarray()
        scores[some] = grid[which[some] - start, columns[some]]
    return scores
