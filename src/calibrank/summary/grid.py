"""A grid of score bins that needs no range agreed in advance.

The bin of a score is given by the leading bits of its offset, the difference from the grid's
origin: the sign, the exponent and the first `bits` bits of the mantissa. This holds over a number
of octaves (factors of two) below the largest offset; closer to the origin, bins are equally wide,
like subnormal floats. Dropping a bit of the mantissa, or an octave, merges whole bins. Grids of one
origin therefore nest: pooled data from anywhere can be brought to one grid without reading the rows
again.

The origin is 0 and there are 31 octaves, which resolves most scores. It fails where scores are far
from 0 compared with their spread, or where an outlier is so large that all the others are near 0
next to it. Then nearly all scores share a few bins, which a small sample shows, and `place` chooses
another placement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats, on_gpu

Keys = npt.NDArray[np.int64]
"""Bin numbers: increasing with the score, negative for negative scores."""

CAPACITY = 2**16
"""The most bins of a summary. Scores of both signs over 31 octaves still get 10 bits each."""


MOST_DISTINCT = 2**20
"""The most distinct scores that a summary may be asked to keep apart."""

SAMPLE = 1024
"""Scores in a look: enough to tell a probability of 1e-4 that two of them share a bin."""

RESOLVED = 2.5e-4
"""Two scores share a bin of a good grid with at most this probability.

