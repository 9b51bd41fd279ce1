"""The bins of a `Grid` as Spark columns: the very same bin for every score, to the last bit."""

import math

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank.grid import Grid

_LARGEST_EXPONENT = 1000
"""What one factor may scale by; a larger power of two takes two factors."""


def with_places(frame: DataFrame, grid: Grid, low: float, high: float) -> DataFrame:
    """The frame with `place`, the bin of `score` counted from that of `low`.

    Scores must lie in [low, high]. Whole numbers all the way and no conditions: Spark compares doubles slowly, and a
    score's octave is the length of a whole number in bits. Every step is a column of its own: inlined, Spark would
    compute it again and again.
    """
    first = int(grid.keys(np.array([low], dtype=np.float64))[0])
    base, last = _octaves(grid, low, high)
    steps = frame.withColumn("_units", F.floor(_scaled(F.abs(F.col("score")), grid.bits - grid.floor - base)))
    steps = _with_octave(steps, grid.bits, last - base)
    inner = f"shiftright(_units, _octave) + shiftleft(cast(_octave as bigint), {grid.bits})"
    key = f"{inner} + {base << grid.bits}L"
    # All bits set mirror a bin to the negative side. Sizes are not asked: a tiny one may vanish when scaled.
    side = "0L" if low >= 0 else "shiftright(floor(signum(score)), 63)"
    place = F.expr(f"(({key}) ^ {side}) - ({first}L)")
    return steps.withColumn("place", place).drop("_units", "_bits", "_octave")


def _octaves(grid: Grid, low: float, high: float) -> tuple[int, int]:
    """The lowest and highest octave, counted from the grid's floor, that a score in [low, high] can lie in."""
    ends = sorted((abs(low), abs(high)))
    least = 0.0 if low <= 0 <= high else ends[0]
    base, last = (max(math.frexp(end)[1] - 1 - grid.floor, 0) if end else 0 for end in (least, ends[1]))
    return base, last


def _scaled(size: Column, exponent: int) -> Column:
    """The size times a power of two, which is exact."""
    within = min(exponent, _LARGEST_EXPONENT)
    scaled = size * math.ldexp(1.0, within)
    return scaled if within == exponent else scaled * math.ldexp(1.0, exponent - within)


def _with_octave(frame: DataFrame, bits: int, span: int) -> DataFrame:
    """The frame with `_octave`: how long `_units` is beyond `bits + 1` bits, at most `span`."""
    frame = frame.withColumn("_bits", F.expr(f"shiftright(_units, {bits + 1})"))
    step = 1
    while step < span:  # sets every bit below the highest, so that counting bits tells where that is
        frame = frame.withColumn("_bits", F.expr(f"_bits | shiftright(_bits, {step})"))
        step *= 2
    return frame.withColumn("_octave", F.expr("bit_count(_bits)"))
