"""Maps on torch tensors: in chunks or, on a GPU, by one kernel that is compiled for the map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calibrank._internal.validation import LARGEST_SCORE
from calibrank.errors import DataError, MissingExtraError
from calibrank.maps.targets.cuda import kernel_source
from calibrank.maps.targets.target import Target, Unary, UnsupportedOperationError, ceilings

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

if TYPE_CHECKING:
    from torch import Tensor

    from calibrank.maps.calibration_map import CalibrationMap

# Scores per chunk: each float64 temporary then takes 32 MiB.
_CHUNK = 2**22
# Compiling a kernel takes a fifth of a second, which fewer scores than this do not repay.
_SMALLEST_KERNEL_INPUT = 2**20
# float32 adds up terms of log odds this large with an error of about 1e-5.
_LARGEST_KERNEL_TERM = 100.0


def predict(fitted: CalibrationMap, scores: Tensor) -> Tensor:
    """Probabilities on the device and in the float type of the scores; NaN for invalid scores."""
    if scores.is_complex():
        raise DataError("scores", "be real numbers", f"a tensor of {scores.dtype}")
    if scores.layout != torch.strided:
        raise DataError("scores", "be a dense tensor", f"layout {scores.layout}", "Use its values.")
    # Only `export.to_torch` keeps gradients.
    scores = scores.detach()
    if not scores.is_floating_point():
        scores = scores.to(torch.float64)
    kernel = _kernel(fitted, scores)
    return _predict_in_chunks(fitted, scores) if kernel is None else kernel(scores)


def _kernel(fitted: CalibrationMap, scores: Tensor) -> Any:
    """A compiled function of the scores, or None where chunks are faster or more accurate."""
    if not scores.is_cuda or scores.numel() < _SMALLEST_KERNEL_INPUT:
        return None
    if scores.dtype not in {torch.float32, torch.float64}:
        return None
    single = scores.dtype == torch.float32
    if single and fitted.largest_term >= _LARGEST_KERNEL_TERM:
        return None
    try:
        source = kernel_source(fitted, single=single)
    except UnsupportedOperationError:
        return None
    from calibrank._internal.cuda import compile_kernel  # noqa: PLC0415  (only a GPU needs it)

    return compile_kernel(source)


def _predict_in_chunks(fitted: CalibrationMap, scores: Tensor) -> Tensor:
    result = torch.empty_like(scores, memory_format=torch.contiguous_format)
    flat_scores = scores.reshape(-1)
    flat_result = result.view(-1)
    target = TensorTarget()
    for start in range(0, len(flat_scores), _CHUNK):
        chunk = flat_scores[start : start + _CHUNK].to(torch.float64)
        flat_result[start : start + _CHUNK] = fitted.where_valid(target, chunk)
    return result


class TensorTarget(Target):
    """Float64 tensors, computed at once."""

    def log(self, x: Tensor) -> Tensor:
        return x.log()

    def softplus(self, x: Tensor) -> Tensor:
        # torch's own softplus switches to a straight line at 20, which costs digits.
        return -torch.nn.functional.logsigmoid(-x)

    def sigmoid(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def minimum(self, x: Tensor, bound: float) -> Tensor:
        return x.clamp(max=bound)

    def maximum(self, x: Tensor, bound: float) -> Tensor:
        return x.clamp(min=bound)

    def where_valid(self, score: Tensor, formula: Unary, conditions: Sequence[Any] = ()) -> Tensor:
        return torch.where(score.abs() <= LARGEST_SCORE, formula(score), torch.nan)

    def steps(self, score: Tensor, edges: Sequence[float], values: Sequence[float]) -> Tensor:
        edge_table = torch.from_numpy(ceilings(edges, "float64")).to(score.device)
        value_table = torch.tensor(values, dtype=torch.float64, device=score.device)
        return value_table[torch.bucketize(score, edge_table, right=True)]
