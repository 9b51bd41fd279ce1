"""What both engines share: the parameters, their gradients, and Adam's state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrank.models.graph import Graph
from calibrank.models.model import Model
from calibrank.models.sampling import Epoch

Arrays = dict[str, npt.NDArray[Any]]

# Adam's defaults (Kingma & Ba 2015), as torch has them.
BETAS = (0.9, 0.999)
EPSILON = 1e-8

_WEIGHT = "weight."
_MOMENTS = {"first": "exp_avg", "second": "exp_avg_sq"}
"""Our names of Adam's two moments, and torch's."""


class Engine(ABC):
    """Parameters in training: one table for users and items, and the model's other weights.

    The order of the table's rows is that of `Sampler`.
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
        self.model = model
        self.graph = graph
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.steps = 0
        self.table = torch.from_numpy(start["table"]).to(device)
        self.weights = {
            name.removeprefix(_WEIGHT): torch.from_numpy(values).to(device).requires_grad_()
            for name, values in start.items()
            if name.startswith(_WEIGHT)
        }

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
        arrays = {"table": _to_numpy(self.table)}
        for name, values in self.weights.items():
            arrays[_WEIGHT + name] = _to_numpy(values)
        return arrays

    def vectors(self) -> Tensor:
        """The vectors that are scored, as [row, width]: the table, propagated over the graph."""
        return self._propagate(self.table)

    def _propagate(self, table: Tensor) -> Tensor:
        if self.graph is None:
            return table
        n_nodes = self.graph.matrix.shape[0]
        return self.graph.propagate(table.view(n_nodes, -1)).view(table.shape)

    def _gradients(self, vectors: Tensor, rows: Tensor, importance: Tensor) -> list[Tensor]:
        """Gradients of a batch's loss: for the vectors in `rows`, then for each weight."""
        batch = vectors.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
        return self.model.gradients(batch, importance, self.weights)


def make_adam(
    parameters: list[Tensor], learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Torch's fused Adam; on a GPU one that can be captured in a CUDA graph."""
    on_gpu = any(values.is_cuda for values in parameters)
    return torch.optim.Adam(
        parameters, learning_rate, BETAS, EPSILON, weight_decay, fused=True, capturable=on_gpu
    )


def set_gradients(weights: dict[str, Tensor], gradients: list[Tensor]) -> None:
    """Set the gradient of each weight."""
    for values, gradient in zip(weights.values(), gradients, strict=True):
        values.grad = gradient


def adam_moments(optimizer: torch.optim.Optimizer, parameters: dict[str, Tensor]) -> Arrays:
    """Adam's moments of each parameter; zeros before the first step."""
    moments: Arrays = {}
    for name, values in parameters.items():
        state = optimizer.state[values]
        for moment, key in _MOMENTS.items():
            saved = state.get(key) if state else torch.zeros_like(values)
            moments[_moment_name(moment, name)] = _to_numpy(saved)
    return moments


def restore_adam_moments(
    optimizer: torch.optim.Optimizer, parameters: dict[str, Tensor], moments: Arrays, steps: int
) -> None:
    """Set Adam's moments and step count."""
    for name, values in parameters.items():
        state = optimizer.state[values]
        for moment, key in _MOMENTS.items():
            saved = torch.from_numpy(moments[_moment_name(moment, name)])
            _set_in_place(state, key, saved.to(values.device))
        _set_in_place(state, "step", torch.tensor(float(steps), device=values.device))


def _set_in_place(state: dict[str, Tensor], key: str, values: Tensor) -> None:
    # A captured CUDA graph refers to the existing tensors, so these must be overwritten.
    state[key] = state[key].copy_(values) if key in state else values


def _moment_name(moment: str, parameter: str) -> str:
    # The table's name is "", so its moments are called just "first" and "second".
    return f"{moment}.{parameter}" if parameter else moment


def _to_numpy(values: Tensor) -> npt.NDArray[Any]:
    return np.array(values.detach().cpu().numpy())
