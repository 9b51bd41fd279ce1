"""Training on a CPU with compiled loops (`_internal/native_training.h`).

The table is brought up to date at the end of every epoch, so a run that continues from a checkpoint
takes the same steps as one that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank._internal.native import loops
from calibrank._internal.threads import in_threads, row_slices
from calibrank.models.bpr import BPR
from calibrank.models.engines.base import (
    BETAS,
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
Matrix = npt.NDArray[np.float32]

# Columns that one thread sums to a part of a score, as in the loops.
_COLUMN_BLOCK = 32
# Products (edges times columns) from which on threads are worth starting.
_MANY_PRODUCTS = 2**22


def make_cpu_engine(
    model: Model,
    start: Arrays,
    graph: Graph | None,
    learning_rate: float,
    weight_decay: float,
    threads: int,
) -> CpuEngine:
    """The engine with the fastest steps for a model."""
    if graph is not None:
        return GraphEngine(model, start, graph, learning_rate, weight_decay)
    if type(model).loss is BPR.loss and type(model).gradients is BPR.gradients:
        return PairwiseEngine(model, start, learning_rate, weight_decay, threads)
    return RowEngine(model, start, None, learning_rate, weight_decay)


def step_sizes(learning_rate: float, steps: int) -> Matrix:
    """Adam's bias corrections, one row per step from 0 (unused) to `steps`.

    The columns are the learning rate divided by 1 - beta1^t, and 1 / sqrt(1 - beta2^t), the
    factor of the square root of the second moment.
    """
    step = np.arange(steps + 1, dtype=np.float64)
    # Step 0 would divide by zero.
    step[0] = 1
    rate = learning_rate / (1 - BETAS[0] ** step)
    correction = 1 / np.sqrt(1 - BETAS[1] ** step)
    return np.column_stack([rate, correction]).astype(np.float32)


class CpuEngine(Engine):
    """What the engines of a CPU share: Adam's moments of the table, as arrays."""

    def __init__(
        self,
        model: Model,
        start: Arrays,
        graph: Graph | None,
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        super().__init__(model, start, graph, learning_rate, weight_decay, "cpu")
        # `numpy()` shares memory with the tensor: the loops update the table in place.
        self.array: Matrix = self.table.numpy()
        self.first = np.zeros_like(self.array)
        self.second = np.zeros_like(self.array)
        # Most models have no weights besides the table, and an optimizer loads torch's compiler,
        # which takes longer than a small model trains.
        self.optimizer: torch.optim.Optimizer | None = None
        if self.weights:
            self.optimizer = make_adam(list(self.weights.values()), learning_rate, weight_decay)

    def moments(self) -> Arrays:
        moments = {"first": self.first.copy(), "second": self.second.copy()}
        if self.optimizer is not None:
            moments |= adam_moments(self.optimizer, self.weights)
        return moments

    def restore_moments(self, moments: Arrays, steps: int) -> None:
        self.steps = steps
        self.first = moments["first"]
        self.second = moments["second"]
        if self.optimizer is not None:
            restore_adam_moments(self.optimizer, self.weights, moments, steps)

    def _adam(self, steps: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """What the loops need for the next steps: table, moments and step sizes."""
        sizes = step_sizes(self.learning_rate, self.steps + steps)
        return self.array, self.first, self.second, sizes


class PairwiseEngine(CpuEngine):
    """BPR, whose whole epoch is one loop: each thread has some of the columns of the table.

    Threads only exchange the parts of each score, so their number does not change a digit.
    """

    def __init__(
        self, model: Model, start: Arrays, learning_rate: float, weight_decay: float, threads: int
    ) -> None:
        super().__init__(model, start, None, learning_rate, weight_decay)
        self.blocks = -(-model.width // _COLUMN_BLOCK)
        self.threads = min(threads, self.blocks)

    def run(self, epoch: Epoch) -> None:
        steps = len(epoch.rows)
        importance = epoch.importance.reshape(steps, -1)
        triples = importance.shape[1]
        adam = self._adam(steps)
        parts = np.empty(2 * self.blocks * triples, dtype=np.float32)
        arrivals = np.zeros(1, dtype=np.int64)
        # The loops wait for each other, so none may start before all of them can.
        started = Barrier(self.threads)

        def run_columns(thread: int) -> None:
            last_steps = np.empty(len(self.array), dtype=np.int64)
            slots = np.empty_like(last_steps)
            gradients = np.empty(3 * triples * self.model.width, dtype=np.float32)
            started.wait()
            scratch = (last_steps, slots, gradients, parts, arrivals)
            numbers = (self.weight_decay, self.steps, thread, self.threads)
            loops.train_bpr(*adam, epoch.rows, importance, *scratch, *numbers)

        with ThreadPoolExecutor(self.threads) as pool:
            try:
                futures = [pool.submit(run_columns, thread) for thread in range(self.threads)]
            except RuntimeError:  # no more threads can be started
                started.abort()
                raise
            for future in futures:
                future.result()
        self.steps += steps


class RowEngine(CpuEngine):
    """Gradients by torch; the loops update the rows of a batch and defer the steps of others."""

    def run(self, epoch: Epoch) -> None:
        adam = self._adam(len(epoch.rows))
        last_steps = np.full(len(self.array), self.steps)
        slots = np.empty_like(last_steps)

        def catch_up(rows: Rows) -> None:
            numbers = (self.weight_decay, self.steps, self.model.in_unit_ball)
            loops.catch_up_rows(*adam, last_steps, rows, *numbers)

        for rows, importance in zip(epoch.rows, torch.from_numpy(epoch.importance), strict=True):
            flat = rows.reshape(-1)
            # The gradient must be taken at the parameters after the previous step.
            catch_up(flat)
            gradients, *weight_gradients = self._gradients(
                self.table, torch.from_numpy(rows), importance
            )
            self.steps += 1
            loops.step_rows(
                *adam,
                last_steps,
                flat,
                np.ascontiguousarray(gradients.numpy()),
                slots,
                self.weight_decay,
                self.steps,
                self.model.in_unit_ball,
            )
            if self.optimizer is not None:
                set_gradients(self.weights, weight_gradients)
                self.optimizer.step()
        catch_up(np.arange(len(self.array)))


class GraphEngine(CpuEngine):
    """Graph models: every row has a gradient, but only the vectors of a batch are needed.

    The last layer is therefore computed for the nodes of the batch only, and the first layer of the
    backward pass starts from these nodes only. Tables are used with all seeds of a node in one row.
    """

    def __init__(
        self, model: Model, start: Arrays, graph: Graph, learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__(model, start, graph, learning_rate, weight_decay)
        self.n_nodes: int = graph.matrix.shape[0]
        self.layers = graph.layers
        self.matrix = graph.compressed
        # Products alternate between two buffers: none is read and written at once.
        shape = self._by_node(self.array).shape
        self.buffers = [np.empty(shape, np.float32), np.empty(shape, np.float32)]
        self.batch = np.zeros(shape, np.float32)
        # LightGCN averages the layers.
        self.factor = 1 / (graph.layers + 1)

    def run(self, epoch: Epoch) -> None:
        adam = self._adam(len(epoch.rows))
        for rows, importance in zip(epoch.rows, torch.from_numpy(epoch.importance), strict=True):
            self.steps += 1
            gradients = self._propagate_back(*self._batch_gradients(rows, importance))

            def step(part: slice, gradients: Matrix = gradients) -> None:
                parts = [self._by_node(values)[part] for values in adam[:3]]
                numbers = (self.weight_decay, self.steps)
                loops.step_table(*parts, adam[3], gradients[part], *numbers)

            self._in_rows(step, self.n_nodes)

    def _batch_gradients(self, rows: Rows, importance: Tensor) -> tuple[Rows, Matrix]:
        """The nodes of a batch, and the gradients for their vectors."""
        n_seeds = len(self.array) // self.n_nodes
        # Row = node * n_seeds + seed: all seeds of a node are propagated together.
        nodes, places = np.unique(rows // n_seeds, return_inverse=True)
        table = self._by_node(self.array)
        inner = self._apply_layers(self.layers - 1, table)
        batch = np.empty((len(nodes), table.shape[1]), np.float32)
        self._product(nodes, table, inner, self.factor, batch)
        vectors = torch.from_numpy(batch).view(-1, self.model.width)
        batch_rows = torch.from_numpy(places.reshape(rows.shape) * n_seeds + rows % n_seeds)
        row_gradients = self._gradients(vectors, batch_rows, importance)[0]
        gradients = torch.zeros_like(vectors).index_add_(
            0, batch_rows.reshape(-1), row_gradients.reshape(-1, self.model.width)
        )
        return nodes, gradients.view(len(nodes), -1).numpy()

    def _propagate_back(self, nodes: Rows, gradients: Matrix) -> Matrix:
        """The gradients of the table, from those of the vectors of some nodes."""
        self.batch[nodes] = gradients
        values = self.batch
        if self.layers > 1:
            values = self.buffers[0]
            values[:] = self.batch
            loops.graph_scatter(*self.matrix, nodes, gradients, values)
        values = self._apply_layers(self.layers - 2, self.batch, values)
        result = self._full_product(self.batch, values, self.factor)
        self.batch[nodes] = 0
        return result

    def _propagate(self, table: Tensor) -> Tensor:
        by_node = self._by_node(table.numpy())
        inner = self._apply_layers(self.layers - 1, by_node)
        total = self._full_product(by_node, inner, self.factor)
        return torch.from_numpy(total.copy()).view(table.shape)

    def _apply_layers(self, layers: int, base: Matrix, values: Matrix | None = None) -> Matrix:
        """Replace `values` by `base` plus the adjacency matrix times `values`, `layers` times."""
        result = base if values is None else values
        for _ in range(layers):
            result = self._full_product(base, result)
        return result

    def _full_product(self, base: Matrix, values: Matrix, factor: float = 1) -> Matrix:
        result = self.buffers[values is self.buffers[0]]
        self._product(np.arange(self.n_nodes), base, values, factor, result)
        return result

    def _product(
        self, rows: Rows, base: Matrix, values: Matrix, factor: float, result: Matrix
    ) -> None:
        """Write some rows of (base + matrix @ values) * factor."""

        def multiply(part: slice) -> None:
            loops.graph_rows(*self.matrix, rows[part], base, values, factor, result[part])

        self._in_rows(multiply, len(rows))

    def _in_rows(self, function: Callable[[slice], None], rows: int) -> None:
        products = len(self.matrix[1]) * self.batch[0].size
        in_threads(function, row_slices(rows) if products >= _MANY_PRODUCTS else [slice(0, rows)])

    def _by_node(self, table: Matrix) -> Matrix:
        """A table with all seeds of a node in one row."""
        return table.reshape(self.n_nodes, -1)
