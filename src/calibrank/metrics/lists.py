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


def rank_by_user(values: Floats, users: Ids) -> Ranking:
    """Sort rows into one list per user, highest value first."""
    codes = np.unique(users, return_inverse=True)[1]
    # lexsort sorts by its last key first: by user, then by descending value.
    order = np.lexsort((-values, codes))
    user = codes[order]
    ranked = values[order]
    starts_user = starts_of(user)
    starts_tie = starts_user | starts_of(ranked)
    user_starts = np.flatnonzero(starts_user)
    tie_starts = np.flatnonzero(starts_tie)
    tie = np.cumsum(starts_tie) - 1
    rank = tie_starts[tie] - user_starts[user]
    tie_sizes = np.diff([*tie_starts, len(values)])
    return Ranking(order, user, rank, tie_sizes[tie])


def fraction_in_top(ranking: Ranking, n: int) -> Floats:
    """Return how much of each ranked row is in the top n: 1, 0, or its share of the last tie."""
    return np.clip((n - ranking.rank) / ranking.ties, 0, 1)
