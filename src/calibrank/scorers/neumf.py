"""Scores by a small network: NCF's NeuMF."""

from typing import Any, ClassVar

from calibrank.scorers.scorer import Factors


class NeuMF(Factors):
    """A product of vectors (GMF) beside a two-layer network (MLP), weighed together by a last layer (He et al. 2017).

    A vector holds the GMF half, then the MLP half. The score is the logit, before the sigmoid.
    """

    __slots__ = ()
    kind: ClassVar[str] = "neumf"

    @classmethod
    def numbers_per_cell(cls, width: int) -> int:
        return width  # two layers of half the width each

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
        together = product @ weights["last_product"] + second @ weights["last_network"]
        return (together + weights["last_bias"])[..., 0]

    @staticmethod
    def grid(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        half = users.shape[-1] // 2
        by_user = users[:, None, half:] @ weights["from_user"]
        by_item = items[None, :, half:] @ weights["from_item"]
        second = _relu(
            _relu(by_user + by_item + weights["first_bias"]) @ weights["second"]
            + weights["second_bias"]
        )
        product = (users[:, :half] * weights["last_product"][:, 0]) @ items[:, :half].T
        return product + (second @ weights["last_network"])[..., 0] + weights["last_bias"]


def _relu(values: Any) -> Any:
    return values * (values > 0)
