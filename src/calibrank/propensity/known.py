"""Known propensities: logged by the exposure policy, or published with a dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._internal.validation import (
    Floats,
    Ids,
    Numbers,
    floats,
    is_probability,
    require,
    row_numbers,
)
from calibrank.errors import DataError
from calibrank.propensity.propensity import FittedPropensity, require_probability
from calibrank.tables import Frame, Interactions, as_interactions


@dataclass(frozen=True, slots=True, eq=False)
class Known(FittedPropensity):
    """A matrix of P(observed) with one row per user and one column per item.

    Values below `clip` are raised to it, which lowers all probabilities: with true propensities
    down to 0.005, a clip of 0.1 makes a base rate of 16% one of 2%.

    >>> Known([[0.5, 0.25]]).fit(Interactions([0], [0])).predict([0], [1])
    array([0.25])
    """

    matrix: Floats
    clip: float

    def __init__(self, matrix: Numbers, clip: float = 1e-6) -> None:
        array = floats("matrix", matrix)
        if array.ndim != 2:
            raise DataError(
                "matrix",
                "have one row per user and one column per item",
                f"shape {array.shape}",
                "Pass one list of propensities per user.",
            )
        remedy = "Divide counts by exposures first."
        require(is_probability, "matrix", "lie in [0, 1]", array, remedy)
        require_probability("clip", clip)
        object.__setattr__(self, "matrix", array)
        object.__setattr__(self, "clip", clip)

    def fit(self, interactions: Interactions | Frame) -> Known:
        """Return itself: nothing is estimated, but it can be used wherever an estimator can."""
        as_interactions(interactions)
        return self

    def _predict(self, users: Ids, items: Ids) -> Floats:
        n_users, n_items = self.matrix.shape
        rows = row_numbers("users", users, n_users)
        columns = row_numbers("items", items, n_items)
        return np.maximum(self.matrix[rows, columns], self.clip)
