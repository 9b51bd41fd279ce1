"""Isotonic calibration: the best increasing step function."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._isotonic import pool_adjacent_violators
from calibrank.calibrators._steps import effective_rows, halfway_edges, step_map
from calibrank.calibrators.calibrator import Calibrator, Desiderata
from calibrank.maps import StepMap
from calibrank.summary import Summary


@dataclass(frozen=True, slots=True)
class Isotonic(Calibrator):
    """The non-decreasing function nearest to the data (Menon et al. 2012); between two steps the border is halfway.

    Desiderata: any score, increasing; not expressive (whole stretches of scores tie, so ranking is coarsened).

    >>> Isotonic().fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1]).predict([2.0, 3.0, 4.0])
    array([0.5, 0.5, 1. ])
    """

    meets: ClassVar[Desiderata] = Desiderata(any_score=True, increasing=True, expressive=False)

    def _fit(self, summary: Summary) -> StepMap:
        blocks = pool_adjacent_violators(summary.positive, summary.total)
        bins = np.repeat(np.arange(len(blocks.starts)), np.diff([*blocks.starts, len(summary)]))
        edges = halfway_edges(summary.scores, bins)
        return step_map(
            self.name, summary, edges, blocks.values, effective_rows(summary, bins, blocks.values)
        )
