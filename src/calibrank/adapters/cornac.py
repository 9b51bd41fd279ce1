"""cornac models."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Ids, floats
from calibrank.adapters.history import History
from calibrank.adapters.id_map import IdMap
from calibrank.adapters.lists import PaddedLists
from calibrank.adapters.outputs import Margin, Outputs, to_numpy
from calibrank.adapters.pair_model import PairModel
from calibrank.tables import Interactions

_MARGIN = Margin()


class Cornac(PairModel):
    """A trained cornac model, by the ids it was trained with (`uid_map` and `iid_map`).

    Scores come from the model's `score`. `rate` is not used because it clips to the rating scale
    and returns the mean for unknown users, and `rank` because its scores are not in the order of
    its items. Items that came after training have no score. Pass the training log as `history` to
    leave it out of recommendations.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(
    ...     uid_map={"ann": 0}, iid_map={"tea": 0, "ale": 1}, score=lambda row: [2.0, 0.5]
    ... )
    >>> Cornac(model).score(["ann", "ann", "bob"], ["ale", "tea", "tea"])
    array([0.5, 2. , nan])
    """

    history: History

    def __init__(
        self, model: Any, history: Interactions | None = None, outputs: Outputs = _MARGIN
    ) -> None:
        self.model = model
        self.outputs = outputs
        self.history = History.of(history)
        self.users = IdMap.of("users", _ids_by_row(model.uid_map))
        self.items = IdMap.of("items", _ids_by_row(model.iid_map))

    def _score(self, users: Ids, items: Ids) -> Floats:
        rows, known_users = self.users.find(users)
        columns, known_items = self.items.find(items)
        scores = np.full(len(users), np.nan)
        # cornac scores one user at a time: group the pairs by user.
        known = np.flatnonzero(known_users & known_items)
        order = known[np.argsort(rows[known], kind="stable")]
        user_rows, starts = np.unique(rows[order], return_index=True)
        # Without a known pair there is no user, but `split` still gives one empty group.
        for row, pairs in zip(user_rows, np.split(order, starts[1:]), strict=False):
            scores[pairs] = self._scores_of_user(row)[columns[pairs]]
        return scores

    def _lists(self, users: Ids, k: int) -> PaddedLists:
        rows, known = self.users.find(users)
        grid = np.full((len(users), len(self.items)), np.nan)
        for place in np.flatnonzero(known):
            grid[place] = self._scores_of_user(rows[place])
        # The history is removed afterwards, so ask for that many more.
        most = k + self.history.longest(users)
        return PaddedLists.best_of(self.items.names, grid, known, most)

    def _scores_of_user(self, row: Any) -> Floats:
        """The scores of all items; cornac omits those that came after training."""
        output = to_numpy(self.model.score(int(row)))
        known = floats("scores", output)[: len(self.items)]
        scores = np.full(len(self.items), np.nan)
        scores[: len(known)] = known
        return scores


def _ids_by_row(rows: Any) -> list[Any]:
    """The keys of a mapping from id to row number, in row order."""
    return sorted(rows, key=rows.__getitem__)
