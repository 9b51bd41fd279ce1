"""Conversion between probabilities and log odds.

The functions match `expit` and `logit` of scipy.special, which takes longer to import than most
fits take.
"""

from typing import Any

import numpy as np
import numpy.typing as npt


def expit(log_odds: npt.ArrayLike) -> Any:
    """The probability of the given log odds.

    >>> expit([-800.0, 0.0, 800.0])
    array([0. , 0.5, 1. ])
    """
    # exp overflows to infinity where the probability is 0, which is the right limit.
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-np.asarray(log_odds)))


def logit(probability: npt.ArrayLike) -> Any:
    """The log odds of a probability; those of 0 and 1 are infinite.

    >>> logit([0.0, 0.5])
    array([-inf,   0.])
    """
    # log1p keeps the precision of log(1 - p) for small p.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(probability) - np.log1p(-np.asarray(probability))


def softplus(log_odds: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """log(1 + exp(x)) without overflow; the log loss of x is `softplus(x) - label * x`.

    >>> softplus(np.array([0.0, 800.0])).round(6)
    array([6.93147e-01, 8.00000e+02])
    """
    # Equal to np.logaddexp(0, x), and faster.
    return np.maximum(log_odds, 0) + np.log1p(np.exp(-np.abs(log_odds)))
