"""RecBole, by the matrix of scores it gives."""

from typing import Any

import numpy as np

from calibrank._validation import Floats, Ids, IdsLike, floats
from calibrank.adapters.lists import Lists, best
from calibrank.adapters.numbering import Numbering
from calibrank.adapters.outputs import Margin, Outputs, plain
from calibrank.adapters.pair_model import PairModel
from calibrank.errors import DataError

_MARGIN = Margin()


class RecBole(PairModel):
    """The matrix that RecBole's `full_sort_scores(users, model, data)` gives, a row for each of `users`.

    `items` name the columns (`dataset.field2id_token[...]`); by default they are numbered. Column 0 is the padding
    item and -inf marks history: neither has a score.

    >>> matrix = [[-np.inf, 2.0, -np.inf, 0.5], [-np.inf, 0.1, 0.9, 1.5]]
    >>> RecBole([7, 9], matrix, items=["[PAD]", "tea", "ale", "rum"]).score([7, 7, 9], ["tea", "ale", "[PAD]"])
    array([ 2., nan, nan])
    """

    def __init__(
        self, users: IdsLike, scores: Any, items: IdsLike | None = None, outputs: Outputs = _MARGIN
    ) -> None:
        self.scores, self.outputs = floats("scores", plain(scores)).copy(), outputs
        if self.scores.ndim != 2:
            raise DataError(
                f"scores must have a row a user, a column an item, got shape {self.scores.shape}."
            )
        self.scores[:, :1] = np.nan
        self.users = Numbering.of("users", users)
        self.items = Numbering.of(
            "items", np.arange(self.scores.shape[1]) if items is None else items
        )
        if (len(self.users), len(self.items)) != self.scores.shape:
            named = f"{len(self.users)} users and {len(self.items)} items"
            raise DataError(
                f"scores must have a row a user, a column an item, got {self.scores.shape} for {named}."
            )

    def _score(self, users: Ids, items: Ids) -> Floats:
        (rows, known), (columns, sold) = self.users.find(users), self.items.find(items)
        return np.where(known & sold, self.scores[rows, columns], np.nan)

    def _lists(self, users: Ids, k: int) -> Lists:
        rows, known = self.users.find(users)
        columns, scores = best(np.where(known[:, None], self.scores[rows], np.nan), k)
        return Lists(
            self.items.names[columns], scores, scores.shape[1] * int(np.count_nonzero(~known))
        )
