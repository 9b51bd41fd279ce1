"""Tests that a mean is small enough, valid for any distribution and any number of users."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

import numpy as np

from calibrank._internal.validation import Floats, Mask

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
        result: Floats = (self.loss - allowed * self.base) / (1 - allowed)
        return result

    def kept_share(self) -> list[float | None]:
        """What is not lost, per cut; None where there is nothing to lose."""
        sums = zip(self.loss.sum(axis=0).tolist(), self.base.sum(axis=0).tolist(), strict=True)
        return [1 - loss / base if base else None for loss, base in sums]

    def only(self, users: Mask) -> Ratios:
        """The others lose nothing, and count for nothing."""
        return Ratios(self.loss * users[:, None], self.base * users[:, None])


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


def accept_on_average(excess: Floats) -> Mask:
    """Which cuts keep a promise on average over labelled samples (conformal risk control).

    The next user counts with the worst case (Angelopoulos et al. 2024, Eq. 4). The excess must not
    rise with the length of lists.
    """
    # 1 - 0.8 is not exactly 0.2.
    enough = excess.sum(axis=0) + 1 <= 1e-9
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


def users_needed(excess: Floats, allowed: float, error: float | None) -> Floats:
    """About how many users like these each cut would need; infinite where these break the promise.

    After n users the best bets have won about n mean^2 / (2 variance), in logs. On average over
    samples (no error), the sum of n users must make up for the worst case of the next.
    """
    gain = np.maximum(-excess.mean(axis=0), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        if error is None:
            return 1 / gain
        by_variance = 2 * np.log(1 / error) * excess.var(axis=0) / gain**2
        # Users who are shown nothing do not count.
        without_loss = fewest_users(allowed, error) / np.mean(excess != 0, axis=0)
    result: Floats = np.where(gain > 0, np.maximum(by_variance, without_loss), np.inf)
    return result
