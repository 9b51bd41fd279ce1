"""Training with torch alone: on a GPU, and on a CPU where the loops were not compiled.

On a GPU one step is captured as a CUDA graph and replayed for every batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from calibrank.errors import FitError
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

# torch asks for a few runs on a side stream before a capture, to initialize its libraries.
_WARM_UP_STEPS = 3


class DenseEngine(Engine):
    """Updates every row at every step.

    On a GPU, launching the kernels of a step one by one would take longer than running them; a
    captured graph launches all of them at once.
    """

    def __init__(
        self,
        model: Model,
        start: Arrays,
        graph: Graph | None,
        learning_rate: float,
        weight_decay: float,
        device: str,
    ) -> None:
        super().__init__(model, start, graph, learning_rate, weight_decay, device)
        self.table.requires_grad_()
        self.table.grad = torch.zeros_like(self.table)
        self.tensors = {"": self.table, **self.weights}
        self.optimizer = make_adam(list(self.tensors.values()), learning_rate, weight_decay)
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
        before = {name: values.detach().clone() for name, values in self.tensors.items()}
        moments = self.moments()
        side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UP_STEPS):
                self._step(self.rows, self.importance)
        torch.cuda.current_stream().wait_stream(side_stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            self._step(self.rows, self.importance)
        with torch.no_grad():
            for name, values in self.tensors.items():
                values.copy_(before[name])
        self.restore_moments(moments, self.steps)
        return captured

    def _step(self, rows: Tensor, importance: Tensor) -> None:
        table = self.table.detach()
        vectors = self._propagate(table)
        row_gradients, *weight_gradients = self._gradients(vectors, rows, importance)
        # Rows that occur more than once in a batch add up their gradients.
        gradients = torch.zeros_like(table)
        flat = row_gradients.reshape(-1, row_gradients.shape[-1])
        gradients.index_add_(0, rows.reshape(-1), flat)
        self.table.grad = self._propagate(gradients)
        set_gradients(self.weights, weight_gradients)
        self.optimizer.step()
        if self.model.in_unit_ball:
            table.mul_(table.norm(dim=1, keepdim=True).clamp_(min=1).reciprocal_())

    def vectors(self) -> Tensor:
        return self._propagate(self.table.detach())

    def moments(self) -> Arrays:
        return adam_moments(self.optimizer, self.tensors)

    def restore_moments(self, moments: Arrays, steps: int) -> None:
        self.steps = steps
        restore_adam_moments(self.optimizer, self.tensors, moments, steps)


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Turn torch's out-of-memory error into a `FitError` that says what to do."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info()
        raise FitError(
            "training",
            "fit in the GPU's memory",
            f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free",
            ("Train fewer seeds at a time, lower dim or batch, or train on the CPU (device cpu)."),
        ) from error
