"""The propensity interface: an estimator is fitted to a log and predicts P(observed) of pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.validation import Floats, Ids, IdsLike, ids
from calibrank.errors import DataError
from calibrank.tables import Interactions, alike


class FittedPropensity(ABC):
    """A fitted estimate of P(observed)."""

    def predict(self, users: IdsLike, items: IdsLike) -> Floats:
        """P(observed) of each pair, in (0, 1]."""
        users = ids("users", users)
        items = ids("items", items, len(users))
        return self._predict(users, items)

    @abstractmethod
    def _predict(self, users: Ids, items: Ids) -> Floats:
        """P(observed) of checked pairs."""


class Propensity(Protocol):
    """The configuration of an estimator; `fit` returns the fitted estimate."""

    def fit(self, interactions: Interactions) -> FittedPropensity:
        """Estimate P(observed) from a log."""


@dataclass(frozen=True, slots=True, eq=False)
class ByItem(FittedPropensity):
    """One propensity per item; items that are not in the log get `unseen`."""

    items: Ids
    """Sorted, each once."""
    values: Floats
    unseen: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        if len(self.items) == 0:
            return np.full(len(items), self.unseen)
        # Comparing text with numbers would silently match nothing.
        if (self.items.dtype.kind in "iuf") != (items.dtype.kind in "iuf"):
            raise DataError(
                "items", f"be ids as in the log ({self.items.dtype})", items.dtype, "Convert them."
            )
        known, items = alike("items", [self.items, items])
        rows = np.minimum(np.searchsorted(known, items), len(self.items) - 1)
        return np.where(known[rows] == items, self.values[rows], self.unseen)


@dataclass(frozen=True, slots=True)
class Constant(FittedPropensity):
    """The same propensity for every pair."""

    value: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        return np.full(len(users), self.value)


def require_probability(name: str, value: float) -> None:
    """Raise a `DataError` unless a parameter is a valid propensity."""
    real(name, value, "(0, 1]")
