"""Sampled negatives: pairs drawn at random from those without a positive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, require_seed, seeded, whole
from calibrank._internal.validation import Floats, ids, row_numbers
from calibrank.errors import DataError
from calibrank.tables import Interactions

# Up to this many pairs (a bit mask of 32 MiB) membership is looked up in a mask: it is several
# times faster than a binary search in the sorted list.
_MASK_PAIRS = 2**28
# Negatives drawn at once: 100 GB of columns.
_MOST_NEGATIVES = 10**9
# A user with a positive for half of the items escapes 20 rounds with probability 2**-20.
_REJECTION_ROUNDS = 20

Rows = npt.NDArray[np.intp]


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
        return cls(n_users, n_items, cells, _bit_mask(cells, n_users * n_items))

    def has(self, users: Rows, items: Rows) -> npt.NDArray[np.bool_]:
        """Whether each pair is a positive."""
        cells = users * self.n_items + items
        if self.bits is not None:
            return (self.bits[cells >> 3] >> (cells & 7) & 1).astype(bool)
        if not len(self.cells):
            return np.zeros(len(cells), dtype=bool)
        nearest = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        return self.cells[nearest] == cells

    def of_user(self, user: int) -> Rows:
        """The items with which a user has a positive."""
        first = user * self.n_items
        start, end = np.searchsorted(self.cells, [first, first + self.n_items])
        return self.cells[start:end] - first


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
        items[row] = rng.choice(_other_items(positives, int(users[row])))
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
    return Interactions(
        np.concatenate([held_out.users, users]),
        np.concatenate([held_out.items, items]),
        np.concatenate([np.ones(len(held_out)), np.zeros(len(users))]),
        held_out.n_users,
        held_out.n_items,
        ratings=_with_unrated(held_out.ratings, len(users)),
    )


def _with_unrated(ratings: Floats | None, count: int) -> Floats | None:
    if ratings is None:
        return None
    return np.concatenate([ratings, np.full(count, np.nan)])


def _other_items(positives: Positives, user: int) -> Rows:
    items = np.arange(positives.n_items)
    others = np.setdiff1d(items, positives.of_user(user), assume_unique=True)
    if not len(others):
        raise DataError(
            f"user {user}",
            "have an item without a positive to draw as a negative",
            "none",
            "Leave that user out.",
        )
    return others


def _bit_mask(cells: Rows, size: int) -> npt.NDArray[np.uint8] | None:
    if size > _MASK_PAIRS:
        return None
    bits = np.zeros((size >> 3) + 1, dtype=np.uint8)
    # Several pairs share a byte, so the bits must be combined one by one.
    np.bitwise_or.at(bits, cells >> 3, (1 << (cells & 7)).astype(np.uint8))
    return bits
