"""Propensities from item popularity, and the baselines they are compared with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats
from calibrank.errors import DataError
from calibrank.propensity.propensity import ByItem, Constant, require_probability
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True)
class Popularity:
    """(positives of the item / positives of the most popular item) ** power, at least `clip` (the paper's choice).

    It orders items by exposure but cannot know the absolute rate: the most popular item gets 1 by decree.

    >>> log = Interactions(users=[1, 2, 3, 4, 1], items=["a", "a", "a", "a", "b"])
    >>> Popularity().fit(log).predict([9, 9, 9], ["a", "b", "new"])
    array([1. , 0.5, 0.1])
    """

    power: float = 0.5
    clip: float = 0.1

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)
        if not 0 <= self.power < np.inf:
            raise DataError(f"power must be 0 or more, got {self.power}.")

    def fit(self, interactions: Interactions) -> ByItem:
        items, counts = np.unique(interactions.items[interactions.labels == 1], return_counts=True)
        if not len(items):
            raise DataError("interactions must hold a positive to tell popularity, got none.")
        return ByItem(items, self.of_counts(counts), self.clip)

    def exposure(self, counts: Any, largest: float | None = None) -> Any:
        """Each item's count of positives, or sum of their weights, relative to the largest.

        Arrays find the largest by themselves; a Spark column is given it.
        """
        return counts / (counts.max() if largest is None else largest)

    def propensity(self, exposure: Any, maximum: Callable[[Any, float], Any] = np.maximum) -> Any:
        """Propensities from exposures; `maximum` is that of the engine that holds them."""
        return maximum(exposure**self.power, self.clip)

    def of_counts(self, counts: npt.NDArray[np.integer[Any]]) -> Floats:
        """Propensities of items from their numbers of positives."""
        return self.propensity(self.exposure(counts))

    of_exposure = propensity


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every pair is observed with the same probability; 1 makes `ips` the same as `naive`.

    >>> Uniform(0.5).fit(Interactions([1], [1])).predict([1, 2], [3, 4])
    array([0.5, 0.5])
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        require_probability("value", self.value)

    def fit(self, interactions: Interactions) -> Constant:
        return Constant(self.value)


@dataclass(frozen=True, slots=True)
class Random:
    """A random propensity in [clip, 1] for each item: the baseline that any estimate must beat.

    >>> fitted = Random(seed=1).fit(Interactions([1, 2], ["a", "b"]))
    >>> bool((fitted.predict([1], ["a"]) == fitted.predict([2], ["a"])).all())
    True
    """

    seed: int = 0
    clip: float = 0.1

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)

    def fit(self, interactions: Interactions) -> ByItem:
        items = np.unique(interactions.items)
        values = np.random.default_rng(self.seed).uniform(self.clip, 1, len(items))
        return ByItem(items, values, (1 + self.clip) / 2)
