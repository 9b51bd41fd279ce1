"""RecBole, through the score matrix that it returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Ids, IdsLike, floats
from calibrank.adapters.id_map import IdMap
from calibrank.adapters.lists import PaddedLists
from calibrank.adapters.outputs import Margin, Outputs, to_numpy
from calibrank.adapters.pair_model import PairModel
from calibrank.errors import DataError

_MARGIN = Margin()


class RecBole(PairModel):
    """The matrix that RecBole's `full_sort_scores(users, model, data)` returns, one row per user.

    `items` are the ids of the columns (`dataset.field2id_token[...]`); by default their numbers.
    Column 0 is the padding item and -inf marks history: neither has a score.

    >>> matrix = [[-np.inf, 2.0, -np.inf, 0.5], [-np.inf, 0.1, 0.9, 1.5]]
    >>> adapter = RecBole([7, 9], matrix, items=["[PAD]", "tea", "ale", "rum"])
    >>> adapter.score([7, 7, 9], ["tea", "ale", "[PAD]"])
    array([ 2., nan, nan])
    """

    def __init__(
        self, users: IdsLike, scores: Any, items: IdsLike | None = None, outputs: Outputs = _MARGIN
    ) -> None:
        self.outputs = outputs
        self.scores = floats("scores", to_numpy(scores)).copy()
        if self.scores.ndim != 2:
            raise DataError(
                "scores",
                "have one row per user and one column per item",
                got=f"shape {self.scores.shape}",
            )
        # The padding item never has a score, even if its column was not masked.
        self.scores[:, :1] = np.nan
        n_columns = self.scores.shape[1]
        self.users = IdMap.of("users", users)
        self.items = IdMap.of("items", np.arange(n_columns) if items is None else items)
        if (len(self.users), len(self.items)) != self.scores.shape:
            raise DataError(
                "scores",
                "have one row per user and one column per item",
                got=(
                    f"{self.scores.shape} for {len(self.users)} users and {len(self.items)} items"
                ),
            )

    def _score(self, users: Ids, items: Ids) -> Floats:
        rows, known_users = self.users.find(users)
        columns, known_items = self.items.find(items)
        return np.where(known_users & known_items, self.scores[rows, columns], np.nan)

    def _lists(self, users: Ids, k: int) -> PaddedLists:
        rows, known = self.users.find(users)
        return PaddedLists.best_of(self.items.names, self.scores[rows], known, k)
