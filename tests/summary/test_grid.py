"""The grid of score bins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrank.summary.grid import CAPACITY, DOUBLE, SINGLE, Grid

scores = st.floats(-1e30, 1e30, allow_subnormal=True)


@given(low=scores, high=scores, fractions=st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_bins_keep_the_order_of_scores_and_stay_within_capacity(
    low: float, high: float, fractions: list[float]
) -> None:
    low, high = min(low, high), max(low, high)
    grid = Grid.spanning(low, high)
    between = [low + fraction * (high - low) for fraction in fractions]
    inside = np.sort(np.clip([low, high, *between], low, high))
    keys = grid.keys(inside)
    assert (np.diff(keys) >= 0).all()
    assert keys[-1] - keys[0] < CAPACITY


@given(ends=st.lists(scores | st.floats(-1e-9, 2), min_size=4, max_size=4).map(sorted))
def test_a_wider_range_never_has_a_finer_grid(ends: list[float]) -> None:
    lowest, low, high, highest = ends
    assert Grid.spanning(lowest, highest).bits <= Grid.spanning(low, high).bits


@given(values=st.lists(scores, min_size=1, max_size=30), factor=st.floats(1, 1e6))
def test_a_bin_lies_in_one_bin_of_every_coarser_grid(values: list[float], factor: float) -> None:
    array = np.array(values)
    fine = Grid.spanning(array.min(), array.max())
    far = min(np.abs(array).max() * factor, 1e30)
    coarse = Grid.spanning(min(array.min(), -far), max(array.max(), far))
    edges = fine.inner_edges(fine.keys(array))
    np.testing.assert_array_equal(coarse.keys(edges), coarse.keys(array))
    np.testing.assert_array_equal(fine.keys(edges), fine.keys(array))


@given(values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30))
def test_float32_scores_fall_into_the_bins_of_their_float64_values(values: list[float]) -> None:
    single = np.array(values, dtype=np.float32)
    grid = Grid.spanning(float(single.min()), float(single.max()))
    np.testing.assert_array_equal(grid.keys(single), grid.keys(single.astype(np.float64)))


def test_float32_bits_are_read_only_where_they_are_precise_enough() -> None:
    assert Grid.spanning(-1.0, 1.0).layout(single=True) is SINGLE
    assert Grid.spanning(-1.0, 1.0).layout(single=False) is DOUBLE
    assert Grid.spanning(2 - 2**-30, 2 - 2**-40).layout(single=True) is DOUBLE
    assert Grid.spanning(-1e-40, 1e-40).layout(single=True) is DOUBLE


@pytest.mark.parametrize("capacity", [2**10, 2**15, 2**16])
def test_bins_of_a_normal_score_use_at_least_a_quarter_of_the_capacity(capacity: int) -> None:
    grid = Grid.spanning(-4.0, 4.0, capacity)
    first, last = grid.keys(np.array([-4.0, 4.0])).tolist()
    assert capacity / 4 <= last - first < capacity


@pytest.mark.parametrize(("top", "bits"), [(3, 11), (-1000, 52), (1024, 0)])
def test_two_factors_number_the_bins_below_the_floor(top: int, bits: int) -> None:
    grid = Grid(top, bits)
    first, second = grid.scales
    exponent = np.log2(first) + np.log2(second)
    assert exponent == bits - grid.floor
    # Alike, so that neither overflows where the product would.
    assert 0 <= np.log2(second) - np.log2(first) <= 1
