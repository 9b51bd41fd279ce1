"""Shift log odds so that their mean probability matches a known rate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats

# Of a root, in log odds.
_TOLERANCE = 1e-13
_MAX_STEPS = 200
_LEAST_SLOPE = 1e-300


def shift_for(log_odds: Floats, mass: Floats, rate: float) -> float:
    """The shift at which the mean probability over the mass (which sums to 1) equals the rate."""

    def excess(shift: float) -> float:
        return float(mass @ expit(log_odds + shift)) - rate

    # The shift lies between those that bring the highest and the lowest log odds to the rate.
    low = logit(rate) - log_odds.max() - 1
    high = logit(rate) - log_odds.min() + 1
    return root(excess, low, high)


def shifts_for(log_odds: Floats, moderation: Floats, mass: Floats, rate: float) -> Floats:
    """The shift of each row at which moderated log odds have the mean probability `rate`.

    The probability is `expit((log_odds + shift) / moderation)`. Newton's method runs for all rows
    at once, and halves the bracket where a step would leave it.
    """
    # Each point alone would reach the rate at one of these shifts.
    alone = logit(rate) * moderation - log_odds
    low = alone.min(axis=1) - 1
    high = alone.max(axis=1) + 1
    at = np.clip(alone @ mass, low, high)
    for _ in range(_MAX_STEPS):
        probabilities = expit((log_odds + at[:, None]) / moderation)
        excess = probabilities @ mass - rate
        slope = (probabilities * (1 - probabilities) / moderation) @ mass
        low = np.where(excess < 0, at, low)
        high = np.where(excess > 0, at, high)
        # Where all probabilities round to 0 or 1 the slope is 0.
        following = at - excess / np.maximum(slope, _LEAST_SLOPE)
        is_inside = (low <= following) & (following <= high)
        following = np.where(is_inside, following, (low + high) / 2)
        movement = np.abs(following - at).max()
        at = following
        if movement <= _TOLERANCE:
            break
    return at


def top_tenth(log_odds: Floats, mass: Floats) -> Floats:
    """Weights, which sum to 1, of the tenth of the mass with the highest log odds."""
    order = np.argsort(-log_odds, kind="stable")
    mass_above = np.cumsum(mass[order]) - mass[order]
    top = np.zeros(len(log_odds))
    # The point at the border of the tenth is included in part.
    top[order] = np.clip(0.1 * mass.sum() - mass_above, 0, mass[order])
    return top / top.sum()


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root of an increasing function, by the Illinois variant of the false position method.

    `scipy.optimize.brentq` would do, but takes longer to import than a fit takes to run.
    """
    at_low = function(low)
    at_high = function(high)
    if not at_low <= 0 <= at_high:
        raise ValueError(f"no crossing between {low} and {high}")
    last = high
    middle = low
    for _ in range(_MAX_STEPS):
        middle = _false_position(low, high, at_low, at_high)
        value = function(middle)
        if value == 0 or abs(middle - last) <= _TOLERANCE:
            break
        # Illinois: if the same end stays in place twice, halve its value so that it moves next.
        if value < 0:
            low = middle
            at_low = value
            at_high = at_high / 2 if last < middle else at_high
        else:
            high = middle
            at_high = value
            at_low = at_low / 2 if last > middle else at_low
        last = middle
    return middle


def _false_position(low: float, high: float, at_low: float, at_high: float) -> float:
    """Where the line through both ends crosses zero; the midpoint if the line is flat."""
    if at_high > at_low:
        return (low * at_high - high * at_low) / (at_high - at_low)
    return (low + high) / 2
