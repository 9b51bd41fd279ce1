"""Parameters in training: what engines share, the graph of LightGCN, and training with torch alone.

Torch alone trains on a GPU, and on a CPU where the loops were not compiled. On a GPU one step is
captured as a CUDA graph and replayed for every batch.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from calibrank._internal.npz import Arrays
from calibrank.errors import FitError
from calibrank.models.rankers import Model
from calibrank.models.sampling import Epoch
from calibrank.models.training import Training
from calibrank.tables import Interactions

# Adam's defaults (Kingma & Ba 2015), as torch has them.
BETAS = (0.9, 0.999)
EPSILON = 1e-8

_WEIGHT = "weight."
_MOMENTS = {"first": "exp_avg", "second": "exp_avg_sq"}
"""Our names of Adam's two moments, and torch's."""
# torch asks for a few runs on a side stream before a capture, to initialize its libraries.
_WARM_UP_STEPS = 3

CompressedRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Graph:
    """The symmetrically normalized adjacency matrix A of users and items (items come after users).

    `propagate` computes (I + A + ... + A^layers) x / (layers + 1). The operator is symmetric, so
    gradients are propagated by the same function.
    """

    matrix: sp.csr_array
    layers: int
    device: str

    @classmethod
    def of(cls, positives: Interactions, layers: int, device: str = "cpu") -> Graph:
        """The graph with one edge per positive."""
        n_nodes = positives.n_users + positives.n_items
        users = positives.users
        items = positives.items + positives.n_users
        # Every edge appears in both directions, so that the matrix is symmetric.
        rows = np.concatenate([users, items])
        columns = np.concatenate([items, users])
        degree = np.bincount(rows, minlength=n_nodes)
        degree_product = degree[users].astype(np.float64) * degree[items]
        weights = (1 / np.sqrt(degree_product)).astype(np.float32)
        values = np.concatenate([weights, weights])
        matrix = sp.csr_array((values, (rows, columns)), shape=(n_nodes, n_nodes))
        return cls(matrix, layers, device)

    def propagate(self, table: Tensor) -> Tensor:
        """The mean over layers of a table of shape [node, width]."""
        # Horner's scheme: (x + A (x + A x)) / 3 for two layers.
        total = table
        for _ in range(self.layers):
            total = table + self._tensor @ total
        return total * float(np.float32(1 / (self.layers + 1)))

    @cached_property
    def compressed(self) -> CompressedRows:
        """The matrix in CSR format: row starts, column numbers, values."""
        starts = self.matrix.indptr.astype(np.int64)
        return starts, self.matrix.indices.astype(np.int32), self.matrix.data

    @cached_property
    def _tensor(self) -> Tensor:
        starts, columns, values = [
            torch.from_numpy(part).to(self.device) for part in self.compressed
        ]
        with warnings.catch_warnings():
            # torch warns that sparse CSR support is in beta and that invariants are not checked.
            warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
            shape = self.matrix.shape
            return torch.sparse_csr_tensor(starts.to(torch.int32), columns, values, shape)


class Engine(ABC):
    """Parameters in training: one table for users and items, and the model's other weights."""

    def __init__(
        self, model: Model, start: Arrays, graph: Graph | None, training: Training
    ) -> None:
        self.model = model
        self.graph = graph
        self.training = training
        self.steps = 0
        self.table = torch.from_numpy(start["table"]).to(training.device)
        self.weights = {
            name.removeprefix(_WEIGHT): torch.from_numpy(values).to(training.device)
            for name, values in start.items()
            if name.startswith(_WEIGHT)
        }
        for values in self.weights.values():
            values.requires_grad_()

    @abstractmethod
    def run(self, epoch: Epoch) -> None:
        """Take one step for every batch of an epoch; afterwards all parameters are up to date."""

    @abstractmethod
    def moments(self) -> Arrays:
        """Adam's moments as arrays, to save them."""

    @abstractmethod
    def restore_moments(self, moments: Arrays, steps: int) -> None:
        """Set Adam's moments and the number of steps taken."""

    def restore(self, parameters: Arrays, moments: Arrays, steps: int) -> None:
        """Return to a saved state: what `parameters` and `moments` gave after `steps` steps."""
        with torch.no_grad():
            self.table.copy_(torch.from_numpy(parameters["table"]))
            for name, values in self.weights.items():
                values.copy_(torch.from_numpy(parameters[_WEIGHT + name]))
        self.restore_moments(moments, steps)

    def parameters(self) -> Arrays:
        """The parameters as arrays, to save them."""
        named = {_WEIGHT + name: _to_numpy(values) for name, values in self.weights.items()}
        return {"table": _to_numpy(self.table), **named}

    def vectors(self) -> Tensor:
        """The vectors that are scored, as [row, width]: the table, propagated over the graph."""
        return self._propagate(self.table.detach())

    def _propagate(self, table: Tensor) -> Tensor:
        return table if self.graph is None else self.graph.propagate(table)

    def _gradients(self, vectors: Tensor, rows: Tensor, importance: Tensor) -> list[Tensor]:
        """Gradients of a batch's loss: for the vectors in `rows`, then for each weight."""
        batch = vectors.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
        return self.model.gradients(batch, importance, self.weights)


