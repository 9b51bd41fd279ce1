"""The bins of a `Grid` as Spark columns: the very same bin for every score, to the last bit."""

import math

import numpy as np
from pyspark.sql import DataFrame

from calibrank.summary.grid import Grid

_LARGEST_EXPONENT = 1000
"""What one factor may scale by; a larger power of two takes two factors."""


def with_places(
    frame: DataFrame, grid: Grid, low: float, high: float, held: str = "coalesce(score, 0D)"
) -> DataFrame:
    """The frame with `place`, the bin of `score` counted from that of `low`, and `_units`, its size in whole numbers.

    Scores as `held` must lie in [low, high]. Whole numbers all the way and no conditions: Spark compares doubles
    slowly, and a score's octave is the length of a whole number in bits. Every step is a column of its own, which the
    next ones name: inlined, Spark would compute it again and again. The first of them cannot be missing, so none can:
    Spark need not ask at every step.
    """
    first = int(grid.keys(np.array([low], dtype=np.float64))[0])
    base, last = _octaves(grid, low, high)
    exponent = grid.bits - grid.floor - base
    steps = [f"{held} AS _held", f"floor({_scaled('abs(_held)', exponent)}) AS _units"]
    steps += _octave("_units", grid.bits, last - base)
    inner = f"shiftright(_units, _octave) + shiftleft(cast(_octave as bigint), {grid.bits})"
    key = f"{inner} + {base << grid.bits}L"
    # All bits set mirror a bin to the negative side. Scaled down, a tiny score may vanish and its sign with it.
    signed = "signum(_held)" if exponent < 0 else _scaled("_held", exponent)
    side = "0L" if low >= 0 else f"shiftright(floor({signed}), 63)"
    return frame.selectExpr("*", *steps, f"(({key}) ^ {side}) - ({first}L) AS place")


def units_of(grid: Grid, size: float) -> int:
    """The `_units` of a size, where zero is in the range."""
    return int(math.ldexp(size, grid.bits - grid.floor))


def _octaves(grid: Grid, low: float, high: float) -> tuple[int, int]:
    """The lowest and highest octave, counted from the grid's floor, that a score in [low, high] can lie in."""
    ends = sorted((abs(low), abs(high)))
    least = 0.0 if low <= 0 <= high else ends[0]
    base, last = (
        max(math.frexp(end)[1] - 1 - grid.floor, 0) if end else 0 for end in (least, ends[1])
    )
    return base, last


def _scaled(size: str, exponent: int) -> str:
    """The size times a power of two, which is exact."""
    within = min(exponent, _LARGEST_EXPONENT)
    scaled = f"{size} * {math.ldexp(1.0, within)!r}D"
    return scaled if within == exponent else f"{scaled} * {math.ldexp(1.0, exponent - within)!r}D"


def _octave(units: str, bits: int, span: int) -> list[str]:
    """Steps to `_octave`: how many bits longer than `bits + 1` the units are, at most `span`."""
    steps = [f"shiftright({units}, {bits + 1}) AS _bits_0"]
    step = 1
    while (
        step < span
    ):  # sets every bit below the highest, so that counting bits tells where that is
        name = f"_bits_{len(steps) - 1}"
        steps.append(f"{name} | shiftright({name}, {step}) AS _bits_{len(steps)}")
        step *= 2
    return [*steps, f"bit_count(_bits_{len(steps) - 1}) AS _octave"]
