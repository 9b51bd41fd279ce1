"""What can be promised about lists: precision and recall, per list or over all pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.validation import Floats, Mask
from calibrank.decisions.bounds import STARTS, Ratios, accept_backward, accept_forward
from calibrank.decisions.cuts import Shown
from calibrank.errors import DataError


@dataclass(frozen=True, slots=True)
class Promise(ABC):
    """A share that is reached on average over new users, or queries."""

    at_least: float
    name: ClassVar[str]
    grows: ClassVar[bool]
    """Whether longer lists keep it better."""
    starts: ClassVar[int] = 1
    """Between how many cuts the error probability is shared."""

    def __post_init__(self) -> None:
        real(self.name, self.at_least, "(0, 1)", "Use e.g. 0.8.")

    @property
    def allowed(self) -> float:
        """The largest share that may be lost."""
        return 1 - self.at_least

    @abstractmethod
    def ratios(self, shown: Shown) -> Ratios:
        """What is lost, and of what, per user and cut."""

    @abstractmethod
    def __str__(self) -> str:
        """The promise as the end of a sentence."""

    def accept(self, capital: Floats, error: float) -> Mask:
        """The cuts that keep the promise, given the capital that was won at each."""
        return (accept_backward if self.grows else accept_forward)(capital, error)


@dataclass(frozen=True, slots=True)
class Precision(Promise):
    """At least this share of a list is relevant, on average over lists that are not empty.

    Every list counts the same, however long it is.
    """

    name: ClassVar = "precision"
    grows: ClassVar = False
    starts: ClassVar = STARTS

    def ratios(self, shown: Shown) -> Ratios:
        """The irrelevant share of each list; an empty list counts for nothing."""
        is_shown = shown.total > 0
        share = (shown.total - shown.positive) / np.where(is_shown, shown.total, 1)
        return Ratios(share, is_shown.astype(np.float64))

    def __str__(self) -> str:
        return f"lists are on average at least {self.at_least:.0%} relevant"


@dataclass(frozen=True, slots=True)
class Recall(Promise):
    """At least this share of a user's relevant rows is shown, on average over users who have any.

    Rows that are not among the candidates cannot be shown, and do not count as missed.
    """

    name: ClassVar = "recall"
    grows: ClassVar = True

    def ratios(self, shown: Shown) -> Ratios:
        """The share that is missed; users without relevant rows count for nothing."""
        has_any = shown.all_positive > 0
        missed = 1 - shown.positive / np.where(has_any, shown.all_positive, 1)
        # Sums in another order may differ in the last digit.
        missed = np.clip(np.where(has_any, missed, 0), 0, 1)
        return Ratios(missed, np.broadcast_to(has_any.astype(np.float64), missed.shape))

    def __str__(self) -> str:
        return f"lists show on average at least {self.at_least:.0%} of the relevant candidates"


@dataclass(frozen=True, slots=True)
class PooledPrecision(Promise):
    """At least this share of all that is shown is relevant; users with long lists count more.

    It needs the length of the longest list: without a limit, one rare user with a long list can
    decide the share, and no number of other users rules that out. Pairs that were shown with
    different probabilities need the smallest of them, by the design of the log.
    """

    name: ClassVar = "precision"
    grows: ClassVar = False
    starts: ClassVar = STARTS
    smallest_propensity: float = 1.0

    def __post_init__(self) -> None:
        # `super()` without arguments does not work in dataclasses with slots.
        Promise.__post_init__(self)
        real("smallest_propensity", self.smallest_propensity, "(0, 1]")

    def ratios(self, shown: Shown) -> Ratios:
        """The irrelevant and all mass, as shares of the largest mass of a list."""
        if shown.longest is None:
            raise DataError(
                "longest",
                "be given for PooledPrecision",
                "None: one rare user with a long list can decide the share",
                ("Give longest=10, or promise Precision, where every list counts the same."),
            )
        largest = shown.longest / self.smallest_propensity
        return Ratios((shown.total - shown.positive) / largest, shown.total / largest)

    def __str__(self) -> str:
        return f"of all rows that are shown, at least {self.at_least:.0%} are relevant"
