"""A grid of score bins that needs no agreed range: the leading bits of a float, with a floor near zero.

Bins keep `bits` bits of the mantissa over the 31 octaves below the largest score, and are equally wide below
that (as subnormal floats are). Dropping a bit, or an octave, merges whole bins: grids nest, so pooled data from
anywhere can be brought to one grid without touching the rows again.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from calibrank.arrays import Floats

Keys = npt.NDArray[np.int64]

CAPACITY = 2**16
"""Bins a summary may hold. Scores spread over 31 octaves of both signs still get 10 bits each."""

_OCTAVES = 31
_MANTISSA = 52
_BIAS = 1023
_UNSIGNED = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True)
class Grid:
    """Bins for scores up to 2**top in size, `bits` mantissa bits each."""

    top: int
    bits: int

    @classmethod
    def spanning(cls, low: float, high: float) -> Self:
        """The finest grid that covers [low, high] with at most `CAPACITY` bins."""
        ends = np.array([low, high], dtype=np.float64)
        top = int(np.frexp(np.abs(ends).max())[1])
        for bits in range(_MANTISSA, 0, -1):
            grid = cls(top, bits)
            first, last = grid.keys(ends)
            if last - first < CAPACITY:
                return grid
        raise AssertionError("one bit a bin always fits")

    @property
    def _floor(self) -> int:
        return max(self.top - _OCTAVES, 2 - _BIAS)

    def keys(self, scores: Floats) -> Keys:
        """The bin of each score; bins are numbered in score order."""
        numbers = scores + np.float64(0)  # a copy in float64; -0.0 becomes 0.0, so equal scores share a bin
        bits = numbers.view(np.int64)
        sign = bits >> 63
        bits &= _UNSIGNED
        keys: Keys = bits >> (_MANTISSA - self.bits)
        keys -= (self._floor + _BIAS - 1) << self.bits
        if keys.size and keys.min() < 1 << self.bits:
            small = keys < 1 << self.bits
            keys[small] = np.floor(np.ldexp(numbers[small], self.bits - self._floor)).astype(np.int64)
        keys ^= sign  # ~k mirrors a bin to the negative side
        return keys

    def inner_edges(self, keys: Keys) -> Floats:
        """The score nearest zero in each bin: it lies in the same bin of every coarser grid too."""
        sign = keys >> 63
        size = keys ^ sign
        octave = np.maximum((size >> self.bits) - 1, 0)
        edges = np.ldexp((size - (octave << self.bits)).astype(np.float64), self._floor - self.bits + octave)
        return np.where(sign < 0, -np.maximum(edges, np.ldexp(1.0, -1074)), edges)
