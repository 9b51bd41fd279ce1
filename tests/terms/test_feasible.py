"""Positive mass that cells cannot hold moves to the nearest ones of the segment."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import calibrank as cr
from calibrank.terms import _feasible
from calibrank.terms._feasible import feasible


@pytest.mark.parametrize(
    ("positive", "total", "expected"),
    [
        ([0.5, 1, 0], [1, 1, 1], [0.5, 1, 0]),
        ([0, 3, 0], [1, 1, 1], [1, 1, 1]),
        ([0, 0, 2, 0, 0], [1, 1, 1, 1, 1], [0, 0.5, 1, 0.5, 0]),
        # What reaches an end turns around.
        ([0, 0, 0, 3], [1, 1, 1, 1], [0, 1, 1, 1]),
        ([2, 0, 0], [1, 0.5, 2], [1, 0.5, 0.5]),
        # A segment that cannot hold its mass has a rate of 1.
        ([9, 0, 0], [1, 1, 1], [1, 1, 1]),
        # A cell without mass, because its rows have no weight.
        ([0, 2, 0], [1, 1, 0], [1, 1, 0]),
    ],
)
def test_what_a_cell_cannot_hold_moves_to_the_nearest(
    positive: list[float], total: list[float], expected: list[float]
) -> None:
    found = feasible(np.array(positive, float), np.array(total, float), np.array([0, len(total)]))
    assert found == pytest.approx(expected)


masses = arrays(float, 12, elements=st.floats(0, 20))


@given(masses, masses, st.permutations([3, 4, 5]))
def test_no_rate_exceeds_1_and_the_mass_of_a_segment_stays_if_it_can(
    positive: np.ndarray, total: np.ndarray, sizes: list[int]
) -> None:
    starts = np.append(0, np.cumsum(sizes))
    before = positive.copy()
    found = feasible(positive, total, starts)
    assert np.array_equal(positive, before)
    assert (found <= total * (1 + 1e-9) + 1e-12).all()
    assert (found >= -1e-12).all()
    for first, last in pairwise(starts):
        given_mass, room = positive[first:last], total[first:last]
        assert found[first:last].sum() == pytest.approx(min(given_mass.sum(), room.sum()), abs=1e-9)
        if (given_mass <= room).all():
            assert np.array_equal(found[first:last], given_mass)


def test_segments_are_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, size=50)
    starts = np.append(0, np.cumsum(sizes))
    masses = rng.exponential(size=(2, starts[-1]))
    expected = feasible(*masses, starts)
    monkeypatch.setattr(_feasible, "_BLOCK", 7)
    assert np.array_equal(feasible(*masses, starts), expected)


@pytest.mark.parametrize("seed", range(6))
def test_levels_of_weighted_positives_have_bounded_log_odds(seed: int) -> None:
    """Of a loss without a lower bound they were up to 120, where the truth is below 1."""
    rng = np.random.default_rng(seed)
    scores, shops = rng.normal(size=2000), rng.integers(0, 40, 2000)
    likely = 1 / (1 + np.exp(3 - scores))
    propensity = np.clip(rng.beta(0.5, 3, 2000), 0.02, 1)
    labels = (rng.random(2000) < likely) & (rng.random(2000) < propensity)
    model = cr.Platt() + cr.Level("shop")
    fitted = model.fit(scores, cr.ips(labels.astype(float), propensity), {"shop": shops})
    assert fitted.log_odds(scores, {"shop": shops}).max() < 5
