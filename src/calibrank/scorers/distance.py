"""Scores that fall with distance: CML."""

from typing import Any, ClassVar

from calibrank.scorers.scorer import Factors


class Distance(Factors):
    """Less the squared distance between a user's and an item's vector: the nearest is the best."""

    __slots__ = ()
    kind: ClassVar[str] = "distance"

    @staticmethod
    def pairs(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        return -((users - items) ** 2).sum(-1)

    @staticmethod
    def grid(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        return 2 * users @ items.T - (users**2).sum(-1)[:, None] - (items**2).sum(-1)
