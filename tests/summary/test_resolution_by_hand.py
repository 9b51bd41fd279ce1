"""The spread of scores in bins and the error of pooling, on a few rows and one by one."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.summary.bins import Table
from calibrank.summary.grid import Grid, Placement
from calibrank.summary.pooling import coarser, pooling_error, spreads


def pooled(grid: Grid, scores: np.ndarray, labels: np.ndarray) -> cr.Summary:
    low, high = float(scores.min()), float(scores.max())
    table = Table.of_offsets(grid, low - grid.origin, high - grid.origin)
    table.pool(scores, cr.naive(labels))
    return cr.Summary.of_table(table, low, high, len(scores), "naive")


# Octaves of one bin each: [0.5, 1), [1, 2), [2, 4), [4, 8).
COARSE = Grid(3, 0, Placement(0.0, 6))
SCORES = np.array([-3.0, -2.5, 0.6, 1.0, 1.2, 1.9, 2.0, 3.5, 5.0, 7.0])
LABELS = np.array([0, 1, 0, 0, 0, 1, 0, 1, 1, 1])


@pytest.mark.parametrize("origin", [0.0, 50.0])
def test_spreads_are_standard_deviations_within_bins(origin: float) -> None:
    grid = Grid(3, 0, Placement(origin, 6))
    summary = pooled(grid, SCORES + origin, LABELS)
    expected = [np.std(part) for part in ([-3.0, -2.5], [0.6], [1, 1.2, 1.9], [2, 3.5], [5, 7])]
    np.testing.assert_allclose(spreads(summary), expected, atol=1e-7)
    assert spreads(cr.Summary.of(SCORES, LABELS)).tolist() == [0.0] * 10


@pytest.mark.parametrize("origin", [0.0, 50.0])
def test_ends_of_bins_are_powers_of_two(origin: float) -> None:
    grid = Grid(3, 0, Placement(origin, 6))
    low, high = grid.ends(pooled(grid, SCORES + origin, LABELS).keys)
    assert low.tolist() == [-4.0, 0.5, 1.0, 2.0, 4.0]
    assert high.tolist() == [-2.0, 1.0, 2.0, 4.0, 8.0]


def test_the_bin_next_to_zero_ends_there() -> None:
    summary = pooled(COARSE, np.array([-0.05, 0.0, 0.05, 2.0]), np.array([0, 1, 0, 1]))
    low, high = COARSE.ends(summary.keys)
    floor = 2.0**COARSE.floor
    np.testing.assert_allclose(low, [-floor, 0.0, 2.0])
    np.testing.assert_allclose(high, [0.0, floor, 4.0], atol=1e-300)


def test_a_spread_that_drowns_in_rounding_is_bounded_by_the_bin() -> None:
    """Offsets of a million in bins of width 1e-4: their squares are rounded to 1e-4."""
    scores = 1e6 + np.array([0.1, 0.10001, 0.10002, 0.10003])
    grid = Grid(20, 33)
    summary = pooled(grid, scores, np.array([0, 1, 0, 1]))
    low, high = grid.ends(summary.keys)
    assert len(summary) < 4
    assert (spreads(summary) <= (high - low) / 2 + 1e-12).all()


def test_coarser_grids_merge_bins_in_pairs() -> None:
    fine = pooled(Grid(3, 3, Placement(0.0, 6)), SCORES, LABELS)
    for bits in (1, 2, 3, 9):
        merged = coarser(fine, bits)
        assert merged.grid is not None
        assert merged.grid.bits == max(3 - bits, 0)
        assert merged.rows == 10
        assert (merged.low, merged.high) == (fine.low, fine.high)
        assert merged.total.sum() == 10
        assert merged.positive.sum() == LABELS.sum()
        assert merged.masses.moment.sum() == pytest.approx(SCORES.sum())
    assert len(coarser(fine, 3)) < len(fine)
    exact = cr.Summary.of(SCORES, LABELS)
    assert coarser(exact, 2) is exact


def by_hand(summary: cr.Summary, probabilities: np.ndarray) -> float:
    """One bin after the other."""
    deviations = spreads(summary)
    last = len(summary) - 1
    error = 0.0
    for place in range(len(summary)):
        before, after = max(place - 1, 0), min(place + 1, last)
        rise = abs(probabilities[after] - probabilities[before])
        gap = summary.scores[after] - summary.scores[before]
        share = summary.total[place] / summary.total.sum()
        own = rise * min(deviations[place] / gap, 0.5)
        if share > 0.01:
            own = max(own, trend(summary, place, deviations[place]))
        error += share * own
    return error


def trend(summary: cr.Summary, place: int, deviation: float) -> float:
    masses = summary.masses.take(np.array([place]))
    rate = masses.positive[0] / masses.total[0]
    covariance = (masses.positive_moment[0] - rate * masses.moment[0]) / masses.total[0]
    variance = (
        masses.positive_squared[0] - 2 * rate * masses.cross[0] + rate**2 * masses.total_squared[0]
    )
    slope = abs(covariance) / deviation if deviation > 0 else 0.0
    return max(slope - 2 * np.sqrt(variance) / masses.total[0], 0.0)


@pytest.mark.parametrize("rows", [10, 400, 20_000])
def test_the_error_of_pooling_is_the_mean_over_bins(rows: int) -> None:
    """With many rows the trend inside a bin is significant, and the larger of the two counts."""
    rng = np.random.default_rng(0)
    scores = SCORES if rows == 10 else np.abs(rng.normal(3, 1.5, rows)) % 7.9
    labels = LABELS if rows == 10 else (rng.random(rows) < scores / 8).astype(int)
    summary = pooled(COARSE, scores, labels)
    probabilities = np.sort(rng.random(len(summary)))
    found = pooling_error(probabilities, summary)
    assert found == pytest.approx(by_hand(summary, probabilities))
    flat = np.full(len(summary), 0.3)
    assert pooling_error(flat, summary) == pytest.approx(by_hand(summary, flat))
    assert (pooling_error(flat, summary) > 0) == (rows > 10)


def test_distinct_scores_have_no_error_of_pooling() -> None:
    summary = cr.Summary.of(SCORES, LABELS)
    assert pooling_error(np.linspace(0, 1, 10), summary) == 0.0


def test_one_bin_has_no_neighbours_to_rise_to() -> None:
    summary = pooled(COARSE, np.array([1.0, 1.5]), np.array([0, 1]))
    assert len(summary) == 1
    assert pooling_error(np.array([0.5]), summary) == 0.0
