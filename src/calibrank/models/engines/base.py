"""Parameters under training, and how a GPU trains them; `on_cpu` says how a CPU does. Both take the same steps."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank.errors import FitError
from calibrank.models.graph import Graph
from calibrank.models.model import Model
from calibrank.models.sampling import Epoch

Arrays = dict[str, npt.NDArray[Any]]

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Engine(ABC):
    """Parameters under training. The table's rows belong to nodes of seeds, as `Sampler` says."""

    def __init__(
        self,
        model: Model,
        start: Arrays,
        graph: Graph | None,
        learning_rate: float,
        decay: float,
        device: str,
    ) -> None:
        self.model, self.graph, self.steps = model, graph, 0
        self.learning_rate, self.decay = learning_rate, decay
        self.table = torch.from_numpy(start["table"]).to(device)
        self.weights = {
            name.removeprefix("weight."): torch.from_numpy(values).to(device).requires_grad_()
            for name, values in start.items()
            if name.startswith("weight.")
        }

    @abstractmethod
    def run(self, epoch: Epoch) -> None:
        """Train on every batch of an epoch."""

    @abstractmethod
    def moments(self) -> Arrays:
        """Adam's memory, to save."""

    @abstractmethod
    def remember(self, moments: Arrays, steps: int) -> None:
        """Take up Adam's memory after that many steps."""

    def restore(self, parameters: Arrays, moments: Arrays, steps: int) -> None:
        """Go on from what `parameters` and `moments` gave after that many steps."""
        with torch.no_grad():
            self.table.copy_(torch.from_numpy(parameters["table"]))
            for name, values in self.weights.items():
                values.copy_(torch.from_numpy(parameters[f"weight.{name}"]))
        self.remember(moments, steps)

    def settle(self) -> None:  # noqa: B027  (not every engine puts rows off)
        """Bring every row to the present step."""

    def parameters(self) -> Arrays:
        """The parameters as arrays, to save."""
        self.settle()
        weights = {f"weight.{name}": values for name, values in self.weights.items()}
        return {name: _copied(values) for name, values in {"table": self.table, **weights}.items()}

    def vectors(self) -> Tensor:
        """What is scored: the table, spread over the graph if there is one; as [row, width]."""
        self.settle()
        return self._spread(self.table)

    def _spread(self, table: Tensor) -> Tensor:
        if self.graph is None:
            return table
        return self.graph.spread(table.view(self.graph.matrix.shape[0], -1)).view(table.shape)

    def _gradients(self, source: Tensor, rows: Tensor, importance: Tensor) -> list[Tensor]:
        """Gradients of a batch's loss: one a row named, then one a weight."""
        taken = source.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
        return self.model.gradients(taken, importance, self.weights)


class OnGpu(Engine):
    """One step is captured as a graph of GPU work and replayed; all rows move at each."""

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
        self.table.requires_grad_()
        self.table.grad = torch.zeros_like(self.table)
        self.parts = {"": self.table, **self.weights}
        self.optimizer = adam(list(self.parts.values()), learning_rate, decay)
        self.captured: torch.cuda.CUDAGraph | None = None

    def run(self, epoch: Epoch) -> None:
        with plain_words():
            rows = torch.from_numpy(epoch.rows).cuda(non_blocking=True)
            importance = torch.from_numpy(epoch.importance).cuda(non_blocking=True)
            if self.captured is None:
                self._capture(rows[0], importance[0])
            for batch, worth in zip(rows, importance, strict=True):
                self.rows.copy_(batch)
                self.worth.copy_(worth)
                self.captured.replay()  # type: ignore[union-attr]
            self.steps += len(epoch.rows)

    def _capture(self, rows: Tensor, importance: Tensor) -> None:
        """Record a step; the trial runs that torch asks for first leave no trace."""
        self.rows, self.worth = rows.clone(), importance.clone()
        before, moments = (
            {name: part.detach().clone() for name, part in self.parts.items()},
            self.moments(),
        )
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types for it
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(beside)
        self.captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.captured):
            self._step()
        with torch.no_grad():
            for name, part in self.parts.items():
                part.copy_(before[name])
        self.remember(moments, self.steps)

    def _step(self) -> None:
        table = self.table.detach()
        near, *weights = self._gradients(self._spread(table), self.rows, self.worth)
        slopes = torch.zeros_like(table)
        slopes.index_add_(0, self.rows.reshape(-1), near.reshape(-1, near.shape[-1]))
        self.table.grad = self._spread(slopes)
        assign(self.weights, weights)
        self.optimizer.step()
        if self.model.in_ball:
            table.mul_(table.norm(dim=1, keepdim=True).clamp_(min=1).reciprocal_())

    def vectors(self) -> Tensor:
        return self._spread(self.table.detach())

    def moments(self) -> Arrays:
        return memory(self.optimizer, self.parts)

    def remember(self, moments: Arrays, steps: int) -> None:
        self.steps = steps
        recall(self.optimizer, self.parts, moments, steps)


def adam(parts: list[Tensor], learning_rate: float, decay: float) -> torch.optim.Optimizer:
    """Adam over whole tensors, in one pass, fit to be captured on a GPU."""
    on_gpu = any(part.is_cuda for part in parts)
    return torch.optim.Adam(
        parts or [torch.zeros(1)],
        learning_rate,
        BETAS,
        EPSILON,
        decay,
        fused=True,
        capturable=on_gpu,
    )


def assign(weights: dict[str, Tensor], gradients: list[Tensor]) -> None:
    """Hand each weight its gradient."""
    for part, gradient in zip(weights.values(), gradients, strict=True):
        part.grad = gradient


def memory(optimizer: torch.optim.Optimizer, parts: dict[str, Tensor]) -> Arrays:
    """Adam's moments of each part; zeros before the first step. The table's part has no name."""
    saved: Arrays = {}
    for name, part in parts.items():
        for moment, key in _MOMENTS.items():
            values = (
                optimizer.state[part].get(key) if optimizer.state[part] else torch.zeros_like(part)
            )
            saved[f"{moment}.{name}".rstrip(".")] = _copied(values)
    return saved


def recall(
    optimizer: torch.optim.Optimizer, parts: dict[str, Tensor], saved: Arrays, steps: int
) -> None:
    """Put moments back, into the very tensors that a captured step uses if there are any."""
    for name, part in parts.items():
        state = optimizer.state[part]
        for moment, key in _MOMENTS.items():
            values = torch.from_numpy(saved[f"{moment}.{name}".rstrip(".")]).to(part.device)
            state[key] = state[key].copy_(values) if key in state else values
        count = torch.tensor(float(steps), device=part.device)
        state["step"] = state["step"].copy_(count) if "step" in state else count


_MOMENTS = {"first": "exp_avg", "second": "exp_avg_sq"}


def _copied(values: Tensor) -> npt.NDArray[Any]:
    return np.array(values.detach().cpu().numpy())


@contextmanager
def plain_words() -> Iterator[None]:
    """Say in a line that memory is short, and what to do."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info()
        raise FitError(
            f"training must fit in the GPU's memory, got {free / 2**30:.1f} of {total / 2**30:.1f} GiB free. "
            "Train fewer seeds at a time, lower dim or batch, or train on the CPU (device cpu)."
        ) from error
