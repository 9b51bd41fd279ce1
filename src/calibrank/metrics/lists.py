"""Each user's ranked list: the order of the rows and the ranks that tied rows share.

Rows tied in the ranking share their ranks equally, so the order of the input rows never matters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, Ids, Indices, starts_of


class Ranking(NamedTuple):
    """Rows sorted user by user, highest value first, with the ranks that each one's tie spans."""

    order: Indices
    """Row numbers in ranked order; the other columns are in this order."""
    user: Indices
    rank: Indices
    """The first rank of the row's tie in the user's list, counted from 0."""
    ties: Indices
    """How many rows share the tie."""


def codes_of(users: Ids) -> Indices:
    """Number the distinct users in increasing order, and return the number of each row's user.

    >>> codes_of(np.array([7, 3, 7])).tolist()
    [1, 0, 1]
    """
    # Users are often numbered already: then marking those that occur takes no sorting.
    if users.dtype.kind in "iu" and len(users) and users.min() >= 0:
        most = int(users.max())
        if most < 4 * len(users):
            occurs = np.zeros(most + 1, dtype=bool)
            occurs[users] = True
            return (np.cumsum(occurs) - 1)[users]
    return np.unique(users, return_inverse=True)[1]


def rank_by_user(values: Floats, users: Ids) -> Ranking:
    """Sort rows into one list per user, highest value first."""
    codes = codes_of(users)
    # By descending value, then by user. Sorting the keys (user, place) is several times faster
    # than a stable sort of users; a place takes 32 bits.
    by_value = np.argsort(-values, kind="stable")
    if len(values) < 2**31:
        keys = np.sort((codes[by_value].astype(np.int64) << 32) + np.arange(len(values)))
        order = by_value[keys & 0xFFFFFFFF]
    else:
        order = by_value[np.argsort(codes[by_value], kind="stable")]
    user = codes[order]
    ranked = values[order]
    starts_user = starts_of(user)
    starts_tie = starts_user | starts_of(ranked)
    user_starts = np.flatnonzero(starts_user)
    tie_starts = np.flatnonzero(starts_tie)
    tie = np.cumsum(starts_tie) - 1
    rank = tie_starts[tie] - user_starts[user]
    tie_sizes = np.diff(tie_starts, append=len(values))
    return Ranking(order, user, rank, tie_sizes[tie])


def fraction_in_top(ranking: Ranking, n: int) -> Floats:
    """Return how much of each ranked row is in the top n: 1, 0, or its share of the last tie."""
    return np.clip((n - ranking.rank) / ranking.ties, 0, 1)
