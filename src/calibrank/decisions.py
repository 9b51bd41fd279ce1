"""Decide with a guarantee: thresholds above which at most a given share of items is unwanted.

A probability says what to expect; a promise needs a margin for the sampling error of the labels it
is checked on. `control` tests, for thresholds from high to low, that more than the promised share
would be unwanted, and returns the lowest threshold at which this is rejected (learn then test,
Angelopoulos et al., 2021). Users are the sampling units: a user's rows may depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrank._internal.arguments import real, whole
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Indices,
    Integers,
    Mask,
    Numbers,
    column,
    ids,
    probability_column,
    require_role,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence

THRESHOLDS: Floats = np.round(np.concatenate([np.arange(1, 20) / 1000, np.arange(2, 100) / 100]), 3)
"""The thresholds that are tested by default."""

# Tests start at this many thresholds, each with its share of the error probability: at the highest
# ones there is often too little shown to prove anything.
_STARTS = 8
# Bets are halved from the largest possible one this many times; a geometric grid contains one
# within a factor of 2 of the best, and their mean loses at most log(12) = 2.5 nats against it.
_BETS = 12
# The largest bet as a fraction of the one that could lose everything.
_LARGEST_BET = 0.99
_LONGEST = 10**9


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The lowest threshold that keeps a promise, and what is shown at it."""

    threshold: float | None
    """Show pairs with this probability or more; None if no threshold keeps the promise."""
    unwanted: float
    """The promised largest share of unwanted among what is shown."""
    confidence: float
    users: int
    shown: float
    """The share of all pairs that is shown at the threshold."""
    observed: float | None
    """The share of them that was unwanted in these labels."""
    certified: tuple[float, ...]
    """All thresholds that keep the promise, simultaneously with the same confidence."""

    def __str__(self) -> str:
        promise = f"at most {self.unwanted:.0%} of what is shown is unwanted"
        if self.threshold is None:
            return (
                f"No threshold promises with {self.confidence:.0%} confidence that {promise}: "
                f"{self.users:,} users are too few, or the probabilities too low."
            )
        return (
            f"From a probability of {self.threshold:.3g} on, {promise}, with "
            f"{self.confidence:.0%} confidence ({self.observed:.1%} of these labels; "
            f"{self.shown:.2%} of pairs are shown)."
        )


