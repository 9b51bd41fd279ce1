"""Levels with parents: how much they differ, and where each parent is, estimated together.

A parent is first fitted to all of its rows, as if its children were alike. Its children then seem
to differ less than they do, the more so the fewer there are, and a large one draws it to itself.
For children that differ by a standard deviation, each counts by 1 / (variance + its error squared).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats, Indices, add_up
from calibrank.terms._modes import SegmentProblem

# Steps of Newton's method from where a parent is to where it is for its children.
_STEPS = 4
# Parents that differ by less count as known.
_SMALLEST_SD = 0.01


class Family(NamedTuple):
    """The parent of each segment, by number, and how much is known of parents without children."""

    parents: Indices
    keys: list[Key]
    """Of the parents."""
    precision: float

    @classmethod
    def of(cls, keys: Sequence[Key], sd: float) -> Self:
        """Of levels below others that differ by a standard deviation."""
        numbers: dict[Key, int] = {}
        parents = [numbers.setdefault(key[:-1], len(numbers)) for key in keys]
        return cls(np.array(parents), list(numbers), 1 / max(sd, _SMALLEST_SD) ** 2)

    def added(self, masses: Floats) -> Floats:
        """Sums over the children of each parent."""
        return add_up(self.parents, masses, len(self.keys))

    def log_marginals(self, problem: SegmentProblem, sds: Sequence[float]) -> Floats:
        """What integrating over parents adds to the children's log marginal likelihoods.

        At its own mode, the derivative by a parent is that of its prior, minus that of all rows.
        """
        gradient, curvature = problem.slope_and_curvature(0.0)
        most = self.added(curvature) + self.precision
        found = []
        for sd in sds:
            shares = 1 / (1 + curvature * sd**2)
            information = self.added(curvature * shares) + self.precision
            change = self.added(gradient * (shares - 1))
            parts = change**2 / information - np.log(information / most)
            found.append(float(parts.sum()) / 2)
        return np.array(found)

    def moved(self, problem: SegmentProblem, sd: float) -> tuple[Floats, Floats]:
        """How far parents are from their modes, for children that differ; and variances it adds."""
        at_mode, before = [self.added(each) for each in problem.slope_and_curvature(0.0)]
        shift = np.zeros(len(self.keys))
        for _ in range(_STEPS):
            gradient, curvature = self.shifted(problem, shift).slope_and_curvature(0.0)
            shares = 1 / (1 + curvature * sd**2)
            information = self.added(curvature * shares) + self.precision
            shift += (
                self.added(gradient * shares) - at_mode - self.precision * shift
            ) / information
        return shift, np.maximum(1 / information - 1 / (before + self.precision), 0)

    def shifted(self, problem: SegmentProblem, shift: Floats) -> SegmentProblem:
        """The problem of changes from parents that are somewhere else."""
        return replace(problem, offset=problem.offset + shift[self.parents][problem.segment])
