"""Trained models as arrays: inner products (BPR, UBPR, LightGCN), distances (CML), NeuMF (NCF)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats, IdsLike, ids, row_numbers

# Values held in memory at a time by `score_all`: 128 MiB as float64.
_GRID_VALUES = 2**24
# Pairs scored at a time by `score`: their vectors stay near the cache.
_PAIR_BATCH = 2**16

Rows = npt.NDArray[np.intp]


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
        scores = np.empty(len(user_rows), dtype=self.users.dtype)
        for start in range(0, len(user_rows), _PAIR_BATCH):
            batch = slice(start, start + _PAIR_BATCH)
            vectors = self.users[user_rows[batch]], self.items[item_rows[batch]]
            scores[batch] = self.pairs(*vectors, self.weights)
        return scores

    def score_all(self, users: IdsLike) -> Floats:
        """The scores of all items for each user: one row per user, one column per item."""
        user_rows = self._user_rows(users)
        scores = np.empty((len(user_rows), len(self.items)), dtype=self.users.dtype)
        values_per_user = len(self.items) * self.values_per_score(self.users.shape[1])
        step = max(1, _GRID_VALUES // values_per_user)
        for start in range(0, len(user_rows), step):
            batch = slice(start, start + step)
            scores[batch] = self.grid(self.users[user_rows[batch]], self.items, self.weights)
        return scores

    def _user_rows(self, users: IdsLike) -> Rows:
        return row_numbers("users", ids("users", users), len(self.users))


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
