"""Training on a CPU: gradients by torch, everything else in compiled loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank._internal.validation import Floats
from calibrank.models.engines import _kernels as kernels
from calibrank.models.engines.base import (
    Arrays,
    Engine,
    adam_moments,
    make_adam,
    restore_adam_moments,
    set_gradients,
)
from calibrank.models.graph import Graph
from calibrank.models.model import Model
from calibrank.models.sampling import Epoch

Rows = npt.NDArray[np.int64]


class CpuEngine(Engine):
    """Updates only the rows of a batch; the steps of other rows are deferred (see `_kernels`)."""

    def __init__(
        self,
        model: Model,
        start: Arrays,
        learning_rate: float,
        weight_decay: float,
        graph: Graph | None = None,
    ) -> None:
        super().__init__(model, start, graph, learning_rate, weight_decay, "cpu")
        shape = tuple(self.table.shape)
        self.first = np.zeros(shape, np.float32)
        self.second = np.zeros(shape, np.float32)
        # The last step that each row has taken, and scratch memory for the kernels.
        self.last_step = np.zeros(len(self.table), dtype=np.int64)
        self.slots = np.zeros(len(self.table), dtype=np.int64)
        self.step_sizes = kernels.step_sizes(learning_rate, 0)
        # Most models have no weights besides the table, and an optimizer loads torch's compiler,
        # which takes longer than a small model trains.
        self.optimizer: torch.optim.Optimizer | None = None
        if self.weights:
            self.optimizer = make_adam(list(self.weights.values()), learning_rate, weight_decay)

    def run(self, epoch: Epoch) -> None:
        last = self.steps + len(epoch.rows)
        if last >= len(self.step_sizes):
            # Twice as many as needed, so that the array is seldom extended.
            self.step_sizes = kernels.step_sizes(self.learning_rate, 2 * last)
        for rows, importance in zip(epoch.rows, torch.from_numpy(epoch.importance), strict=True):
            self.steps += 1
            gradients = self._step(rows, importance)
            if self.optimizer is not None:
                set_gradients(self.weights, gradients)
                self.optimizer.step()

    def _step(self, rows: Rows, importance: Tensor) -> list[Tensor]:
        """Update the table; returns the gradients of the other weights."""
        flat = rows.reshape(-1)
        # The gradient must be taken at the parameters after the previous step.
        self._catch_up(flat, self.steps - 1)
        row_gradients, *weight_gradients = self._gradients(
            self.table, torch.from_numpy(rows), importance
        )
        # `numpy()` shares memory with the tensor: the kernel updates the table in place.
        kernels.step_rows(
            self.table.numpy(),
            self.first,
            self.second,
            self.last_step,
            flat,
            row_gradients.reshape(len(flat), -1).numpy(),
            self.slots,
            self.steps,
            self.step_sizes,
            np.float32(self.weight_decay),
            self.model.in_unit_ball,
        )
        return weight_gradients

    def apply_deferred_steps(self) -> None:
        self._catch_up(np.arange(len(self.table)), self.steps)

    def _catch_up(self, rows: Rows, step: int) -> None:
        kernels.catch_up(
            self.table.numpy(),
            self.first,
            self.second,
            self.last_step,
            rows,
            step,
            self.step_sizes,
            np.float32(self.weight_decay),
            self.model.in_unit_ball,
        )

    def moments(self) -> Arrays:
        self.apply_deferred_steps()
        moments = {"first": self.first.copy(), "second": self.second.copy()}
        if self.optimizer is not None:
            moments |= adam_moments(self.optimizer, self.weights)
        return moments

    def restore_moments(self, moments: Arrays, steps: int) -> None:
        self.steps = steps
        self.first = moments["first"]
        self.second = moments["second"]
        self.last_step[:] = steps
        self.step_sizes = kernels.step_sizes(self.learning_rate, steps)
        if self.optimizer is not None:
            restore_adam_moments(self.optimizer, self.weights, moments, steps)


class CpuGraphEngine(CpuEngine):
    """Graph models: every row has a gradient, but only the vectors of a batch are needed.

    The last layer is therefore computed for the nodes of the batch only, and the first layer of the
    backward pass starts from these nodes only. Tables are used with all seeds of a node in one row.
    """

    def __init__(
        self, model: Model, start: Arrays, graph: Graph, learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__(model, start, learning_rate, weight_decay, graph)
        self.n_nodes = graph.matrix.shape[0]
        self.layers = graph.layers
        self.layer_weight = graph.layer_weight
        self.compressed = graph.compressed
        # Products alternate between two buffers: none is read and written at once.
        shape = self._by_node(self.first).shape
        self.buffers = [np.empty(shape, np.float32), np.empty(shape, np.float32)]
        self.slots = np.full(self.n_nodes, -1)

    def _step(self, rows: Rows, importance: Tensor) -> list[Tensor]:
        n_seeds = len(self.table) // self.n_nodes
        # Row = node * n_seeds + seed: all seeds of a node are propagated together.
        nodes, places = np.unique(rows // n_seeds, return_inverse=True)
        table = self._by_node(self.table.numpy())
        inner = self._apply_layers(self.layers - 1, table, table)
        batch = kernels.add_product_rows(table, *self.compressed, nodes, inner, self.layer_weight)
        vectors = torch.from_numpy(batch).view(-1, self.table.shape[1])
        batch_rows = torch.from_numpy(places.reshape(rows.shape) * n_seeds + rows % n_seeds)
        row_gradients, *weight_gradients = self._gradients(vectors, batch_rows, importance)
        gradients = torch.zeros_like(vectors).index_add_(
            0, batch_rows.reshape(-1), row_gradients.reshape(-1, vectors.shape[1])
        )
        self._step_all_rows(nodes, gradients.view(len(nodes), -1).numpy())
        return weight_gradients

    def _step_all_rows(self, nodes: Rows, gradients: npt.NDArray[np.float32]) -> None:
        """Propagate the gradients of some nodes back over the graph, and update every row.

        The last layer of the backward pass is applied by the kernel that updates the rows.
        """
        propagated = self.buffers[0]
        if self.layers == 1:
            propagated[:] = 0
            propagated[nodes] = gradients
        else:
            kernels.scatter_product(*self.compressed, nodes, gradients, propagated)
        for _ in range(self.layers - 2):
            propagated = self._apply_layers(1, None, propagated)
            propagated[nodes] += gradients
        self.slots[nodes] = np.arange(len(nodes))
        kernels.step_all_rows(
            self._by_node(self.table.numpy()),
            self._by_node(self.first),
            self._by_node(self.second),
            self.slots,
            gradients,
            *self.compressed,
            propagated,
            self.layer_weight,
            self.steps,
            self.step_sizes,
            np.float32(self.weight_decay),
        )
        self.slots[nodes] = -1
        # Nothing is deferred here.
        self.last_step[:] = self.steps

    def _propagate(self, table: Tensor) -> Tensor:
        by_node = self._by_node(table.numpy())
        total = self._apply_layers(self.layers, by_node, by_node)
        return torch.from_numpy(total * self.layer_weight).view(table.shape)

    def _apply_layers(self, layers: int, base: Floats | None, values: Floats) -> Floats:
        """Replace `values` by `base` plus the adjacency matrix times `values`, `layers` times."""
        for _ in range(layers):
            result = self.buffers[values is self.buffers[0]]
            kernels.add_product(base, *self.compressed, values, result)
            values = result
        return values

    def _by_node(self, table: Floats) -> Floats:
        """A table with all seeds of a node in one row."""
        return table.reshape(self.n_nodes, -1)
