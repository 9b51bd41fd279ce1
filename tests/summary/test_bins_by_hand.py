"""Bins, grids and tables against numbers worked out by hand or one score at a time."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.summary import bins as bins_module
from calibrank.summary.bins import Masses, Table
from calibrank.summary.grid import (
    AROUND_ZERO,
    CAPACITY,
    DOUBLE,
    RESOLVED,
    SINGLE,
    Grid,
    Placement,
    _candidates,
    _rounded_quantile,
    look,
    look_at_bins,
    place,
    shared_bins,
    with_both_zeros,
)


def masses(*columns: list[float]) -> Masses:
    return Masses(*[np.array(column, dtype=float) for column in columns])


EXAMPLE = masses([1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12], [13, 14], [15, 16])


def test_bins_are_taken_gathered_and_joined() -> None:
    assert [column.tolist() for column in EXAMPLE.take(np.array([1]))] == [
        [number] for number in range(2, 17, 2)
    ]
    gathered = EXAMPLE.gather(np.array([2, 2]), 3)
    assert [column.tolist() for column in gathered] == [
        [0, 0, number] for number in range(3, 32, 4)
    ]
    joined = EXAMPLE.followed_by(EXAMPLE.take(np.array([0])))
    assert joined.total.tolist() == [3, 4, 3]
    assert joined.cross.tolist() == [13, 14, 13]


def test_bins_of_one_offset_have_its_moments() -> None:
    found = EXAMPLE.of_offsets(np.array([10.0, -2.0]))
    assert found.positive_moment.tolist() == [10, -4]
    assert found.moment.tolist() == [30, -8]
    assert found.second_moment.tolist() == [300, 16]
    assert found.cross.tolist() == [13, 14]


@pytest.mark.parametrize(
    ("low", "high", "capacity"),
    [
        (-1.0, 1.0, CAPACITY),
        (0.0, 1.0, CAPACITY),
        (-4.0, 4.0, 2**10),
        (0.5, 0.75, 2**10),
        (-1e-320, 1e-310, 2**8),
        (3.0, 3.0, 2**8),
        (-7.0, -2.0, 1000),
        (1.0, 1.0 + 2**-20, 2**10),
    ],
)
def test_a_grid_has_as_many_bits_as_fit_the_capacity(
    low: float, high: float, capacity: int
) -> None:
    grid = Grid.spanning(low, high, capacity)
    # A wider range in the same octaves must not get a finer grid.
    ends = np.array(grid.around(*with_both_zeros(low, high)))

    def bins_with(bits: int) -> int:
        first, last = Grid(grid.top, bits, grid.placement).keys_of_offsets(ends).tolist()
        return last - first + 1

    assert bins_with(grid.bits) <= capacity
    assert grid.bits == DOUBLE.mantissa or bins_with(grid.bits + 1) > capacity


@pytest.mark.parametrize("grid", [Grid(3, 2), Grid(0, 0), Grid(5, 3, Placement(0.0, 2))])
def test_the_bin_of_an_offset_is_that_of_its_leading_bits(grid: Grid) -> None:
    """One offset at a time: octaves of 2**bits bins each, and as many below the floor."""
    floor = 2.0**grid.floor
    steps = 2**grid.bits
    offsets = np.concatenate([np.linspace(0, 2.0**grid.top, 403)[:-1], [floor, floor / 2, 0.0]])
    for sign in (1, -1):
        keys = grid.keys_of_offsets(sign * offsets)
        for offset, key in zip(offsets.tolist(), keys.tolist(), strict=True):
            if offset < floor:
                expected = int(offset / floor * steps)
            else:
                octave = int(np.floor(np.log2(offset / floor)))
                expected = steps * (octave + 1) + int((offset / floor / 2**octave - 1) * steps)
            assert key == (expected if sign > 0 else ~expected)


@pytest.mark.parametrize("grid", [Grid(3, 2), Grid(0, 4), Grid(-1070, 3)])
def test_an_inner_edge_is_the_offset_nearest_zero_in_its_bin(grid: Grid) -> None:
    top = float(np.ldexp(1.0, grid.top))
    last = int(grid.keys_of_offsets(np.array([np.nextafter(top, 0)]))[0])
    keys = np.unique(np.linspace(-last - 1, last, 500).astype(np.int64))
    edges = grid.inner_edges(keys)
    np.testing.assert_array_equal(grid.keys_of_offsets(edges), keys)
    nearer = np.nextafter(edges, 0)
    outside = (nearer != edges) & (np.abs(edges) > 5e-324)
    moved = grid.keys_of_offsets(nearer[outside])
    np.testing.assert_array_equal(moved, keys[outside] - np.sign(keys[outside] + 0.5))


def test_the_floor_is_so_many_octaves_below_the_top() -> None:
    assert Grid(3, 4).floor == 3 - 31
    assert Grid(3, 4, Placement(0.0, 5)).floor == -2
    # No lower than normal floats reach.
    assert Grid(-1010, 4).floor == 2 - 1023
    assert Grid(3, 4, Placement(0.0, 2000)).floor == 2 - 1023


def test_float32_is_read_up_to_its_own_precision() -> None:
    assert Grid(3, 23).layout(single=True) is SINGLE
    assert Grid(3, 24).layout(single=True) is DOUBLE
    lowest = 2 - SINGLE.bias
    assert Grid(lowest + 31, 4).layout(single=True) is SINGLE
    assert Grid(lowest + 30, 4).layout(single=True) is DOUBLE
    assert Grid(3, 4, Placement(1.0)).layout(single=True) is DOUBLE
    assert Grid(3, 4).layout(single=False) is DOUBLE


def test_grids_contain_finer_bits_and_lower_floors() -> None:
    coarse = Grid(3, 8)
    assert coarse.contains(coarse)
    assert coarse.contains(Grid(3, 9))
    assert coarse.contains(Grid(2, 8))
    assert not coarse.contains(Grid(4, 8))
    assert not coarse.contains(Grid(3, 7))
    assert not coarse.contains(Grid(3, 8, Placement(1.0)))


def test_a_table_reaches_to_the_ends_of_octaves() -> None:
    grid = Grid(3, 4)
    below = np.nextafter(8.0, 0)
    assert grid.around(-1.0, 5.0) == (-below, below)
    assert grid.around(1.0, 5.0) == (1.0, below)
    assert grid.around(-5.0, -1.0) == (-below, -1.0)
    assert grid.around(0.0, 0.0) == (0.0, 0.0)
    # Around another origin each side has an octave of its own.
    far = Grid(3, 4, Placement(10.0))
    assert far.around(-1.0, 5.0) == (-np.nextafter(2.0, 0), below)


def test_both_zeros_are_within_a_range_that_ends_at_zero() -> None:
    assert [str(end) for end in with_both_zeros(0.0, 1.0)] == ["-0.0", "1.0"]
    assert [str(end) for end in with_both_zeros(-1.0, -0.0)] == ["-1.0", "0.0"]
    assert with_both_zeros(-2.0, 3.0) == (-2.0, 3.0)


def test_offsets_are_differences_from_the_origin() -> None:
    scores = np.array([1.5, 2.5], dtype=np.float32)
    assert Grid(3, 4).offsets(scores) is scores
    offsets = Grid(3, 4, Placement(2.0)).offsets(scores)
    assert offsets.dtype == np.float64
    assert offsets.tolist() == [-0.5, 0.5]


def test_means_beyond_the_outermost_bin_count_in_it() -> None:
    table = Table.of_offsets(Grid(3, 2), 1.0, 4.0)
    ones = masses(*[[1.0] * 4] * 8)
    keys = np.array([table.first - 1, table.first, table.first + 1, table.first + len(table)])
    table.add_in_order(ones, keys)
    assert table.totals[:, 0].tolist() == [2.0, 1.0, *[0.0] * (len(table) - 3), 1.0]
    assert table.squares.sum() == 4


def test_threads_give_the_sums_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=5_000)
    evidence = cr.ips(rng.random(5_000) < 0.3, rng.uniform(0.1, 1, 5_000))
    one, many = (Table.spanning(scores.min(), scores.max(), 2**10) for _ in range(2))
    one.pool(scores, evidence)
    monkeypatch.setattr(bins_module, "_THREADS_FROM", 5_000)
    many.pool(scores, evidence)
    for mine, theirs in zip(one.sums, many.sums, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert many.totals[:, 0].sum() == pytest.approx(5_000)


def test_blocks_of_numpy_give_the_sums_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=1_000)
    evidence = cr.naive(rng.random(1_000) < 0.3, weights=rng.uniform(0, 1, 1_000))
    whole, blocks = (Table.spanning(scores.min(), scores.max(), 2**10) for _ in range(2))
    whole.pool_with_numpy(scores, evidence)
    monkeypatch.setattr(bins_module, "_BLOCK", 300)
    blocks.pool_with_numpy(scores, evidence)
    for mine, theirs in zip(whole.sums, blocks.sums, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_a_sample_is_all_scores_or_1024_of_them() -> None:
    scores = np.arange(1_024.0)[::-1]
    np.testing.assert_array_equal(look(scores), np.arange(1_024.0))
    more = look(np.arange(1_025.0))
    assert len(more) == 1_024
    assert (np.diff(more) >= 0).all()
    assert len(np.unique(more)) < 800
    np.testing.assert_array_equal(look(np.arange(1_025.0)), more)


def test_a_sample_of_bins_never_misses_the_last() -> None:
    total = np.array([1.0, 1e-20, 1.0])
    sample = look_at_bins(np.array([1.0, 2.0, 3.0]), total)
    assert set(sample.tolist()) == {1.0, 3.0}
    assert look_at_bins(np.array([7.0]), np.array([2.0])).tolist() == [7.0] * 1_024


def test_pairs_share_a_bin_if_they_differ() -> None:
    grid = Grid(3, 0)
    # One octave per bin: 1 and 1.5 share one, 2 and 2 are equal, 5 is alone.
    sample = np.array([1.0, 1.5, 2.0, 2.0, 5.0])
    assert shared_bins(grid, sample) == 2 / 25


def test_candidates_are_round_quantiles_over_more_and_then_fewer_octaves() -> None:
    sample = np.linspace(10.0, 20.0, 1_001)
    found = list(_candidates(sample))
    assert found[0] == Placement(0.0, 31)
    assert [each.origin for each in found[:4]] == [0.0, 16.0, 14.0, 12.0]
    assert found[0].octaves < found[8].octaves
    assert {each.octaves for each in found} >= {1, 31, 200}
    # The middle of the sample comes last.
    assert [each.origin for each in found if each.octaves == 31][-1] == 15.0


@pytest.mark.parametrize(
    ("quantile", "expected"), [(0.5, 16.0), (0.05, 10.0), (0.95, 20.0), (0.35, 14.0)]
)
def test_quantiles_are_rounded_to_a_power_of_two_of_their_spread(
    quantile: float, expected: float
) -> None:
    """Two tenths of [10, 20] are 2 apart; at the ends only 1.5, which rounds down to 1."""
    sample = np.linspace(10.0, 20.0, 1_001)
    assert _rounded_quantile(sample, quantile) == expected


def test_a_quantile_of_equal_scores_is_that_score() -> None:
    assert _rounded_quantile(np.full(10, 0.3), 0.5) == 0.3


def test_the_preferred_placement_stays_unless_another_is_twice_as_good() -> None:
    scores = np.random.default_rng(0).normal(size=5_000)
    low, high, sample = float(scores.min()), float(scores.max()), look(scores)
    assert place(low, high, sample) == AROUND_ZERO
    assert place(low, high, sample, Placement(0.5)) == Placement(0.5)
    far = place(low + 1e7, high + 1e7, sample + 1e7)
    assert (
        shared_bins(Grid.spanning(low + 1e7, high + 1e7, CAPACITY, far), sample + 1e7) <= RESOLVED
    )
    # No placement resolves so few bins: the best one by far is still taken.
    few = place(low + 1e7, high + 1e7, sample + 1e7, capacity=512)
    before = shared_bins(Grid.spanning(low + 1e7, high + 1e7, 512), sample + 1e7)
    after = shared_bins(Grid.spanning(low + 1e7, high + 1e7, 512, few), sample + 1e7)
    assert after < before / 2


def test_a_table_grows_with_its_batches() -> None:
    rng = np.random.default_rng(2)
    builder = cr.SummaryBuilder()
    parts = [rng.normal(size=70_000), 3 * rng.normal(size=70_000), rng.normal(size=70_000) - 30]
    for scores in parts:
        builder.update(scores, cr.naive(scores > 0))
    joined = np.concatenate(parts)
    summary = builder.summary()
    assert (summary.low, summary.high) == (joined.min(), joined.max())
    assert summary.rows == 210_000
    assert summary.total.sum() == 210_000
    assert summary.grid is not None
    offsets = joined - summary.grid.origin
    assert summary.masses.moment.sum() == pytest.approx(offsets.sum())
    assert summary.masses.second_moment.sum() == pytest.approx((offsets**2).sum())
    # Bins resolve the scores of every batch.
    assert len(summary) > 4_000


def test_kinds_of_evidence_that_differ_are_mixed() -> None:
    scores = np.random.default_rng(3).normal(size=70_000)
    builder = cr.SummaryBuilder()
    builder.update(scores, cr.naive(scores > 0))
    assert builder.summary().kind == "naive"
    builder.update(scores, cr.ips(scores > 0, np.ones(70_000)))
    assert builder.summary().kind == "mixed"


def test_a_builder_merges_summaries_and_builders_only() -> None:
    builder = cr.SummaryBuilder()
    builder.merge(cr.SummaryBuilder())
    assert builder.empty
    with pytest.raises(cr.DataError, match="other must be of type Summary"):
        builder.merge([1, 2])
    with pytest.raises(cr.DataError, match="at least one row, got no batch"):
        builder.summary()
    builder.merge(cr.Summary.of([0.0, 1.0], [0, 1]))
    assert builder.summary().rows == 2
