"""Models known by their output: a row of scores a user, a column an item. RecBole and cornac are such."""

from typing import Any

import numpy as np

from calibrank.adapters.history import History
from calibrank.adapters.lists import Lists, best
from calibrank.adapters.numbering import Numbering
from calibrank.adapters.outputs import Margin, Outputs, plain
from calibrank.adapters.pair_model import PairModel
from calibrank.arrays import Floats, Ids, IdsLike, floats
from calibrank.errors import DataError
from calibrank.tables import Interactions

_MARGIN = Margin()


class RecBole(PairModel):
    """The matrix that RecBole's `full_sort_scores(users, model, data)` gives, a row for each of `users`.

    `items` name the columns (`dataset.field2id_token[...]`); by default they are numbered. Column 0 is the padding
    item and -inf marks history: neither has a score.

    >>> matrix = [[-np.inf, 2.0, -np.inf, 0.5], [-np.inf, 0.1, 0.9, 1.5]]
    >>> RecBole([7, 9], matrix, items=["[PAD]", "tea", "ale", "rum"]).score([7, 7, 9], ["tea", "ale", "[PAD]"])
    array([ 2., nan, nan])
    """

    def __init__(self, users: IdsLike, scores: Any, items: IdsLike | None = None, outputs: Outputs = _MARGIN) -> None:
        self.scores, self.outputs = floats("scores", plain(scores)).copy(), outputs
        if self.scores.ndim != 2:
            raise DataError(f"scores must have a row a user, a column an item, got shape {self.scores.shape}.")
        self.scores[:, :1] = np.nan
        self.users = Numbering.of("users", users)
        self.items = Numbering.of("items", np.arange(self.scores.shape[1]) if items is None else items)
        if (len(self.users), len(self.items)) != self.scores.shape:
            named = f"{len(self.users)} users and {len(self.items)} items"
            raise DataError(f"scores must have a row a user, a column an item, got {self.scores.shape} for {named}.")

    def _score(self, users: Ids, items: Ids) -> Floats:
        (rows, known), (columns, sold) = self.users.find(users), self.items.find(items)
        return np.where(known & sold, self.scores[rows, columns], np.nan)

    def _lists(self, users: Ids, k: int) -> Lists:
        rows, known = self.users.find(users)
        columns, scores = best(np.where(known[:, None], self.scores[rows], np.nan), k)
        return Lists(self.items.names[columns], scores, scores.shape[1] * int(np.count_nonzero(~known)))


class Cornac(PairModel):
    """A trained cornac model, by the ids it was trained with (`uid_map` and `iid_map`).

    Scores are `score`'s: `rate` clips to the rating scale and answers for strangers with the mean, and the scores that
    `rank` returns are not in the order of its items. Items beyond those it learnt have none. Hand in the training log
    as `history` to leave that out of recommendations.
    """

    def __init__(self, model: Any, history: Interactions | None = None, outputs: Outputs = _MARGIN) -> None:
        self.model, self.outputs, self.history = model, outputs, History.of(history)
        self.users = Numbering.of("users", _by_row(model.uid_map))
        self.items = Numbering.of("items", _by_row(model.iid_map))

    def _score(self, users: Ids, items: Ids) -> Floats:
        (rows, known), (columns, sold) = self.users.find(users), self.items.find(items)
        scores = np.full(len(users), np.nan)
        heard = np.flatnonzero(known & sold)
        order = heard[np.argsort(rows[heard], kind="stable")]
        people, starts = np.unique(rows[order], return_index=True)
        for row, mine in zip(people, np.split(order, starts[1:]), strict=False):  # none heard: one empty part
            scores[mine] = self._row(row)[columns[mine]]
        return scores

    def _lists(self, users: Ids, k: int) -> Lists:
        rows, known = self.users.find(users)
        none = np.full(len(self.items), np.nan)
        grid = [self._row(row) if here else none for row, here in zip(rows, known, strict=True)]
        columns, scores = best(np.array(grid).reshape(-1, len(self.items)), k + self.history.longest(users))
        return Lists(self.items.names[columns], scores, scores.shape[1] * int(np.count_nonzero(~known)))

    def _hidden(self, users: Ids, lists: Lists) -> Any:
        return self.history.hidden(users, lists.items)

    def _row(self, row: Any) -> Floats:
        """Scores of every item; cornac leaves out those that came after training."""
        told = floats("scores", plain(self.model.score(int(row)))).astype(np.float64)
        return np.concatenate([told, np.full(max(len(self.items) - len(told), 0), np.nan)])[: len(self.items)]


def _by_row(names: Any) -> list[Any]:
    """The keys of a map from name to row, by row."""
    return sorted(names, key=names.__getitem__)
