"""Validation during training: NDCG@k of the held-out positives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank.data.negatives import Positives
from calibrank.models.model import Model
from calibrank.tables import Interactions

# Values held in memory at a time: 64 MiB as float32.
_GRID_VALUES = 2**24


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """Mean NDCG@k over the users with held-out positives.

    All items are ranked except the user's training positives.
    """

    blocks: tuple[_Block, ...]
    n_users: int
    k: int

    @classmethod
    def of(
        cls, held_out: Interactions, trained: Positives, k: int, model: Model, device: str
    ) -> Validation:
        users = np.unique(held_out.users)
        per_user = trained.n_items * model.scorer.values_per_score(model.width)
        step = max(1, _GRID_VALUES // per_user)
        blocks = [
            _Block.of(users[start : start + step], held_out, trained, device)
            for start in range(0, len(users), step)
        ]
        return cls(tuple(blocks), len(users), k)

    def ndcg(self, model: Model, users: Tensor, items: Tensor, weights: dict[str, Tensor]) -> float:
        """NDCG@k of one seed's user and item vectors."""
        sums = []
        for block in self.blocks:
            scores = model.scorer.grid(users[block.users], items, weights)
            sums.append(block.sum_ndcg(scores, self.k))
        return float(torch.stack(sums).sum()) / self.n_users


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Some of the users, with the positions of their training and held-out positives.

    Positions are (row, column) in the score grid of these users.
    """

    users: Tensor
    training: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    held_out_counts: Tensor

    @classmethod
    def of(
        cls, users: npt.NDArray[np.intp], held_out: Interactions, trained: Positives, device: str
    ) -> _Block:
        in_block = np.isin(held_out.users, users)
        rows = np.searchsorted(users, held_out.users[in_block])
        training_items = [trained.of_user(int(user)) for user in users]
        counts = [len(items) for items in training_items]
        training_rows = np.repeat(np.arange(len(users)), counts)

        def on_device(values: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        return cls(
            on_device(users),
            (on_device(training_rows), on_device(np.concatenate(training_items))),
            (on_device(rows), on_device(held_out.items[in_block])),
            on_device(np.bincount(rows, minlength=len(users))),
        )

    def sum_ndcg(self, scores: Tensor, k: int) -> Tensor:
        """The sum of NDCG@k over the users; among equal scores the held-out item comes last."""
        scores[self.training] = -torch.inf
        rows, columns = self.held_out
        held_out_scores = scores[rows, columns][:, None]
        # The rank counts every item with at least this score, the item itself excluded.
        ranks = (scores[rows] >= held_out_scores).sum(1) - 1
        discounts = torch.log2(torch.arange(k, device=scores.device) + 2.0).reciprocal()
        gains = torch.where(ranks < k, discounts[ranks.clamp(max=k - 1)], 0.0)
        ideal = discounts.cumsum(0)[self.held_out_counts.clamp(max=k) - 1]
        return (torch.zeros_like(ideal).index_add_(0, rows, gains) / ideal).sum()
