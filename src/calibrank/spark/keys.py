"""The bins of a `Grid` as Spark columns: exactly the bin that numpy computes for every score.

Multiplying by a power of two is exact, and the octave of a score is the bit length of an integer,
so no logarithm, rounding or condition is needed.
"""

from __future__ import annotations

import math

import numpy as np
from pyspark.sql import DataFrame

from calibrank.summary.grid import Grid

# 2.0**1023 is the largest power of two that is a float. A larger scale is split into two factors.
_LARGEST_EXPONENT = 1000


def with_bins(
    frame: DataFrame, grid: Grid, low: float, high: float, score: str = "coalesce(score, 0D)"
) -> DataFrame:
    """Add `bin`, the bin of a score counted from the bin of `low`, and `_units`, its magnitude.

    `score` is an SQL expression for the offset from the grid's origin that is never null and lies
    in [low, high]. `_units` is the magnitude as an integer multiple of the width of the finest
    bins.
    """
    # Every step is a column that later steps refer to: Spark would evaluate an inlined expression
    # once for each time that it occurs. Integers are used because Spark compares doubles slowly.
    first = int(grid.keys_of_offsets(np.array([low], dtype=np.float64))[0])
    base, last = _octaves(grid, low, high)
    exponent = grid.bits - grid.floor - base
    magnitude = _scaled("abs(_score)", exponent)
    steps = [f"{score} AS _score", f"floor({magnitude}) AS _units"]
    steps += _octave_steps("_units", grid.bits, last - base)
    within = f"shiftright(_units, _octave) + shiftleft(cast(_octave as bigint), {grid.bits})"
    key = f"{within} + {base << grid.bits}L"
    # XOR with -1 (all bits set) mirrors a bin to the negative side, as `Grid.keys` does.
    sign = "0L" if low >= 0 else f"shiftright(floor({_signed(exponent)}), 63)"
    return frame.selectExpr("*", *steps, f"(({key}) ^ {sign}) - ({first}L) AS bin")


def units_of(grid: Grid, magnitude: float) -> int:
    """Return the `_units` of a magnitude for a range that contains zero."""
    return int(math.ldexp(magnitude, grid.bits - grid.floor))


def _octaves(grid: Grid, low: float, high: float) -> tuple[int, int]:
    """Return the first and last octave of magnitudes in [low, high], counted from the floor."""
    ends = sorted((abs(low), abs(high)))
    smallest = 0.0 if low <= 0 <= high else ends[0]
    return _octave_of(grid, smallest), _octave_of(grid, ends[1])


def _octave_of(grid: Grid, magnitude: float) -> int:
    if not magnitude:
        return 0
    return max(math.frexp(magnitude)[1] - 1 - grid.floor, 0)


def _signed(exponent: int) -> str:
    """Return an expression with the sign of `_score` whose floor is negative if that is."""
    # Scaled down, a tiny score would become 0 and lose its sign.
    return "signum(_score)" if exponent < 0 else _scaled("_score", exponent)


def _scaled(value: str, exponent: int) -> str:
    """Return an expression for a value times 2**exponent, which is exact."""
    first = min(exponent, _LARGEST_EXPONENT)
    scaled = f"{value} * {math.ldexp(1.0, first)!r}D"
    if first == exponent:
        return scaled
    return f"{scaled} * {math.ldexp(1.0, exponent - first)!r}D"


def _octave_steps(units: str, bits: int, span: int) -> list[str]:
    """Return steps to `_octave`: by how many bits the units exceed `bits + 1`, at most `span`."""
    steps = [f"shiftright({units}, {bits + 1}) AS _bits_0"]
    shift = 1
    # x | x >> 1 | x >> 2 ... sets every bit below the highest one, so that the number of set bits
    # is the bit length.
    while shift < span:
        name = f"_bits_{len(steps) - 1}"
        steps.append(f"{name} | shiftright({name}, {shift}) AS _bits_{len(steps)}")
        shift *= 2
    return [*steps, f"bit_count(_bits_{len(steps) - 1}) AS _octave"]
