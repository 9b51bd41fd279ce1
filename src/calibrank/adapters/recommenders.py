"""Recommenders of other libraries: cornac, implicit, LensKit, RecBole and Spark's ALS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats, Ids, IdsLike, Indices, floats
from calibrank.adapters.ids import History, IdMap
from calibrank.adapters.lists import PaddedLists, best
from calibrank.adapters.outputs import MARGIN, Outputs, to_numpy
from calibrank.adapters.pair_model import PairModel
from calibrank.errors import DataError, MissingExtraError
from calibrank.tables import Interactions


class _MatrixModel(PairModel):
    """A model whose users and items are the rows and columns of a matrix of scores."""

    users: IdMap
    items: IdMap

    def _score(self, users: Ids, items: Ids) -> Floats:
        rows, known_users = self.users.find(users)
        columns, known_items = self.items.find(items)
        known = known_users & known_items
        found = self._score_rows(rows[known], columns[known])
        scores = np.full(len(users), np.nan, dtype=found.dtype)
        scores[known] = found
        return scores

    def _lists(self, users: Ids, k: int) -> PaddedLists:
        rows, known = self.users.find(users)
        found = self._grid(rows[known])
        grid = np.full((len(users), len(self.items)), np.nan, dtype=found.dtype)
        grid[known] = found
        # The history is removed afterwards, so ask for that many more.
        columns, scores = best(grid, k + self.history.longest(users))
        n_unknown = int(np.count_nonzero(~known))
        return PaddedLists(self.items.names[columns], scores, scores.shape[1] * n_unknown)

    @abstractmethod
    def _score_rows(self, rows: Indices, columns: Indices) -> Floats:
        """The scores of known pairs."""

    def _grid(self, rows: Indices) -> Floats:
        """The scores of all items for known users."""
        raise NotImplementedError


class Cornac(_MatrixModel):
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

    def __init__(
        self, model: Any, history: Interactions | None = None, outputs: Outputs = MARGIN
    ) -> None:
        self.model = model
        self.outputs = outputs
        self.history = History.of(history)
        self.users = IdMap.of("users", _ids_by_row(model.uid_map))
        self.items = IdMap.of("items", _ids_by_row(model.iid_map))

    def _score_rows(self, rows: Indices, columns: Indices) -> Floats:
        scores = np.empty(len(rows))
        for row, pairs in _groups(rows):
            scores[pairs] = self._scores_of_user(row)[columns[pairs]]
        return scores

    def _grid(self, rows: Indices) -> Floats:
        grid = np.empty((len(rows), len(self.items)))
        for place, row in enumerate(rows):
            grid[place] = self._scores_of_user(row)
        return grid

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


# Pairs whose factors are gathered at a time.
_PAIR_BATCH = 2**16
# Neighbour models fill a dense row of all items per user.
_USER_BATCH = 2**10


class Implicit(_MatrixModel):
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
        outputs: Outputs = MARGIN,
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
                    id_map.kind, f"be the {size:,} ids of the matrix", f"{len(id_map):,} ids"
                )

    def _score_rows(self, rows: Indices, columns: Indices) -> Floats:
        if hasattr(self.model, "user_factors"):
            user_factors = _to_array(self.model.user_factors)
            item_factors = _to_array(self.model.item_factors)
            return _factor_scores(user_factors, item_factors, rows, columns).astype(np.float32)
        if hasattr(self.model, "similarity"):
            return _neighbour_scores(self.user_items, self.model.similarity, rows, columns)
        raise DataError(
            "model", "have factors or similarities to score with", type(self.model).__name__
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


def _factor_scores(users: Floats, items: Floats, rows: Indices, columns: Indices) -> Floats:
    """The inner product of each pair of factors, in batches."""
    scores = np.empty(len(rows), dtype=users.dtype)
    for start in range(0, len(rows), _PAIR_BATCH):
        batch = slice(start, start + _PAIR_BATCH)
        scores[batch] = np.einsum("pf,pf->p", users[rows[batch]], items[columns[batch]])
    return scores


def _neighbour_scores(user_items: Any, similarity: Any, rows: Indices, columns: Indices) -> Floats:
    """The sum of similarities between an item and the user's items, for some users at a time."""
    scores = np.empty(len(rows), dtype=np.float32)
    users, user_places = np.unique(rows, return_inverse=True)
    for start in range(0, len(users), _USER_BATCH):
        end = start + _USER_BATCH
        in_batch = (user_places >= start) & (user_places < end)
        grid = (user_items[users[start:end]] @ similarity).toarray()
        scores[in_batch] = grid[user_places[in_batch] - start, columns[in_batch]]
    return scores


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
        for user, rows in _groups(users):
            distinct_items, places = np.unique(items[rows], return_inverse=True)
            scored = lenskit.score(self.pipeline, user.item(), distinct_items)
            scores[rows] = to_numpy(scored.scores())[places]
        return scores

    def _lists(self, users: Ids, k: int) -> PaddedLists:
        lenskit = _import_lenskit()
        ragged = []
        for user in users:
            found = lenskit.recommend(self.pipeline, user.item(), k)
            # An empty list has no scores to return.
            scores = found.scores() if len(found) else np.empty(0)
            ragged.append((found.ids(), scores))
        return PaddedLists.of(ragged)


