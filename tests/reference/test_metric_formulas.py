"""Values of metrics and bootstrap intervals checked by hand, at their boundaries."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

import calibrank as cr
from calibrank.metrics import (
    NDCG,
    CalibrationInTheLarge,
    EqualMass,
    Metric,
    Recall,
    ReleasedECE,
    ReleasedMCE,
)
from calibrank.metrics.ranking import UserMean


def test_a_probability_of_1_belongs_to_the_last_bin() -> None:
    assert cr.ECE(bins=2)([1.0, 0.6], [0, 1]) == pytest.approx(0.3)


def test_released_ece_counts_the_likelier_class() -> None:
    assert ReleasedECE(bins=1)([0.5, 0.9], [1, 0]) == pytest.approx(0.2)


def test_released_mce_keeps_bins_with_a_ten_thousandth_of_the_rows() -> None:
    probabilities = np.r_[np.full(2_000, 0.1), 0.95]
    labels = np.r_[np.arange(2_000) % 10 == 0, 0].astype(float)
    assert ReleasedMCE()(probabilities, labels) == pytest.approx(0.95)


def test_calibration_in_the_large_is_predicted_over_observed_rate() -> None:
    assert CalibrationInTheLarge()([0.8, 0.8], [0, 1]) == pytest.approx(1.6)


def test_equal_mass_cells_keep_ties_together() -> None:
    probabilities = np.repeat([0.1, 0.2], [3, 5])
    cells = EqualMass(2).bin_indices(probabilities, cr.naive(np.zeros(8)))
    np.testing.assert_array_equal(cells, np.repeat([0, 1], [3, 5]))


@pytest.mark.parametrize("metric", [NDCG(1), Recall(1)], ids=repr)
def test_a_row_of_weight_0_is_not_in_the_list(metric: Metric) -> None:
    evidence = cr.naive([1, 0, 0], weights=[1, 1, 0])
    assert metric([0.9, 0.1, 0.95], evidence, users=[1, 1, 1]) == 1


def test_rows_of_weight_0_take_no_place_in_a_top_list() -> None:
    evidence = cr.Evidence([0.0, 1, 1, 0], [0.0, 1, 1, 1])
    probabilities, users = [0.9, 0.2, 0.8, 0.1], [1, 1, 2, 2]
    metric = cr.Brier() @ 1
    expected = pytest.approx((0.64 + 0.04) / 2)
    assert metric(probabilities, evidence, users) == expected
    assert cr.bootstrap(metric, probabilities, evidence, users, resamples=10).value == expected


def reweighted_interval(
    metric: Metric,
    probabilities: np.ndarray,
    labels: np.ndarray,
    users: np.ndarray,
    resamples: int,
    level: float,
) -> tuple[float, float, float]:
    """The reflected bootstrap interval, by evaluating the metric on reweighted rows."""
    rng = np.random.default_rng(0)
    size = len(np.unique(users))
    value = metric(probabilities, labels, users)
    replicates = []
    for _ in range(resamples):
        counts = np.bincount(rng.integers(size, size=size), minlength=size)
        evidence = cr.naive(labels, weights=counts[users])
        replicates.append(metric(probabilities, evidence, users))
    # Student's quantiles, and the variance of a sample: there are few users. The metrics of lists
    # have none for users without a positive.
    if isinstance(metric, UserMean):
        size = len(np.unique(users[labels > 0]))
    upper = (1 + level) / 2
    factor = student.ppf(upper, size - 1) / norm.ppf(upper) * np.sqrt(size / (size - 1))
    low, high = (np.quantile(replicates, [1 - upper, upper]) - value) * factor
    lower = max(value - high, 0.0)
    upper = min(value - low, metric.maximum)
    return value, min(lower, value), max(upper, value)


@pytest.mark.parametrize("metric", [cr.Brier(), NDCG(3), Recall(2)], ids=repr)
def test_the_bootstrap_reflects_quantiles_of_reweighted_users(metric: Metric) -> None:
    rng = np.random.default_rng(0)
    probabilities, users = rng.random(120), np.arange(120) // 6
    labels = rng.integers(0, 2, 120).astype(float)
    estimate = cr.bootstrap(metric, probabilities, labels, users, resamples=100, level=0.9)
    expected = reweighted_interval(metric, probabilities, labels, users, 100, 0.9)
    assert estimate == pytest.approx(expected)


def test_the_lower_end_of_an_error_is_not_negative() -> None:
    labels = (np.arange(60) % 10 < 3).astype(float)
    estimate = cr.bootstrap(cr.ECE(), np.full(60, 0.3), labels, np.arange(60), resamples=50)
    assert estimate.low == 0


def test_the_upper_end_does_not_exceed_the_highest_possible_value() -> None:
    estimate = cr.bootstrap(
        NDCG(1), [0.9, 0.1] * 3 + [0.1, 0.9], [1, 0] * 4, users=[1, 1, 2, 2, 3, 3, 4, 4]
    )
    assert (estimate.value, estimate.high) == (0.75, 1.0)
