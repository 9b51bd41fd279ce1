"""Collaborative metric learning (Hsieh et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from calibrank.errors import DataError
from calibrank.models.model import Model
from calibrank.scorers import Distance, Factors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class CML(Model):
    """Users are closer to their positives than to other items, by at least `margin`.

    The score is minus the squared distance. All vectors stay in the unit ball.
    """

    margin: float = 1.0

    name: ClassVar[str] = "CML"
    scorer: ClassVar[type[Factors]] = Distance
    in_unit_ball: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Model.__post_init__(self)
        if not self.margin > 0:
            raise DataError("margin", "be above 0", self.margin)

    @property
    def initial_std(self) -> float:
        # Vectors then start with an expected squared length of 1, near the sphere.
        return float(self.dim**-0.5)

    def loss(
        self,
        users: Tensor,
        positives: Tensor,
        negatives: Tensor,
        importance: Tensor,
        weights: dict[str, Tensor],
    ) -> Tensor:
        positive_distances = ((users - positives) ** 2).sum(-1)
        negative_distances = ((users - negatives) ** 2).sum(-1)
        violations = self.margin + (positive_distances - negative_distances)
        return (importance * violations.relu()).sum()
