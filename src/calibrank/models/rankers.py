"""The models of the paper: settings, a loss over a batch, and the type of the scorer.

`rows` of a batch has shape [role, place, width]; the roles are user, positive and negative item.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from calibrank._internal.arguments import real, whole
from calibrank._internal.validation import Floats
from calibrank.propensity import Popularity, Propensity
from calibrank.scorers import Distance, Factors, InnerProduct, NeuMF
from calibrank.tables import Interactions

if TYPE_CHECKING:
    from torch import Tensor

    Weights = dict[str, Tensor]


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
        whole("dim", self.dim, 1)

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

    def gradients(self, rows: Tensor, importance: Tensor, weights: Weights) -> list[Tensor]:
        """Gradients of the loss: for `rows`, then for each weight."""
        from torch import autograd  # noqa: PLC0415  (settings must work without torch)

        loss = self.loss(rows.requires_grad_(), importance, weights)
        return list(autograd.grad(loss, [rows, *weights.values()]))

    @abstractmethod
    def loss(self, rows: Tensor, importance: Tensor, weights: Weights) -> Tensor:
        """The loss of a batch, summed over its places."""


@dataclass(frozen=True, slots=True)
class BPR(Model):
    """Matrix factorization trained to rank a user's positives above other items.

    Bayesian personalized ranking (Rendle et al. 2009).
    """

    name: ClassVar[str] = "BPR"
    scorer: ClassVar[type[Factors]] = InnerProduct

    def loss(self, rows: Tensor, importance: Tensor, weights: Weights) -> Tensor:
        from torch.nn.functional import softplus  # noqa: PLC0415  (settings work without torch)

        users, positives, negatives = rows.unbind()
        # -log sigmoid(x) = softplus(-x), where x is the score difference.
        margins = (users * (positives - negatives)).sum(-1)
        return (importance * softplus(-margins)).sum()

    def gradients(self, rows: Tensor, importance: Tensor, weights: Weights) -> list[Tensor]:
        """The gradients of `loss` in closed form, which takes half the time of autograd."""
        import torch  # noqa: PLC0415  (settings work without torch)

        users, positives, negatives = rows.unbind()
        differences = positives - negatives
        margins = (users * differences).sum(-1)
        # d/dx softplus(-x) = -sigmoid(-x).
        slopes = (-importance * torch.sigmoid(-margins))[..., None]
        result = torch.empty_like(rows)
        torch.mul(slopes, differences, out=result[0])
        torch.mul(slopes, users, out=result[1])
        torch.neg(result[1], out=result[2])
        return [result]


@dataclass(frozen=True, slots=True)
class UBPR(BPR):
    """BPR with each positive weighted by its inverse propensity (Saito 2019).

    With propensity 1 it equals BPR. The paper's second factor, 1 - Y_uj / w_uj, is always 1 here,
    because negatives are drawn from the items without a positive (Y_uj = 0).
    """

    propensity: Propensity = field(default_factory=Popularity)

    name: ClassVar[str] = "UBPR"

    def importance(self, positives: Interactions) -> Floats:
        fitted = self.propensity.fit(positives)
        return 1 / fitted.predict(positives.users, positives.items)


@dataclass(frozen=True, slots=True)
class LightGCN(BPR):
    """BPR on vectors averaged over `layers` convolutions of the graph of positives.

    Its edges have weight 1 / sqrt(d_u d_i) (He et al. 2020).
    """

    layers: int = 2

    name: ClassVar[str] = "LightGCN"

    def __post_init__(self) -> None:
        BPR.__post_init__(self)
        whole("layers", self.layers, 1, remedy="Without layers, use BPR.")

    @property
    def graph_layers(self) -> int:
        return self.layers


@dataclass(frozen=True, slots=True)
class CML(Model):
    """Users are closer to their positives than to other items, by at least `margin`.

    Collaborative metric learning (Hsieh et al. 2017). The score is minus the squared distance. All
    vectors stay in the unit ball.
    """

    margin: float = 1.0

    name: ClassVar[str] = "CML"
    scorer: ClassVar[type[Factors]] = Distance
    in_unit_ball: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Model.__post_init__(self)
        real("margin", self.margin, "(0, inf)")

    @property
    def initial_std(self) -> float:
        # Vectors then start with an expected squared length of 1, near the sphere.
        return float(self.dim**-0.5)

    def loss(self, rows: Tensor, importance: Tensor, weights: Weights) -> Tensor:
        users, positives, negatives = rows.unbind()
        positive_distances = ((users - positives) ** 2).sum(-1)
        negative_distances = ((users - negatives) ** 2).sum(-1)
        violations = self.margin + (positive_distances - negative_distances)
        return (importance * violations.relu()).sum()


@dataclass(frozen=True, slots=True)
class NCF(Model):
    """Matrix factorization combined with a two-layer network, trained by cross-entropy.

    Neural collaborative filtering, the NeuMF model (He et al. 2017).
    """

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

    def loss(self, rows: Tensor, importance: Tensor, weights: Weights) -> Tensor:
        from torch.nn.functional import softplus  # noqa: PLC0415  (settings work without torch)

        users, positives, negatives = rows.unbind()
        # Cross-entropy of logits: -log sigmoid(x) for positives, -log(1 - sigmoid(x)) for
        # negatives.
        losses = softplus(-NeuMF.pairs(users, positives, weights))
        losses = losses + softplus(NeuMF.pairs(users, negatives, weights))
        return (importance * losses).sum()
