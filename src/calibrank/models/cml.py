"""Collaborative metric learning (Hsieh et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, relu

from calibrank.errors import DataError
from calibrank.models.model import Model
from calibrank.scorers import Distance, Factors


@dataclass(frozen=True, slots=True)
class CML(Model):
    """Users stand nearer, by a margin, to what they like than to the rest; everyone stays in the unit ball."""

    margin: float = 1.0

    name: ClassVar[str] = "CML"
    scorer: ClassVar[type[Factors]] = Distance
    in_ball: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Model.__post_init__(self)
        if not self.margin > 0:
            raise DataError(f"margin must be above 0, got {self.margin}.")

    @property
    def spread(self) -> float:
        return float(self.dim**-0.5)

    def loss(
        self,
        users: Tensor,
        liked: Tensor,
        others: Tensor,
        importance: Tensor,
        weights: dict[str, Tensor],
    ) -> Tensor:
        nearer = ((users - liked) ** 2).sum(-1) - ((users - others) ** 2).sum(-1)
        return (importance * relu(self.margin + nearer)).sum()
