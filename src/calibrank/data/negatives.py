"""Negatives: pairs drawn at random from those a user is not known to like."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._validation import row_numbers
from calibrank.errors import DataError
from calibrank.tables import Interactions

_DENSE = 2**28  # cells of a mask of bits: 32 MiB
_ROUNDS = 20

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Positives:
    """Which pairs are liked: a bit a cell where that fits in memory, else a sorted list of cells."""

    n_users: int
    n_items: int
    cells: Rows
    """Sorted, each once: user * n_items + item."""
    bits: npt.NDArray[np.uint8] | None

    @classmethod
    def of(cls, *logs: Interactions) -> "Positives":
        """The positives of logs of one world, whose users and items are row numbers."""
        n_users, n_items = logs[0].n_users, logs[0].n_items
        liked = [log.positives() for log in logs]
        users = np.concatenate([row_numbers("users", log.users, n_users) for log in liked])
        items = np.concatenate([row_numbers("items", log.items, n_items) for log in liked])
        cells = np.unique(users * n_items + items)
        return cls(n_users, n_items, cells, _bits(cells, n_users * n_items))

    def has(self, users: Rows, items: Rows) -> npt.NDArray[np.bool_]:
        """Whether each pair is liked."""
        cells = users * self.n_items + items
        if self.bits is not None:
            return (self.bits[cells >> 3] >> (cells & 7) & 1).astype(bool)
        if not len(self.cells):
            return np.zeros(len(cells), dtype=bool)
        at = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        return self.cells[at] == cells

    def of_user(self, user: int) -> Rows:
        """The items a user likes."""
        ends = np.searchsorted(self.cells, [user * self.n_items, (user + 1) * self.n_items])
        return self.cells[slice(*ends)] - user * self.n_items


def draw_negatives(positives: Positives, users: Rows, rng: np.random.Generator) -> Rows:
    """For each user given, an item drawn uniformly from those it does not like."""
    items = rng.integers(0, positives.n_items, len(users))
    wrong = np.flatnonzero(positives.has(users, items))
    for _ in range(_ROUNDS):
        if not len(wrong):
            return items
        items[wrong] = rng.integers(0, positives.n_items, len(wrong))
        wrong = wrong[positives.has(users[wrong], items[wrong])]
    for row in wrong:  # users who like nearly everything: choose from what is left
        left = np.setdiff1d(
            np.arange(positives.n_items), positives.of_user(int(users[row])), assume_unique=True
        )
        if not len(left):
            raise DataError(
                f"user {users[row]} must have an item it does not like, got none. Leave that user out."
            )
        items[row] = rng.choice(left)
    return items


def population_negatives(positives: Positives, most: int = 100) -> tuple[int, float | None]:
    """How many negatives to draw a positive, and what each must weigh, to stand for all pairs not known to be liked.

    Then held-out positives and their negatives are the same share of what each was drawn from. It is honest about the
    sampling, and still not the base rate: pairs never shown are counted as disliked.
    """
    liked = max(len(positives.cells), 1)
    ratio = (positives.n_users * positives.n_items - liked) / liked
    each = int(min(max(round(ratio), 1), most))
    return each, None if each == round(ratio) else ratio / each


def with_negatives(
    held_out: Interactions, positives: Positives, each: int, rng: np.random.Generator
) -> Interactions:
    """Held-out positives followed by `each` negatives a positive, of the same users: what calibration is fitted on.

    The number of negatives sets the base rate that a fit will believe in: nothing in a biased log does.
    """
    if each < 1:
        raise DataError(f"each positive must get at least one negative, got {each}.")
    users = np.repeat(row_numbers("users", held_out.users, positives.n_users), each)
    items = draw_negatives(positives, users, rng)
    return Interactions(
        np.concatenate([held_out.users, users]),
        np.concatenate([held_out.items, items]),
        np.concatenate([np.ones(len(held_out)), np.zeros(len(users))]),
        held_out.n_users,
        held_out.n_items,
    )


def _bits(cells: Rows, size: int) -> npt.NDArray[np.uint8] | None:
    if size > _DENSE:
        return None
    bits = np.zeros((size >> 3) + 1, dtype=np.uint8)
    np.bitwise_or.at(bits, cells >> 3, (1 << (cells & 7)).astype(np.uint8))
    return bits
