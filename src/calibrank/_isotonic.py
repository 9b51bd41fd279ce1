"""Isotonic regression on pooled evidence, for isotonic calibration and the CORP decomposition."""

from typing import NamedTuple

import numpy as np

from calibrank._validation import Floats, Indices


class Blocks(NamedTuple):
    """A nondecreasing step function: the first point of each block, and the block's value."""

    starts: Indices
    values: Floats


def pool_adjacent_violators(positive: Floats, total: Floats) -> Blocks:
    """The best nondecreasing fit of positive / total within [0, 1], weighted by total.

    The same fit is optimal for log loss and Brier score. Inverse-propensity targets may exceed 1;
    clipping the unbounded fit to [0, 1] gives the optimum of the bounded problem.
    """
    # scipy.optimize doubles the import time of the package and only this function needs it.
    from scipy.optimize import isotonic_regression  # noqa: PLC0415  (slow to load)

    fit = isotonic_regression(positive / total, weights=total)
    starts = fit.blocks[:-1].astype(np.intp)
    return Blocks(starts, np.clip(fit.x[starts], 0, 1))


def isotonic_values(values: Floats, weights: Floats) -> Floats:
    """The nondecreasing values in [0, 1] that are closest to the given ones."""
    blocks = pool_adjacent_violators(values * weights, weights)
    lengths = np.diff([*blocks.starts, len(values)])
    return np.repeat(blocks.values, lengths)