Around zero it is 1.1e-4 for normal scores and 1.6e-4 for uniform ones.
"""

# The default first, then more for outliers and heavy tails, then fewer for separate clusters.
_OCTAVES = (31, 39, 47, 55, 63, 71, 79, 87, 95, 111, 127, 160, 200, 15, 7, 3, 1)

# Origins to try, as quantiles of the sample: the median first.
_QUANTILES = (0.5, 0.35, 0.65, 0.2, 0.8, 0.05, 0.95)

# Scores converted at a time: the temporary arrays stay in the cache.
_BLOCK = 2**15


class Placement(NamedTuple):
    """Where the bins of a grid are fine: around the origin, over octaves of the offset."""

    origin: float = 0.0
    # 2 signs * 32 intervals * 2**10 bins = CAPACITY: 31 octaves and one interval around zero.
    octaves: int = 31


AROUND_ZERO = Placement()
"""The placement that resolves most scores, and makes summaries independent of partitions."""


class Layout(NamedTuple):
    """Where a float type keeps its sign, exponent and mantissa."""

    float: type[np.floating[Any]]
    integer: type[np.signedinteger[Any]]
    mantissa: int
    bias: int
    sign: int

    @property
    def unsigned(self) -> int:
        """A mask of all bits but the sign."""
        return (1 << self.sign) - 1


SINGLE = Layout(np.float32, np.int32, mantissa=23, bias=127, sign=31)
DOUBLE = Layout(np.float64, np.int64, mantissa=52, bias=1023, sign=63)


@dataclass(frozen=True, slots=True)
class Grid:
    """Bins for offsets of magnitude below 2**top that keep `bits` bits of the mantissa."""

    top: int
    bits: int
    placement: Placement = AROUND_ZERO

    @classmethod
    def spanning(
        cls,
        low: float,
        high: float,
        capacity: int = CAPACITY,
        placement: Placement = AROUND_ZERO,
        bits: int = DOUBLE.mantissa,
    ) -> Self:
        """The finest grid that covers [low, high] with at most `capacity` bins, and `bits` bits.

        A wider range never gets a finer grid, so that merging never has to split a bin. To ensure
        it, the end of larger magnitude is moved to the end of its octave, and so is the other end
        if both signs occur.
        """
        low, high = with_both_zeros(low - placement.origin, high - placement.origin)
        top = int(np.frexp(max(abs(low), abs(high)))[1])
        finest = cls(top, DOUBLE.mantissa, placement)
        outer = np.array(finest.around(low, high))
        first, last = finest.keys_of_offsets(outer).tolist()
        # Each bit dropped halves both keys, so the bit length of their distance tells how many
        # bits must go, or one fewer.
        excess = (last - first + 1).bit_length() - capacity.bit_length()
        dropped = max(excess, 0)
        while (last >> dropped) - (first >> dropped) >= capacity:
            dropped += 1
        return cls(top, min(DOUBLE.mantissa - dropped, bits), placement)

    def around(self, low: float, high: float) -> tuple[float, float]:
        """The ends of the octaves around a range of offsets: up to them the grid stays the same."""
        outer_low = -self._octave_end(-low) if low < 0 else low
        outer_high = self._octave_end(high) if high > 0 else high
        return outer_low, outer_high

    def _octave_end(self, magnitude: float) -> float:
        # Around zero both sides have the same octaves, so that grids of any two ranges nest.
        exponent = self.top
        if self.placement != AROUND_ZERO:
            exponent = int(np.frexp(magnitude)[1])
        return float(np.nextafter(np.ldexp(1.0, exponent), 0))

    @property
    def origin(self) -> float:
        """The score around which bins are finest."""
        return self.placement.origin

    @property
    def floor(self) -> int:
        """The exponent of two below which bins are equally wide."""
        return max(self.top - self.placement.octaves, 2 - DOUBLE.bias)

    def contains(self, other: Grid) -> bool:
        """Whether each bin of another grid lies in one bin of this grid."""
        coarser = self.bits <= other.bits and self.floor >= other.floor
        return self.origin == other.origin and coarser

    def layout(self, *, single: bool) -> Layout:
        """The type whose bits to read: float32 if scores have it and it is precise enough."""
        # Below 2 - bias float32 has subnormal numbers of its own; offsets are taken in float64.
        enough = self.bits <= SINGLE.mantissa and self.floor >= 2 - SINGLE.bias
        enough = enough and self.origin == 0
        return SINGLE if single and enough else DOUBLE

    @property
    def scales(self) -> tuple[float, float]:
        """Two factors that turn the magnitude of a score below the floor into its bin number.

        Their product, 2**(bits - floor), may be too large for one float.
        """
        power = self.bits - self.floor
        half = power // 2
        return float(np.ldexp(1.0, half)), float(np.ldexp(1.0, power - half))

    def offset(self, layout: Layout) -> int:
        """What to subtract from the leading bits of a float so that bins count from 0."""
        return (self.floor + layout.bias - 1) << self.bits

    def keys(self, scores: Floats) -> Keys:
        """The bin of each score; bins are numbered in score order."""
        return self.keys_of_offsets(self.offsets(scores))

    def offsets(self, scores: Floats) -> Floats:
        """The difference of each score from the origin."""
        return scores if self.origin == 0 else scores.astype(np.float64) - self.origin

    def keys_of_offsets(self, offsets: Floats) -> Keys:
        """The bin of each offset from the origin."""
        keys = np.empty(len(offsets), dtype=np.int64)
        self.write_keys(offsets, 0, keys)
        return keys

    def write_keys(self, offsets: Floats, first: int, keys: Keys) -> None:
        """Write the bin of each offset, counted from `first`, into an existing array."""
        for start in range(0, len(offsets), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._write_block(offsets[block], first, keys[block])

    def _write_block(self, offsets: Floats, first: int, keys: Keys) -> None:
        layout = self.layout(single=offsets.dtype == np.float32)
        offsets = offsets.astype(layout.float, copy=False)
        bits = offsets.view(layout.integer)
        # The exponent and the leading bits of the mantissa, as one integer.
        magnitudes = bits & layout.integer(layout.unsigned)
        magnitudes >>= layout.mantissa - self.bits
        magnitudes -= layout.integer(self.offset(layout))
        if magnitudes.min() < 1 << self.bits:
            below_floor = np.flatnonzero(magnitudes < 1 << self.bits)
            small = np.abs(offsets[below_floor]).astype(np.float64)
            magnitudes[below_floor] = np.ldexp(small, self.bits - self.floor)
        # The sign bit, shifted through, is 0 or -1; k ^ -1 = ~k mirrors a bin to the negatives.
        magnitudes ^= bits >> layout.sign
        np.subtract(magnitudes, first, out=keys)

    def inner_edges(self, keys: Keys) -> Floats:
        """The offset nearest zero in each bin: it lies in the same bin of every coarser grid."""
        sign = keys >> DOUBLE.sign
        magnitude = keys ^ sign
        # Bin numbers from 2**bits on come in octaves of 2**bits bins, each twice as wide.
        octave = np.maximum((magnitude >> self.bits) - 1, 0)
        steps = (magnitude - (octave << self.bits)).astype(np.float64)
        edges = np.ldexp(steps, self.floor - self.bits + octave)
        # The negative bin next to zero gets the smallest negative float: -0.0 is in it too, but
        # equals the 0.0 of the bin above.
        negative = -np.maximum(edges, np.ldexp(1.0, -1074))
        return np.where(sign < 0, negative, edges)

    def ends(self, keys: Keys) -> Floats:
        """The lower and the upper end of each bin, as offsets."""
        # Keys count away from the origin on either side: the next bin outwards starts where this
        # one ends.
        outwards = np.where(keys < 0, keys - 1, keys + 1)
        inner, outer = self.inner_edges(keys), self.inner_edges(outwards)
        return np.stack([np.minimum(inner, outer), np.maximum(inner, outer)])


def with_both_zeros(low: float, high: float) -> tuple[float, float]:
    """The range with a low end of 0 as -0.0 and a high end of 0 as +0.0.

    The two zeros lie in different bins, and either may occur in offsets whose range ends at zero.
    """
    return low or -0.0, high + 0.0


def look(scores: Any) -> Floats:
    """A sample of scores in increasing order, the same whenever it is drawn from the same rows."""
    if len(scores) > SAMPLE:
        # Random rows rather than every nth: tables repeat patterns, one user after another.
        rows = np.random.default_rng(0).integers(len(scores), size=SAMPLE)
        scores = scores[rows]
    if on_gpu(scores):
        scores = scores.cpu().numpy()
    return np.sort(scores.astype(np.float64))


def look_at_bins(scores: Floats, total: Floats) -> Floats:
    """A sample of bins in increasing order of their scores, in proportion to their mass."""
    cumulative = np.cumsum(total)
    # Evenly spaced levels would share bins less often than random rows do.
    levels = np.sort(np.random.default_rng(0).random(SAMPLE)) * cumulative[-1]
    return scores[np.searchsorted(cumulative, levels).clip(max=len(scores) - 1)]


def shared_bins(grid: Grid, sample: Floats) -> float:
    """The probability that two scores of a sample differ and share a bin all the same."""
    keys = grid.keys(sample)
    return (_equal_pairs(keys) - _equal_pairs(sample)) / max(len(sample), 1) ** 2


def place(
    low: float,
    high: float,
    sample: Floats,
    preferred: Placement = AROUND_ZERO,
    capacity: int = CAPACITY,
) -> Placement:
    """The preferred placement if it resolves the sample over [low, high], or one that does.

    The first one that does is taken, so that parts of a table mostly agree on it.
    """
    best = preferred
    fewest = shared_bins(Grid.spanning(low, high, capacity, preferred), sample)
    if fewest <= RESOLVED:
        return preferred
    # A change has to be worth the error of moving bins from one grid to another.
    fewest /= 2
    for placement in _candidates(sample):
        shared = shared_bins(Grid.spanning(low, high, capacity, placement), sample)
        if shared <= RESOLVED:
            return placement
        if shared < fewest:
            best, fewest = placement, shared
    return best


def _candidates(sample: Floats) -> Iterator[Placement]:
    origins = [0.0]
    origins += [_rounded_quantile(sample, quantile) for quantile in _QUANTILES]
    origins.append(float(sample[0] + sample[-1]) / 2)
    for octaves in _OCTAVES:
        for origin in dict.fromkeys(origins):
            yield Placement(origin, octaves)


def _rounded_quantile(sample: Floats, quantile: float) -> float:
    """A quantile as a round number near it, so that two samples mostly agree."""
    levels = np.clip([quantile - 0.1, quantile, quantile + 0.1], 0, 1)
    below, value, above = np.quantile(sample, levels).tolist()
    if above <= below:
        return float(value)
    step = np.ldexp(1.0, int(np.floor(np.log2(above - below))))
    return float(np.round(value / step) * step)


def _equal_pairs(values: Any) -> float:
    """The number of ordered pairs of equal values."""
    counts = np.unique(values, return_counts=True)[1]
    return float(np.square(counts).sum())
