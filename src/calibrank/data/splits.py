"""Splits: which rows of each user are held out for validation and calibration.

Each split orders a user's rows and holds out the last ones. Of a log of impressions, likes and
dislikes are held out alike, so that the share of likes stays the same; where only positives matter,
divide `interactions.positives()`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, real, require_seed, seeded, whole
from calibrank._internal.validation import Floats, require
from calibrank.errors import DataError
from calibrank.tables import Interactions

Keys = npt.NDArray[np.floating]
Counts = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Split(ABC):
    """Hold out a `fraction` of the rows of every user with at least `at_least` rows.

    The number is rounded, and at least one.
    """

    fraction: float = 0.1
    at_least: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "fraction", real("fraction", self.fraction, "(0, 1)"))
        remedy = "With less, a user may have no training row left."
        object.__setattr__(self, "at_least", whole("at_least", self.at_least, 2, remedy=remedy))

    def divide(self, interactions: Interactions) -> tuple[Interactions, Interactions]:
        """The rows to train on and the held-out rows, whatever their labels."""
        instance("interactions", interactions, Interactions)
        _, users = np.unique(interactions.users, return_inverse=True)
        # Sort by user and, within a user, by key; the last rows of each user are held out.
        keys = self._keys(interactions)
        order = np.lexsort((keys, users))
        users = users[order]
        counts = np.bincount(users)
        ends = np.cumsum(counts)
        places_from_end = ends[users] - 1 - np.arange(len(order))
        is_held_out = places_from_end < self._held_out_counts(counts)[users]
        is_kept = np.ones(len(interactions), dtype=bool)
        is_kept[order[is_held_out]] = False
        return interactions.take(is_kept), interactions.take(~is_kept)

    def with_seed(self, seed: int | np.random.Generator) -> Self:
        """The same split with another seed; a split that is not random is returned unchanged."""
        return self

    def _held_out_counts(self, counts: Counts) -> Counts:
        """How many rows of each user are held out, from the number the user has."""
        held_out = np.maximum(np.rint(counts * self.fraction), 1).astype(np.intp)
        return np.where(counts >= self.at_least, held_out, 0)

    @abstractmethod
    def _keys(self, rows: Interactions) -> Keys:
        """A sort key for each row; the highest of each user are held out."""


class ReleasedSplit(Split):
    """Hold out the rows with the highest item ids, as the paper's released code does.

    These are often items with few training positives. The result resembles random exposure, and the
    paper's numbers depend on it. A deployed model does not see such a set.
    """

    __slots__ = ()

    def _keys(self, rows: Interactions) -> Keys:
        _, item_ranks = np.unique(rows.items, return_inverse=True)
        return item_ranks.astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Seeded(Split):
    seed: int | np.random.Generator = 0

    def __post_init__(self) -> None:
        Split.__post_init__(self)
        require_seed(self.seed)

    def with_seed(self, seed: int | np.random.Generator) -> Self:
        return replace(self, seed=seed)

    def _keys(self, rows: Interactions) -> Keys:
        return seeded(self.seed).random(len(rows))


@dataclass(frozen=True, slots=True)
class RandomSplit(_Seeded):
    """Hold out rows drawn uniformly at random.

    >>> log = Interactions(users=[0] * 10, items=range(10))
    >>> RandomSplit(seed=3).divide(log)[1]
    Interactions(1 rows, 1 positive, 1 users, 10 items)
    """


class TimeSplit(Split):
    """Hold out the latest rows, as a deployed model would meet them."""

    __slots__ = ()

    def _keys(self, rows: Interactions) -> Keys:
        if rows.times is None:
            raise DataError("interactions", "have times to split by", "none", "Use RandomSplit.")
        return _known_times(rows.times)


@dataclass(frozen=True, slots=True)
class LeaveOneOut(_Seeded):
    """Hold out one row per user: the latest where times are known, otherwise a random one."""

    at_least: int = 2

    def _held_out_counts(self, counts: Counts) -> Counts:
        return (counts >= self.at_least).astype(np.intp)

    def _keys(self, rows: Interactions) -> Keys:
        return (
            seeded(self.seed).random(len(rows)) if rows.times is None else _known_times(rows.times)
        )


def _known_times(times: Floats) -> Floats:
    remedy = "Drop rows without a time, or use RandomSplit."
    require(np.isfinite, "times", "be known to split by them", times, remedy)
    return times
