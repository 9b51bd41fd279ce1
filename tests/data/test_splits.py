"""Splits, and sampled negatives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrank.data import (
    Positives,
    RandomSplit,
    ReleasedSplit,
    TimeSplit,
    draw_negatives,
    population_negatives,
    with_negatives,
)
from calibrank.errors import DataError
from calibrank.tables import Interactions

# ---- splits ----


@st.composite
def logs(draw):
    n_users, n_items = draw(st.integers(1, 6)), draw(st.integers(2, 12))
    cells = draw(
        st.lists(st.integers(0, n_users * n_items - 1), min_size=1, max_size=40, unique=True)
    )
    labels = draw(st.lists(st.integers(0, 1), min_size=len(cells), max_size=len(cells)))
    times = draw(st.permutations(range(len(cells))))
    users, items = np.divmod(np.array(cells), n_items)
    return Interactions(users, items, labels, n_users, n_items, times)


def rows_of(log):
    return list(zip(log.users.tolist(), log.items.tolist(), log.labels.tolist(), strict=True))


SPLITS = [
    ReleasedSplit(),
    RandomSplit(seed=1),
    RandomSplit(fraction=0.5, at_least=2),
    TimeSplit(fraction=0.3, at_least=3),
]


@pytest.mark.parametrize("split", SPLITS, ids=repr)
@given(log=logs())
def test_a_split_partitions_the_log_and_holds_out_the_right_number(split, log):
    kept, held = split.divide(log)
    assert sorted(rows_of(kept) + rows_of(held)) == sorted(rows_of(log))
    for user in range(log.n_users):
        count = int((log.users == user).sum())
        expected = max(round(count * split.fraction), 1)
        if count < split.at_least:
            expected = 0
        assert (held.users == user).sum() == expected


@given(log=logs())
def test_the_last_rows_are_held_out(log):
    for split, key in (
        (ReleasedSplit(fraction=0.4, at_least=2), "items"),
        (TimeSplit(fraction=0.4, at_least=2), "times"),
    ):
        kept, held = split.divide(log)
        for user in np.unique(held.users):
            first_held = getattr(held, key)[held.users == user].min()
            last_kept = getattr(kept, key)[kept.users == user].max()
            assert first_held >= last_kept


def test_dislikes_are_held_out_with_the_likes():
    rng = np.random.default_rng(7)
    users = np.repeat(np.arange(300), 30)
    labels = rng.random(9_000) < np.repeat(rng.uniform(0.1, 0.5, 300), 30)
    log = Interactions(users, rng.integers(0, 50, 9_000), labels)
    _, held = RandomSplit(fraction=0.2).divide(log)
    assert len(held) == 1_800
    # The share of likes must stay, or the held-out rows would have another base rate.
    assert held.labels.mean() == pytest.approx(log.labels.mean(), abs=0.03)


def test_a_random_split_depends_on_its_seed_alone():
    log = Interactions(np.repeat(np.arange(50), 20), np.tile(np.arange(20), 50))
    _, first = RandomSplit(seed=1).divide(log)
    _, again = RandomSplit(seed=1).divide(log)
    _, from_generator = RandomSplit(seed=np.random.default_rng(1)).divide(log)
    _, other = RandomSplit().with_seed(2).divide(log)
    np.testing.assert_array_equal(first.items, again.items)
    np.testing.assert_array_equal(first.items, from_generator.items)
    assert (first.items != other.items).any()
    assert TimeSplit().with_seed(2) == TimeSplit()


def test_invalid_splits_are_refused():
    log = Interactions(np.repeat(np.arange(50), 20), np.tile(np.arange(20), 50))
    with pytest.raises(DataError, match="must have times to split by"):
        TimeSplit().divide(log)
    with pytest.raises(DataError, match=r"fraction must lie in \(0, 1\), got 1"):
        RandomSplit(fraction=1)
    with pytest.raises(DataError, match="at_least must be a whole number, 2 or more"):
        RandomSplit(at_least=1)


# ---- negatives ----


@pytest.mark.parametrize("dense", [True, False])
@given(log=logs())
def test_negatives_are_never_positives(dense, log):
    positives = Positives.of(log)
    if not dense:
        positives = Positives(positives.n_users, positives.n_items, positives.cells, None)
    expected = np.zeros((log.n_users, log.n_items), dtype=bool)
    liked = log.positives()
    expected[liked.users, liked.items] = True
    users, items = np.divmod(np.arange(expected.size), log.n_items)
    np.testing.assert_array_equal(positives.has(users, items), expected.ravel())
    with_negatives_left = np.flatnonzero(~expected.all(axis=1))
    if len(with_negatives_left):
        drawn = np.repeat(with_negatives_left, 30)
        items = draw_negatives(positives, drawn, seed=0)
        assert not expected[drawn, items].any()


def test_negatives_are_uniform_even_for_users_with_few_negatives():
    log = Interactions(np.zeros(97, dtype=int), np.arange(97), None, 1, 100)
    items = draw_negatives(Positives.of(log), np.zeros(3_000, dtype=int), seed=0)
    found, counts = np.unique(items, return_counts=True)
    assert found.tolist() == [97, 98, 99]
    assert counts.min() > 900
    full = Interactions(np.zeros(3, dtype=int), np.arange(3), None, 1, 3)
    with pytest.raises(DataError, match="user 0 must have an item without a positive"):
        draw_negatives(Positives.of(full), np.zeros(1, dtype=int), seed=0)


def test_calibration_pairs_are_the_held_out_positives_and_their_negatives():
    log = Interactions(np.repeat(np.arange(40), 10), np.tile(np.arange(10), 40), None, 40, 60)
    kept, held = RandomSplit().divide(log)
    positives = Positives.of(kept, held)
    pairs = with_negatives(held, positives, 7, seed=0)
    from_generator = with_negatives(held, positives, 7, np.random.default_rng(0))
    np.testing.assert_array_equal(pairs.items, from_generator.items)
    assert pairs.labels.sum() == len(held)
    assert len(pairs) == 8 * len(held)
    assert not positives.has(pairs.users, pairs.items)[len(held) :].any()
    assert population_negatives(positives) == (5, None)
    assert population_negatives(positives, most=2) == (2, 2.5)
    with pytest.raises(DataError, match=r"each must be a whole number, 1 to .*, got 0"):
        with_negatives(held, positives, 0)