def _import_lenskit() -> ModuleType:
    try:
        lenskit = import_module("lenskit")
    except ImportError:
        raise MissingExtraError("lenskit", "lenskit") from None
    # `score` came with the pipelines of 2025.
    if not hasattr(lenskit, "score"):
        raise MissingExtraError("lenskit 2025 or newer", "lenskit")
    return lenskit


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
        self.outputs = outputs
        self.scores = floats("scores", to_numpy(scores)).copy()
        if self.scores.ndim != 2:
            raise DataError(
                "scores",
                "have one row per user and one column per item",
                f"shape {self.scores.shape}",
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
                f"{self.scores.shape} for {len(self.users)} users and {len(self.items)} items",
            )

    def _score_rows(self, rows: Indices, columns: Indices) -> Floats:
        return self.scores[rows, columns]

    def _grid(self, rows: Indices) -> Floats:
        return self.scores[rows]


# A column of row numbers: Spark returns rows in any order.
_ROW = "calibrank_row"


class SparkALS(PairModel):
    """A fitted `ALSModel`, for validation tables and user lists that fit on the driver.

    Spark recommends items that users have had already: pass the training log as `history` to
    leave them out. Users and items unknown to ALS have no score, whether its cold start strategy
    is "nan" or "drop".
    """

    def __init__(
        self, model: Any, history: Interactions | None = None, outputs: Outputs = MARGIN
    ) -> None:
        self.model = model
        self.outputs = outputs
        self.history = History.of(history)

    def _score(self, users: Ids, items: Ids) -> Floats:
        columns = {
            _ROW: np.arange(len(users)),
            self.model.getUserCol(): users,
            self.model.getItemCol(): items,
        }
        scored = self.model.transform(_to_spark(self.model, columns))
        found = scored.select(_ROW, self.model.getPredictionCol()).toArrow()
        scores = np.full(len(users), np.nan, dtype=np.float32)
        scores[found[0].to_numpy()] = found[1].to_numpy()
        return scores

    def _lists(self, users: Ids, k: int) -> PaddedLists:
        frame = _to_spark(self.model, {self.model.getUserCol(): np.unique(users)})
        # The history is removed afterwards, so ask for that many more.
        length = k + self.history.longest(users)
        found = dict(self.model.recommendForUserSubset(frame, length).collect())
        ragged = []
        for user in users:
            entries = found.get(user.item(), [])
            ragged.append(([item for item, _ in entries], [score for _, score in entries]))
        return PaddedLists.of(ragged)


def flatten(
    nested: Any, *, lists: str = "recommendations", score: str = "score", rank: str = "rank"
) -> Any:
    """Spark's nested recommendations as a Spark table with one row per recommendation.

    The columns are user, item, score and rank (from 1). Nothing is collected, and `score` is a
    column to calibrate. For rows that were collected, use `from_nested`.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (a Spark table brings it)

    item, rating = nested.schema[lists].dataType.elementType.names
    others = [name for name in nested.columns if name != lists]
    slots = nested.select(*others, f.posexplode(lists).alias(rank, "slot"))
    return slots.select(
        *others,
        f.col("slot")[item].alias(item),
        f.col("slot")[rating].alias(score),
        (f.col(rank) + 1).alias(rank),
    )


def _to_spark(model: Any, columns: dict[str, Ids]) -> Any:
    """Columns as a table in the model's Spark session."""
    import pyarrow as pa  # noqa: PLC0415  (Spark needs it anyway)

    return model.userFactors.sparkSession.createDataFrame(pa.table(columns))


def _groups(values: Ids) -> Iterator[tuple[Any, Indices]]:
    """Each distinct value with its places."""
    order = np.argsort(values, kind="stable")
    distinct, starts = np.unique(values[order], return_index=True)
    # Without values there is no group, but `split` still gives an empty one.
    return zip(distinct, np.split(order, starts[1:]), strict=False)
