"""Maps on torch tensors: computed at once, in chunks or by one kernel, or as a module to keep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE, Floats
from calibrank.errors import DataError, MissingExtraError
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.targets.script import kernel_source
from calibrank.maps.targets.target import (
    Dtype,
    Target,
    Unary,
    UnsupportedOperationError,
    ceilings,
    require_dtype,
)

if TYPE_CHECKING:
    import torch

# Scores per chunk: each float64 temporary then takes 32 MiB.
_CHUNK = 2**22
# Compiling a kernel takes a fifth of a second, which fewer scores than this do not repay.
_SMALLEST_KERNEL_INPUT = 2**20
# float32 adds up terms of log odds this large with an error of about 1e-5.
_LARGEST_KERNEL_TERM = 100.0


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
    graph = torch.fx.Graph()
    target = _GraphTarget(torch, checked, graph)

    def placeholder(name: str) -> Any:
        return torch.fx.Proxy(graph.placeholder(name), target.tracer)

    score = placeholder("score").to(getattr(torch, checked))
    inputs = []
    for number, term in enumerate(fitted.terms):
        given = placeholder(f"{term.role}_{number}")
        inputs.append(given if term.role == "level" else given.to(getattr(torch, checked)))
    graph.output(fitted.where_valid(target, score, inputs).node)
    return torch.fx.GraphModule(target.root, graph, "Calibration")


def predict(fitted: CalibrationMap, scores: torch.Tensor) -> torch.Tensor:
    """Probabilities on the device and in the float type of the scores; NaN for invalid scores."""
    torch = _load_torch()
    if scores.is_complex():
        raise DataError("scores", "be real numbers", f"a tensor of {scores.dtype}")
    if scores.layout != torch.strided:
        raise DataError("scores", "be a dense tensor", f"layout {scores.layout}", "Use its values.")
    # Only `export.to_torch` keeps gradients.
    scores = scores.detach()
    if not scores.is_floating_point():
        scores = scores.to(torch.float64)
    kernel = _kernel(fitted, scores)
    if kernel is not None:
        return kernel(scores)
    target = TorchTarget(torch, "float64")
    result = torch.empty_like(scores, memory_format=torch.contiguous_format)
    flat_scores, flat_result = scores.reshape(-1), result.view(-1)
    for start in range(0, len(flat_scores), _CHUNK):
        chunk = flat_scores[start : start + _CHUNK].to(torch.float64)
        flat_result[start : start + _CHUNK] = fitted.where_valid(target, chunk)
    return result


def _kernel(fitted: CalibrationMap, scores: torch.Tensor) -> Any:
    """A compiled function of the scores, or None where chunks are faster or more accurate."""
    if not scores.is_cuda or scores.numel() < _SMALLEST_KERNEL_INPUT:
        return None
    dtype = str(scores.dtype).removeprefix("torch.")
    is_single = dtype == "float32"
    if not (is_single and fitted.largest_term < _LARGEST_KERNEL_TERM) and dtype != "float64":
        return None
    try:
        source = kernel_source(fitted, single=is_single)
    except UnsupportedOperationError:
        return None
    return _compiled(source)


@cache
def _compiled(source: str) -> Any:
    """An elementwise function of one tensor; compiling it takes about 0.2 seconds."""
    # torch documents this function under its private name.
    return _load_torch().cuda.jiterator._create_jit_fn(source)


def _load_torch() -> ModuleType:
    try:
        import torch  # noqa: PLC0415  (slow to load, and only this target needs it)
        import torch.fx  # noqa: PLC0415  (as above)
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    return torch


class TorchTarget(Target):
    """Tensors, computed at once."""

    normalizes: ClassVar[bool] = True

    def __init__(self, package: ModuleType, dtype: Dtype) -> None:
        self._torch = package
        self.dtype = dtype

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
        edge_table = self._table(ceilings(edges, self.dtype), score)
        value_table = self._table(np.array(values, dtype=self.dtype), score)
        step = self._torch.bucketize(score, edge_table, right=True)
        # Adding 0 times the score keeps NaN, and gives a gradient of 0 instead of none.
        return value_table[step] + score * 0.0

    def is_level(self, x: Any, count: int) -> Any:
        return (x >= 0) & (x <= count)

    def by_level(self, x: Any, keys: Sequence[Key], values: Floats) -> Any:
        # A number outside the table is made invalid by `is_level`; here it must not be an error.
        table = self._table(np.array(values, dtype=self.dtype), x)
        return table[x.clamp(0, len(values) - 1)]

    def _table(self, numbers: np.ndarray[Any, Any], x: Any) -> Any:
        """Numbers on the device of an expression."""
        return self._torch.from_numpy(numbers).to(x.device)


class _GraphTarget(TorchTarget):
    """Tensor operations of a graph under construction."""

    def __init__(self, package: ModuleType, dtype: Dtype, graph: Any) -> None:
        super().__init__(package, dtype)
        self.root = package.nn.Module()
        self.tracer = package.fx.proxy.GraphAppendingTracer(graph)

    def _table(self, numbers: np.ndarray[Any, Any], x: Any) -> Any:
        """Numbers as a buffer, which moves between devices with the module."""
        name = f"table_{len(list(self.root.buffers()))}"
        self.root.register_buffer(name, self._torch.from_numpy(numbers))
        table = self._torch.fx.Proxy(self.tracer.graph.get_attr(name), self.tracer)
        message = (
            f"the map's table must stay {self.dtype}. "
            "Change the model's precision first, then append the map."
        )
        self._torch._assert(table.dtype == getattr(self._torch, self.dtype), message)
        return table
