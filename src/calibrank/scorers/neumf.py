"""Scores of a small neural network: NeuMF, the model of NCF."""

from __future__ import annotations

from typing import Any, ClassVar

from calibrank.scorers.scorer import Factors


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
