"""Bayesian personalised ranking (Rendle et al. 2009), and its unbiased form (Saito 2019)."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from calibrank._validation import Floats
from calibrank.models.model import Model
from calibrank.propensity import Popularity, Propensity
from calibrank.scorers import Factors, InnerProduct
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True)
class BPR(Model):
    """Matrix factorisation that puts what a user likes above what it is not known to like."""

    name: ClassVar[str] = "BPR"
    scorer: ClassVar[type[Factors]] = InnerProduct

    def loss(
        self,
        users: Tensor,
        liked: Tensor,
        others: Tensor,
        importance: Tensor,
        weights: dict[str, Tensor],
    ) -> Tensor:
        return (importance * softplus(-(users * (liked - others)).sum(-1))).sum()

    def gradients(
        self, rows: Tensor, importance: Tensor, weights: dict[str, Tensor]
    ) -> list[Tensor]:
        """As `loss` has them, by hand: half the work of differentiating it."""
        users, liked, others = rows.unbind()
        apart = liked - others
        pull = -importance * torch.sigmoid(-(users * apart).sum(-1))
        result = torch.empty_like(rows)
        torch.mul(pull[..., None], apart, out=result[0])
        torch.mul(pull[..., None], users, out=result[1])
        torch.neg(result[1], out=result[2])
        return [result]


@dataclass(frozen=True, slots=True)
class UBPR(BPR):
    """BPR with each positive weighed by one over its propensity; with propensity 1, BPR.

    The paper's second factor, 1 - Y_uj / w_uj, is 1 here: the other item is drawn from those without a positive.
    """

    propensity: Propensity = field(default_factory=Popularity)

    name: ClassVar[str] = "UBPR"

    def importance(self, positives: Interactions) -> Floats:
        return 1 / self.propensity.fit(positives).predict(positives.users, positives.items)
