"""What a model is to the trainer: the shape of its parameters, a loss over a batch, and the scorer it becomes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._validation import Floats
from calibrank.errors import DataError, MissingExtraError
from calibrank.scorers import Factors
from calibrank.tables import Interactions

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error


@dataclass(frozen=True, slots=True)
class Model(ABC):
    """Settings of a model. All parameters that belong to a user or an item stand in one row of one table."""

    dim: int = 128

    name: ClassVar[str]
    scorer: ClassVar[type[Factors]]
    in_ball: ClassVar[bool] = False
    """Whether rows must stay within the unit ball."""

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise DataError(f"dim must be 1 or more, got {self.dim}.")

    @property
    def width(self) -> int:
        """Numbers in a row of the table."""
        return self.dim

    @property
    def spread(self) -> float:
        """Standard deviation of a number in the table at the start."""
        return 0.01

    @property
    def hops(self) -> int:
        """How far rows are spread over the graph of positives before they are scored."""
        return 0

    def first_weights(self, rng: np.random.Generator) -> dict[str, Floats]:
        """Parameters that belong to no user or item, at the start."""
        return {}

    def importance(self, positives: Interactions) -> Floats:
        """The weight of each positive in the loss."""
        return np.ones(len(positives))

    def gradients(
        self, rows: Tensor, importance: Tensor, weights: dict[str, Tensor]
    ) -> list[Tensor]:
        """The loss's gradients in the rows of users, liked and other items, then in each weight."""
        users, liked, others = rows.requires_grad_().unbind()
        loss = self.loss(users, liked, others, importance, weights)
        return list(torch.autograd.grad(loss, [rows, *weights.values()]))

    @abstractmethod
    def loss(
        self,
        users: Tensor,
        liked: Tensor,
        others: Tensor,
        importance: Tensor,
        weights: dict[str, Tensor],
    ) -> Tensor:
        """The loss summed over triples of a user, an item it likes and one it is not known to like.

        Rows come as [seeds, batch, width], weights with the seed first: seeds never mix.
        """
