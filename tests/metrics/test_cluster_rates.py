"""Intervals of rates over clusters."""

import numpy as np
import pytest
from scipy.stats import binomtest

from calibrank.metrics.cluster_rates import Clusters, _trials, _wilson


@pytest.mark.parametrize(("successes", "trials"), [(0, 3), (5, 10), (29, 30)])
def test_wilsons_interval_is_that_of_scipy(successes: int, trials: int) -> None:
    low, high = _wilson(np.array([successes / trials]), np.array([trials]))
    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_trials_are_clusters_where_they_are_few_and_rows_where_all_agree() -> None:
    rate = np.array([0.5, 0.5, 0.0, 1.0, 0.0, 0.5, 0.0])
    clusters = np.array([9, 10, 10, 10, 9, 0, 10])
    rows = np.array([90.0, 90.0, 90.0, 80.0, 90.0, 0.0, 0.0])
    expected = [9, np.inf, 90, 80, 9, 1, 1]
    np.testing.assert_array_equal(_trials(rate, clusters, rows), expected)


def test_sums_of_some_rows_are_of_their_clusters() -> None:
    clusters = Clusters.of(np.array([0, 1, 2, 1]))
    rows = np.array([1, 3])
    found = clusters.sums(np.array([0, 1]), np.array([2.0, 3.0]), 2, rows)
    np.testing.assert_array_equal(found, [[0, 0], [2, 3], [0, 0]])


def test_intervals_are_quantiles_of_resampled_ratios() -> None:
    rng = np.random.default_rng(0)
    clusters = Clusters.of(np.arange(12))
    denominator = rng.uniform(1, 3, (12, 1))
    numerator = denominator * rng.uniform(0.2, 0.6, (12, 1))
    found = clusters.ratios(numerator, denominator, np.array([12.0]))
    ratios = (clusters.draws @ numerator) / (clusters.draws @ denominator)
    low, high = np.quantile(ratios, [0.025, 0.975])
    value = numerator.sum() / denominator.sum()
    assert [each[0] for each in found] == pytest.approx([value, low, high])


def test_weighted_rates_above_1_count_as_1() -> None:
    """Wilson's interval of a rate of 1 is added to the weighted rate."""
    clusters = Clusters.of(np.arange(12))
    numerator = np.full((12, 1), 1.5)
    found = clusters.ratios(numerator, np.ones((12, 1)), np.array([12.0]))
    expected = _wilson(np.array([1.0]), np.array([12.0]))
    np.testing.assert_allclose(found.value, 1.5)
    np.testing.assert_allclose(found.low, expected[0] - 1 + 1.5)


def test_a_bin_without_mass_has_no_rate() -> None:
    clusters = Clusters.of(np.arange(12))
    found = clusters.ratios(np.zeros((12, 1)), np.zeros((12, 1)), np.array([0.0]))
    assert np.isnan(found.value).all()


def test_small_masses_have_the_ratios_of_large_ones() -> None:
    clusters = Clusters.of(np.arange(12))
    numerator = np.linspace(0.2, 0.8, 12)[:, None]
    rows = np.array([12.0])
    large = clusters.ratios(numerator, np.ones((12, 1)), rows)
    small = clusters.ratios(0.01 * numerator, np.full((12, 1), 0.01), rows)
    for mine, theirs in zip(small, large, strict=True):
        np.testing.assert_allclose(mine, theirs)
