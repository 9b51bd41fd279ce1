"""Pooling torch tensors into bins where they are, on a GPU: only the bins come to the host.

Two sums a row (mass and mass times score) are one too many for a GPU's atomic additions, so rows that count once are
only counted, in bins sixteen times as fine as asked for; a fine bin's middle then stands for its scores.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._cuda import compile_kernel
from calibrank.errors import MissingExtraError
from calibrank.summary.grid import DOUBLE, SINGLE, Grid, Layout

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

if TYPE_CHECKING:
    from torch import Tensor

_FINER = 4  # bits
_CHUNK = 2**26
_DOUBLE = torch.float64


class Sums(NamedTuple):
    """What a `Table` holds: total and moment; positive, its moment, its square, times total; total squared."""

    every: npt.NDArray[np.float64]
    liked: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]


def pool(
    grid: Grid, first: int, size: int, scores: Any, positive: Any, total: Any, *, binary: bool
) -> Sums:
    """Add up rows in the bins from `first` on; without `total`, every row counts once, and so do `binary` positives."""
    place = grid, first, size, scores.device
    bins = _Counted(*place, binary=binary) if total is None else _Weighed(*place)
    for begin in range(0, len(scores), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        bins.add(scores[rows], positive[rows], None if total is None else total[rows].to(_DOUBLE))
    return bins.sums()


class _Weighed:
    """Bins whose rows weigh unlike much."""

    def __init__(self, grid: Grid, first: int, size: int, device: Any) -> None:
        self.grid, self.first, self.size = grid, first, size
        self.every = torch.zeros((3, size), dtype=_DOUBLE, device=device)
        self.liked = torch.zeros((4, size), dtype=_DOUBLE, device=device)

    def add(self, scores: "Tensor", positive: "Tensor", total: "Tensor | None") -> None:
        keys = _keys(self.grid, self.first, scores)
        if total is not None:
            for line, sums in zip(self.every, (total, total * scores, total * total), strict=True):
                line.index_add_(0, keys, sums)
        which = positive.nonzero().squeeze(1)
        self.add_liked(
            keys[which],
            scores[which],
            positive[which].to(_DOUBLE),
            None if total is None else total[which],
        )

    def add_liked(
        self, keys: "Tensor", scores: "Tensor", mass: "Tensor", total: "Tensor | None"
    ) -> None:
        """Few rows are liked: their sums cost little."""
        heard = mass if total is None else mass * total
        for line, sums in zip(self.liked, (mass, mass * scores, mass * mass, heard), strict=True):
            line.index_add_(0, keys, sums)

    def sums(self) -> Sums:
        every, liked = (lines.T.contiguous().cpu().numpy() for lines in (self.every, self.liked))
        return Sums(every[:, :2], liked, every[:, 2])


class _Counted(_Weighed):
    """Bins whose rows count once each: fine bins are counted, and so are their positives if these are 0 or 1."""

    def __init__(self, grid: Grid, first: int, size: int, device: Any, *, binary: bool) -> None:
        super().__init__(grid, first, size, device)
        self.binary = binary
        self.more = min(_FINER, DOUBLE.mantissa - grid.bits)
        self.finer, self.start = Grid(grid.top, grid.bits + self.more), first << self.more
        self.counts = torch.zeros((2, size << self.more), dtype=torch.int32, device=device)
        self.one = torch.ones((), dtype=torch.int32, device=device)

    def add(self, scores: "Tensor", positive: "Tensor", total: "Tensor | None") -> None:
        keys = _keys(self.finer, self.start, scores)
        self.counts[0].index_add_(0, keys, self.one.expand(len(keys)))
        which = positive.nonzero().squeeze(1)
        if self.binary:
            self.counts[1].index_add_(0, keys[which], self.one.expand(len(which)))
        else:
            self.add_liked(
                keys[which] >> self.more,
                scores[which].to(_DOUBLE),
                positive[which].to(_DOUBLE),
                None,
            )

    def sums(self) -> Sums:
        centres = _centres(self.finer, self.start, self.counts.shape[1], self.counts.device)
        every, liked = (many.to(_DOUBLE) for many in self.counts)
        for lines, many in ((self.every, every), (self.liked, liked)):
            mass, moment = (sums.view(self.size, -1).sum(1) for sums in (many, many * centres))
            lines += torch.stack([mass, moment, *[mass] * (len(lines) - 2)])
        return super().sums()


def _keys(grid: Grid, first: int, scores: "Tensor") -> "Tensor":
    """The bin of each score, counted from `first`, as int32; `Grid` explains the arithmetic."""
    layout = grid.layout(single=scores.dtype == torch.float32)
    single = layout is SINGLE
    scores = scores.contiguous() if single else scores.to(_DOUBLE).contiguous()
    if scores.is_cuda:
        code = _code(grid, layout, first)
        return (
            compile_kernel(code)(scores)
            .view(torch.int32 if single else torch.int64)
            .to(torch.int32)
        )
    return _keys_by_parts(grid, layout, first, scores)


def _keys_by_parts(grid: Grid, layout: Layout, first: int, scores: "Tensor") -> "Tensor":
    bits = scores.view(torch.int32 if layout is SINGLE else torch.int64)
    sizes = ((bits & layout.unsigned) >> (layout.mantissa - grid.bits)) - grid.offset(layout)
    scales = grid.scales
    small = (scores.abs().to(_DOUBLE) * scales[0] * scales[1]).to(sizes.dtype)
    sizes = torch.where(sizes < 1 << grid.bits, small, sizes)
    return ((sizes ^ (bits >> layout.sign)) - first).to(torch.int32)


def _code(grid: Grid, layout: Layout, first: int) -> str:
    """The same as `_keys_by_parts` in one pass over memory: a float's bits in, a bin's number in a float's bits out."""
    whole, read, write = (
        ("int", "__float_as_int", "__int_as_float")
        if layout is SINGLE
        else ("long long", "__double_as_longlong", "__longlong_as_double")
    )
    scales = grid.scales
    return f"""template <typename T> T bin_of(T score) {{
        {whole} bits = {read}(score);
        {whole} size = ((bits & {layout.unsigned}LL) >> {layout.mantissa - grid.bits}) - {grid.offset(layout)}LL;
        double far = score < 0 ? -score : score;
        if (size < {1 << grid.bits}) size = ({whole})(far * {scales[0]!r} * {scales[1]!r});
        return {write}((size ^ (bits >> {layout.sign})) - ({first}LL));
    }}"""


def _centres(grid: Grid, first: int, size: int, device: Any) -> "Tensor":
    """The middle of each bin: between its score nearest zero and the next bin's."""
    keys = torch.arange(first, first + size, dtype=torch.int64, device=device)
    sign = keys >> 63
    steps = keys ^ sign
    ends = [_edge(grid, steps), _edge(grid, steps + 1)]
    return torch.where(sign < 0, -1.0, 1.0) * (ends[0] + ends[1]) / 2


def _edge(grid: Grid, size: "Tensor") -> "Tensor":
    octave = ((size >> grid.bits) - 1).clamp(min=0)
    exponent = (grid.floor - grid.bits + octave).to(_DOUBLE)
    return (size - (octave << grid.bits)).to(_DOUBLE) * torch.exp2(exponent)
