"""Propensities from item popularity: the weighted counts and the formula, for every engine.

Code for numpy, Parquet and Spark takes both from here: `count_positives` counts,
`Popularity.exposure` divides by the highest count, `Popularity.propensity` maps exposure to
propensity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import real
from calibrank._internal.validation import Floats, Numbers, add_up, column, require_role
from calibrank.errors import DataError
from calibrank.propensity.propensity import ByItem, require_probability
from calibrank.tables import Frame, Interactions, as_interactions


def count_positives(
    item_codes: npt.NDArray[np.integer[Any]],
    labels: Floats,
    weights: Floats | None = None,
    size: int = 0,
) -> Floats:
    """The weighted number of positives of each item, for items numbered from 0.

    The result has at least `size` entries. Counts of several batches can be added.

    >>> codes, labels = np.array([0, 0, 1, 2]), np.array([1, 1, 1, 0])
    >>> count_positives(codes, labels, weights=np.array([1, 2, 1, 1]))
    array([3., 1., 0.])
    """
    masses = labels if weights is None else labels * weights
    return add_up(item_codes, masses, size)


Maximum = Callable[[Any, float], Any]
"""The elementwise maximum of values and a number: numpy's, or that of another engine."""


def power_law(exposure: Any, power: float, clip: float, maximum: Maximum = np.maximum) -> Any:
    """The propensity of a relative exposure in [0, 1]: exposure ** power, at least `clip`.

    `maximum` is the target's own for values other than numpy arrays, such as Spark columns.
    """
    return maximum(exposure**power, clip)


@dataclass(frozen=True, slots=True)
class Popularity:
    """Propensity = relative exposure ** power, at least `clip`, as in the paper.

    The relative exposure of an item is its number of positives over that of the most popular item.
    This orders items by exposure but cannot determine the absolute rate: the most popular item gets
    propensity 1 by definition.

    >>> log = Interactions(users=[1, 2, 3, 4, 1], items=["a", "a", "a", "a", "b"])
    >>> Popularity().fit(log).predict([9, 9, 9], ["a", "b", "new"])
    array([1. , 0.5, 0.1])
    """

    power: float = 0.5
    clip: float = 0.1

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)
        object.__setattr__(self, "power", real("power", self.power, "[0, inf)"))

    def fit(self, interactions: Interactions | Frame, weights: Numbers | None = None) -> ByItem:
        """Count the positives of each item; `weights` holds one weight per interaction.

        The log may be a dataframe with columns user, item and label; so for other estimators.

        >>> log = Interactions(users=[1, 2], items=["a", "b"])
        >>> Popularity().fit(log, weights=[4, 1]).predict([9, 9], ["a", "b"])
        array([1. , 0.5])
        """
        log = as_interactions(interactions)
        if weights is None:
            masses: Floats = np.ones(len(log))
        else:
            masses = column("weights", weights, len(log))
            require_role("weight", "weights", masses)
        # A row of weight 0 counts as absent: its item may be one that was never seen.
        kept = (log.labels == 1) & (masses > 0)
        items, codes = np.unique(log.items[kept], return_inverse=True)
        counts = count_positives(codes, log.labels[kept], masses[kept])
        if not len(counts):
            raise DataError(
                "interactions",
                "hold a positive to estimate popularity",
                "none",
                "Fit on a log with positives.",
            )
        propensity = self.propensity(self.exposure(counts))
        return ByItem(items, propensity, self.clip)

    @staticmethod
    def exposure(counts: Any, highest: Any = None) -> Any:
        """Relative exposure: numbers of positives over the highest number, in [0, 1].

        An engine that holds only some of the counts passes the `highest` of all.

        >>> Popularity.exposure(np.array([8, 2, 0]))
        array([1.  , 0.25, 0.  ])
        """
        return counts / (counts.max() if highest is None else highest)

    def propensity(self, exposure: Any, maximum: Maximum = np.maximum) -> Any:
        """The propensity of a relative exposure: exposure ** power, at least `clip`.

        >>> Popularity(power=0.5, clip=0.1).propensity(np.array([1.0, 0.25, 0.0]))
        array([1. , 0.5, 0.1])
        """
        return power_law(exposure, self.power, self.clip, maximum)
