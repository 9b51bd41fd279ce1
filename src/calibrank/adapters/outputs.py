"""What a model's numbers are: declared by whoever trained it, never guessed from their values."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._logit import logit
from calibrank._validation import LARGEST_SCORE, Floats, floats, require


class Outputs(ABC):
    """How a model's numbers become scores to calibrate."""

    def scores(self, values: Any) -> Floats:
        """Scores in the shape of the values; NaN where a value is missing, masked or padding."""
        array = floats("scores", plain(values))
        heard = is_score(array)
        result = np.full(array.shape, np.nan, dtype=array.dtype)
        result[heard] = self._scores(array[heard])
        return result

    @abstractmethod
    def _scores(self, values: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Margin(Outputs):
    """Numbers on any scale, as most rankers give them: taken as they are.

    >>> Margin().scores([1.5, -3.4028235e38])
    array([1.5, nan])
    """

    def _scores(self, values: Floats) -> Floats:
        return values


@dataclass(frozen=True, slots=True)
class Probability(Outputs):
    """Numbers that went through a sigmoid already: their log odds are the scores.

    >>> Probability().scores([0.5, 0.75]).round(3)
    array([0.   , 1.099])
    """

    def _scores(self, values: Floats) -> Floats:
        remedy = "Ask the model for its margins (before the sigmoid), or declare Margin() if that is what these are."
        require(_is_inside, "probabilities", "lie strictly between 0 and 1", values, remedy)
        return logit(values)


def is_score(values: Floats) -> npt.NDArray[np.bool_]:
    """Whether a number is an opinion at all: not NaN, -inf (masked) or a float type's lowest value (padding)."""
    return np.abs(values) <= LARGEST_SCORE


def plain(values: Any) -> Any:
    """A numpy array of what may be a torch tensor, on a device, with a gradient."""
    for step in ("detach", "cpu", "numpy"):
        values = getattr(values, step)() if hasattr(values, step) else values
    return values


def _is_inside(values: Floats) -> npt.NDArray[np.bool_]:
    return (values > 0) & (values < 1)
