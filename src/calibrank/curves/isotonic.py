"""Isotonic calibration: the best nondecreasing step function, and its centred version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrank._internal.isotonic import pool_adjacent_violators
from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats, add_up, starts_of
from calibrank.curves._steps import STEP_MARGIN, Bins, effective_rows, midpoint_edges, step_curve
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.maps import PiecewiseCurve, StepCurve
from calibrank.maps.piecewise import MOST_KNOTS
from calibrank.maps.training import SMALLEST_RISE
from calibrank.summary import Summary
from calibrank.summary.grid import MOST_DISTINCT


@dataclass(frozen=True, slots=True)
class Isotonic(Calibrator):
    """Isotonic regression of the labels on the scores (Menon et al. 2012).

    Edges lie halfway between the scores of neighbouring steps. Desiderata: any score, increasing;
    not expressive (many scores tie within a step, which makes the ranking coarser).

    >>> Isotonic().fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1]).predict([2.0, 3.0, 4.0])
    array([0.5, 0.5, 1. ])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)
    distinct_scores = MOST_DISTINCT
    refit_margin = STEP_MARGIN

    def _fit(self, summary: Summary) -> tuple[StepCurve, dict[str, Any]]:
        bins, values = _blocks(summary)
        edges = midpoint_edges(summary.scores, bins)
        effective = effective_rows(summary, bins, values)
        return step_curve(edges, values, effective), {}


@dataclass(frozen=True, slots=True)
class CenteredIsotonic(Calibrator):
    """Isotonic regression without its steps (centred isotonic regression, Oron & Flournoy 2017).

    Each step is concentrated at its mean score; log odds are linear between these scores and
    nearly constant beyond them. Steps of 0 and 1, whose log odds are infinite, are shrunk as by
    half a positive and half a negative. Desiderata: all three.

    >>> fitted = CenteredIsotonic().fit([1.0, 2.0, 3.0, 4.0, 5.0], [0, 1, 0, 1, 1])
    >>> fitted.predict([2.5])
    array([0.5])
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=True)
    distinct_scores = MOST_DISTINCT
    refit_margin = STEP_MARGIN

    def _fit(self, summary: Summary) -> tuple[PiecewiseCurve, dict[str, Any]]:
        bins, values = _blocks(summary)
        # Inverse-propensity rates above 1 are clipped, which leaves equal neighbours: one block.
        starts = starts_of(values)
        bins = (np.cumsum(starts) - 1)[bins]
        values = values[starts]
        total = add_up(bins, summary.total)
        centres = add_up(bins, summary.total * summary.scores) / total
        effective = effective_rows(summary, bins, values)
        shrunk = _without_extremes(values, total)
        errors = 1 / np.sqrt(np.maximum(effective, 0.5) * shrunk * (1 - shrunk))
        chosen = _evenly(len(centres), MOST_KNOTS)
        # Beyond the outermost steps nothing is known: a slope that only keeps scores distinct.
        slope = SMALLEST_RISE / (summary.high - summary.low)
        curve = PiecewiseCurve(
            knots=tuple(centres[chosen].tolist()),
            values=tuple(logit(shrunk[chosen]).tolist()),
            end_slopes=(slope, slope),
            value_errors=tuple(errors[chosen].tolist()),
            slope_errors=(0.0, 0.0),
        )
        return curve, {}


def _blocks(summary: Summary) -> tuple[Bins, Floats]:
    """The block of each bin of the summary, and the value of each block."""
    blocks = pool_adjacent_violators(summary.positive, summary.total)
    sizes = np.diff([*blocks.starts, len(summary)])
    return np.repeat(np.arange(len(blocks.starts)), sizes), blocks.values


def _without_extremes(values: Floats, total: Floats) -> Floats:
    """Values of 0 and 1 replaced by Jeffreys estimates, kept in order with their neighbours.

    Neighbouring blocks have different values, so only the first can be 0 and only the last 1.
    """
    shrunk = values.copy()
    if values[0] == 0:
        estimate = 0.5 / (total[0] + 1)
        shrunk[0] = min(estimate, values[1] / 2) if len(values) > 1 else estimate
    if values[-1] == 1:
        estimate = (total[-1] + 0.5) / (total[-1] + 1)
        shrunk[-1] = max(estimate, (1 + shrunk[-2]) / 2) if len(values) > 1 else estimate
    return shrunk


def _evenly(count: int, most: int) -> Bins:
    """At most so many of the indices below `count`, evenly spaced, with both ends."""
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).astype(np.intp)
