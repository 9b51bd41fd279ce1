"""Debiased and smooth ECE and the test of calibration, on worlds whose truth is known."""

import numpy as np
import pytest
from scipy.special import ndtr

import calibrank as cr
from calibrank.metrics import DebiasedECE
from calibrank.metrics.panel import PanelSums


def calibrated(rng: np.random.Generator, rows: int, shift: float = -1.0) -> np.ndarray:
    return 1 / (1 + np.exp(-rng.normal(shift, 1.2, rows)))


def labels_of(
    rng: np.random.Generator, p: np.ndarray, users: np.ndarray, within: float = 0.0
) -> np.ndarray:
    """Labels with the given probabilities; `within` is the correlation of a user's rows."""
    shared = rng.normal(size=users.max() + 1)[users]
    noise = np.sqrt(within) * shared + np.sqrt(1 - within) * rng.normal(size=len(p))
    return (ndtr(noise) < p).astype(float)


@pytest.mark.parametrize(("within", "weighted"), [(0.0, False), (0.0, True), (0.3, False)])
def test_debiased_ece_of_a_perfect_map_is_about_0(within: float, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    plain, debiased = [], []
    for _ in range(100):
        p = calibrated(rng, 4_000)
        users = rng.integers(200, size=len(p))
        weights = rng.gamma(1, size=len(p)) if weighted else np.ones(len(p))
        evidence = cr.naive(labels_of(rng, p, users, within), weights=weights)
        plain.append(cr.ECE()(p, evidence))
        debiased.append(DebiasedECE()(p, evidence, users if within else None))
    assert np.mean(plain) > 0.013
    assert np.mean(debiased) == pytest.approx(0, abs=0.1 * np.mean(plain))


def test_debiased_ece_of_a_wrong_map_is_the_true_error() -> None:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(50):
        truth = rng.uniform(0.1, 0.5, 4_000)
        users = np.arange(len(truth))
        found.append(DebiasedECE()(truth + 0.05, labels_of(rng, truth, users)))
    # Subtracting the mean absolute noise would give 0.035.
    assert np.mean(found) == pytest.approx(0.05, abs=0.004)


def test_the_interval_of_the_debiased_ece_is_around_it() -> None:
    rng = np.random.default_rng(2)
    covered = []
    for _ in range(40):
        p = calibrated(rng, 2_000)
        users = rng.integers(200, size=len(p))
        labels = labels_of(rng, p, users)
        estimate = cr.bootstrap(DebiasedECE(), p, labels, users, resamples=100)
        covered.append(estimate.low <= 0 <= estimate.high)
    assert np.mean(covered) > 0.85


def test_smooth_ece_equals_its_definition() -> None:
    """By direct quadrature of the reflected Gaussian kernel at the bandwidth that is found."""
    rng = np.random.default_rng(3)
    p = calibrated(rng, 500)
    labels = (rng.random(500) < p**1.5).astype(float)
    value = cr.SmoothECE()(p, labels)
    grid = np.linspace(0, 1, 4_001)
    smoothed = np.zeros_like(grid)
    for mirror in (p, -p, 2 - p):
        distance = (grid[:, None] - mirror) / value
        smoothed += np.exp(-0.5 * distance**2) @ (labels - p) / (value * np.sqrt(2 * np.pi) * 500)
    assert np.trapezoid(np.abs(smoothed), grid) == pytest.approx(value, abs=1e-5)


def reference_smooth_ece(p: np.ndarray, evidence: cr.Evidence, bandwidth: float) -> float:
    """The integral of the smoothed residuals, with the mirror images of several reflections."""
    grid = np.linspace(0, 1, 4_001)
    smoothed = np.zeros_like(grid)
    residuals = (evidence.positive - evidence.total * p) / evidence.total.sum()
    for shift in range(-6, 7, 2):
        for mirror in (p + shift, shift - p):
            kernel = np.exp(-0.5 * ((grid[:, None] - mirror) / bandwidth) ** 2)
            smoothed += kernel @ residuals / (bandwidth * np.sqrt(2 * np.pi))
    return float(np.trapezoid(np.abs(smoothed), grid))


@pytest.mark.parametrize(
    ("p", "labels"),
    [
        ([0.0, 0.0, 1.0, 1.0, 0.5], [0, 1, 1, 0, 1]),
        ([0.0, 0.1, 0.2], [1, 1, 1]),
        ([1.0, 0.9, 0.95], [0, 1, 0]),
        ([0.3, 0.7, 0.7, 0.3], [1, 0, 1, 1]),
    ],
)
def test_smooth_ece_reflects_at_both_ends(p: list[float], labels: list[int]) -> None:
    evidence = cr.naive(labels, weights=np.arange(1.0, len(p) + 1))
    value = cr.SmoothECE()(p, evidence)
    assert reference_smooth_ece(np.array(p), evidence, value) == pytest.approx(value, abs=2e-4)


def test_smooth_ece_above_1_is_that_of_the_widest_kernel() -> None:
    """Inverse-propensity weights make a residual of (100 - 0.5) / 2 on average."""
    p = np.array([0.5, 0.2])
    evidence = cr.ips([1, 0], [0.01, 1.0])
    expected = reference_smooth_ece(p, evidence, 1.0)
    assert expected > 1
    assert cr.SmoothECE()(p, evidence) == pytest.approx(expected, rel=1e-4)


def test_smooth_ece_of_matching_rates_is_0() -> None:
    assert cr.SmoothECE()([0.5, 0.5], [0, 1]) == 0


def test_smooth_ece_agrees_with_relplot() -> None:
    relplot = pytest.importorskip("relplot")
    rng = np.random.default_rng(4)
    p = rng.beta(2, 3, 3_000)
    for power in (1.0, 1.3, 2.0):
        labels = (rng.random(len(p)) < p**power).astype(float)
        assert cr.SmoothECE()(p, labels) == pytest.approx(relplot.smECE(p, labels), abs=0.002)


@pytest.mark.parametrize(
    ("rows", "n_users", "shift", "within", "weighted"),
    [
        (2_000, 0, -1.0, 0.0, False),
        (2_000, 0, -3.0, 0.0, True),
        (2_000, 200, -1.0, 0.2, False),
        (2_000, 200, -1.0, 0.2, True),
    ],
)
def test_the_test_of_calibration_keeps_its_level(
    rows: int, n_users: int, shift: float, within: float, weighted: bool
) -> None:
    rng = np.random.default_rng(5)
    rejected = 0
    worlds = 600
    for _ in range(worlds):
        p = calibrated(rng, rows, shift)
        users = rng.integers(n_users, size=rows) if n_users else np.arange(rows)
        weights = rng.gamma(2, size=rows) if weighted else None
        labels = cr.naive(labels_of(rng, p, users, within), weights=weights)
        test = cr.calibration_test(p, labels, users=users if n_users else None)
        rejected += test.p_value < 0.05
    # The standard error of a rate of 5% over 600 worlds is 0.9 points. Over 3,000 worlds each
    # the rates are 4.6% to 5.3%.
    assert 0.03 < rejected / worlds < 0.07


def test_rows_of_dependent_users_must_not_be_treated_as_independent() -> None:
    rng = np.random.default_rng(6)
    rejected = 0
    for _ in range(100):
        p = calibrated(rng, 2_000)
        users = rng.integers(100, size=len(p))
        labels = labels_of(rng, p, users, 0.5)
        rejected += cr.calibration_test(p, labels).p_value < 0.05
    assert rejected > 30


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.3), (0.75, 0.0), (1.0, -0.3)])
def test_the_test_finds_a_wrong_level_or_slope(slope: float, intercept: float) -> None:
    rng = np.random.default_rng(7)
    p = calibrated(rng, 4_000)
    users = rng.integers(400, size=len(p))
    truth = 1 / (1 + np.exp(-slope * np.log(p / (1 - p)) - intercept))
    labels = labels_of(rng, truth, users)
    assert cr.calibration_test(p, labels, users=users).p_value < 0.001


def test_the_statistic_is_the_score_test_of_a_logistic_regression() -> None:
    """With one distinct probability it is the squared z of a binomial proportion."""
    test = cr.calibration_test(np.full(100, 0.2), [1] * 30 + [0] * 70)
    assert test.degrees_of_freedom == 1
    assert test.statistic == pytest.approx((30 - 20) ** 2 / (100 * 0.2 * 0.8))


def test_certain_predictions_are_contradicted_by_one_label() -> None:
    assert cr.calibration_test([0.0, 1.0], [0, 1]) == (0.0, 0, 1.0)
    assert cr.calibration_test([0.0, 1.0], [1, 1]).p_value == 0.0


def test_the_panel_runs_the_same_test() -> None:
    rng = np.random.default_rng(8)
    p = calibrated(rng, 3_000)
    users = rng.integers(100, size=len(p))
    evidence = cr.naive(labels_of(rng, p, users, 0.2), weights=rng.gamma(2, size=len(p)))
    sums = PanelSums(100)
    for batch in (slice(0, 1_000), slice(1_000, None)):
        sums.add(p[batch], evidence.rows(batch), users[batch])
    expected = cr.calibration_test(p, evidence, users=users)
    assert sums.calibration_test() == pytest.approx(expected, rel=0.02)
