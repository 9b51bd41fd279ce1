"""Moving log odds to a known level."""

from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit

from calibrank.arrays import Floats


def shift_for(z: Floats, mass: Floats, rate: float) -> float:
    """The shift of log odds z that makes their mean probability the rate."""
    return root(
        lambda shift: float(mass @ expit(z + shift)) - rate, logit(rate) - z.max() - 1, logit(rate) - z.min() + 1
    )


def top_tenth(z: Floats, mass: Floats) -> Floats:
    """Shares of the mass that make up its highest tenth."""
    order = np.argsort(-z, kind="stable")
    before = np.cumsum(mass[order]) - mass[order]
    top = np.zeros(len(z))
    top[order] = np.clip(0.1 * mass.sum() - before, 0, mass[order])
    return top / top.sum()


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function crosses zero."""
    from scipy.optimize import brentq  # noqa: PLC0415  (takes longer to load than most fits take)

    return float(brentq(function, low, high, xtol=1e-13))
