"""Splits: which rows of each user are held out, and the negatives that are drawn beside them.

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
from calibrank._internal.validation import ids, require, row_numbers
from calibrank.errors import DataError
from calibrank.tables import Interactions

Keys = npt.NDArray[np.floating]
Rows = npt.NDArray[np.intp]

# Up to this many pairs (a bit mask of 32 MiB) membership is looked up in a mask: it is several
# times faster than a binary search in the sorted list.
_MASK_PAIRS = 2**28
# Negatives drawn at once: 100 GB of columns.
_MOST_NEGATIVES = 10**9
# A user with a positive for half of the items escapes 20 rounds with probability 2**-20.
_REJECTION_ROUNDS = 20


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
        held_out = np.maximum(np.rint(counts * self.fraction), 1).astype(np.intp)
        is_held_out = places_from_end < np.where(counts >= self.at_least, held_out, 0)[users]
        is_kept = np.ones(len(interactions), dtype=bool)
        is_kept[order[is_held_out]] = False
        return interactions.take(is_kept), interactions.take(~is_kept)

    def with_seed(self, seed: int | np.random.Generator) -> Self:
        """The same split with another seed; a split that is not random is returned unchanged."""
        return self

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
class RandomSplit(Split):
    """Hold out rows drawn uniformly at random.

    >>> log = Interactions(users=[0] * 10, items=range(10))
    >>> RandomSplit(seed=3).divide(log)[1]
    Interactions(1 rows, 1 positive, 1 users, 10 items)
    """

    seed: int | np.random.Generator = 0

    def __post_init__(self) -> None:
        Split.__post_init__(self)
        require_seed(self.seed)

    def with_seed(self, seed: int | np.random.Generator) -> Self:
        return replace(self, seed=seed)

    def _keys(self, rows: Interactions) -> Keys:
        return seeded(self.seed).random(len(rows))


class TimeSplit(Split):
    """Hold out the latest rows, as a deployed model would meet them."""

    __slots__ = ()

    def _keys(self, rows: Interactions) -> Keys:
        if rows.times is None:
            raise DataError("interactions", "have times to split by", "none", "Use RandomSplit.")
        remedy = "Drop rows without a time, or use RandomSplit."
        require(np.isfinite, "times", "be known to split by them", rows.times, remedy)
        return rows.times


@dataclass(frozen=True, slots=True, eq=False)
class Positives:
    """The set of positive pairs, numbered user * n_items + item."""

    n_users: int
    n_items: int
    cells: Rows
    """The pair numbers, sorted and distinct."""
    bits: npt.NDArray[np.uint8] | None
    """One bit per pair, or None where the mask would be too large."""

    @classmethod
    def of(cls, *logs: Interactions) -> Positives:
        """The positives of logs that share their users and items, which must be row numbers."""
        for log in logs:
            instance("interactions", log, Interactions)
        n_users = logs[0].n_users
        n_items = logs[0].n_items
        positives = [log.positives() for log in logs]
        users = np.concatenate([row_numbers("users", log.users, n_users) for log in positives])
        items = np.concatenate([row_numbers("items", log.items, n_items) for log in positives])
        cells = np.unique(users * n_items + items)
        bits = None
        if n_users * n_items <= _MASK_PAIRS:
            bits = np.zeros((n_users * n_items >> 3) + 1, dtype=np.uint8)
            # Several pairs share a byte, so the bits must be combined one by one.
            np.bitwise_or.at(bits, cells >> 3, (1 << (cells & 7)).astype(np.uint8))
        return cls(n_users, n_items, cells, bits)

    def has(self, users: Rows, items: Rows) -> npt.NDArray[np.bool_]:
        """Whether each pair is a positive."""
        cells = users * self.n_items + items
        if self.bits is not None:
            return (self.bits[cells >> 3] >> (cells & 7) & 1).astype(bool)
        if not len(self.cells):
            return np.zeros(len(cells), dtype=bool)
        nearest = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        return self.cells[nearest] == cells


def draw_negatives(positives: Positives, users: Rows, seed: int | np.random.Generator = 0) -> Rows:
    """For each of `users`, an item drawn uniformly from those with which it has no positive."""
    instance("positives", positives, Positives, "Make them with Positives.of(interactions).")
    rng = seeded(seed)
    users = row_numbers("users", ids("users", users), positives.n_users)
    items = rng.integers(0, positives.n_items, len(users))
    # Rejection sampling: draw again wherever the draw is a positive.
    rejected = np.flatnonzero(positives.has(users, items))
    for _ in range(_REJECTION_ROUNDS):
        if not len(rejected):
            return items
        items[rejected] = rng.integers(0, positives.n_items, len(rejected))
        rejected = rejected[positives.has(users[rejected], items[rejected])]
    # Users with a positive for nearly every item: list the remaining items and choose one.
    for row in rejected:
        others = np.flatnonzero(~positives.has(users[[row]], np.arange(positives.n_items)))
        if not len(others):
            rule, found = "have an item without a positive to draw as a negative", "none"
            raise DataError(f"user {users[row]}", rule, found, "Leave that user out.")
        items[row] = rng.choice(others)
    return items


def population_negatives(positives: Positives, most: int = 100) -> tuple[int, float | None]:
    """How many negatives to draw per positive, and the weight of each (None for weight 1).

    With these, held-out positives and their negatives are the same fraction of all positives and
    of all other pairs, so the sampling does not change the base rate. That base rate still counts
    every pair that was never shown as a negative.
    """
    instance("positives", positives, Positives, "Make them with Positives.of(interactions).")
    most = whole("most", most, 1)
    count = max(len(positives.cells), 1)
    ratio = (positives.n_users * positives.n_items - count) / count
    each = int(min(max(round(ratio), 1), most))
    return each, None if each == round(ratio) else ratio / each


def with_negatives(
    held_out: Interactions, positives: Positives, each: int, seed: int | np.random.Generator = 0
) -> Interactions:
    """Held-out positives followed by `each` negatives per positive, drawn for the same users.

    Calibrators are fitted on these pairs. The number of negatives sets the base rate of the fit,
    which a biased log does not identify; see `population_negatives`.
    """
    instance("held_out", held_out, Interactions)
    instance("positives", positives, Positives, "Make them with Positives.of(interactions).")
    require_seed(seed)
    each = whole("each", each, 1, _MOST_NEGATIVES // max(len(held_out), 1))
    users = np.repeat(row_numbers("users", held_out.users, positives.n_users), each)
    items = draw_negatives(positives, users, seed)
    ratings = held_out.ratings
    if ratings is not None:
        ratings = np.concatenate([ratings, np.full(len(users), np.nan)])
    return Interactions(
        np.concatenate([held_out.users, users]),
        np.concatenate([held_out.items, items]),
        np.concatenate([np.ones(len(held_out)), np.zeros(len(users))]),
        held_out.n_users,
        held_out.n_items,
        ratings=ratings,
    )
