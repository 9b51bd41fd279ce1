"""Where a list ends: by probability, by rank, or by the gap to its best row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from calibrank._internal.arguments import whole
from calibrank._internal.validation import Floats, Indices, Integers, add_up, column, require_role
from calibrank.evidence import Evidence

_FRACTIONS: Floats = np.concatenate([np.arange(20) / 1000, np.arange(2, 100) / 100])
# Every rank up to 50, then steps of 5%, up to 1,000.
_RANKS: Floats = np.concatenate([np.arange(1, 51), np.round(50 * 1.05 ** np.arange(1, 62))])
_LARGEST_RANK = 10**6


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Rows as lists: by user, most probable first. Ties count against every promise."""

    probabilities: Floats
    positive: Floats
    total: Floats
    users: Integers
    rank: Indices
    """Counted from 1."""
    best: Floats
    """The highest probability of each user."""
    longest: int | None
    is_sample: bool
    """Whether rows are some of the candidates, so that their ranks are not those of lists."""

    @classmethod
    def of(
        cls,
        probabilities: Floats,
        evidence: Evidence,
        users: Integers,
        longest: int | None,
        *,
        is_sample: bool = False,
    ) -> Lists:
        """Sort rows into lists; `users` are numbered from 0."""
        order = np.lexsort((evidence.positive, -probabilities, users))
        codes = users[order]
        starts = np.concatenate([[0], np.cumsum(np.bincount(users))[:-1]])
        rank = np.arange(1, len(order) + 1) - starts[codes]
        ordered = probabilities[order]
        evidence = evidence.rows(order)
        best = ordered[starts]
        masses = (evidence.positive, evidence.total)
        return cls(ordered, *masses, codes, rank, best, longest, is_sample)

    def shown(self, cut: Cut) -> Shown:
        """What each user is shown at each value of the cut.

        Nothing where a sample has more rows of a list than the longest: it would be cut at a rank.
        """
        first = cut.first(self)
        size = len(cut.values)
        is_possible = np.ones(size, dtype=np.bool_)
        if self.longest is not None and self.is_sample:
            rows = mass_shown(self.users, first, np.ones(len(first)), size)
            is_possible = rows.max(axis=0) <= self.longest
        elif self.longest is not None:
            first = np.where(self.rank <= self.longest, first, size)
        all_positive = add_up(self.users, self.positive)
        return Shown(
            positive=mass_shown(self.users, first, self.positive, size) * is_possible,
            total=mass_shown(self.users, first, self.total, size) * is_possible,
            all_positive=all_positive[:, None],
            longest=self.longest,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The mass that each user is shown at each value of a cut, users x values."""

    positive: Floats
    total: Floats
    all_positive: Floats
    """The positive mass of all of a user's rows, shown or not (users x 1)."""
    longest: int | None


def mass_shown(users: Integers, first: Integers, mass: Floats, size: int) -> Floats:
    """Sums per user and value of a cut of the rows shown there; `first` is where a row appears."""
    count = int(users.max()) + 1
    cells = users * (size + 1) + first
    sums = add_up(cells, mass, count * (size + 1)).reshape(count, size + 1)
    return sums.cumsum(axis=1)[:, :-1]


@dataclass(frozen=True, slots=True)
class Cut(ABC):
    """A rule that ends a list, with the values of it to test."""

    values: tuple[float, ...] = field(default=(), repr=False)
    """Distinct, from the shortest list to the longest; they must not be chosen by the labels."""
    name: ClassVar[str]
    by_default: ClassVar[Floats]

    def __post_init__(self) -> None:
        given = column(f"values of {type(self).__name__}", self.values or self.by_default)
        self._check(given)
        distinct = np.unique(given.astype(np.float64))
        ordered = sorted(distinct.tolist(), reverse=isinstance(self, Threshold))
        object.__setattr__(self, "values", tuple(ordered))

    def _check(self, values: Floats) -> None:
        require_role("probability", f"values of {type(self).__name__}", values)

    @abstractmethod
    def first(self, lists: Lists) -> Indices:
        """The number of the first value at which each row is shown."""

    @abstractmethod
    def words(self, value: float) -> str:
        """The rule at one of its values, as an instruction."""


@dataclass(frozen=True, slots=True)
class Threshold(Cut):
    """Show what has a probability of at least a threshold."""

    name: ClassVar = "threshold"
    by_default: ClassVar = _FRACTIONS

    def first(self, lists: Lists) -> Indices:
        return np.searchsorted(-np.array(self.values), -lists.probabilities, side="left")

    def words(self, value: float) -> str:
        return f"Show what has a probability of {value:.3g} or more"


@dataclass(frozen=True, slots=True)
class Rank(Cut):
    """Show the first rows of each list."""

    name: ClassVar = "rank"
    by_default: ClassVar = _RANKS

    def _check(self, values: Floats) -> None:
        for value in values.tolist():
            whole("values of Rank", int(value) if value % 1 == 0 else value, 1, _LARGEST_RANK)

    def first(self, lists: Lists) -> Indices:
        return np.searchsorted(np.array(self.values), lists.rank, side="left")

    def words(self, value: float) -> str:
        return f"Show the best {value:.0f} of each list"


@dataclass(frozen=True, slots=True)
class Gap(Cut):
    """Show what has a probability close to the best one of its list."""

    name: ClassVar = "gap"
    by_default: ClassVar = np.append(_FRACTIONS, 1.0)

    def first(self, lists: Lists) -> Indices:
        gaps = lists.best[lists.users] - lists.probabilities
        return np.searchsorted(np.array(self.values), gaps, side="left")

    def words(self, value: float) -> str:
        return f"Show what has a probability at most {value:.3g} below the best of its list"


CUTS: tuple[Cut, ...] = (Threshold(), Rank(), Gap())
"""All kinds of cuts: try them together where the rows of a user are all candidates."""
