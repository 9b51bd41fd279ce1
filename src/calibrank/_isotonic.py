"""Monotone regression on pooled evidence: shared by isotonic calibration and the CORP decomposition."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats


class Blocks(NamedTuple):
    """The best non-decreasing fit, within [0, 1], of positive / total: where each block starts, and its value."""

    starts: npt.NDArray[np.intp]
    values: Floats


def pool_adjacent_violators(positive: Floats, total: Floats) -> Blocks:
    """Exact for log loss and Brier alike; targets above 1 are clipped afterwards, which is optimal too."""
    # scipy.optimize doubles the import time of the package and only this function needs it.
    from scipy.optimize import isotonic_regression  # noqa: PLC0415

    fit = isotonic_regression(positive / total, weights=total)
    starts = fit.blocks[:-1].astype(np.intp)
    return Blocks(starts, np.clip(fit.x[starts], 0, 1))
