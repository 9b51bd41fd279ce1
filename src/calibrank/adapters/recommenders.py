"""Recommenders of other libraries: implicit, LensKit, RecBole, and others with factors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Ids, IdsLike, Indices, Mask, floats, ids
from calibrank.adapters.lists import Entries
from calibrank.adapters.outputs import MARGIN, Outputs, ids_or_numbers, to_numpy
from calibrank.adapters.pair_model import PairModel
from calibrank.errors import DataError, MissingExtraError
from calibrank.tables import Index

# Users whose scores of all items are computed at a time.
_USER_BATCH = 2**10


class _Ids:
    """The id of each row of a model, in the model's own order."""

    def __init__(self, kind: str, names: IdsLike) -> None:
        self.kind = kind
        self.names = ids(kind, names)
        self.order = np.argsort(self.names, kind="stable")
        ordered = self.names[self.order]
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):
            raise DataError(
                kind, "be distinct", f"{repeated[0].item()!r} twice", "Drop the repeats."
            )

    def find(self, wanted: IdsLike) -> tuple[Indices, Mask]:
        """The row number of each id, and whether the id is known."""
        # `Index` needs sorted ids; `order` leads back to the model's rows.
        places, known = Index(self.names[self.order]).find(self.kind, wanted)
        return self.order[places], known


class _MatrixModel(PairModel):
    """A model whose users and items are the rows and columns of a matrix of scores."""

    def __init__(
        self,
        users: IdsLike,
        items: IdsLike,
        grid: Callable[[Indices], Floats],
        outputs: Outputs,
        history: Any = None,
    ) -> None:
        """`grid` gives the scores of all items for some users, both by row number.

        `history` is a sparse matrix of the pairs to leave out of recommendations.
        """
        self.outputs = outputs
        self._users = _Ids("users", users)
        self._items = _Ids("items", items)
        self._grid = grid
        self._history = history

    def _batches(self, rows: Indices) -> Iterator[tuple[int, Indices, Floats]]:
        """Some of the rows at a time: the place of the first, the rows, and their scores."""
        for start in range(0, len(rows), _USER_BATCH):
            batch = rows[start : start + _USER_BATCH]
            yield start, batch, np.array(self._grid(batch))

    def _score(self, users: Ids, items: Ids) -> Floats:
        rows, known_users = self._users.find(users)
        columns, known_items = self._items.find(items)
        known = np.flatnonzero(known_users & known_items)
        scores = np.full(len(users), np.nan)
        distinct, places = np.unique(rows[known], return_inverse=True)
        for start, batch, grid in self._batches(distinct):
            inside = (places >= start) & (places < start + len(batch))
            scores[known[inside]] = grid[places[inside] - start, columns[known[inside]]]
        return scores

    def _lists(self, users: Ids, k: int) -> Entries:
        rows, known = self._users.find(users)
        places = np.flatnonzero(known)
        lists: list[tuple[IdsLike, Any]] = [([], [])] * len(users)
        for start, batch, grid in self._batches(rows[places]):
            if self._history is not None:
                grid[self._history[batch].nonzero()] = np.nan
            scores = self.outputs.scores(grid)
            for place, values, ranked in zip(places[start:], grid, scores, strict=False):
                best = _best(ranked, k)
                lists[place] = (self._items.names[best], values[best])
        return Entries.of(lists)


def _best(scores: Floats, k: int) -> Indices:
    """The places of the `k` highest scores, best first; equal ones in their own order."""
    scored = np.flatnonzero(~np.isnan(scores))
    if k < len(scored):
        lowest = np.partition(scores[scored], -k)[-k]
        scored = scored[scores[scored] >= lowest]
    return scored[np.argsort(-scores[scored], kind="stable")][:k]


