"""Maps as the C loops read them: an array of numbers, packed into bytes.

It starts with the kind of map and the largest valid score; `native_maps.h` describes what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import isfinite

import numpy as np

from calibrank._internal.rules import LARGEST_SCORE
from calibrank._internal.validation import Floats

# No score reaches this number.
_BEYOND = np.finfo(np.float64).max
# Numbers of buckets that are tried; the last one has 64 kB of first edges, most of which stay in
# the first-level cache.
_BUCKETS = (256, 1024, 4096, 16384)


class Kind(IntEnum):
    """The loops of `native_maps.h`, numbered as there."""

    QUADRATIC = 0
    LOGARITHMIC = 1
    SOFTPLUS = 2
    LINES = 3
    STEPS = 4
    RESCALE = 5


# Added to the kind: the result are the log odds.
_LOG_ODDS = 16


def of_log_odds(program: bytes) -> bytes:
    """A packed map that computes the log odds; empty for maps that are not made of them."""
    numbers = np.frombuffer(program[:8])
    if not program or numbers[0] > Kind.LINES:
        return b""
    return (numbers + _LOG_ODDS).tobytes() + program[8:]


def pack(kind: float, *numbers: float) -> bytes:
    """A map of constants; no program if one of them is not finite."""
    constants = np.array([kind, LARGEST_SCORE, *numbers], dtype=np.float64)
    return constants.tobytes() if np.isfinite(constants).all() else b""


def pack_lines(knots: Sequence[float], values: Sequence[float], slopes: Sequence[float]) -> bytes:
    """A map of straight lines through the values at the knots; one slope more than knots."""
    return _pack_table(Kind.LINES, np.array(knots), (values, slopes[:-1], slopes[1:]))


def pack_steps(edges: Sequence[float], values: Sequence[float]) -> bytes:
    """A map of steps between edges; one value more than edges."""
    if not edges:
        return pack_steps((0.0,), (*values, *values))
    return _pack_table(Kind.STEPS, np.array(edges), (values[1:], values[:-1], values[1:]))


def _pack_table(kind: Kind, edges: Floats, columns: Sequence[Sequence[float]]) -> bytes:
    """A map of edges, with one number per edge in each column.

    Equally wide buckets of scores lead to the edge; where a bucket has several, a binary search
    finds it among them. No program if the buckets' width cannot be computed with.
    """
    table: Floats = np.column_stack([edges, *[np.array(column) for column in columns]])
    origin, width = float(edges[0]), float(edges[-1] - edges[0])
    for buckets in _BUCKETS:
        last = buckets - 1
        scale = last / width if width else 0.0
        # The same operations as in C, so that a score and an edge meet in the same bucket.
        places = np.clip((edges - origin) * scale, 0, last) if isfinite(scale) else edges * 0
        counts = np.bincount(places.astype(np.int64), minlength=buckets)
        if counts.max() == 1:
            break
    # The first step of a binary search among the edges of a bucket; 0 without one.
    search_width = 2 ** (int(counts.max()) - 1).bit_length() // 2
    # The first edge of each bucket, or the one before if it has none.
    first_edges = np.cumsum(counts) - counts - (counts == 0)
    # A search may read beyond the last edge.
    bounds = np.concatenate([edges, np.full(2 * search_width, _BEYOND)])
    header = pack(kind, origin, scale, last, search_width, len(bounds), len(table))
    if not header or not np.isfinite(table).all():
        return b""
    return header + bounds.tobytes() + table.tobytes() + first_edges.astype(np.int32).tobytes()
