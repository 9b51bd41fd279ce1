"""Turning bins of a summary into a step map."""

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, add_up
from calibrank.calibrators.calibrator import record_of
from calibrank.maps import StepMap
from calibrank.summary import Summary

Bins = npt.NDArray[np.intp]


def halfway_edges(scores: Floats, bins: Bins) -> Floats:
    """Borders halfway between the last score of a bin and the first of the next."""
    last = np.flatnonzero(np.diff(bins))
    # Halving first cannot overflow; two neighbouring floats have no float between them, so the upper one is taken.
    middle = scores[last] / 2 + scores[last + 1] / 2
    return np.where(middle > scores[last], middle, scores[last + 1])


def bin_means(summary: Summary, bins: Bins) -> Floats:
    """The positive share of each bin, clipped to [0, 1]: inverse-propensity shares may exceed 1."""
    return np.clip(add_up(bins, summary.positive) / add_up(bins, summary.total), 0, 1)


def effective_rows(summary: Summary, bins: Bins, values: Floats) -> Floats:
    """How many unweighted rows would leave as much doubt about each bin's value as its evidence does."""
    total = add_up(bins, summary.total)
    heard = total**2 / add_up(bins, summary.masses.total_squared)
    variance = add_up(bins, summary.squared_residuals(values[bins])) / total**2
    binomial = values * (1 - values)
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.where((binomial > 0) & (variance > 0), binomial / variance, heard)
    return np.minimum(rows, heard)


def step_map(
    name: str, summary: Summary, edges: Floats, values: Floats, effective: Floats
) -> StepMap:
    """A map with one step a value."""
    edges, values, effective = edges.tolist(), values.tolist(), effective.tolist()
    return StepMap(name, tuple(edges), tuple(values), tuple(effective), record_of(summary))
