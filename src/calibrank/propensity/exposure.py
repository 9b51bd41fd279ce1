"""Propensities of being shown, from the counts of a log of impressions.

Code for numpy, Parquet and Spark takes the formula from here: `Exposure.factor` turns the number of
impressions of an item or a user into a relative exposure, and a pair's propensity is the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.validation import Floats, Ids, Numbers, column, require_role
from calibrank.errors import DataError
from calibrank.propensity.popularity import Maximum, power_law
from calibrank.propensity.propensity import ByItem, FittedPropensity, require_probability
from calibrank.tables import Frame, Interactions, as_interactions


@dataclass(frozen=True, slots=True)
class Exposure:
    """P(shown) up to a constant factor: item exposure x user exposure, each at least `clip`.

    The exposure of an item is its number of impressions, whatever their labels, over that of the
    item shown most; that of a user likewise. The logarithm is thus additive in items and users, as
    it is if who is shown much does not depend on what is shown. Use it with `impressions`, whose
    rates are self-normalised, so that the constant factor does not matter.

    >>> log = Interactions(users=[1, 1, 2, 2], items=["a", "b", "a", "a"], labels=[0, 1, 0, 1])
    >>> Exposure().fit(log).predict([1, 1, 2], ["a", "b", "b"]).round(3)
    array([1.   , 0.333, 0.333])
    """

    by_user: bool = True
    """Whether exposure differs between users; otherwise only the item counts."""
    clip: float = 0.01

    def __post_init__(self) -> None:
        instance("by_user", self.by_user, bool)
        require_probability("clip", self.clip)

    def fit(
        self, interactions: Interactions | Frame, weights: Numbers | None = None
    ) -> FittedExposure:
        """Count the impressions of each item and user; `weights` holds one weight per row."""
        log = as_interactions(interactions)
        masses: Floats = np.ones(len(log))
        if weights is not None:
            masses = column("weights", weights, len(log))
            require_role("weight", "weights", masses)
        if not masses.any():
            raise DataError(
                "interactions",
                "hold an impression to estimate exposure",
                "none",
                "Fit on the log of what was shown.",
            )
        items = self._by_id(log.items, masses)
        users = self._by_id(log.users, masses) if self.by_user else None
        return FittedExposure(items, users, self.clip)

    def factor(self, counts: Any, highest: Any, maximum: Maximum = np.maximum) -> Any:
        """The relative exposure for a number of impressions: the share of the highest number.

        >>> Exposure(clip=0.1).factor(np.array([8, 2, 0]), 8)
        array([1.  , 0.25, 0.1 ])
        """
        return power_law(counts / highest, 1, self.clip, maximum)

    def _by_id(self, ids: Ids, masses: Floats) -> ByItem:
        names, codes = np.unique(ids, return_inverse=True)
        counts = np.bincount(codes, masses)
        return ByItem(names, self.factor(counts, counts.max()), self.clip)


@dataclass(frozen=True, slots=True, eq=False)
class FittedExposure(FittedPropensity):
    """Relative exposure of items and users; ids that are not in the log get `clip`."""

    items: ByItem
    users: ByItem | None
    clip: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        by_item = self.items.predict(items, items)
        if self.users is None:
            return by_item
        # `ByItem` looks its second argument up.
        return by_item * self.users.predict(users, users)


def effective_rows(weights: Numbers) -> float:
    """Kish's effective sample size: as many rows of equal weight have the same variance.

    >>> effective_rows([1, 1, 1, 1]), round(effective_rows([10, 1, 1, 1]), 2)
    (4.0, 1.64)
    """
    array = column("weights", weights)
    require_role("weight", "weights", array)
    squares = float((array**2).sum())
    return float(array.sum() ** 2) / squares if squares else 0.0
