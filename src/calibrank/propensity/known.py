"""Propensities that are known: logged by the policy, or published with a dataset."""

from dataclasses import dataclass

import numpy as np

from calibrank._validation import Floats, Ids, Numbers, floats, is_probability, require, row_numbers
from calibrank.errors import DataError
from calibrank.propensity.propensity import FittedPropensity, require_probability
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True, eq=False)
class Known(FittedPropensity):
    """A matrix of P(observed): row u, column i; values below `clip` are raised to it.

    >>> Known([[0.5, 0.25]]).fit(Interactions([0], [0])).predict([0], [1])
    array([0.25])
    """

    matrix: Floats
    clip: float

    def __init__(self, matrix: Numbers, clip: float = 1e-6) -> None:
        array = floats("propensity", matrix)
        if array.ndim != 2:
            raise DataError(
                f"propensity must have one row a user, one column an item, got shape {array.shape}."
            )
        require(
            is_probability,
            "propensity",
            "lie in [0, 1]",
            array,
            "Divide counts by exposures first.",
        )
        require_probability("clip", clip)
        object.__setattr__(self, "matrix", array)
        object.__setattr__(self, "clip", clip)

    def fit(self, interactions: Interactions) -> "Known":
        """Nothing to learn: here so that it stands wherever an estimator may."""
        return self

    def _predict(self, users: Ids, items: Ids) -> Floats:
        rows, columns = self.matrix.shape
        chosen = self.matrix[
            row_numbers("users", users, rows), row_numbers("items", items, columns)
        ]
        return np.maximum(chosen, self.clip)
