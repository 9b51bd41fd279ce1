"""Scores that are inner products: BPR, UBPR, LightGCN, and anyone's matrix factorisation."""

from typing import Any, ClassVar

from calibrank.scorers.scorer import Factors


class InnerProduct(Factors):
    """The inner product of a user's and an item's vector."""

    __slots__ = ()
    kind: ClassVar[str] = "inner_product"

    @staticmethod
    def pairs(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        return (users * items).sum(-1)

    @staticmethod
    def grid(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        return users @ items.T
