"""Scores that decrease with distance: CML."""

from __future__ import annotations

from typing import Any, ClassVar

from calibrank.scorers.scorer import Factors


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
