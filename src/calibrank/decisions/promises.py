"""What can be promised about lists, and tests that hold for any distribution of users."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.validation import Floats, Mask
from calibrank.decisions.cuts import Shown
from calibrank.errors import DataError

STARTS = 8
"""Cuts at which `accept_forward` starts: at the shortest lists there is often nothing to prove."""

# A bet of 1 loses everything in the worst case.
_LARGEST_BET = 0.99


@dataclass(frozen=True, slots=True, eq=False)
class Ratios:
    """A loss and its base per user and cut (users x cuts), with 0 <= loss <= base <= 1.

    A promise is that the mean loss is at most a given share of the mean base.
    """

    loss: Floats
    base: Floats

    def excess(self, allowed: float) -> Floats:
        """How much more each user loses than is allowed; 1 is the worst case."""
        return (self.loss - allowed * self.base) / (1 - allowed)

    def kept_share(self) -> list[float | None]:
        """What is not lost, per cut; None where there is nothing to lose."""
        sums = zip(self.loss.sum(axis=0).tolist(), self.base.sum(axis=0).tolist(), strict=True)
        return [1 - loss / base if base else None for loss, base in sums]

    def only(self, users: Mask) -> Ratios:
        """The others lose nothing, and count for nothing."""
        return Ratios(self.loss * users[:, None], self.base * users[:, None])


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
            found = "None: one rare user with a long list can decide the share"
            remedy = "Give longest=10, or promise Precision, where every list counts the same."
            raise DataError("longest", "be given for PooledPrecision", found, remedy)
        largest = shown.longest / self.smallest_propensity
        return Ratios((shown.total - shown.positive) / largest, shown.total / largest)

    def __str__(self) -> str:
        return f"of all rows that are shown, at least {self.at_least:.0%} are relevant"


def log_capital(excess: Floats, allowed: float, error: float) -> Floats:
    """The log of the largest capital won by betting that the mean excess is negative, per cut.

    A bet b multiplies the capital by 1 - b excess, one user after the other. If the mean is not
    negative, the capital exceeds 1 / error with probability at most `error` (Ville's inequality),
    whatever the distribution. Bets follow the variance of the users before (Waudby-Smith and Ramdas
    2024, Eq. 24). Users must be in an order that does not depend on their labels.
    """
    users = len(excess)
    count = np.arange(1, users + 1)
    # The first bet assumes the largest variance, that of a coin with the width of the range.
    largest = 0.25 / (1 - allowed) ** 2
    result = np.zeros(excess.shape[1])
    for cut, values in enumerate(excess.T):
        mean = np.cumsum(values) / (count + 1)
        squares = np.concatenate([[largest], (values - mean)[:-1] ** 2])
        variance = np.cumsum(squares) / count
        bet = np.minimum(_LARGEST_BET, np.sqrt(2 * np.log(1 / error) / (users * variance)))
        # Where the mean itself is not negative, a lucky order of the users proves nothing.
        if mean[-1] < 0:
            result[cut] = np.cumsum(np.log1p(-bet * values)).max(initial=0)
    return result


def accept_forward(capital: Floats, error: float) -> Mask:
    """Which cuts keep a promise that short lists keep better, all of them with one error rate.

    The fallback procedure (Wiens, 2003): `STARTS` cuts have a share of the error probability, and
    an accepted cut hands its own on to the next longer list.
    """
    count = len(capital)
    starts = set(np.linspace(0, count - 1, min(STARTS, count)).astype(int).tolist())
    accepted = np.zeros(count, dtype=np.bool_)
    available = 0.0
    for position in range(count):
        available += error / len(starts) if position in starts else 0.0
        if available and capital[position] >= -np.log(available):
            accepted[position] = True
        else:
            available = 0.0
    return accepted


def accept_backward(capital: Floats, error: float) -> Mask:
    """Which cuts keep a promise that long lists keep better: from the longest, up to a failure."""
    enough = capital >= -np.log(error)
    return np.logical_and.accumulate(enough[::-1])[::-1]


@cache
def fewest_users(allowed: float, error: float) -> int:
    """How many users a promise needs, even if there is never any loss."""

    def is_enough(users: int) -> bool:
        without_loss = np.full((users, 1), -allowed / (1 - allowed))
        return bool(log_capital(without_loss, allowed, error)[0] >= -np.log(error))

    # Bets of 1 would need log(1 / error) / allowed users at most; first bets are smaller.
    most = int(10 * np.log(1 / error) / allowed) + 10
    return 1 + bisect_left(range(1, most), x=True, key=is_enough)


def users_needed(excess: Floats, allowed: float, error: float) -> Floats:
    """About how many users like these each cut would need; infinite where these break the promise.

    After n users the best bets have won about n mean^2 / (2 variance), in logs.
    """
    gain = np.maximum(-excess.mean(axis=0), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_variance = 2 * np.log(1 / error) * excess.var(axis=0) / gain**2
        # Users who are shown nothing do not count.
        without_loss = fewest_users(allowed, error) / np.mean(excess != 0, axis=0)
    return np.where(gain > 0, np.maximum(by_variance, without_loss), np.inf)
