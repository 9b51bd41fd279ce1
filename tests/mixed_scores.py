"""Scores that no parametric calibrator fits, for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._internal.arguments import seeded
from calibrank._internal.validation import Floats
from calibrank.data import Scores


@dataclass(frozen=True, slots=True)
class MixedScores(Scores):
    """Normal scores for disliked pairs, a mixture of two normals for liked ones.

    No parametric calibrator contains this shape.
    """

    means: ClassVar[tuple[float, float]] = (0.6, 2.6)
    """The means of the two components; every standard deviation is 1."""
    mixture_weights: ClassVar[tuple[float, float]] = (0.6, 0.4)
    """The mixture weights."""

    def draw(self, liked: Floats, seed: int | np.random.Generator) -> Floats:
        rng = seeded(seed)
        in_first = rng.random(len(liked)) < self.mixture_weights[0]
        means = np.where(in_first, *self.means)
        return rng.standard_normal(len(liked)) + liked * means

    def log_ratio(self, scores: Floats) -> Floats:
        # log N(s; m, 1) - log N(s; 0, 1) = m s - m^2 / 2, for each component of the mixture.
        components = [
            np.log(weight) + mean * scores - mean**2 / 2
            for weight, mean in zip(self.mixture_weights, self.means, strict=True)
        ]
        return np.logaddexp(*components)
