"""Training on a CPU: gradients by torch, everything else in compiled loops."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank._validation import Floats
from calibrank.models.engines import _kernels as kernels
from calibrank.models.engines.base import Arrays, Engine, adam, assign, memory, recall
from calibrank.models.graph import Graph
from calibrank.models.model import Model
from calibrank.models.sampling import Epoch


class OnCpu(Engine):
    """Rows move when a batch needs them (see `kernels`)."""

    def __init__(
        self,
        model: Model,
        start: Arrays,
        graph: Graph | None,
        learning_rate: float,
        decay: float,
        device: str,
    ) -> None:
        super().__init__(model, start, graph, learning_rate, decay, device)
        self.first, self.second = (np.zeros(tuple(self.table.shape), np.float32) for _ in range(2))
        self.done, self.slots = (np.zeros(len(self.table), dtype=np.int64) for _ in range(2))
        self.sizes = kernels.step_sizes(learning_rate, 0)
        self.optimizer = adam(list(self.weights.values()), learning_rate, decay)

    def run(self, epoch: Epoch) -> None:
        last = self.steps + len(epoch.rows)
        if last >= len(self.sizes):
            self.sizes = kernels.step_sizes(self.learning_rate, 2 * last)
        for rows, importance in zip(epoch.rows, torch.from_numpy(epoch.importance), strict=True):
            self.steps += 1
            weights = self._step(rows, importance)
            if weights:
                assign(self.weights, weights)
                self.optimizer.step()

    def _step(self, rows: npt.NDArray[np.int64], importance: Tensor) -> list[Tensor]:
        """Move the table; the gradients of the weights."""
        flat = rows.reshape(-1)
        self._catch_up(flat, self.steps - 1)
        near, *weights = self._gradients(self.table, torch.from_numpy(rows), importance)
        slopes = near.reshape(len(flat), -1).numpy()
        kernels.descend(
            self.table.numpy(), self.first, self.second, self.done, flat, slopes, self.slots,
            self.steps, self.sizes, np.float32(self.decay), self.model.in_ball,
        )  # fmt: skip
        return weights

    def settle(self) -> None:
        self._catch_up(np.arange(len(self.table)), self.steps)

    def _catch_up(self, rows: npt.NDArray[np.int64], now: int) -> None:
        table, settings = self.table.numpy(), (np.float32(self.decay), self.model.in_ball)
        kernels.catch_up(
            table, self.first, self.second, self.done, rows, now, self.sizes, *settings
        )

    def moments(self) -> Arrays:
        self.settle()
        own = {"first": self.first.copy(), "second": self.second.copy()}
        return own | memory(self.optimizer, self.weights)

    def remember(self, moments: Arrays, steps: int) -> None:
        self.steps, self.first, self.second = steps, moments["first"], moments["second"]
        self.done[:] = steps
        self.sizes = kernels.step_sizes(self.learning_rate, steps)
        recall(self.optimizer, self.weights, moments, steps)


class GraphOnCpu(OnCpu):
    """With a graph every row has a gradient; but only a batch's rows are scored, and only they send one back."""

    def __init__(
        self,
        model: Model,
        start: Arrays,
        graph: Graph,
        learning_rate: float,
        decay: float,
        device: str,
    ) -> None:
        super().__init__(model, start, graph, learning_rate, decay, device)
        self.nodes, self.hops, self.share = graph.matrix.shape[0], graph.hops, graph.share
        self.compressed = graph.compressed
        self.spare = [np.empty_like(self._wide(self.first)) for _ in range(2)]
        self.slots = np.full(self.nodes, -1)

    def _step(self, rows: npt.NDArray[np.int64], importance: Tensor) -> list[Tensor]:
        seeds = len(self.table) // self.nodes
        nodes, places = np.unique(rows // seeds, return_inverse=True)
        table = self._wide(self.table.numpy())
        near = self._hop(self.hops - 1, table, table)
        seen = kernels.add_product_of_some(table, *self.compressed, nodes, near, self.share)
        scored = torch.from_numpy(seen).view(-1, self.table.shape[1])
        among = torch.from_numpy(places.reshape(rows.shape) * seeds + rows % seeds)
        slope, *weights = self._gradients(scored, among, importance)
        slopes = torch.zeros_like(scored).index_add_(
            0, among.reshape(-1), slope.reshape(-1, scored.shape[1])
        )
        self._descend(nodes, slopes.view(len(nodes), -1).numpy())
        return weights

    def _descend(self, nodes: npt.NDArray[np.int64], slopes: npt.NDArray[np.float32]) -> None:
        """Send the gradients of some nodes back over the graph, and move every row."""
        near = self.spare[0]
        if self.hops == 1:
            near[:] = 0
            near[nodes] = slopes
        else:
            kernels.send(*self.compressed, nodes, slopes, near)
        for _ in range(self.hops - 2):
            near = self._hop(1, None, near)
            near[nodes] += slopes
        self.slots[nodes] = np.arange(len(nodes))
        kernels.descend_all(
            self._wide(self.table.numpy()), self._wide(self.first), self._wide(self.second), self.slots, slopes,
            *self.compressed, near, self.share, self.steps, self.sizes, np.float32(self.decay),
        )  # fmt: skip
        self.slots[nodes] = -1
        self.done[:] = self.steps

    def _spread(self, table: Tensor) -> Tensor:
        wide = self._wide(table.numpy())
        return torch.from_numpy(self._hop(self.hops, wide, wide) * self.share).view(table.shape)

    def _hop(self, hops: int, base: Floats | None, near: Floats) -> Floats:
        for _ in range(hops):
            result = self.spare[near is self.spare[0]]
            kernels.add_product(base, *self.compressed, near, result)
            near = result
        return near

    def _wide(self, table: Floats) -> Floats:
        """All seeds of a node in one row."""
        return table.reshape(self.nodes, -1)