class Implicit(_MatrixModel):
    """A trained implicit model, with the user-item matrix it was trained on.

    Any object with `user_factors` and `item_factors` will do, such as those of Spark's ALS.

    `users` and `items` are the ids of the matrix's rows and columns; by default their numbers.
    The matrix is left out of recommendations. These are made from the model's factors or
    similarities: its `recommend` marks history and padding by several scores and ids.

    >>> from types import SimpleNamespace
    >>> from scipy.sparse import csr_matrix
    >>> model = SimpleNamespace(  # in place of a trained one
    ...     user_factors=np.eye(2), item_factors=np.array([[3.0, 1.0], [0.5, 2.0]])
    ... )
    >>> Implicit(model, csr_matrix((2, 2)), users=["ann", "bob"]).score(["ann", "bob"], [1, 1])
    array([0.5, 2. ])
    """

    def __init__(
        self,
        model: Any,
        user_items: Any,
        users: IdsLike | None = None,
        items: IdsLike | None = None,
        outputs: Outputs = MARGIN,
    ) -> None:
        matrix = user_items.tocsr()
        has_factors = hasattr(model, "user_factors")
        if not has_factors and not hasattr(model, "similarity"):
            raise DataError(
                "model", "have factors or similarities to score with", type(model).__name__
            )

        def grid(rows: Indices) -> Floats:
            scores: Floats
            if has_factors:
                scores = _to_array(model.user_factors)[rows] @ _to_array(model.item_factors).T
            else:
                scores = (matrix[rows] @ model.similarity).toarray()
            return scores

        super().__init__(
            ids_or_numbers("users", users, matrix.shape[0]),
            ids_or_numbers("items", items, matrix.shape[1]),
            grid,
            outputs,
            matrix,
        )


def _to_array(factors: Any) -> Floats:
    # Factors on a GPU are implicit's own matrices.
    return factors.to_numpy() if hasattr(factors, "to_numpy") else factors


class RecBole(_MatrixModel):
    """The matrix that RecBole's `full_sort_scores(users, model, data)` returns, one row per user.

    `items` are the ids of the columns (`dataset.field2id_token[...]`); by default their numbers.
    Column 0 is the padding item and -inf marks history: neither has a score.

    >>> matrix = [[-np.inf, 2.0, -np.inf, 0.5], [-np.inf, 0.1, 0.9, 1.5]]
    >>> adapter = RecBole([7, 9], matrix, items=["[PAD]", "tea", "ale", "rum"])
    >>> adapter.score([7, 7, 9], ["tea", "ale", "[PAD]"])
    array([ 2., nan, nan])
    """

    def __init__(
        self, users: IdsLike, scores: Any, items: IdsLike | None = None, outputs: Outputs = MARGIN
    ) -> None:
        matrix = floats("scores", to_numpy(scores)).copy()
        if matrix.ndim != 2 or len(matrix) != len(users):
            raise DataError(
                "scores",
                "have one row per user and one column per item",
                f"shape {matrix.shape} for {len(users)} users",
            )
        columns = ids_or_numbers("items", items, matrix.shape[1])
        # The padding item never has a score, even if its column was not masked.
        matrix[:, :1] = np.nan
        super().__init__(users, columns, lambda rows: matrix[rows], outputs)


class LensKit(PairModel):
    """A trained LensKit pipeline, by the ids of its dataset.

    Scores are those of the pipeline's `scorer`. The `rating-predictor` is not used because it may
    silently fall back to another model. The pipeline's own candidate selector leaves out history.
    """

    def __init__(self, pipeline: Any, outputs: Outputs = MARGIN) -> None:
        self.pipeline = pipeline
        self.outputs = outputs

    def _score(self, users: Ids, items: Ids) -> Floats:
        lenskit = _import_lenskit()
        scores = np.full(len(users), np.nan)
        # LensKit scores distinct items of one user at a time.
        order = np.argsort(users, kind="stable")
        names, starts = np.unique(users[order], return_index=True)
        # Without users there is no name, but `split` still gives an empty part.
        for user, rows in zip(names, np.split(order, starts[1:]), strict=False):
            distinct_items, places = np.unique(items[rows], return_inverse=True)
            scored = lenskit.score(self.pipeline, user.item(), distinct_items)
            scores[rows] = to_numpy(scored.scores())[places]
        return scores

    def _lists(self, users: Ids, k: int) -> Entries:
        lenskit = _import_lenskit()
        lists = []
        for user in users:
            found = lenskit.recommend(self.pipeline, user.item(), k)
            # An empty list has no scores to return.
            lists.append((found.ids(), found.scores() if len(found) else []))
        return Entries.of(lists)


def _import_lenskit() -> ModuleType:
    try:
        lenskit = import_module("lenskit")
    except ImportError:
        raise MissingExtraError("lenskit", "lenskit") from None
    # `score` came with the pipelines of 2025.
    if not hasattr(lenskit, "score"):
        raise MissingExtraError("lenskit 2025 or newer", "lenskit")
    return lenskit
