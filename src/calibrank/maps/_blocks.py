"""Apply functions of scores block by block, to arrays of any shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from calibrank._internal.validation import Floats, require_scores

BLOCK = 2**15
"""Scores computed at a time: temporary arrays of this size stay in the processor's cache."""

Values = TypeVar("Values")
Ends: TypeAlias = tuple[Floats, Floats]


class Interval(NamedTuple, Generic[Values]):
    """Lower and upper ends, one of each per score: arrays, or floats for a single score."""

    low: Values
    high: Values


def unwrapped(result: Floats) -> Floats | float:
    """An array of no dimensions as a float."""
    return float(result) if result.ndim == 0 else result


def interval(ends: Any) -> Interval[Any]:
    """Two arrays of ends, of any shape, as an interval."""
    low, high = ends
    return Interval(unwrapped(low), unwrapped(high))


def in_blocks(
    function: Callable[[Floats], Any], scores: Floats, dtype: Any, results: tuple[int, ...] = ()
) -> Floats:
    """Apply a function of float64 scores to scores of any shape, one block at a time.

    With results (2,), the function returns two numbers per score, and so does this one.
    """
    require_scores(scores)
    flat = scores.reshape(-1)
    found = np.empty((*results, len(flat)), dtype=dtype)
    for start in range(0, len(flat), BLOCK):
        block = slice(start, start + BLOCK)
        found[..., block] = function(flat[block].astype(np.float64, copy=False))
    return found.reshape((*results, *scores.shape))
