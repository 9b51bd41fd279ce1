"""Each user's ranked list."""

import numpy as np
import pytest

from calibrank.metrics.lists import codes_of, rank_by_user


@pytest.mark.parametrize(
    "users",
    [
        np.array([5, 2, 5, 9, 2]),
        np.array([-1, 3, -1]),
        np.array([10**12, 7, 7]),
        np.array(["b", "a", "b"]),
        np.array([], dtype=np.int64),
    ],
    ids=str,
)
def test_users_are_numbered_in_increasing_order(users: np.ndarray) -> None:
    np.testing.assert_array_equal(codes_of(users), np.unique(users, return_inverse=True)[1])


@pytest.mark.parametrize("decimals", [2, 17])
def test_the_first_of_long_lists_are_found_among_few_rows(decimals: int) -> None:
    rng = np.random.default_rng(1)
    users, values = rng.integers(0, 300, 9000), rng.random(9000).round(decimals)
    ranking = rank_by_user(values, users, 5)
    everything = rank_by_user(values, users)
    is_first, is_first_of_all = ranking.rank < 5, everything.rank < 5
    for few, many in zip(ranking, everything, strict=True):
        np.testing.assert_array_equal(few[is_first], many[is_first_of_all])
    assert len(ranking.order) < 2 * is_first.sum()


def test_rows_are_sorted_by_user_and_descending_value_and_ties_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    users = rng.integers(0, 50, 2000)
    values = rng.integers(0, 9, 2000) / 8
    ranking = rank_by_user(values, users)
    np.testing.assert_array_equal(ranking.order, np.lexsort((-values, users)))
    for row in range(0, 2000, 97):
        own = values[users == ranking.user[row]]
        value = values[ranking.order[row]]
        assert ranking.rank[row] == (own > value).sum()
        assert ranking.ties[row] == (own == value).sum()
