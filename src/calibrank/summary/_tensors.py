"""Pool torch tensors into bins on their own device; only the sums are copied to the host.

Two atomic additions per row (mass and mass times score) take a GPU too long. With unit weights,
rows are therefore only counted: in shared memory (`_count_kernel`) or, where scores are float64,
in bins 64 times as fine as requested, of which the centre stands for the scores. One addition
counts a row and its label, in the two halves of 64 bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from calibrank.errors import MissingExtraError
from calibrank.summary.bins import Sums
from calibrank.summary.grid import DOUBLE, SINGLE, Grid

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

# Bits by which the counted bins are finer: the error of a centre is below a 128th of a bin, and
# rows seldom wait for others of the same bin.
_EXTRA_BITS = 6

# Rows pooled at a time: their temporary tensors take a few GB at most.
_CHUNK = 2**26


def pool(
    grid: Grid, first: int, size: int, scores: Any, positive: Any, total: Any, *, binary: bool
) -> Sums:
    """Sum rows over `size` bins of a grid, from bin `first` on.

    Without `total` the rows have unit weights; `binary` then says that `positive` is 0 or 1.
    """
    single = scores.dtype == torch.float32 and grid.layout(single=True) is SINGLE
    if total is None and binary and single and scores.is_cuda:
        count = _kernel()
        if count is not None:
            sums: Sums = count(grid, first, size, scores, positive)
            return sums
    bins: _WeightedBins
    if total is None:
        bins = _CountedBins(grid, first, size, scores.device, binary=binary)
    else:
        bins = _WeightedBins(grid, first, size, scores.device)
    for start in range(0, len(scores), _CHUNK):
        rows = slice(start, start + _CHUNK)
        weights = None if total is None else total[rows].to(torch.float64)
        bins.add(scores[rows], positive[rows], weights)
    return bins.sums()


class _WeightedBins:
    """Sums over rows of different weights."""

    def __init__(self, grid: Grid, first: int, size: int, device: Any) -> None:
        self.grid = grid
        self.first = first
        self.size = size
        # Rows: total, its moment, its second moment, its square.
        self.totals = torch.zeros((4, size), dtype=torch.float64, device=device)
        # Rows: positive, its moment, its square, its product with total.
        self.positives = torch.zeros((4, size), dtype=torch.float64, device=device)

    def add(self, scores: Tensor, positive: Tensor, total: Tensor | None) -> None:
        offsets = _offsets(self.grid, scores)
        keys = _keys(self.grid, self.first, offsets)
        if total is not None:
            moment = total * offsets
            self.totals[0].index_add_(0, keys, total)
            self.totals[1].index_add_(0, keys, moment)
            self.totals[2].index_add_(0, keys, moment * offsets)
            self.totals[3].index_add_(0, keys, total * total)
        rows = positive.nonzero().squeeze(1)
        self.add_positives(
            keys[rows],
            offsets[rows],
            positive[rows].to(torch.float64),
            None if total is None else total[rows],
        )

    def add_positives(
        self, keys: Tensor, offsets: Tensor, mass: Tensor, total: Tensor | None
    ) -> None:
        """Add the positive rows: there are few of them, so four sums cost little."""
        self.positives[0].index_add_(0, keys, mass)
        self.positives[1].index_add_(0, keys, mass * offsets)
        self.positives[2].index_add_(0, keys, mass * mass)
        self.positives[3].index_add_(0, keys, mass if total is None else mass * total)

    def sums(self) -> Sums:
        totals = self.totals.T.contiguous().cpu().numpy()
        positives = self.positives.T.contiguous().cpu().numpy()
        return Sums(totals[:, :3], positives, totals[:, 3])


class _CountedBins(_WeightedBins):
    """Counts of rows with unit weights in finer bins, also of positives if these are 0 or 1."""

    def __init__(self, grid: Grid, first: int, size: int, device: Any, *, binary: bool) -> None:
        super().__init__(grid, first, size, device)
        self.binary = binary
        self.extra_bits = min(_EXTRA_BITS, DOUBLE.mantissa - grid.bits)
        self.fine_grid = replace(grid, bits=grid.bits + self.extra_bits)
        self.fine_first = first << self.extra_bits
        # Rows in the lower 32 bits, positive rows in the upper ones.
        self.counts = torch.zeros(size << self.extra_bits, dtype=torch.int64, device=device)
        self.rows = 0

    def add(self, scores: Tensor, positive: Tensor, total: Tensor | None) -> None:
        self.rows += len(scores)
        if self.rows >= 2**32:  # more than a half could hold
            self._flush()
            self.rows = len(scores)
        offsets = _offsets(self.fine_grid, scores)
        keys = _keys(self.fine_grid, self.fine_first, offsets)
        if self.binary:
            self.counts.index_add_(0, keys, (positive.to(torch.int64) << 32) + 1)
            return
        self.counts.index_add_(0, keys, torch.ones_like(keys, dtype=torch.int64))
        rows = positive.nonzero().squeeze(1)
        mass = positive[rows].to(torch.float64)
        coarse_keys = keys[rows] >> self.extra_bits
        self.add_positives(coarse_keys, offsets[rows].to(torch.float64), mass, None)

    def _flush(self) -> None:
        """Move the counts to the sums, with the centres of the fine bins as scores."""
        centres = _centres(self.fine_grid, self.fine_first, len(self.counts), self.counts.device)
        # Masses are 0 or 1 here, so that all sums but the moments are counts.
        counts = self.counts & 0xFFFFFFFF
        total = self._summed(counts)
        second_moment = self._summed(counts * centres**2)
        self.totals += torch.stack([total, self._summed(counts * centres), second_moment, total])
        positives = self.counts >> 32
        positive = self._summed(positives)
        positive_moment = self._summed(positives * centres)
        self.positives += torch.stack([positive, positive_moment, positive, positive])
        self.counts.zero_()

    def sums(self) -> Sums:
        self._flush()
        return super().sums()

    def _summed(self, fine: Tensor) -> Tensor:
        """The sums over the fine bins of each bin."""
        return fine.to(torch.float64).view(self.size, -1).sum(1)


def _kernel() -> Any:
    """The function that counts in shared memory, or None where torch does not bring CUDA."""
    try:
        from calibrank.summary._count_kernel import count  # noqa: PLC0415  (needs CUDA)
    except ImportError:
        return None
    return count


def _offsets(grid: Grid, scores: Tensor) -> Tensor:
    """The difference of each score from the origin of the grid."""
    return scores if grid.origin == 0 else scores.to(torch.float64) - grid.origin


def _keys(grid: Grid, first: int, offsets: Tensor) -> Tensor:
    """The bin of each offset, counted from `first`, as int32; `Grid` explains the arithmetic."""
    layout = grid.layout(single=offsets.dtype == torch.float32)
    if layout is DOUBLE:
        offsets = offsets.to(torch.float64)
    integer = torch.int32 if layout is SINGLE else torch.int64
    bits = offsets.contiguous().view(integer)
    leading = (bits & layout.unsigned) >> (layout.mantissa - grid.bits)
    magnitudes = leading - grid.offset(layout)
    scales = grid.scales
    below_floor = (offsets.abs().to(torch.float64) * scales[0] * scales[1]).to(magnitudes.dtype)
    magnitudes = torch.where(magnitudes < 1 << grid.bits, below_floor, magnitudes)
    return ((magnitudes ^ (bits >> layout.sign)) - first).to(torch.int32)


def _centres(grid: Grid, first: int, size: int, device: Any) -> Tensor:
    """The centre of each bin: halfway between its offset nearest zero and that of the next bin."""
    keys = torch.arange(first, first + size, dtype=torch.int64, device=device)
    sign = keys >> 63
    magnitude = keys ^ sign
    centre = (_edge(grid, magnitude) + _edge(grid, magnitude + 1)) / 2
    return torch.where(sign < 0, -1.0, 1.0) * centre


def _edge(grid: Grid, magnitude: Tensor) -> Tensor:
    """The offset nearest zero of a positive bin, as `Grid.inner_edges` computes it."""
    octave = ((magnitude >> grid.bits) - 1).clamp(min=0)
    steps = (magnitude - (octave << grid.bits)).to(torch.float64)
    exponent = (grid.floor - grid.bits + octave).to(torch.float64)
    return steps * torch.exp2(exponent)
