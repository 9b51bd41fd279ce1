"""Maps on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from calibrank._internal import native
from calibrank._internal.logit import expit, softplus
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE, Floats, Indices, Mask
from calibrank.maps._program import of_log_odds, pack_lines
from calibrank.maps.targets.target import Lines, Target, Unary


class NumpyTarget(Target):
    """Float64 arrays."""

    def log(self, x: Floats) -> Floats:
        return np.log(x)

    def softplus(self, x: Floats) -> Floats:
        return softplus(x)

    def sigmoid(self, x: Floats) -> Floats:
        probabilities: Floats = expit(x)
        return probabilities

    def minimum(self, x: Floats, bound: float) -> Floats:
        return np.minimum(x, bound)

    def maximum(self, x: Floats, bound: float) -> Floats:
        return np.maximum(x, bound)

    def steps(self, score: Floats, edges: Sequence[float], values: Sequence[float]) -> Floats:
        step = np.searchsorted(np.array(edges), score, side="right")
        return np.array(values)[step]

    def by_level(self, x: Indices, keys: Sequence[Key], values: Floats) -> Floats:
        return values[x]

    def is_level(self, x: Indices, count: int) -> Mask:
        return (x >= 0) & (x <= count)

    def where_valid(self, score: Floats, formula: Unary, conditions: Sequence[Mask] = ()) -> Floats:
        valid = np.logical_and.reduce([np.abs(score) <= LARGEST_SCORE, *conditions])
        return np.where(valid, formula(np.where(valid, score, 0.0)), np.nan)

    def lines(self, score: Floats, edges: Sequence[float], lines: Lines) -> Floats:
        found = native.probabilities(score, _line_program(lines))
        if found is not None:
            return found
        # One search serves all three tables.
        segment = np.searchsorted(np.array(edges), score, side="right")
        origins, values, slopes = [np.array(part)[segment] for part in lines]
        return (score - origins) * slopes + values


@lru_cache(maxsize=256)
def _line_program(lines: Lines) -> bytes:
    """A broken line as the C loops read it."""
    origins, values, slopes = lines
    return of_log_odds(pack_lines(origins[1:], values[1:], slopes))
