"""cornac, by what its models answer."""

from typing import Any

import numpy as np

from calibrank._validation import Floats, Ids, floats
from calibrank.adapters.history import History
from calibrank.adapters.lists import Lists, best
from calibrank.adapters.numbering import Numbering
from calibrank.adapters.outputs import Margin, Outputs, plain
from calibrank.adapters.pair_model import PairModel
from calibrank.tables import Interactions

_MARGIN = Margin()


class Cornac(PairModel):
    """A trained cornac model, by the ids it was trained with (`uid_map` and `iid_map`).

    Scores are `score`'s: `rate` clips to the rating scale and answers for strangers with the mean, and the scores that
    `rank` returns are not in the order of its items. Items beyond those it learnt have none. Hand in the training log
    as `history` to leave that out of recommendations.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(uid_map={"ann": 0}, iid_map={"tea": 0, "ale": 1}, score=lambda row: [2.0, 0.5])
    >>> Cornac(model).score(["ann", "ann", "bob"], ["ale", "tea", "tea"])
    array([0.5, 2. , nan])
    """

    def __init__(
        self, model: Any, history: Interactions | None = None, outputs: Outputs = _MARGIN
    ) -> None:
        self.model, self.outputs, self.history = model, outputs, History.of(history)
        self.users = Numbering.of("users", _by_row(model.uid_map))
        self.items = Numbering.of("items", _by_row(model.iid_map))

    def _score(self, users: Ids, items: Ids) -> Floats:
        (rows, known), (columns, sold) = self.users.find(users), self.items.find(items)
        scores = np.full(len(users), np.nan)
        heard = np.flatnonzero(known & sold)
        order = heard[np.argsort(rows[heard], kind="stable")]
        people, starts = np.unique(rows[order], return_index=True)
        for row, mine in zip(
            people, np.split(order, starts[1:]), strict=False
        ):  # none heard: one empty part
            scores[mine] = self._row(row)[columns[mine]]
        return scores

    def _lists(self, users: Ids, k: int) -> Lists:
        rows, known = self.users.find(users)
        none = np.full(len(self.items), np.nan)
        grid = [self._row(row) if here else none for row, here in zip(rows, known, strict=True)]
        columns, scores = best(
            np.array(grid).reshape(-1, len(self.items)), k + self.history.longest(users)
        )
        return Lists(
            self.items.names[columns], scores, scores.shape[1] * int(np.count_nonzero(~known))
        )

    def _hidden(self, users: Ids, lists: Lists) -> Any:
        return self.history.hidden(users, lists.items)

    def _row(self, row: Any) -> Floats:
        """Scores of every item; cornac leaves out those that came after training."""
        told = floats("scores", plain(self.model.score(int(row)))).astype(np.float64)
        return np.concatenate([told, np.full(max(len(self.items) - len(told), 0), np.nan)])[
            : len(self.items)
        ]


def _by_row(names: Any) -> list[Any]:
    """The keys of a map from name to row, by row."""
    return sorted(names, key=names.__getitem__)
