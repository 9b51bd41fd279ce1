"""implicit: factor models and item-neighbour models."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats, Ids, IdsLike
from calibrank.adapters.id_map import IdMap
from calibrank.adapters.lists import PaddedLists
from calibrank.adapters.outputs import Margin, Outputs
from calibrank.adapters.pair_model import PairModel
from calibrank.errors import DataError

_MARGIN = Margin()
# Pairs whose factors are gathered at a time.
_PAIR_BATCH = 2**16
# Neighbour models fill a dense row of all items per user.
_USER_BATCH = 2**10

Rows = npt.NDArray[np.intp]


class Implicit(PairModel):
    """A trained implicit model, with the user-item matrix it was trained on.

    `users` and `items` are the ids of the matrix's rows and columns; by default their numbers.
    History and padding are left out of recommendations, however the model marks them: score -3.4e38
    with a real id, id -1, id 0 at score 0, or, in neighbour models, history at score 0.

    >>> from types import SimpleNamespace
    >>> from scipy.sparse import csr_matrix
    >>> model = SimpleNamespace(  # in place of a trained one
    ...     user_factors=np.eye(2), item_factors=np.array([[3.0, 1.0], [0.5, 2.0]])
    ... )
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
        self.model = model
        self.user_items = user_items.tocsr()
        self.outputs = outputs
        n_rows, n_columns = user_items.shape
        self.users = IdMap.of("users", np.arange(n_rows) if users is None else users)
        self.items = IdMap.of("items", np.arange(n_columns) if items is None else items)
        for id_map, size in ((self.users, n_rows), (self.items, n_columns)):
            if len(id_map) != size:
                raise DataError(
                    id_map.kind, f"be the {size:,} ids of the matrix", got=f"{len(id_map):,} ids"
                )

    def _score(self, users: Ids, items: Ids) -> Floats:
        rows, known_users = self.users.find(users)
        columns, known_items = self.items.find(items)
        known = known_users & known_items
        scores = np.full(len(users), np.nan, dtype=np.float32)
        scores[known] = self._score_rows(rows[known], columns[known])
        return scores

    def _score_rows(self, rows: Rows, columns: Rows) -> Floats:
        if hasattr(self.model, "user_factors"):
            user_factors = _to_array(self.model.user_factors)
            item_factors = _to_array(self.model.item_factors)
            return _factor_scores(user_factors, item_factors, rows, columns)
        if hasattr(self.model, "similarity"):
            return _neighbour_scores(self.user_items, self.model.similarity, rows, columns)
        raise DataError(
            "model", "have factors or similarities to score with", got=type(self.model).__name__
        )

    def _lists(self, users: Ids, k: int) -> PaddedLists:
        rows, known = self.users.find(users)
        length = min(k, len(self.items))
        columns = np.zeros((len(users), length), dtype=np.intp)
        scores = np.full((len(users), length), np.nan)
        if known.any():
            history = self.user_items[rows[known]]
            found = self.model.recommend(rows[known], history, N=length)
            columns[known], scores[known] = found
        # Neighbour models pad with column -1.
        is_empty = columns < 0
        scores[is_empty] = np.nan
        names = self.items.names[np.where(is_empty, 0, columns)]
        n_unknown = int(np.count_nonzero(~known))
        return PaddedLists(names, scores, added=length * n_unknown)

    def _hidden(self, users: Ids, lists: PaddedLists) -> npt.NDArray[np.bool_]:
        rows, known = self.users.find(users)
        columns, _ = self.items.find(lists.items.reshape(-1))
        repeated = np.repeat(rows, lists.items.shape[1])
        values = self.user_items[repeated, columns]
        in_history = np.asarray(values).reshape(lists.items.shape) != 0
        return in_history & known[:, None]


def _to_array(factors: Any) -> Floats:
    # Factors on a GPU are implicit's own matrices.
    return factors.to_numpy() if hasattr(factors, "to_numpy") else factors


def _factor_scores(users: Floats, items: Floats, rows: Rows, columns: Rows) -> Floats:
    """The inner product of each pair of factors, in batches."""
    scores = np.empty(len(rows), dtype=users.dtype)
    for start in range(0, len(rows), _PAIR_BATCH):
        batch = slice(start, start + _PAIR_BATCH)
        scores[batch] = np.einsum("pf,pf->p", users[rows[batch]], items[columns[batch]])
    return scores


def _neighbour_scores(user_items: Any, similarity: Any, rows: Rows, columns: Rows) -> Floats:
    """The sum of similarities between an item and the user's items, for some users at a time."""
    scores = np.empty(len(rows))
    users, user_places = np.unique(rows, return_inverse=True)
    for start in range(0, len(users), _USER_BATCH):
        end = start + _USER_BATCH
        in_batch = (user_places >= start) & (user_places < end)
        grid = (user_items[users[start:end]] @ similarity).toarray()
        scores[in_batch] = grid[user_places[in_batch] - start, columns[in_batch]]
    return scores
