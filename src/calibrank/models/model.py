"""The base class of models: settings, a loss over a batch, and the type of the scorer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.scorers import Factors
from calibrank.tables import Interactions

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Model(ABC):
    """Settings of a model; `train` does the work.

    All parameters of a user or an item are one row of one table, `width` numbers long.
    """

    dim: int = 128

    name: ClassVar[str]
    scorer: ClassVar[type[Factors]]
    in_unit_ball: ClassVar[bool] = False
    """Whether rows are projected back into the unit ball after every step."""

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise DataError("dim", "be 1 or more", self.dim)

    @property
    def width(self) -> int:
        """The length of a row of the parameter table."""
        return self.dim

    @property
    def initial_std(self) -> float:
        """Standard deviation of the parameter table before the first step."""
        # Small, so that all scores start near 0.
        return 0.01

    @property
    def graph_layers(self) -> int:
        """How many graph convolutions are applied to the table before scoring; 0 for none."""
        return 0

    def initial_weights(self, rng: np.random.Generator) -> dict[str, Floats]:
        """Initial values of the parameters that belong to no user or item."""
        return {}

    def importance(self, positives: Interactions) -> Floats:
        """The weight of each positive in the loss."""
        return np.ones(len(positives))

    def gradients(
        self, rows: Tensor, importance: Tensor, weights: dict[str, Tensor]
    ) -> list[Tensor]:
        """Gradients of the loss: for `rows` (users, positives, negatives), then for each weight."""
        from torch import autograd  # noqa: PLC0415  (settings must work without torch)

        users, positives, negatives = rows.requires_grad_().unbind()
        loss = self.loss(users, positives, negatives, importance, weights)
        return list(autograd.grad(loss, [rows, *weights.values()]))

    @abstractmethod
    def loss(
        self,
        users: Tensor,
        positives: Tensor,
        negatives: Tensor,
        importance: Tensor,
        weights: dict[str, Tensor],
    ) -> Tensor:
        """The loss summed over triples of a user, a positive item and a negative item.

        Rows have shape [seed, batch, width] and weights start with the seed, so that several
        seeds are trained in the same steps without affecting each other.
        """