class Adam:
    """Torch's fused Adam of some named parameters; "" is the name of the table."""

    def __init__(self, parameters: dict[str, Tensor], training: Training) -> None:
        self.parameters = parameters
        self.optimizer = torch.optim.Adam(
            list(parameters.values()),
            training.learning_rate,
            BETAS,
            EPSILON,
            training.weight_decay,
            fused=True,
            # On a GPU a step is captured in a CUDA graph.
            capturable=training.device == "cuda",
        )

    def step(self, gradients: list[Tensor]) -> None:
        """Take a step with the gradient of each parameter."""
        for values, gradient in zip(self.parameters.values(), gradients, strict=True):
            values.grad = gradient
        self.optimizer.step()

    def moments(self) -> Arrays:
        """The moments of each parameter; zeros before the first step."""
        moments: Arrays = {}
        for name, values in self.parameters.items():
            state = self.optimizer.state[values]
            for moment, key in _MOMENTS.items():
                saved = state.get(key) if state else torch.zeros_like(values)
                moments[f"{moment}.{name}".rstrip(".")] = _to_numpy(saved)
        return moments

    def restore(self, moments: Arrays, steps: int) -> None:
        """Set the moments and the number of steps."""
        for name, values in self.parameters.items():
            state = self.optimizer.state[values]
            saved = {"step": torch.tensor(float(steps))}
            for moment, key in _MOMENTS.items():
                saved[key] = torch.from_numpy(moments[f"{moment}.{name}".rstrip(".")])
            for key, content in saved.items():
                # A captured CUDA graph refers to the existing tensors: they must be overwritten.
                moved = content.to(values.device)
                state[key] = state[key].copy_(moved) if key in state else moved


class DenseEngine(Engine):
    """Updates every row at every step.

    On a GPU, launching the kernels of a step one by one would take longer than running them; a
    captured graph launches all of them at once.
    """

    def __init__(
        self, model: Model, start: Arrays, graph: Graph | None, training: Training
    ) -> None:
        super().__init__(model, start, graph, training)
        self.table.requires_grad_()
        self.table.grad = torch.zeros_like(self.table)
        self.adam = Adam({"": self.table, **self.weights}, training)
        self.captured: torch.cuda.CUDAGraph | None = None

    def run(self, epoch: Epoch) -> None:
        with explain_out_of_memory():
            device = self.table.device
            rows = torch.from_numpy(epoch.rows).to(device, non_blocking=True)
            importance = torch.from_numpy(epoch.importance).to(device, non_blocking=True)
            if self.captured is None and device.type == "cuda":
                self.captured = self._capture(rows[0], importance[0])
            for batch_rows, batch_importance in zip(rows, importance, strict=True):
                if self.captured is None:
                    self._step(batch_rows, batch_importance)
                    continue
                # The captured step reads its input from these two tensors.
                self.rows.copy_(batch_rows)
                self.importance.copy_(batch_importance)
                self.captured.replay()
            self.steps += len(epoch.rows)

    def _capture(self, rows: Tensor, importance: Tensor) -> torch.cuda.CUDAGraph:
        """Record one step; parameters and moments are the same afterwards."""
        self.rows = rows.clone()
        self.importance = importance.clone()
        before = (self.parameters(), self.moments(), self.steps)
        side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UP_STEPS):
                self._step(self.rows, self.importance)
        torch.cuda.current_stream().wait_stream(side_stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            self._step(self.rows, self.importance)
        self.restore(*before)
        return captured

    def _step(self, rows: Tensor, importance: Tensor) -> None:
        table = self.table.detach()
        vectors = self._propagate(table)
        row_gradients, *weight_gradients = self._gradients(vectors, rows, importance)
        # Rows that occur more than once in a batch add up their gradients.
        gradients = torch.zeros_like(table)
        flat = row_gradients.reshape(-1, row_gradients.shape[-1])
        gradients.index_add_(0, rows.reshape(-1), flat)
        self.adam.step([self._propagate(gradients), *weight_gradients])
        if self.model.in_unit_ball:
            table.mul_(table.norm(dim=1, keepdim=True).clamp_(min=1).reciprocal_())

    def moments(self) -> Arrays:
        return self.adam.moments()

    def restore_moments(self, moments: Arrays, steps: int) -> None:
        self.steps = steps
        self.adam.restore(moments, steps)


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Turn torch's out-of-memory error into a `FitError` that says what to do."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info()
        found = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
        remedy = "Lower dim or batch, or train on the CPU (device cpu)."
        raise FitError("training", "fit in the GPU's memory", found, remedy) from error


def _to_numpy(values: Tensor) -> npt.NDArray[Any]:
    return np.array(values.detach().cpu().numpy())
