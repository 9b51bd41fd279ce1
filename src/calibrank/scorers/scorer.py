"""Trained models as arrays: inner products (BPR, UBPR, LightGCN), distances (CML), NeuMF (NCF)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats, IdsLike, ids, row_numbers
from calibrank.errors import DataError

# Values held in memory at a time by `score_all` and `recommend`: 128 MiB as float64.
_GRID_VALUES = 2**24
# Pairs scored at a time by `score`: their vectors stay near the cache.
_PAIR_BATCH = 2**16

Rows = npt.NDArray[np.intp]


class Scorer(Protocol):
    """Anything that scores pairs of users and items, given as row numbers."""

    def score(self, users: IdsLike, items: IdsLike) -> Floats: ...


@dataclass(frozen=True, slots=True, eq=False)
class Factors(ABC):
    """One vector per user, one vector per item, and a formula that scores a pair of vectors.

    The formulas use only operators that numpy and torch share: validation during training and
    scoring afterwards run the same code.
    """

    users: Floats
    items: Floats
    weights: dict[str, Floats]
    kind: ClassVar[str]

    @staticmethod
    @abstractmethod
    def pairs(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        """The score of each user vector with the item vector in the same row."""

    @staticmethod
    @abstractmethod
    def grid(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        """The score of every user vector with every item vector, as [user, item]."""

    @classmethod
    def values_per_score(cls, width: int) -> int:
        """How many intermediate values `grid` needs per score, for vectors of this width."""
        return 1

    def score(self, users: IdsLike, items: IdsLike) -> Floats:
        """The score of each pair of row numbers."""
        user_rows = self._user_rows(users)
        item_ids = ids("items", items, len(user_rows))
        item_rows = row_numbers("items", item_ids, len(self.items))
        batches = []
        for start in range(0, len(user_rows), _PAIR_BATCH):
            batch = slice(start, start + _PAIR_BATCH)
            vectors = self.users[user_rows[batch]], self.items[item_rows[batch]]
            batches.append(self.pairs(*vectors, self.weights))
        if not batches:
            return np.empty(0, dtype=self.users.dtype)
        return np.concatenate(batches)

    def score_all(self, users: IdsLike) -> Floats:
        """The scores of all items for each user: one row per user, one column per item."""
        batches = [
            self.grid(self.users[batch], self.items, self.weights)
            for batch in self._batches(self._user_rows(users))
        ]
        if not batches:
            return np.empty((0, len(self.items)), dtype=self.users.dtype)
        return np.concatenate(batches)

    def recommend(
        self, users: IdsLike, k: int, exclude: tuple[IdsLike, IdsLike] | None = None
    ) -> tuple[Rows, Floats]:
        """The `k` best items of each user and their scores, best first.

        Pairs in `exclude` (users, items) are left out. A user with fewer than `k` items left gets
        item -1 with score -inf in the remaining places.
        """
        user_rows = self._user_rows(users)
        if not 1 <= k <= len(self.items):
            raise DataError("k", f"be between 1 and the {len(self.items):,} items", k)
        excluded = _Excluded.of(exclude, len(self.users), len(self.items))
        # The empty first blocks give the right shape if there are no users.
        items = [np.empty((0, k), dtype=np.intp)]
        scores = [np.empty((0, k), dtype=self.users.dtype)]
        for batch in self._batches(user_rows):
            best, best_scores = self._best(batch, k, excluded)
            items.append(best)
            scores.append(best_scores)
        return np.concatenate(items), np.concatenate(scores)

    def _user_rows(self, users: IdsLike) -> Rows:
        return row_numbers("users", ids("users", users), len(self.users))

    def _batches(self, user_rows: Rows) -> list[Rows]:
        """Users in batches whose score grid fits in memory."""
        per_user = len(self.items) * self.values_per_score(self.users.shape[1])
        step = max(1, _GRID_VALUES // per_user)
        starts = range(0, len(user_rows), step)
        return [user_rows[start : start + step] for start in starts]

    def _best(self, user_rows: Rows, k: int, excluded: _Excluded) -> tuple[Rows, Floats]:
        scores = self.grid(self.users[user_rows], self.items, self.weights)
        scores[excluded.cells(user_rows)] = -np.inf
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        best_scores = np.take_along_axis(scores, best, axis=1)
        # Equal scores are ordered by item, so that lists do not depend on the partition.
        order = np.lexsort((best, -best_scores), axis=1)
        best = np.take_along_axis(best, order, axis=1)
        best_scores = np.take_along_axis(best_scores, order, axis=1)
        return np.where(np.isneginf(best_scores), -1, best), best_scores


@dataclass(frozen=True, slots=True, eq=False)
class _Excluded:
    """Items that must not be recommended, grouped by user.

    The items of user u are `items[starts[u]:starts[u + 1]]`.
    """

    starts: Rows
    items: Rows

    @classmethod
    def of(cls, pairs: tuple[IdsLike, IdsLike] | None, n_users: int, n_items: int) -> _Excluded:
        if pairs is None:
            return cls(np.zeros(n_users + 1, dtype=np.intp), np.empty(0, dtype=np.intp))
        users = row_numbers("users", ids("users", pairs[0]), n_users)
        items = row_numbers("items", ids("items", pairs[1], len(users)), n_items)
        counts = np.bincount(users, minlength=n_users)
        by_user = np.argsort(users, kind="stable")
        return cls(np.r_[0, np.cumsum(counts)], items[by_user])

    def cells(self, user_rows: Rows) -> tuple[Rows, Rows]:
        """Row and column numbers of the excluded pairs in the score grid of these users."""
        columns = [self.items[self.starts[user] : self.starts[user + 1]] for user in user_rows]
        rows = np.repeat(np.arange(len(user_rows)), [len(span) for span in columns])
        return rows, np.concatenate([np.empty(0, dtype=np.intp), *columns])


class InnerProduct(Factors):
    """Score a pair by the inner product of its user vector and its item vector."""

    __slots__ = ()
    kind: ClassVar[str] = "inner_product"

    @staticmethod
    def pairs(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        return (users * items).sum(-1)

    @staticmethod
    def grid(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        return users @ items.T


class Distance(Factors):
    """Score a pair by minus the squared Euclidean distance between its two vectors."""

    __slots__ = ()
    kind: ClassVar[str] = "distance"

    @staticmethod
    def pairs(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        return -((users - items) ** 2).sum(-1)

    @staticmethod
    def grid(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        # -|u - i|^2 = 2 u.i - |u|^2 - |i|^2: one matrix product, no [user, item, width] array.
        user_norms = (users**2).sum(-1)
        item_norms = (items**2).sum(-1)
        return 2 * users @ items.T - user_norms[:, None] - item_norms


class NeuMF(Factors):
    """Score a pair by generalized matrix factorization and a two-layer perceptron (He et al. 2017).

    The first half of each vector feeds the matrix factorization (GMF), the second half the
    perceptron (MLP); a last linear layer combines the two. The score is the logit, before the
    sigmoid.
    """

    __slots__ = ()
    kind: ClassVar[str] = "neumf"

    @classmethod
    def values_per_score(cls, width: int) -> int:
        # Two hidden layers of width / 2 units each.
        return width

    @staticmethod
    def pairs(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        half = users.shape[-1] // 2
        first = _relu(
            users[..., half:] @ weights["from_user"]
            + items[..., half:] @ weights["from_item"]
            + weights["first_bias"]
        )
        second = _relu(first @ weights["second"] + weights["second_bias"])
        product = users[..., :half] * items[..., :half]
        logits = product @ weights["last_product"] + second @ weights["last_network"]
        return (logits + weights["last_bias"])[..., 0]

    @staticmethod
    def grid(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        half = users.shape[-1] // 2
        # The first layer is linear in each side, so every user and every item passes it only once.
        from_users = users[:, None, half:] @ weights["from_user"]
        from_items = items[None, :, half:] @ weights["from_item"]
        first = _relu(from_users + from_items + weights["first_bias"])
        second = _relu(first @ weights["second"] + weights["second_bias"])
        network = (second @ weights["last_network"])[..., 0]
        product = (users[:, :half] * weights["last_product"][:, 0]) @ items[:, :half].T
        return product + network + weights["last_bias"]


def _relu(values: Any) -> Any:
    # Written with operators that numpy and torch share; np.maximum would not accept a tensor.
    return values * (values > 0)
