"""What every propensity estimator can do: fit a log, then say how likely a pair was to be observed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calibrank._validation import Floats, Ids, IdsLike, ids
from calibrank.errors import DataError
from calibrank.tables import Interactions


class FittedPropensity(ABC):
    """A fitted estimate of P(observed)."""

    def predict(self, users: IdsLike, items: IdsLike) -> Floats:
        """P(observed) of each pair, in (0, 1]."""
        users = ids("users", users)
        return self._predict(users, ids("items", items, len(users)))

    @abstractmethod
    def _predict(self, users: Ids, items: Ids) -> Floats: ...


class Propensity(Protocol):
    """Settings of an estimator; `fit` gives the fitted estimate."""

    def fit(self, interactions: Interactions) -> FittedPropensity: ...


@dataclass(frozen=True, slots=True, eq=False)
class ByItem(FittedPropensity):
    """One propensity an item; items never seen get `unseen`."""

    items: Ids
    values: Floats
    unseen: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        if len(self.items) == 0:
            return np.full(len(items), self.unseen)
        if (self.items.dtype.kind in "iuf") != (items.dtype.kind in "iuf"):
            raise DataError(
                f"items must be ids as in the log ({self.items.dtype}), got {items.dtype}. Convert them."
            )
        at = np.minimum(np.searchsorted(self.items, items), len(self.items) - 1)
        return np.where(self.items[at] == items, self.values[at], self.unseen)


@dataclass(frozen=True, slots=True)
class Constant(FittedPropensity):
    """The same propensity for every pair."""

    value: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        return np.full(len(users), self.value)


def require_probability(name: str, value: float) -> None:
    """A setting that must be a usable propensity."""
    if not 0 < value <= 1:
        raise DataError(f"{name} must lie in (0, 1], got {value}.")