def control(
    probabilities: Numbers,
    labels: Labels,
    users: IdsLike,
    *,
    unwanted: float = 0.2,
    confidence: float = 0.95,
    longest: int | None = None,
    thresholds: Numbers | None = None,
) -> Guarantee:
    """The lowest threshold such that at most a share `unwanted` of what is shown is unwanted.

    The promise is about new users from the same population: of all pairs that they are shown, in
    expectation at most this share is unwanted. It holds with the given confidence, for any
    distribution and any number of users, if the users of these labels were drawn at random, if
    their labels are unbiased for all of their pairs (randomly shown pairs, or `impressions` with
    logged propensities), and if the map was not fitted to these labels. The map need not be
    calibrated.

    `longest` is the length of the longest list: of each user, only the most probable of these rows
    are shown. It makes thresholds lower, because no single user can then matter much. The rows of
    a user must then be all candidates of the list: the best of a sample are not the best of all,
    about which it promises nothing. `thresholds` are those to test; they must not be chosen by
    these labels.

    >>> rng = np.random.default_rng(0)
    >>> probabilities, users = rng.random(20_000), np.repeat(np.arange(1_000), 20)
    >>> labels = rng.random(20_000) < probabilities
    >>> control(probabilities, labels, users, unwanted=0.2).threshold
    0.63
    """
    values = probability_column(probabilities).astype(np.float64)
    evidence = _unbiased(nonzero_evidence(labels, len(values)))
    codes = np.unique(ids("users", users, len(values)), return_inverse=True)[1]
    unwanted = real("unwanted", unwanted, "(0, 1)", "Use e.g. 0.2.")
    confidence = real("confidence", confidence, "(0, 1)", "Use e.g. 0.95.")
    grid = _grid(thresholds)
    most = None if longest is None else whole("longest", longest, 1, _LONGEST)
    rows = _first_of_each_user(values, codes, most)
    sums = UserSums.of(values[rows], evidence.rows(rows), codes[rows], grid, most)
    certified = certify(sums, unwanted, 1 - confidence)
    found = grid[certified]
    result = Guarantee(None, unwanted, confidence, len(sums.total), 0.0, None, ())
    if not len(found):
        return result
    at = int(np.flatnonzero(certified)[-1])
    shown = float(sums.total[:, at].sum())
    return replace(
        result,
        threshold=float(grid[at]),
        shown=shown / float(evidence.total.sum()),
        observed=float(sums.unwanted[:, at].sum()) / shown,
        certified=tuple(found.tolist()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class UserSums:
    """What each user is shown at each threshold, users x thresholds: all of it, and the unwanted.

    Users that are merged at random, such as those of a hash partition, may stand for one user.
    """

    unwanted: Floats
    total: Floats
    largest: float
    """The largest mass that one user can be shown."""

    @classmethod
    def of(
        cls,
        probabilities: Floats,
        evidence: Evidence,
        codes: Integers,
        grid: Floats,
        longest: int | None = None,
    ) -> UserSums:
        """Sum the masses per user and threshold; `grid` decreases.

        Without a longest list, nobody is taken to be shown more than the user with most pairs.
        """
        # The first threshold that a row passes; it passes all lower ones too.
        first = np.searchsorted(-grid, -probabilities, side="left")
        users = int(codes.max()) + 1
        size = len(grid) + 1
        cells = codes * size + first
        shape = (users, size)
        total = np.bincount(cells, evidence.total, users * size).reshape(shape)
        positive = np.bincount(cells, evidence.positive, users * size).reshape(shape)
        totals = total.cumsum(axis=1)[:, :-1]
        largest = float(total.sum(axis=1).max())
        if longest is not None:
            largest = longest * float(evidence.total.max())
        return cls(totals - positive.cumsum(axis=1)[:, :-1], totals, largest)


def certify(sums: UserSums, unwanted: float, error: float) -> Mask:
    """Whether each threshold is proven to keep the promise, all of them with one error rate.

    Thresholds are tested in order by the fallback procedure (Wiens, 2003): `_STARTS` of them have a
    share of the error probability, and a rejected hypothesis hands its own on to the next.
    """
    evidence = log_e_values(sums, unwanted)
    count = len(evidence)
    starts = set(np.linspace(0, count - 1, min(_STARTS, count)).astype(int).tolist())
    certified = np.zeros(count, dtype=np.bool_)
    available = 0.0
    for position in range(count):
        available += error / len(starts) if position in starts else 0.0
        # Markov's inequality: an e-value reaches 1 / level with a probability of at most level.
        if available and evidence[position] >= -np.log(available):
            certified[position] = True
        else:
            available = 0.0
    return certified


def log_e_values(sums: UserSums, unwanted: float) -> Floats:
    """The logarithm of the evidence at each threshold that the promise is kept.

    The promise is E[D] <= 0, where D is a user's unwanted mass minus the promised share of the mass
    shown. With D <= (1 - share) * largest mass, a bet of size b on D < 0 multiplies the capital by
    1 - b D. If the promise is broken, the expected capital never exceeds 1 (Waudby-Smith and
    Ramdas, 2024); the mean over bets of several sizes is such a capital as well.
    """
    excess = sums.unwanted - unwanted * sums.total
    position = excess / ((1 - unwanted) * sums.largest)
    growth = []
    for halvings in range(_BETS):
        bet = _LARGEST_BET / 2**halvings
        growth.append(np.log1p(-bet * position).sum(axis=0))
    result: Floats = np.logaddexp.reduce(growth, axis=0) - np.log(_BETS)
    return result


def _grid(thresholds: Numbers | None) -> Floats:
    """Different thresholds, from high to low."""
    if thresholds is None:
        return THRESHOLDS[::-1]
    array = column("thresholds", thresholds)
    if not len(array):
        raise DataError("thresholds must hold at least one number, got none. Leave them out.")
    require_role("probability", "thresholds", array)
    return np.unique(array.astype(np.float64))[::-1]


def _unbiased(evidence: Evidence) -> Evidence:
    if np.all(evidence.positive <= evidence.total):
        return evidence
    raise DataError(
        f"labels must be unbiased for a guarantee, got {evidence.kind} evidence, whose positive "
        "mass exceeds the total mass of a row. Use labels of randomly shown pairs, or impressions."
    )


def _first_of_each_user(values: Floats, codes: Integers, longest: int | None) -> Indices:
    """The rows of each user's most probable pairs, or all rows."""
    order = np.lexsort((-values, codes))
    if longest is None:
        return order
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes))[:-1]])
    rank = np.arange(len(order)) - starts[codes[order]]
    return order[rank < longest]
