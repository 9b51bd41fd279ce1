"""Maps as a torch module of plain tensor operations, to stand behind a model's head."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrank.errors import MissingExtraError
from calibrank.maps import CalibrationMap, LogisticMap
from calibrank.maps.targets.target import (
    Dtype,
    ceilings,
    in_two,
    log_odds_by_place,
    probability,
    require_dtype,
)

if TYPE_CHECKING:
    import torch


def to_torch(fitted: CalibrationMap, dtype: str = "float32") -> "torch.nn.Module":
    """A module from scores of any shape to probabilities, computed and given in `dtype`.

    It has no parameters and needs no calibrank: `torch.export`, `torch.jit.script` and `pickle` take it. Gradients
    reach the scores and are finite at any finite one; those of a step map are 0. Give a model its precision first and
    append the map then: after `.half()` a step map refuses to run, for its table would be another's.

    >>> import torch
    >>> from calibrank import Sigmoid
    >>> module = to_torch(Sigmoid().fit([0.0, 1.0], [0, 1]))
    >>> torch.nn.Sequential(torch.nn.Linear(3, 1), module)(torch.zeros(2, 3)).shape
    torch.Size([2, 1])
    """
    try:
        import torch  # noqa: PLC0415  (slow to load, and only this function needs it)
        from torch import fx  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    kind = require_dtype(fitted, dtype)
    root, graph = torch.nn.Module(), fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    score = fx.Proxy(graph.placeholder("score"), tracer).to(getattr(torch, kind))
    result = probability(fitted, score, _Torch(root, tracer, kind), "torch")
    graph.output(result.node)
    return fx.GraphModule(root, graph, "Calibration")


class _Torch:
    """`Target` for a graph of tensor operations under construction."""

    def __init__(self, root: Any, tracer: Any, dtype: Dtype) -> None:
        self._root = root
        self._tracer = tracer
        self._dtype = dtype

    def place(self, score: Any, low: float, width: float) -> Any:
        near, rest = in_two(low) if self._dtype == "float32" else (low, 0.0)
        moved = score - near if near else score
        moved = moved - rest if rest else moved
        return moved if width == 1 else moved / width

    def log_odds(self, fitted: LogisticMap, score: Any) -> Any:
        return log_odds_by_place(fitted, score, self)

    def log(self, x: Any) -> Any:
        return x.log()

    def softplus(self, x: Any) -> Any:
        from torch.nn.functional import logsigmoid  # noqa: PLC0415  (loaded by `to_torch`)

        return -logsigmoid(-x)  # torch's softplus gives way to a straight line at 20

    def sigmoid(self, x: Any) -> Any:
        return x.sigmoid()

    def minimum(self, x: Any, bound: float) -> Any:
        return x.minimum(
            x.new_full((), bound)
        )  # a tie shares the gradient: at a range's end its two pieces add up

    def maximum(self, x: Any, bound: float) -> Any:
        return x.maximum(x.new_full((), bound))

    def steps(self, score: Any, edges: Sequence[float], values: Sequence[float]) -> Any:
        import torch  # noqa: PLC0415  (loaded by `to_torch`)

        found = torch.bucketize(
            score, self._table("edges", ceilings(edges, self._dtype)), right=True
        )
        heights = self._table("heights", np.array(values, dtype=self._dtype))
        return heights[found] + score * 0.0  # a gradient of 0 instead of none, and NaN stays NaN

    def _table(self, name: str, numbers: "np.ndarray[Any, Any]") -> Any:
        """Numbers that move with the module."""
        import torch  # noqa: PLC0415  (loaded by `to_torch`)

        self._root.register_buffer(name, torch.from_numpy(numbers))
        table = torch.fx.Proxy(self._tracer.graph.get_attr(name), self._tracer)
        words = f"the map's table must stay {self._dtype}. Change the model's precision first, then append the map."
        torch._assert(table.dtype == getattr(torch, self._dtype), words)  # type: ignore[no-untyped-call]
        return table
