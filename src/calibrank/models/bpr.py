"""Bayesian personalized ranking (Rendle et al. 2009) and its unbiased variant (Saito 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from calibrank._internal.validation import Floats
from calibrank.models.model import Model
from calibrank.propensity import Popularity, Propensity
from calibrank.scorers import Factors, InnerProduct
from calibrank.tables import Interactions

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class BPR(Model):
    """Matrix factorization trained to rank a user's positives above other items."""

    name: ClassVar[str] = "BPR"
    scorer: ClassVar[type[Factors]] = InnerProduct

    def loss(
        self,
        users: Tensor,
        positives: Tensor,
        negatives: Tensor,
        importance: Tensor,
        weights: dict[str, Tensor],
    ) -> Tensor:
        from torch.nn.functional import softplus  # noqa: PLC0415  (settings work without torch)

        # -log sigmoid(x) = softplus(-x), where x is the score difference.
        margins = (users * (positives - negatives)).sum(-1)
        return (importance * softplus(-margins)).sum()

    def gradients(
        self, rows: Tensor, importance: Tensor, weights: dict[str, Tensor]
    ) -> list[Tensor]:
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
    """BPR with each positive weighted by its inverse propensity; with propensity 1 it equals BPR.

    The paper's second factor, 1 - Y_uj / w_uj, is always 1 here, because negatives are drawn from
    the items without a positive (Y_uj = 0).
    """

    propensity: Propensity = field(default_factory=Popularity)

    name: ClassVar[str] = "UBPR"

    def importance(self, positives: Interactions) -> Floats:
        fitted = self.propensity.fit(positives)
        return 1 / fitted.predict(positives.users, positives.items)
