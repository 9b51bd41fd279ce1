"""Neural collaborative filtering (He et al. 2017): NeuMF."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import softplus

from calibrank._validation import Floats
from calibrank.models.model import Model
from calibrank.scorers import Factors, NeuMF


@dataclass(frozen=True, slots=True)
class NCF(Model):
    """A matrix factorisation beside a network of two layers, told apart by cross-entropy."""

    dim: int = 64

    name: ClassVar[str] = "NCF"
    scorer: ClassVar[type[Factors]] = NeuMF

    @property
    def width(self) -> int:
        return 2 * self.dim

    def first_weights(self, rng: np.random.Generator) -> dict[str, Floats]:
        def layer(inputs: int, outputs: int, of: int) -> Floats:
            return rng.uniform(-(of**-0.5), of**-0.5, (inputs, outputs))

        dim = self.dim
        return {
            "from_user": layer(dim, dim, 2 * dim),
            "from_item": layer(dim, dim, 2 * dim),
            "first_bias": np.zeros((1, dim)),
            "second": layer(dim, dim, dim),
            "second_bias": np.zeros((1, dim)),
            "last_product": layer(dim, 1, 2 * dim),
            "last_network": layer(dim, 1, 2 * dim),
            "last_bias": np.zeros((1, 1)),
        }

    def loss(
        self,
        users: Tensor,
        liked: Tensor,
        others: Tensor,
        importance: Tensor,
        weights: dict[str, Tensor],
    ) -> Tensor:
        good, bad = (NeuMF.pairs(users, items, weights) for items in (liked, others))
        return (importance * (softplus(-good) + softplus(bad))).sum()
