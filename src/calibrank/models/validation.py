"""How well a model under training ranks what was held out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank.data.negatives import Positives
from calibrank.models.model import Model
from calibrank.tables import Interactions

_CELLS = 2**24  # numbers held at a time


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """Mean NDCG@k of users with held-out positives, over all items that are not among their training positives."""

    blocks: tuple["_Block", ...]
    n_users: int
    k: int

    @classmethod
    def of(
        cls, held_out: Interactions, trained: Positives, k: int, model: Model, device: str
    ) -> "Validation":
        users = np.unique(held_out.users)
        step = max(1, _CELLS // (trained.n_items * model.scorer.numbers_per_cell(model.width)))
        blocks = tuple(
            _Block.of(users[at : at + step], held_out, trained, device)
            for at in range(0, len(users), step)
        )
        return cls(blocks, len(users), k)

    def ndcg(self, model: Model, users: Tensor, items: Tensor, weights: dict[str, Tensor]) -> float:
        """Of one seed's vectors."""
        gains = [
            block.gain(model.scorer.grid(users[block.users], items, weights), self.k)
            for block in self.blocks
        ]
        return float(torch.stack(gains).sum()) / self.n_users


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Some users: cells of their scores to hide and to find, and the best gain each could have."""

    users: Tensor
    hidden: tuple[Tensor, Tensor]
    wanted: tuple[Tensor, Tensor]
    count: Tensor

    @classmethod
    def of(
        cls, users: npt.NDArray[np.intp], held_out: Interactions, trained: Positives, device: str
    ) -> "_Block":
        mine = np.isin(held_out.users, users)
        rows = np.searchsorted(users, held_out.users[mine])
        spans = [trained.of_user(int(user)) for user in users]
        owners = np.repeat(np.arange(len(users)), [len(span) for span in spans])

        def on_device(values: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        return cls(
            on_device(users),
            (on_device(owners), on_device(np.concatenate(spans))),
            (on_device(rows), on_device(held_out.items[mine])),
            on_device(np.bincount(rows, minlength=len(users))),
        )

    def gain(self, scores: Tensor, k: int) -> Tensor:
        """The sum of the users' NDCG@k; of equal scores the held-out one comes last."""
        scores[self.hidden] = -torch.inf
        rows, columns = self.wanted
        ranks = (scores[rows] >= scores[rows, columns][:, None]).sum(1) - 1
        discounts = torch.log2(torch.arange(k, device=scores.device) + 2.0).reciprocal()
        gains = torch.where(ranks < k, discounts[ranks.clamp(max=k - 1)], 0.0)
        best = discounts.cumsum(0)[self.count.clamp(max=k) - 1]
        return (torch.zeros_like(best).index_add_(0, rows, gains) / best).sum()
