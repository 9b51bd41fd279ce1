"""Splits: which of each user's positives are kept from training, to stop by and to calibrate on.

Each split is an order of a user's positives; the last ones are held out.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank.errors import DataError
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True)
class Split(ABC):
    """Users with at least `at_least` positives give a `fraction` of them (rounded, one at the least)."""

    fraction: float = 0.1
    at_least: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise DataError(f"fraction must lie between 0 and 1, got {self.fraction}.")
        if self.at_least < 2:
            raise DataError(
                f"at_least must be 2 or more, or a user may have nothing left, got {self.at_least}."
            )

    def divide(self, interactions: Interactions) -> tuple[Interactions, Interactions]:
        """What to train on, and the positives held out; rows that are not liked stay with the former."""
        liked = np.flatnonzero(interactions.labels == 1)
        _, people = np.unique(interactions.users[liked], return_inverse=True)
        place = self._place(interactions.take(liked))
        order = np.lexsort((place, people))
        owned = np.bincount(people) if len(people) else np.zeros(0, dtype=np.intp)
        ends = np.cumsum(owned)
        from_last = ends[people[order]] - 1 - np.arange(len(order))
        held = liked[order[from_last < self._given(owned)[people[order]]]]
        kept = np.ones(len(interactions), dtype=bool)
        kept[held] = False
        return interactions.take(kept), interactions.take(np.sort(held))

    def _given(self, owned: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """How many of their positives users give."""
        share = np.maximum(np.rint(owned * self.fraction), 1).astype(np.intp)
        return np.where(owned >= self.at_least, share, 0)

    @abstractmethod
    def _place(self, positives: Interactions) -> npt.NDArray[np.floating]:
        """A number for each positive; the highest of a user are held out."""


class ReleasedSplit(Split):
    """The last by item, as in the paper's released code: it holds out items that were hardly seen.

    This looks like random exposure, and the paper's numbers rest on it. A deployed model will not see such a set.
    """

    __slots__ = ()

    def _place(self, positives: Interactions) -> npt.NDArray[np.floating]:
        return np.unique(positives.items, return_inverse=True)[1].astype(np.float64)


@dataclass(frozen=True, slots=True)
class RandomSplit(Split):
    """Any of a user's positives, with equal chance.

    >>> log = Interactions(users=[0] * 10, items=range(10))
    >>> RandomSplit(seed=3).divide(log)[1]
    Interactions(1 rows, 1 positive, 1 users, 10 items)
    """

    seed: int = 0

    def _place(self, positives: Interactions) -> npt.NDArray[np.floating]:
        return np.random.default_rng(self.seed).random(len(positives))


class TimeSplit(Split):
    """The latest ones: what a deployed model would meet."""

    __slots__ = ()

    def _place(self, positives: Interactions) -> npt.NDArray[np.floating]:
        if positives.times is None:
            raise DataError("interactions must have times to split by, got none. Use RandomSplit.")
        return positives.times


@dataclass(frozen=True, slots=True)
class LeaveOneOut(Split):
    """One positive a user: the latest where times are known, else any."""

    at_least: int = 2
    seed: int = 0

    def _given(self, owned: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        return (owned >= self.at_least).astype(np.intp)

    def _place(self, positives: Interactions) -> npt.NDArray[np.floating]:
        return (
            np.random.default_rng(self.seed).random(len(positives))
            if positives.times is None
            else positives.times
        )
