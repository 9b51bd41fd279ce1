"""Validation during training: NDCG@k of the held-out positives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank._internal.native import READY, loops
from calibrank.data.splits import Positives
from calibrank.models.rankers import Model
from calibrank.scorers import InnerProduct
from calibrank.tables import Interactions

# Values held at a time: 64 MiB on a GPU; on a CPU what fits in the cache of a core.
_GRID_VALUES = {"cuda": 2**24, "cpu": 2**18}
# Of many items, these parts are scored one after the other; the first decides most positives.
_PARTS = (1 / 64, 1 / 16, 1 / 4, 1)
_MANY_ITEMS = 512
# Items side by side, and users whose scores are computed at once, as in the loops.
_PANEL = 16
_LOOP_USERS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """Mean NDCG@k over the users with held-out positives.

    All items are ranked except the user's training positives. A positive with k items above it has
    no gain, wherever it is ranked. So items that most users like are scored first, and the others
    only for users with a positive that still may have a gain.
    """

    users: Tensor
    held_out: tuple[Tensor, Tensor]
    """The place in `users` and the item of each held-out positive, by user."""
    training: tuple[Tensor, Tensor]
    """Where the training positives of each place in `users` start, and the item of each."""
    k: int

    @classmethod
    def of(cls, held_out: Interactions, trained: Positives, k: int, device: str) -> Validation:
        users, counts = np.unique(held_out.users, return_counts=True)
        by_user = np.argsort(held_out.users, kind="stable")
        training_users, training_items = np.divmod(trained.cells, trained.n_items)
        known = np.isin(training_users, users)
        starts = np.searchsorted(training_users[known], [*users, trained.n_users])

        def on_device(values: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        held_out_rows = np.repeat(np.arange(len(users)), counts)
        return cls(
            on_device(users),
            (on_device(held_out_rows), on_device(held_out.items[by_user])),
            (on_device(starts), on_device(training_items[known])),
            k,
        )

    def ndcg(
        self,
        model: Model,
        users: Tensor,
        items: Tensor,
        weights: dict[str, Tensor],
        threads: int = 1,
    ) -> float:
        """NDCG@k of user and item vectors; of equal scores the held-out item is last."""
        rows, own_items = self.held_out
        mean_user = users.mean(0, keepdim=True)
        order = model.scorer.grid(mean_user, items, weights)[0].argsort(descending=True)
        n_items = len(items)
        parts = _PARTS if n_items > _MANY_ITEMS else (1,)
        edges = [0, *[int(n_items * part) for part in parts]]
        ranks = torch.zeros_like(rows)
        least = torch.zeros(len(rows), device=rows.device)
        columns = torch.empty_like(order)
        by_product = READY and not items.is_cuda and model.scorer is InnerProduct

        def add_ranks(pairs: Tensor) -> None:
            some, places = torch.unique_consecutive(rows[pairs], return_inverse=True)
            # `index_select` takes a third of the time of an index in brackets.
            vectors = users.index_select(0, self.users[some])
            own = own_items[pairs]
            if start == 0:
                of_pairs = vectors.index_select(0, places), items.index_select(0, own)
                least[pairs] = model.scorer.pairs(*of_pairs, weights)
            given = (some, *self.training, columns, places, columns[own], least[pairs])
            if not by_product:
                scores = model.scorer.grid(vectors, part, weights).detach()
                ranks[pairs] += _count_better(scores, *given)
                return
            counts = torch.empty_like(places)
            room = torch.empty(_LOOP_USERS * panels.shape[0] * _PANEL)
            arrays = [tensor.detach().numpy() for tensor in (vectors, panels, *given, counts, room)]
            loops.count_better(*arrays, len(part))
            ranks[pairs] += counts

        with ThreadPoolExecutor(threads) as pool:
            for start, stop in pairwise(edges):
                part = items.index_select(0, order[start:stop])
                panels = _in_panels(part) if by_product else part
                columns[:] = -1
                columns[order[start:stop]] = torch.arange(stop - start, device=order.device)
                values_per_user = (stop - start) * model.scorer.values_per_score(model.width)
                most_users = max(1, _GRID_VALUES[rows.device.type] // values_per_user)
                # A list, so that the error of a thread is raised.
                list(pool.map(add_ranks, self._open_pairs(ranks, most_users)))
        discounts = torch.log2(torch.arange(self.k, device=rows.device) + 2.0).reciprocal()
        gains = torch.where(ranks < self.k, discounts[ranks.clamp(max=self.k - 1)], 0.0)
        counts = rows.bincount(minlength=len(self.users))
        ideal = discounts.cumsum(0)[counts.clamp(max=self.k) - 1]
        per_user = torch.zeros_like(ideal).index_add_(0, rows, gains) / ideal
        return float(per_user.sum()) / len(self.users)

    def _open_pairs(self, ranks: Tensor, most_users: int) -> Iterator[Tensor]:
        """The positives that may have a gain, those of up to `most_users` users at a time."""
        pairs = (ranks < self.k).nonzero()[:, 0]
        users = self.held_out[0][pairs]
        number_of_user = torch.unique_consecutive(users, return_inverse=True)[1]
        sizes = (number_of_user // most_users).bincount()
        yield from torch.split(pairs, sizes.tolist())


def _in_panels(items: Tensor) -> Tensor:
    """The vectors of items as the loop reads them: [panel, column, item of the panel]."""
    full = torch.nn.functional.pad(items, (0, 0, 0, -len(items) % _PANEL))
    return full.view(-1, _PANEL, items.shape[1]).transpose(1, 2).contiguous()


def _count_better(
    scores: Tensor,
    some: Tensor,
    starts: Tensor,
    items: Tensor,
    columns: Tensor,
    places: Tensor,
    own: Tensor,
    least: Tensor,
) -> Tensor:
    """What the loop of this name counts, from the scores of some users."""
    counts = (starts[1:] - starts[:-1])[some]
    rows = torch.repeat_interleave(counts)
    # The places of each user's pairs follow each other from its start on.
    first = starts[some] - (counts.cumsum(0) - counts)
    at = columns[items[first[rows] + torch.arange(len(rows), device=rows.device)]]
    shown = (at >= 0).nonzero()[:, 0]
    scores[rows[shown], at[shown]] = -torch.inf
    better = (scores[places] >= least[:, None]).sum(1)
    return better - ((own >= 0) & (scores[places, own] >= least)).long()
