"""Maps on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrank._internal.logit import expit, softplus
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import LARGEST_SCORE, Floats, Indices, Mask
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
        # One search serves all three tables.
        segment = np.searchsorted(np.array(edges), score, side="right")
        origins, values, slopes = [np.array(part)[segment] for part in lines]
        return (score - origins) * slopes + values
