"""Where the bins of a grid are fine."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.summary.bins import Table, pool_bins
from calibrank.summary.grid import (
    AROUND_ZERO,
    Grid,
    Placement,
    look,
    look_at_bins,
    place,
    shared_bins,
)

NORMAL = np.random.default_rng(0).normal(size=20_000)


def placement_of(scores: np.ndarray) -> Placement:
    return place(float(scores.min()), float(scores.max()), look(scores))


def test_bins_are_around_zero_unless_the_scores_ask_for_more() -> None:
    assert placement_of(NORMAL) == AROUND_ZERO
    assert placement_of(1e9 * NORMAL) == AROUND_ZERO
    assert placement_of(NORMAL + 1e6) == Placement(1e6)
    assert placement_of(NORMAL - 1e6) == Placement(-1e6)
    assert placement_of(np.append(NORMAL, 1e20)).octaves > AROUND_ZERO.octaves


def test_two_scores_share_a_bin_as_often_as_a_sample_says() -> None:
    scores = NORMAL + 1e6
    grid = Grid.spanning(float(scores.min()), float(scores.max()))
    counts = np.unique(grid.keys(scores), return_counts=True)[1] / len(scores)
    assert shared_bins(grid, look(scores)) == pytest.approx((counts**2).sum(), rel=0.1)
    assert shared_bins(grid, np.full(100, 1e6)) == 0  # tied scores do not count


def test_a_look_at_bins_is_in_proportion_to_their_mass() -> None:
    sample = look_at_bins(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 3.0]))
    assert set(sample.tolist()) == {1.0, 3.0}
    assert (sample == 3).mean() == pytest.approx(0.75, abs=0.05)
    assert (np.diff(sample) >= 0).all()


def test_sums_move_to_another_origin() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=1_000)
    labels = (rng.random(1_000) < 0.3).astype(float)
    evidence = cr.ips(labels, rng.uniform(0.2, 1, 1_000), weights=rng.exponential(1, 1_000))
    bins = rng.integers(0, 5, 1_000)
    moved = pool_bins(scores - 2.0, evidence, bins, 5).moved(2.0 - 7.0)
    expected = pool_bins(scores - 7.0, evidence, bins, 5)
    for mine, theirs in zip(moved, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("placement", [AROUND_ZERO, Placement(3.0), Placement(-50.0, 63)])
def test_a_table_covers_its_range_and_little_more(placement: Placement) -> None:
    table = Table.spanning(-4.0, 5.0, placement=placement)
    ends = table.grid.keys(np.array([-4.0, 5.0]))
    assert ends.tolist() == [table.first, table.first + len(table) - 1]


def test_a_grid_contains_finer_ones_of_the_same_origin_only() -> None:
    coarse, fine = Grid(3, 8), Grid(3, 10)
    assert coarse.contains(fine)
    assert not fine.contains(coarse)
    assert not Grid(3, 8, Placement(1.0)).contains(fine)
