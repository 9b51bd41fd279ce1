"""Apply functions of scores block by block, to arrays of any shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from calibrank._internal.validation import Floats, require_scores

# Scores computed at a time: temporary arrays of this size stay in the processor's cache.
_BLOCK = 2**15

Values = TypeVar("Values")
Ends: TypeAlias = tuple[Floats, Floats]


class Interval(NamedTuple, Generic[Values]):
    """Lower and upper ends, one of each per score: arrays, or floats for a single score."""

    low: Values
    high: Values


def unwrapped(result: Floats) -> Floats | float:
    """An array of no dimensions as a float."""
    return float(result) if result.ndim == 0 else result


def _blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, _BLOCK):
        yield slice(start, start + _BLOCK)


def in_blocks(
    function: Callable[[Floats], Floats], scores: Floats, dtype: np.dtype[np.floating[Any]]
) -> Floats:
    """Apply a function of float64 scores to scores of any shape, one block at a time."""
    require_scores(scores)
    flat = scores.reshape(-1)
    result = np.empty(flat.shape, dtype=dtype)
    for block in _blocks(len(flat)):
        result[block] = function(flat[block].astype(np.float64, copy=False))
    return result.reshape(scores.shape)


def interval_in_blocks(
    ends: Callable[[Floats], Ends], scores: Floats
) -> Interval[Floats] | Interval[float]:
    """Apply a function that returns lower and upper ends, one block at a time."""
    require_scores(scores)
    flat = scores.reshape(-1)
    low = np.empty_like(flat)
    high = np.empty_like(flat)
    for block in _blocks(len(flat)):
        low[block], high[block] = ends(flat[block].astype(np.float64, copy=False))
    if scores.ndim == 0:
        return Interval(float(low[0]), float(high[0]))
    return Interval(low.reshape(scores.shape), high.reshape(scores.shape))
