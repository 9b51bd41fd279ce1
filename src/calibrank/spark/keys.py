"""The bins of a `Grid` as Spark columns: the very same bin for every score, to the last bit."""

import math
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calibrank.grid import Grid

_COMPARED = 8
"""Octaves from the top that comparisons find: most rows lie there, and a logarithm is dearer.

Below them a logarithm errs at most beside a power of two, which does no harm: the last bin of an octave and the first
of the next are numbered on, and only grids of over 40 bits would notice. These never span as many octaves.
"""


def with_places(frame: DataFrame, grid: Grid, low: float, high: float) -> DataFrame:
    """The frame with `place`, the bin of `score` counted from that of `low`, and `part`, one bit of 64 for where in it.

    Scores must lie in [low, high]. Every step is a column of its own: inlined, Spark would compute it again and again.
    """
    first = int(grid.keys(np.array([low], dtype=np.float64))[0])
    # Powers of two scale without rounding; two of them, for one alone may overflow.
    scaled = F.col("_size") * math.ldexp(1.0, -grid.floor) * math.ldexp(1.0, grid.bits)
    key = f"cast(floor(_scaled) as bigint) + shiftleft(cast(_octave as bigint), {grid.bits})"
    mirrored = F.when(F.col("score") < 0.0, -1 - F.col("_key")).otherwise(F.col("_key"))
    return (
        frame.withColumn("_size", F.abs(F.col("score")))
        .withColumn("_octave", _octave(F.col("_size"), grid, low, high))
        .withColumn("_scaled", scaled / F.expr("cast(shiftleft(1L, _octave) as double)"))
        .withColumn("_key", F.expr(key))
        .withColumn("place", (mirrored - first).cast("int"))
        .withColumn("part", F.expr("shiftleft(1L, cast((_scaled - floor(_scaled)) * 64 as int))"))
        .drop("_size", "_octave", "_scaled", "_key")
    )


def _octave(size: Column, grid: Grid, low: float, high: float) -> Column:
    """How many octaves above the grid's floor a size lies; 0 below it."""
    ends = sorted((abs(low), abs(high)))
    least = 0.0 if low <= 0 <= high else ends[0]
    first, last = (max(math.frexp(end)[1] - 1 - grid.floor, 0) if end else 0 for end in (least, ends[1]))
    lowest = max(first, last - _COMPARED)
    rest: Any = F.lit(first)
    if lowest > first:
        above = F.greatest(size, F.lit(math.ldexp(1.0, grid.floor)))
        rest = (F.log(above) * (1 / math.log(2)) - float(grid.floor)).cast("int")
    if lowest == last:
        return rest
    octave = F.when(size >= math.ldexp(1.0, grid.floor + last), last)
    for step in range(last - 1, lowest, -1):
        octave = octave.when(size >= math.ldexp(1.0, grid.floor + step), step)
    return octave.otherwise(rest)
