"""Neural collaborative filtering (He et al. 2017): the NeuMF model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.models.model import Model
from calibrank.scorers import Factors, NeuMF

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class NCF(Model):
    """Matrix factorization combined with a two-layer network, trained by cross-entropy."""

    dim: int = 64

    name: ClassVar[str] = "NCF"
    scorer: ClassVar[type[Factors]] = NeuMF

    @property
    def width(self) -> int:
        # One vector for the matrix factorization and one for the network.
        return 2 * self.dim

    def initial_weights(self, rng: np.random.Generator) -> dict[str, Floats]:
        dim = self.dim

        def layer(outputs: int, inputs: int) -> Floats:
            # Uniform within 1 / sqrt(inputs) on either side, as torch.nn.Linear starts.
            bound = inputs**-0.5
            return rng.uniform(-bound, bound, (dim, outputs))

        # The first and the last layer read two vectors of length `dim`, stored as two matrices.
        return {
            "from_user": layer(dim, inputs=2 * dim),
            "from_item": layer(dim, inputs=2 * dim),
            "first_bias": np.zeros((1, dim)),
            "second": layer(dim, inputs=dim),
            "second_bias": np.zeros((1, dim)),
            "last_product": layer(1, inputs=2 * dim),
            "last_network": layer(1, inputs=2 * dim),
            "last_bias": np.zeros((1, 1)),
        }

    def loss(
        self,
        users: Tensor,
        positives: Tensor,
        negatives: Tensor,
        importance: Tensor,
        weights: dict[str, Tensor],
    ) -> Tensor:
        from torch.nn.functional import softplus  # noqa: PLC0415  (settings work without torch)

        positive_logits = NeuMF.pairs(users, positives, weights)
        negative_logits = NeuMF.pairs(users, negatives, weights)
        # Cross-entropy of logits: -log sigmoid(x) for positives, -log(1 - sigmoid(x)) for
        # negatives.
        losses = softplus(-positive_logits) + softplus(negative_logits)
        return (importance * losses).sum()
