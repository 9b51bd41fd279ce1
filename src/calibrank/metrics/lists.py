"""Each user's ranked list of rows, which several metrics are computed from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, Ids, Indices, Mask, row_parts, starts_of


class Ranking(NamedTuple):
    """Rows sorted user by user, highest value first, with the ranks that each one's tie spans."""

    order: Indices
    """Row numbers in ranked order; the other columns are in this order."""
    user: Indices
    rank: Indices
    """The first rank of the row's tie in the user's list, counted from 0."""
    ties: Indices
    """How many rows share the tie."""

    def fraction_in_top(self, n: int) -> Floats:
        """Return how much of each row is in the top n: 1, 0, or its share of the last tie."""
        return np.clip((n - self.rank) / self.ties, 0, 1)


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
            if occurs.all():
                return users.astype(np.intp, copy=False)
            return (np.cumsum(occurs) - 1)[users]
    return np.unique(users, return_inverse=True)[1]


def rank_by_user(
    values: Floats, users: Ids, first: int | None = None, counted: Mask | None = None
) -> Ranking:
    """Sort rows into one list per user, highest value first.

    With `first`, rows that are surely below each user's first so many are left out. A row that is
    not counted must not take a rank from a row that is; users without any are left out.
    """
    rows: Indices | None = None
    if counted is not None and not counted.all():
        rows = np.flatnonzero(counted)
        values, users = values[rows], users[rows]
    codes = codes_of(users)
    if first is not None:
        chosen = _may_be_first(values, codes, first)
        rows = chosen if rows is None else rows[chosen]
        codes, values = codes[chosen], values[chosen]
    order = _ranked_order(values, codes)
    user = codes[order]
    starts_user = starts_of(user)
    starts_tie = starts_user | starts_of(values[order])
    user_starts = np.flatnonzero(starts_user)
    tie_starts = np.flatnonzero(starts_tie)
    tie = np.cumsum(starts_tie) - 1
    rank = tie_starts[tie] - user_starts[user]
    tie_sizes = np.diff(tie_starts, append=len(values))
    return Ranking(order if rows is None else rows[order], user, rank, tie_sizes[tie])


def _may_be_first(values: Floats, codes: Indices, n: int) -> Indices:
    """Rows that may be among their user's n highest, and few others."""
    parts = 2 * n
    size = (int(codes.max(initial=0)) + 1) * parts
    if size > len(values):
        return np.arange(len(values))
    # The n-th highest of a list is not below the n-th highest of the maxima of parts of the list.
    highest = np.full(size, -np.inf)
    for part in row_parts(len(values)):
        places = codes[part] * parts + np.arange(part.start, part.stop) % parts
        np.maximum.at(highest, places, values[part])
    bound = np.partition(highest.reshape(-1, parts), n, axis=1)[:, n]

    def rows_of(part: slice) -> Indices:
        return part.start + np.flatnonzero(values[part] >= bound[codes[part]])

    return np.concatenate([rows_of(part) for part in row_parts(len(values))])


def _ranked_order(values: Floats, codes: Indices) -> Indices:
    """Row numbers by user and descending value; ties stay in order."""
    if len(values) >= 2**31:
        return np.lexsort((-values, codes))
    # By descending value, by tie and row, then by user and place. Sorting such pairs as numbers is
    # several times faster than a stable sort; rows and places take 32 bits.
    order = np.argsort(-values)
    ties = np.cumsum(starts_of(values[order]), dtype=np.intp)
    by_value = _second_of_sorted(ties, order)
    return by_value[_second_of_sorted(codes[by_value], np.arange(len(values)))]


def _second_of_sorted(first: Indices, second: Indices) -> Indices:
    pairs = np.sort((first.astype(np.int64) << 32) + second)
    return pairs & 0xFFFFFFFF
