"""Scores that are inner products: BPR, UBPR, LightGCN and other matrix factorizations."""

from __future__ import annotations

from typing import Any, ClassVar

from calibrank.scorers.scorer import Factors


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
