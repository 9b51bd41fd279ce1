"""Maps on torch tensors: a chunk at a time or, on a GPU, in one pass over memory by a kernel made for the map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrank._validation import LARGEST_SCORE
from calibrank.errors import DataError, MissingExtraError
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.logistic import LogisticMap
from calibrank.maps.rescale import RescaleMap
from calibrank.maps.targets.target import ceilings, largest_term, log_odds_by_place, probability

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = 2**22
_FUSED_FROM = 2**20  # scores: below, a kernel is not worth compiling
_KEEPS = 100.0  # terms of log odds that float32 adds up well enough


def predict(fitted: CalibrationMap, scores: "Tensor") -> "Tensor":
    """Probabilities on the scores' device and in their float type; NaN where a score is none."""
    if scores.is_complex():
        raise DataError(f"scores must be real numbers, got a tensor of {scores.dtype}.")
    if scores.layout != torch.strided:
        raise DataError(
            f"scores must be a dense tensor, got layout {scores.layout}. Use its values."
        )
    scores = scores.detach()  # `export.to_torch` keeps gradients
    scores = scores if scores.is_floating_point() else scores.to(torch.float64)
    if scores.is_cuda and scores.numel() >= _FUSED_FROM and _can_fuse(fitted, scores):
        from calibrank._cuda import compile_kernel  # noqa: PLC0415  (only a GPU needs it)

        return compile_kernel(_code(fitted, single=scores.dtype == torch.float32))(scores)
    return _by_chunks(fitted, scores)


def _by_chunks(fitted: CalibrationMap, scores: "Tensor") -> "Tensor":
    result = torch.empty_like(scores, memory_format=torch.contiguous_format)
    flat, out = scores.reshape(-1), result.view(-1)
    target = _Eager()
    for start in range(0, len(flat), _CHUNK):
        some = flat[start : start + _CHUNK].to(torch.float64)
        values = probability(fitted, some, target, "torch")
        out[start : start + _CHUNK] = torch.where(some.abs() <= LARGEST_SCORE, values, torch.nan)
    return result


class _Eager:
    """`Target` for float64 tensors."""

    def place(self, score: "Tensor", low: float, width: float) -> "Tensor":
        return (score - low) / width

    def log_odds(self, fitted: LogisticMap, score: "Tensor") -> "Tensor":
        return fitted.log_odds_on(score, self)

    def log(self, x: "Tensor") -> "Tensor":
        return x.log()

    def softplus(self, x: "Tensor") -> "Tensor":
        return -torch.nn.functional.logsigmoid(-x)

    def sigmoid(self, x: "Tensor") -> "Tensor":
        return x.sigmoid()

    def minimum(self, x: "Tensor", bound: float) -> "Tensor":
        return x.clamp(max=bound)

    def maximum(self, x: "Tensor", bound: float) -> "Tensor":
        return x.clamp(min=bound)

    def steps(self, score: "Tensor", edges: Sequence[float], values: Sequence[float]) -> "Tensor":
        table = torch.from_numpy(ceilings(edges, "float64")).to(score.device)
        heights = torch.tensor(values, dtype=torch.float64, device=score.device)
        return heights[torch.bucketize(score, table, right=True)]


def _can_fuse(fitted: CalibrationMap, scores: "Tensor") -> bool:
    """Whether a kernel can say it, in the scores' own precision."""
    if scores.dtype not in {torch.float32, torch.float64} or not isinstance(
        fitted, LogisticMap | RescaleMap
    ):
        return False
    return (
        scores.dtype == torch.float64
        or not isinstance(fitted, LogisticMap)
        or largest_term(fitted) < _KEEPS
    )


def _code(fitted: CalibrationMap, *, single: bool) -> str:
    value = probability(fitted, _Term("score"), _Source(single=single), "torch")
    return f"""template <typename T> T probability(T score) {{
        return (score < 0 ? -score : score) <= T({LARGEST_SCORE!r}) ? T({value.code}) : T(NAN);
    }}"""


@dataclass(frozen=True, slots=True)
class _Term:
    """An expression of CUDA's C++."""

    code: str

    def __add__(self, other: "_Term | float") -> "_Term":
        return _Term(f"({self.code} + {_write(other)})")

    def __radd__(self, other: float) -> "_Term":
        return _Term(f"({_write(other)} + {self.code})")

    def __sub__(self, other: "_Term | float") -> "_Term":
        return _Term(f"({self.code} - {_write(other)})")

    def __rsub__(self, other: float) -> "_Term":
        return _Term(f"({_write(other)} - {self.code})")

    def __mul__(self, other: "_Term | float") -> "_Term":
        return _Term(f"({self.code} * {_write(other)})")

    def __rmul__(self, other: float) -> "_Term":
        return _Term(f"({_write(other)} * {self.code})")

    def __truediv__(self, other: float) -> "_Term":
        return _Term(
            f"({self.code} * {_write(1 / other)})"
        )  # on a GPU a division costs as much as all the rest


def _write(value: "_Term | float") -> str:
    return value.code if isinstance(value, _Term) else f"T({float(value)!r})"


@dataclass(frozen=True, slots=True)
class _Source:
    """`Target` for CUDA source; T is the scores' type."""

    single: bool

    def place(self, score: _Term, low: float, width: float) -> _Term:
        # The difference in double: float32 would lose it where scores are many times larger than their range.
        return _Term(f"T((double({score.code}) - {low!r}) * {1 / width!r})")

    def log_odds(self, fitted: LogisticMap, score: _Term) -> Any:
        return log_odds_by_place(fitted, score, self)

    def log(self, x: _Term) -> _Term:
        return _Term(f"log({x.code})")

    def softplus(self, x: _Term) -> _Term:
        return _Term(f"(fmax({x.code}, T(0)) + log1p(exp(-fabs({x.code}))))")

    def sigmoid(self, x: _Term) -> _Term:
        exponential = "__expf" if self.single else "exp"
        return _Term(f"(T(1) / (T(1) + {exponential}(-{x.code})))")

    def minimum(self, x: _Term, bound: float) -> _Term:
        return _Term(f"fmin({x.code}, {_write(bound)})")

    def maximum(self, x: _Term, bound: float) -> _Term:
        return _Term(f"fmax({x.code}, {_write(bound)})")

    def steps(self, score: _Term, edges: Sequence[float], values: Sequence[float]) -> _Term:
        raise NotImplementedError("step maps go by chunks")
