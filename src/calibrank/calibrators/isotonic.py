"""Isotonic calibration: the best non-decreasing step function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._isotonic import pool_adjacent_violators
from calibrank.calibrators._steps import (
    effective_rows,
    midpoint_edges,
    step_map,
)
from calibrank.calibrators.calibrator import Calibrator, Desiderata
from calibrank.maps import StepMap
from calibrank.summary import Summary


@dataclass(frozen=True, slots=True)
class Isotonic(Calibrator):
    """Isotonic regression of the labels on the scores (Menon et al. 2012).

    Edges lie halfway between the scores of neighbouring steps. Desiderata: any score, increasing;
    not expressive (many scores tie within a step, which makes the ranking coarser).

    >>> Isotonic().fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1]).predict([2.0, 3.0, 4.0])
    array([0.5, 0.5, 1. ])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)

    def _fit(self, summary: Summary) -> StepMap:
        blocks = pool_adjacent_violators(summary.positive, summary.total)
        sizes = np.diff([*blocks.starts, len(summary)])
        bins = np.repeat(np.arange(len(blocks.starts)), sizes)
        edges = midpoint_edges(summary.scores, bins)
        effective = effective_rows(summary, bins, blocks.values)
        return step_map(self.name, summary, edges, blocks.values, effective)
