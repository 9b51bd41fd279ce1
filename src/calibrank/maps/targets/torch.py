"""Maps as a torch module of plain tensor operations, to follow a model's last layer."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE
from calibrank.errors import MissingExtraError
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.targets.target import (
    Dtype,
    Target,
    Unary,
    ceilings,
    place_in_dtype,
    require_dtype,
)

if TYPE_CHECKING:
    import torch


def to_torch(fitted: CalibrationMap, dtype: str | torch.dtype = "float32") -> torch.nn.Module:
    """A module from scores of any shape to probabilities, computed and returned in `dtype`.

    The module has no parameters and does not need calibrank: `torch.export`, `torch.jit.script` and
    `pickle` accept it. Gradients reach the scores and are finite at every finite score; those of a
    step map are 0. A score that `predict` refuses (NaN, or beyond 1e30 as a padding value is) gives
    NaN. Set a model's precision before appending the map: after `.half()` a step map raises an
    error, because its edges were rounded. The module of a map with terms takes one more tensor per
    term, in their order: numbers, or the numbers of levels (`fitted.level_index`).

    >>> import torch
    >>> from calibrank import Sigmoid
    >>> module = to_torch(Sigmoid().fit([0.0, 1.0], [0, 1]))
    >>> torch.nn.Sequential(torch.nn.Linear(3, 1), module)(torch.zeros(2, 3)).shape
    torch.Size([2, 1])
    """
    require_map(fitted)
    torch = _load_torch()
    checked = require_dtype(fitted, dtype)
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    score = torch.fx.Proxy(graph.placeholder("score"), tracer).to(getattr(torch, checked))
    inputs = []
    for number, term in enumerate(fitted.terms):
        proxy = torch.fx.Proxy(graph.placeholder(f"{term.role}_{number}"), tracer)
        inputs.append(proxy if term.role == "level" else proxy.to(getattr(torch, checked)))
    target = TorchGraphTarget(torch, root, tracer, checked)
    probability = fitted.where_valid(target, score, inputs)
    graph.output(probability.node)
    return torch.fx.GraphModule(root, graph, "Calibration")


def _load_torch() -> ModuleType:
    try:
        import torch  # noqa: PLC0415  (slow to load, and only this exporter needs it)
        import torch.fx  # noqa: PLC0415  (as above)
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    return torch


class TorchGraphTarget(Target):
    """Tensor operations of a graph under construction."""

    normalizes: ClassVar[bool] = True

    def __init__(self, package: ModuleType, root: Any, tracer: Any, dtype: Dtype) -> None:
        self._torch = package
        self._root = root
        self._tracer = tracer
        self.dtype = dtype

    def place(self, score: Any, low: float, width: float) -> Any:
        return place_in_dtype(score, low, width, self.dtype)

    def log(self, x: Any) -> Any:
        return x.log()

    def softplus(self, x: Any) -> Any:
        # torch's own softplus switches to a straight line at 20, which costs digits in float64.
        return -self._torch.nn.functional.logsigmoid(-x)

    def sigmoid(self, x: Any) -> Any:
        return x.sigmoid()

    def minimum(self, x: Any, bound: float) -> Any:
        # Unlike clamp, minimum halves the gradient at a tie. At an end of the range, the two
        # halves of the inner curve and of the straight line beyond add up to the right slope.
        return x.minimum(x.new_full((), bound))

    def maximum(self, x: Any, bound: float) -> Any:
        return x.maximum(x.new_full((), bound))

    def where_valid(self, score: Any, formula: Unary, conditions: Sequence[Any] = ()) -> Any:
        # No comparison with NaN holds.
        valid = score.abs() <= LARGEST_SCORE
        for condition in conditions:
            valid = valid & condition
        # TorchScript has no literal for NaN.
        zero = score.new_full((), 0.0)
        return self._torch.where(valid, formula(score), zero / zero)

    def steps(self, score: Any, edges: Sequence[float], values: Sequence[float]) -> Any:
        edge_table = self._table("edges", ceilings(edges, self.dtype))
        value_table = self._table("values", np.array(values, dtype=self.dtype))
        step = self._torch.bucketize(score, edge_table, right=True)
        # Adding 0 times the score keeps NaN, and gives a gradient of 0 instead of none.
        return value_table[step] + score * 0.0

    def is_level(self, x: Any, count: int) -> Any:
        return (x >= 0) & (x <= count)

    def by_level(self, x: Any, keys: Sequence[Key], values: Sequence[float]) -> Any:
        # A number outside the table is made invalid by `is_level`; here it must not be an error.
        table = self._table("by_level", np.array(values, dtype=self.dtype))
        return table[x.clamp(0, len(values) - 1)]

    def _table(self, name: str, numbers: np.ndarray[Any, Any]) -> Any:
        """Numbers as a buffer, which moves between devices with the module."""
        free_name = name
        while hasattr(self._root, free_name):
            free_name += "_"
        self._root.register_buffer(free_name, self._torch.from_numpy(numbers))
        table = self._torch.fx.Proxy(self._tracer.graph.get_attr(free_name), self._tracer)
        message = (
            f"the map's table must stay {self.dtype}. "
            "Change the model's precision first, then append the map."
        )
        self._torch._assert(table.dtype == getattr(self._torch, self.dtype), message)
        return table
