"""What scores pairs, and what all our scorers share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, IdsLike, ids, row_numbers
from calibrank.errors import DataError

_CELLS = 2**24  # scores held at a time
_PAIRS = 2**16


class Scorer(Protocol):
    """Anything that scores pairs of row numbers: our models, or a function of yours in a class."""

    def score(self, users: IdsLike, items: IdsLike) -> Floats: ...


@dataclass(frozen=True, slots=True, eq=False)
class Factors(ABC):
    """A vector a user and a vector an item, and a formula for two of them.

    The formulas use only operators that numpy and torch share, so that training judges by the very code that scores.
    """

    users: Floats
    items: Floats
    weights: dict[str, Floats]
    kind: ClassVar[str]

    @staticmethod
    @abstractmethod
    def pairs(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        """The score of each user's vector with the item's vector in the same row."""

    @staticmethod
    @abstractmethod
    def grid(users: Any, items: Any, weights: dict[str, Any]) -> Any:
        """The score of every user's vector with every item's."""

    @classmethod
    def numbers_per_cell(cls, width: int) -> int:
        """How many numbers `grid` holds at a time for each score, with vectors of this width."""
        return 1

    def score(self, users: IdsLike, items: IdsLike) -> Floats:
        """The score of each pair of row numbers."""
        people = row_numbers("users", ids("users", users), len(self.users))
        things = row_numbers("items", ids("items", items, len(people)), len(self.items))
        parts = [
            self.pairs(
                self.users[people[at : at + _PAIRS]],
                self.items[things[at : at + _PAIRS]],
                self.weights,
            )
            for at in range(0, len(people), _PAIRS)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=self.users.dtype)

    def score_all(self, users: IdsLike) -> Floats:
        """A row of scores a user, a column an item."""
        people = row_numbers("users", ids("users", users), len(self.users))
        parts = [
            self.grid(self.users[some], self.items, self.weights) for some in self._blocks(people)
        ]
        return (
            np.concatenate(parts)
            if parts
            else np.empty((0, len(self.items)), dtype=self.users.dtype)
        )

    def _blocks(self, people: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
        """Users a few at a time: no more than memory likes."""
        step = max(1, _CELLS // (len(self.items) * self.numbers_per_cell(self.users.shape[1])))
        return [people[at : at + step] for at in range(0, len(people), step)]

    def recommend(
        self, users: IdsLike, k: int, hide: tuple[IdsLike, IdsLike] | None = None
    ) -> tuple[npt.NDArray[np.intp], Floats]:
        """Each user's `k` best items and their scores, best first; pairs in `hide` (users, items) are left out.

        A user with fewer than `k` items left gets item -1 with score -inf in the places that stay empty.
        """
        people = row_numbers("users", ids("users", users), len(self.users))
        if not 1 <= k <= len(self.items):
            raise DataError(f"k must be 1 to the {len(self.items):,} items there are, got {k}.")
        hidden = _Hidden.of(hide, len(self.users), len(self.items))
        parts = [self._best(some, k, hidden) for some in self._blocks(people)]
        empty = (np.empty((0, k), dtype=np.intp), np.empty((0, k), dtype=self.users.dtype))
        items, scores = zip(*(parts or [empty]), strict=True)
        return np.concatenate(items), np.concatenate(scores)

    def _best(
        self, people: npt.NDArray[np.intp], k: int, hidden: "_Hidden"
    ) -> tuple[npt.NDArray[np.intp], Floats]:
        scores = self.grid(self.users[people], self.items, self.weights)
        scores[hidden.cells(people)] = -np.inf
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        chosen = np.take_along_axis(scores, best, axis=1)
        order = np.lexsort((best, -chosen), axis=1)
        best, chosen = (
            np.take_along_axis(best, order, axis=1),
            np.take_along_axis(chosen, order, axis=1),
        )
        return np.where(np.isneginf(chosen), -1, best), chosen


@dataclass(frozen=True, slots=True, eq=False)
class _Hidden:
    """Items not to be recommended, by user."""

    starts: npt.NDArray[np.intp]
    items: npt.NDArray[np.intp]

    @classmethod
    def of(cls, pairs: tuple[IdsLike, IdsLike] | None, n_users: int, n_items: int) -> "_Hidden":
        if pairs is None:
            return cls(np.zeros(n_users + 1, dtype=np.intp), np.empty(0, dtype=np.intp))
        people = row_numbers("users", ids("users", pairs[0]), n_users)
        things = row_numbers("items", ids("items", pairs[1], len(people)), n_items)
        counts = np.bincount(people, minlength=n_users)
        return cls(np.r_[0, np.cumsum(counts)], things[np.argsort(people, kind="stable")])

    def cells(
        self, people: npt.NDArray[np.intp]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Rows and columns of the scores of these users that are hidden."""
        spans = [self.items[self.starts[person] : self.starts[person + 1]] for person in people]
        rows = np.repeat(np.arange(len(people)), [len(span) for span in spans])
        return rows, np.concatenate([np.empty(0, dtype=np.intp), *spans])
