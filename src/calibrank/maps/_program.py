"""Maps as the C loops read them: an array of numbers, packed into bytes.

It starts with the kind of map and the largest valid score; `_native_maps.h` describes what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import isfinite
from typing import NamedTuple

import numpy as np

from calibrank._rules import LARGEST_SCORE
from calibrank._validation import Floats, Integers

# No score reaches this number.
_BEYOND = np.finfo(np.float64).max
# Numbers of buckets that are tried; the last one has 16 kB of bucket starts, which stay in the
# first-level cache.
_BUCKETS = (256, 1024, 4096)


class Kind(IntEnum):
    """The loops of `_native_maps.h`, numbered as there."""

    QUADRATIC = 0
    LOGARITHMIC = 1
    SOFTPLUS = 2
    LINES = 3
    STEPS = 4
    RESCALE = 5


def pack(kind: Kind, *numbers: float) -> bytes:
    """A map of constants; no program if one of them is not finite."""
    constants = np.array([kind, LARGEST_SCORE, *numbers], dtype=np.float64)
    return constants.tobytes() if np.isfinite(constants).all() else b""


def pack_table(kind: Kind, edges: Sequence[float], columns: Sequence[Sequence[float]]) -> bytes:
    """A map of edges, with one number per interval between edges in each column.

    Equally wide buckets of scores lead to the edge; where a bucket has several, a binary search of
    `rounds` steps finds it among them. No program if the buckets' width cannot be computed with.
    """
    filled = [np.asarray(column, dtype=np.float64) for column in columns]
    table: Floats = np.column_stack(filled)
    bounds: Floats = np.array(edges, dtype=np.float64)
    found = _buckets(bounds)
    before = found.edges_before.astype(np.int32)
    if found.rounds == 1:
        table = _by_bucket(found, table)
        bounds = _edge_by_bucket(found, bounds)
    else:
        # A search may read beyond the last edge.
        bounds = np.concatenate([bounds, np.full(2**found.rounds, _BEYOND)])
    place = (found.origin, found.scale, len(found.counts) - 1)
    header = pack(kind, *place, found.rounds, len(bounds), len(table))
    if not header or not np.isfinite(table).all():
        return b""
    return header + bounds.tobytes() + table.tobytes() + before.tobytes()


class _Buckets(NamedTuple):
    origin: float
    scale: float
    counts: Integers
    """The edges in each bucket."""

    @property
    def edges_before(self) -> Integers:
        """The edges before each bucket."""
        before: Integers = np.cumsum(self.counts) - self.counts
        return before

    @property
    def rounds(self) -> int:
        """The rounds of a binary search among the edges of a bucket."""
        return int(self.counts.max()).bit_length()


def _buckets(edges: Floats) -> _Buckets:
    """Buckets with at most one edge each, if there are few enough of them."""
    if not len(edges):
        return _Buckets(0.0, 0.0, np.zeros(1, np.int64))
    origin = float(edges[0])
    width = float(edges[-1] - edges[0])
    for buckets in _BUCKETS:
        last = buckets - 1
        scale = last / width if width else 0.0
        # The same operations as in C, so that a score and an edge meet in the same bucket.
        places = np.clip((edges - origin) * scale, 0, last) if isfinite(scale) else edges * 0
        counts = np.bincount(places.astype(np.int64), minlength=buckets)
        if counts.max() == 1:
            break
    return _Buckets(origin, scale, counts)


def _edge_by_bucket(found: _Buckets, edges: Floats) -> Floats:
    """The edge of each bucket that has one."""
    bounds = np.full(len(found.counts), _BEYOND)
    bounds[found.counts == 1] = edges
    return bounds


def _by_bucket(found: _Buckets, table: Floats) -> Floats:
    """The rows of the table below the edge of each bucket, and from it on."""
    below = found.edges_before
    intervals = np.column_stack([below, below + found.counts]).ravel()
    rows: Floats = table[intervals]
    return rows
