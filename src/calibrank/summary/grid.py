"""A grid of score bins that needs no agreed range: the leading bits of a float, with a floor near zero.

Bins keep `bits` bits of the mantissa over the 31 octaves below the largest score, and are equally wide below
that (as subnormal floats are). Dropping a bit, or an octave, merges whole bins: grids nest, so pooled data from
anywhere can be brought to one grid without touching the rows again.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats

Keys = npt.NDArray[np.int64]

CAPACITY = 2**16
"""Bins a summary may hold. Scores spread over 31 octaves of both signs still get 10 bits each."""

_OCTAVES = 31
_BLOCK = 2**15  # temporaries stay in cache


class Layout(NamedTuple):
    """Where a float keeps its sign, exponent and mantissa."""

    float: type[np.floating[Any]]
    integer: type[np.signedinteger[Any]]
    mantissa: int
    bias: int
    sign: int

    @property
    def unsigned(self) -> int:
        """The bits without the sign."""
        return (1 << self.sign) - 1


SINGLE = Layout(np.float32, np.int32, 23, 127, 31)
DOUBLE = Layout(np.float64, np.int64, 52, 1023, 63)


@dataclass(frozen=True, slots=True)
class Grid:
    """Bins for scores up to 2**top in size, `bits` mantissa bits each."""

    top: int
    bits: int

    @classmethod
    def spanning(cls, low: float, high: float, capacity: int = CAPACITY) -> Self:
        """The finest grid that covers [low, high] with at most so many bins, and never a finer one for a wider range.

        For that, the larger end counts as that of its octave, and where both signs occur the other end does so too.
        """
        low, high = (
            low or -0.0,
            high + 0.0,
        )  # zeros of both signs may follow, in a bin of their own each
        top = int(np.frexp(max(abs(low), abs(high)))[1])
        first, last = (
            cls(top, DOUBLE.mantissa).keys(np.array(cls(top, 0).around(low, high))).tolist()
        )
        # Each bit dropped halves both keys, so their distance tells how many must go, or one less.
        bits = DOUBLE.mantissa - max((last - first + 1).bit_length() - capacity.bit_length(), 0)
        while (last >> (DOUBLE.mantissa - bits)) - (first >> (DOUBLE.mantissa - bits)) >= capacity:
            bits -= 1
        return cls(top, bits)

    def around(self, low: float, high: float) -> tuple[float, float]:
        """The ends of the octaves around a range: up to them the same grid will do."""
        furthest = float(np.nextafter(np.ldexp(1.0, self.top), 0))
        return -furthest if low < 0 else low, furthest if high > 0 else high

    @property
    def floor(self) -> int:
        """The octave below which bins are equally wide."""
        return max(self.top - _OCTAVES, 2 - DOUBLE.bias)

    def layout(self, *, single: bool) -> "Layout":
        """How to read scores' bits: as float32 where they are and that will do."""
        enough = (
            self.bits <= SINGLE.mantissa and self.floor >= 2 - SINGLE.bias
        )  # float32 has its own subnormals
        return SINGLE if single and enough else DOUBLE

    @property
    def scales(self) -> tuple[float, float]:
        """What brings scores below the floor to the number of their bin: the product may be too large for one float."""
        power = self.bits - self.floor
        return float(np.ldexp(1.0, power // 2)), float(np.ldexp(1.0, power - power // 2))

    def offset(self, layout: "Layout") -> int:
        """What to take off the leading bits of a float so that bins count from 0."""
        return (self.floor + layout.bias - 1) << self.bits

    def keys(self, scores: Floats) -> Keys:
        """The bin of each score; bins are numbered in score order."""
        keys = np.empty(len(scores), dtype=np.int64)
        self.write_keys(scores, 0, keys)
        return keys

    def write_keys(self, scores: Floats, first: int, keys: Keys) -> None:
        """Write each score's bin, counted from `first`, into memory that is there already."""
        for start in range(0, len(scores), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._write_block(scores[block], first, keys[block])

    def _write_block(self, scores: Floats, first: int, keys: Keys) -> None:
        layout = self.layout(single=scores.dtype == np.float32)
        scores = scores.astype(layout.float, copy=False)
        bits = scores.view(layout.integer)
        sizes = bits & layout.integer(layout.unsigned)
        sizes >>= layout.mantissa - self.bits
        sizes -= layout.integer(self.offset(layout))
        if sizes.min() < 1 << self.bits:
            small = np.flatnonzero(sizes < 1 << self.bits)
            sizes[small] = np.ldexp(
                np.abs(scores[small]).astype(np.float64), self.bits - self.floor
            )
        sizes ^= bits >> layout.sign  # ~k mirrors a bin to the negative side
        np.subtract(sizes, first, out=keys)

    def inner_edges(self, keys: Keys) -> Floats:
        """The score nearest zero in each bin: it lies in the same bin of every coarser grid too."""
        sign = keys >> 63
        size = keys ^ sign
        octave = np.maximum((size >> self.bits) - 1, 0)
        edges = np.ldexp(
            (size - (octave << self.bits)).astype(np.float64), self.floor - self.bits + octave
        )
        return np.where(sign < 0, -np.maximum(edges, np.ldexp(1.0, -1074)), edges)
