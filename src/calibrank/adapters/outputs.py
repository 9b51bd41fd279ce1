"""What a model's outputs are, as the caller declares it, and score tables made from them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.logit import logit
from calibrank._internal.validation import (
    LARGEST_SCORE,
    Floats,
    Ids,
    IdsLike,
    Numbers,
    column,
    floats,
    ids,
    require,
)
from calibrank.errors import DataError, DroppedRowsWarning
from calibrank.tables import ScoreTable

_PROBABILITY_REMEDY = (
    "Ask the model for its margins (before the sigmoid), "
    "or declare Margin() if that is what these are."
)


DECLARED = "Use Margin(), Distance() or Probability()."
"""What to do about outputs of another type."""


class Outputs(ABC):
    """How a model's outputs become scores to calibrate."""

    def scores(self, values: Any) -> Floats:
        """Scores in the shape of `values`; NaN where a value is missing, masked or padding."""
        array = floats("scores", to_numpy(values))
        present = is_score(array)
        result = np.full(array.shape, np.nan, dtype=array.dtype)
        result[present] = self._scores(array[present])
        return result

    @abstractmethod
    def _scores(self, values: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Margin(Outputs):
    """Scores on any scale, as most rankers return them: used unchanged.

    >>> Margin().scores([1.5, -3.4028235e38])
    array([1.5, nan])
    """

    def _scores(self, values: Floats) -> Floats:
        return values


MARGIN = Margin()


@dataclass(frozen=True, slots=True)
class Distance(Outputs):
    """Distances, as some vector stores return them: the smaller, the better.

    >>> Distance().scores([0.25, 1.5])
    array([-0.25, -1.5 ])
    """

    def _scores(self, values: Floats) -> Floats:
        return -values


@dataclass(frozen=True, slots=True)
class Probability(Outputs):
    """Outputs of a sigmoid: their log odds are the scores.

    >>> Probability().scores([0.5, 0.75]).round(3)
    array([0.   , 1.099])
    """

    def _scores(self, values: Floats) -> Floats:
        rule = "lie strictly between 0 and 1"
        require(_is_inside, "probabilities", rule, values, _PROBABILITY_REMEDY)
        return logit(values)


def is_score(values: Floats) -> npt.NDArray[np.bool_]:
    """Whether each value is a score.

    NaN is missing, -inf is masked, and a float type's lowest value is padding.
    """
    return np.abs(values) <= LARGEST_SCORE


def to_numpy(values: Any) -> Any:
    """A torch tensor, on any device, with or without gradient, as an array; others unchanged."""
    for method in ("detach", "cpu", "numpy"):
        if hasattr(values, method):
            values = getattr(values, method)()
    return values


def _is_inside(values: Floats) -> npt.NDArray[np.bool_]:
    return (values > 0) & (values < 1)


def ids_or_numbers(name: str, given: IdsLike | None, rows: int) -> Ids:
    """The ids of rows, by default their numbers."""
    return np.arange(rows) if given is None else ids(name, given, rows)


def make_score_table(
    users: IdsLike,
    items: IdsLike,
    scores: Floats,
    labels: Numbers,
    propensity: Numbers | None = None,
    weights: Numbers | None = None,
) -> ScoreTable:
    """A score table of the rows that have a score.

    Warns the caller of the function that calls it about dropped rows.
    """
    rows = len(scores)
    scored = is_score(scores)
    if not scored.any():
        rule, remedy = "hold at least one number", "Check that the ids are the model's."
        raise DataError("scores", rule, f"none in {rows:,} rows", remedy)
    n_missing = rows - np.count_nonzero(scored)
    if n_missing:
        warnings.warn(
            f"{n_missing:,} of {rows:,} rows are left out: the model has no score for them "
            "(unknown ids, masked history). The fit describes the remaining rows only.",
            DroppedRowsWarning,
            stacklevel=3,
        )
    return ScoreTable(
        ids("users", users, rows)[scored],
        ids("items", items, rows)[scored],
        scores[scored],
        column("labels", labels, rows)[scored],
        None if propensity is None else column("propensity", propensity, rows)[scored],
        None if weights is None else column("weights", weights, rows)[scored],
    )
