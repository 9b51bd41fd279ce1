"""Moving log odds to a known level."""

from collections.abc import Callable

import numpy as np

from calibrank._logit import expit, logit
from calibrank._validation import Floats

_NEAR = 1e-13


def shift_for(z: Floats, mass: Floats, rate: float) -> float:
    """The shift of log odds z that makes their mean probability the rate."""
    return root(
        lambda shift: float(mass @ expit(z + shift)) - rate,
        logit(rate) - z.max() - 1,
        logit(rate) - z.min() + 1,
    )


def top_tenth(z: Floats, mass: Floats) -> Floats:
    """Shares of the mass that make up its highest tenth."""
    order = np.argsort(-z, kind="stable")
    before = np.cumsum(mass[order]) - mass[order]
    top = np.zeros(len(z))
    top[order] = np.clip(0.1 * mass.sum() - before, 0, mass[order])
    return top / top.sum()


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function crosses zero: false position, halving what stays put (the Illinois method).

    scipy.optimize has better ones, and takes longer to load than all else that a fit does.
    """
    at_low, at_high = function(low), function(high)
    if not at_low <= 0 <= at_high:
        raise ValueError(f"no crossing between {low} and {high}")
    last, middle = high, low
    for _ in range(200):
        middle = (
            (low * at_high - high * at_low) / (at_high - at_low)
            if at_high > at_low
            else (low + high) / 2
        )
        value = function(middle)
        if value == 0 or abs(middle - last) <= _NEAR:
            break
        if value < 0:
            low, at_low = middle, value
            at_high = at_high / 2 if last < middle else at_high
        else:
            high, at_high = middle, value
            at_low = at_low / 2 if last > middle else at_low
        last = middle
    return middle
