"""Training on a CPU with compiled loops (`_internal/native_training.h`, `native_adam.h`).

The table is brought up to date at the end of every epoch, so a run that continues from a checkpoint
takes the same steps as one that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank._internal.native import loops
from calibrank._internal.npz import Arrays
from calibrank._internal.threads import in_threads
from calibrank.models.engines import BETAS, Adam, Engine, Graph
from calibrank.models.rankers import BPR, Model
from calibrank.models.sampling import Epoch
from calibrank.models.training import Training

Rows = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float32]

# Columns that one thread sums to a part of a score, as in the loops.
_COLUMN_BLOCK = 32
# Products (edges times columns) from which on threads are worth starting.
_MANY_PRODUCTS = 2**22


def make_cpu_engine(
    model: Model, start: Arrays, graph: Graph | None, training: Training
) -> CpuEngine:
    """The engine with the fastest steps for a model."""
    if graph is not None:
        return GraphEngine(model, start, graph, training)
    is_bpr = type(model).loss is BPR.loss and type(model).gradients is BPR.gradients
    return (PairwiseEngine if is_bpr else RowEngine)(model, start, None, training)


class CpuEngine(Engine):
    """What the engines of a CPU share: Adam's moments of the table, as arrays."""

    def __init__(
        self, model: Model, start: Arrays, graph: Graph | None, training: Training
    ) -> None:
        super().__init__(model, start, graph, training)
        # `numpy()` shares memory with the tensor: the loops update the table in place.
        self.array: Matrix = self.table.numpy()
        self.first = np.zeros_like(self.array)
        self.second = np.zeros_like(self.array)
        # Most models have no weights besides the table, and an optimizer loads torch's compiler,
        # which takes longer than a small model trains.
        self.adam = Adam(self.weights, training) if self.weights else None

    def moments(self) -> Arrays:
        moments = {"first": self.first.copy(), "second": self.second.copy()}
        return moments if self.adam is None else moments | self.adam.moments()

    def restore_moments(self, moments: Arrays, steps: int) -> None:
        self.steps = steps
        self.first[:] = moments["first"]
        self.second[:] = moments["second"]
        if self.adam is not None:
            self.adam.restore(moments, steps)

    def _state(self, steps: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """What the loops need for the next steps: table, moments and Adam's bias corrections.

        The corrections have one row per step from 0 (unused) on: the learning rate divided by
        1 - beta1^t, and 1 / sqrt(1 - beta2^t), the factor of the square root of the second moment.
        """
        step = np.arange(self.steps + steps + 1, dtype=np.float64)
        # Step 0 would divide by zero.
        step[0] = 1
        rate = self.training.learning_rate / (1 - BETAS[0] ** step)
        correction = 1 / np.sqrt(1 - BETAS[1] ** step)
        sizes = np.column_stack([rate, correction]).astype(np.float32)
        return self.array, self.first, self.second, sizes


class PairwiseEngine(CpuEngine):
    """BPR, whose whole epoch is one loop: each thread has some of the columns of the table.

    Threads only exchange the parts of each score, so their number does not change a digit.
    """

    def __init__(
        self, model: Model, start: Arrays, graph: Graph | None, training: Training
    ) -> None:
        super().__init__(model, start, graph, training)
        # What a step needs of a row lies together: parameters, both moments, room for a gradient.
        self.state = _aligned_zeros((len(self.array), 4, model.width))
        self.state[:, 0] = self.array
        self.array, self.first, self.second = self.state[:, 0], self.state[:, 1], self.state[:, 2]
        self.table = torch.from_numpy(self.array)

    def run(self, epoch: Epoch) -> None:
        blocks = -(-self.model.width // _COLUMN_BLOCK)
        threads = min(self.training.threads, blocks)
        steps, triples = epoch.importance.shape
        sizes = self._state(steps)[3]
        parts = np.empty(2 * blocks * triples, dtype=np.float32)
        arrivals = np.zeros(1, dtype=np.int64)
        # The loops wait for each other, so none may start before all of them can.
        started = Barrier(threads)

        def run_columns(thread: int) -> None:
            last_steps = np.empty(len(self.array), dtype=np.int64)
            started.wait()
            batches = (epoch.rows, epoch.importance)
            numbers = (self.training.weight_decay, self.steps, thread, threads)
            loops.train_bpr(self.state, sizes, *batches, last_steps, parts, arrivals, *numbers)

        with ThreadPoolExecutor(threads) as pool:
            try:
                others = [pool.submit(run_columns, thread) for thread in range(1, threads)]
            except RuntimeError:  # no more threads can be started
                started.abort()
                raise
            run_columns(0)
            for other in others:
                other.result()
        self.steps += steps


class RowEngine(CpuEngine):
    """Gradients by torch; the loops update the rows of a batch and defer the steps of others."""

    def run(self, epoch: Epoch) -> None:
        state = self._state(len(epoch.rows))
        last_steps = np.full(len(self.array), self.steps)
        slots = np.empty_like(last_steps)
        decay = self.training.weight_decay
        ball = self.model.in_unit_ball

        def catch_up(rows: Rows) -> None:
            loops.catch_up_rows(*state, last_steps, rows, decay, self.steps, ball)

        for rows, importance in zip(epoch.rows, torch.from_numpy(epoch.importance), strict=True):
            flat = rows.reshape(-1)
            # The gradient must be taken at the parameters after the previous step.
            catch_up(flat)
            batch = torch.from_numpy(rows)
            gradients, *weight_gradients = self._gradients(self.table, batch, importance)
            self.steps += 1
            of_rows = np.ascontiguousarray(gradients.numpy())
            loops.step_rows(*state, last_steps, flat, of_rows, slots, decay, self.steps, ball)
            if self.adam is not None:
                self.adam.step(weight_gradients)
        catch_up(np.arange(len(self.array)))


class GraphEngine(CpuEngine):
    """Graph models: every row has a gradient, but only the vectors of a batch are needed.

    The last layer is therefore computed for the nodes of the batch only, and the first layer of the
    backward pass starts from these nodes only.
    """

    def __init__(self, model: Model, start: Arrays, graph: Graph, training: Training) -> None:
        super().__init__(model, start, graph, training)
        self.layers = graph.layers
        self.matrix = graph.compressed
        # A row of a product takes as long as it has edges, and one more to be written.
        self.costs = np.diff(self.matrix[0]) + 1
        # Products alternate between two buffers: none is read and written at once.
        self.buffers = [np.empty_like(self.array), np.empty_like(self.array)]
        self.batch = np.zeros_like(self.array)
        # LightGCN averages the layers.
        self.factor = 1 / (graph.layers + 1)

    def run(self, epoch: Epoch) -> None:
        state = self._state(len(epoch.rows))
        for rows, importance in zip(epoch.rows, torch.from_numpy(epoch.importance), strict=True):
            self.steps += 1
            gradients = self._propagate_back(*self._batch_gradients(rows, importance))

            def step(part: slice, gradients: Matrix = gradients) -> None:
                parts = [values[part] for values in state[:3]]
                numbers = (self.training.weight_decay, self.steps)
                loops.step_table(*parts, state[3], gradients[part], *numbers)

            self._in_parts(step, np.ones_like(self.costs))

    def _batch_gradients(self, rows: Rows, importance: Tensor) -> tuple[Rows, Matrix]:
        """The nodes of a batch, and the gradients for their vectors."""
        nodes, places = np.unique(rows, return_inverse=True)
        inner = self._apply_layers(self.layers - 1, self.array)
        batch = np.empty((len(nodes), self.model.width), np.float32)
        self._product(nodes, self.array, inner, self.factor, batch)
        vectors = torch.from_numpy(batch)
        batch_rows = torch.from_numpy(places.reshape(rows.shape))
        row_gradients = self._gradients(vectors, batch_rows, importance)[0]
        flat = row_gradients.reshape(-1, self.model.width)
        gradients = torch.zeros_like(vectors).index_add_(0, batch_rows.reshape(-1), flat)
        return nodes, gradients.numpy()

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
        base = table.numpy()
        inner = self._apply_layers(self.layers - 1, base)
        return torch.from_numpy(self._full_product(base, inner, self.factor).copy())

    def _apply_layers(self, layers: int, base: Matrix, values: Matrix | None = None) -> Matrix:
        """Replace `values` by `base` plus the adjacency matrix times `values`, `layers` times."""
        result = base if values is None else values
        for _ in range(layers):
            result = self._full_product(base, result)
        return result

    def _full_product(self, base: Matrix, values: Matrix, factor: float = 1) -> Matrix:
        result = self.buffers[values is self.buffers[0]]
        self._product(np.arange(len(self.array)), base, values, factor, result)
        return result

    def _product(
        self, rows: Rows, base: Matrix, values: Matrix, factor: float, result: Matrix
    ) -> None:
        """Write some rows of (base + matrix @ values) * factor."""

        def multiply(part: slice) -> None:
            loops.graph_rows(*self.matrix, rows[part], base, values, factor, result[part])

        self._in_parts(multiply, self.costs[rows])

    def _in_parts(self, function: Callable[[slice], None], costs: Rows) -> None:
        """Call a function on one part of the rows per thread; each part costs about as much."""
        many = len(self.matrix[1]) * self.model.width >= _MANY_PRODUCTS
        threads = self.training.threads if many else 1
        total = costs.cumsum()
        stops = total.searchsorted(total[-1] * np.arange(1, threads) / threads)
        in_threads(function, [slice(*part) for part in pairwise([0, *stops, len(costs)])])


def _aligned_zeros(shape: tuple[int, ...]) -> Matrix:
    """An array that begins at a cache line, so that no vector register crosses one."""
    size = int(np.prod(shape))
    buffer = np.zeros(size + 16, dtype=np.float32)
    start = -buffer.ctypes.data % 64 // 4
    return buffer[start : start + size].reshape(shape)
