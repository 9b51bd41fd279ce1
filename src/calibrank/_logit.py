"""Probabilities and log odds. As in scipy.special, which takes longer to load than most fits take."""

from typing import Any

import numpy as np
import numpy.typing as npt


def expit(log_odds: npt.ArrayLike) -> Any:
    """The probability of log odds.

    >>> expit([-800.0, 0.0, 800.0])
    array([0. , 0.5, 1. ])
    """
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-np.asarray(log_odds)))


def logit(probability: npt.ArrayLike) -> Any:
    """The log odds of a probability; those of 0 and 1 are infinite.

    >>> logit([0.0, 0.5])
    array([-inf,   0.])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(probability) - np.log1p(-np.asarray(probability))
