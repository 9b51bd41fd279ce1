"""The parts of the test of calibration, against formulas written out by other means."""

import numpy as np
import pytest
from numpy.polynomial import legendre
from scipy.stats import chi2

import calibrank as cr
from calibrank.metrics.calibration_test import (
    Functions,
    PositiveMasses,
    row_variances,
    score_functions,
    score_test,
)

P = np.array([0.1, 0.4, 0.4, 0.8, 0.0, 1.0])
TOTAL = np.array([1.0, 2.0, 1.0, 0.5, 3.0, 1.0])


def test_functions_are_level_slope_and_two_polynomials_of_the_rank() -> None:
    found = score_functions(P, TOTAL)
    information = TOTAL * P * (1 - P)
    with np.errstate(divide="ignore"):
        log_odds = np.clip(np.log(P / (1 - P)), *np.log([1e-9 / (1 - 1e-9), 1e9 - 1]))
    centred = log_odds - (information * log_odds).sum() / information.sum()
    scale = np.sqrt((information * centred**2).sum() / information.sum())
    # The middle of each probability's share of the information.
    share = information / information.sum()
    below = np.array([share[p > P].sum() for p in P])
    rank = below + np.array([share[p == P].sum() for p in P]) / 2
    np.testing.assert_allclose(found[:, 0], 1)
    np.testing.assert_allclose(found[:, 1], centred / scale)
    for column, degree in ((2, 2), (3, 3)):
        shifted = legendre.legval(2 * rank - 1, np.eye(4)[degree])
        np.testing.assert_allclose(found[:, column], shifted, atol=1e-12)


def test_without_information_only_the_level_is_left() -> None:
    np.testing.assert_array_equal(score_functions(np.array([0.0, 1.0]), np.ones(2)), [[1], [1]])


def test_one_probability_has_no_slope() -> None:
    found = score_functions(np.full(3, 0.3), np.ones(3))
    np.testing.assert_allclose(found[:, 1], 0, atol=1e-6)
    np.testing.assert_allclose(found[:, 2], -0.5)


def test_variances_are_of_the_model_and_the_mean_inverse_propensity() -> None:
    labels = [0, 1, 1, 0, 1, 1]
    weights = np.array([1.0, 2.0, 1.0, 0.5, 3.0, 1.0])
    model = weights**2 * P * (1 - P)
    np.testing.assert_allclose(row_variances(P, cr.naive(labels, weights=weights)), model)
    shown = cr.impressions(labels, weights=weights)
    np.testing.assert_allclose(row_variances(P, shown), model)
    weighted = cr.ips(labels, np.full(6, 0.5), weights=weights)
    masses = PositiveMasses.of(weighted)
    assert masses.mean_inverse == pytest.approx(2)
    expected = weights**2 * P * (2 - P)
    np.testing.assert_allclose(row_variances(P, weighted, masses.mean_inverse), expected)
    # The mean over liked pairs, of which rarely seen ones are rarely among the positives.
    mixed = PositiveMasses.of(cr.ips([1, 1, 1, 0], [0.5, 0.5, 0.25, 0.01]))
    assert mixed.mean_inverse == (4 + 4 + 16) / (2 + 2 + 4)
    assert mixed.number == 8**2 / 24


def by_hand(scores: np.ndarray, variance: np.ndarray) -> float:
    total = scores.sum(axis=0)
    return float(total @ np.linalg.solve(variance, total))


def test_independent_rows_have_the_statistic_of_a_score_test() -> None:
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(40, 3))
    residuals = rng.normal(size=40)
    variances = rng.uniform(0.5, 2, 40)
    scores = basis * residuals[:, None]
    found = score_test(scores, Functions(basis, variances, residuals**2))
    expected = by_hand(scores, (basis.T * variances) @ basis)
    assert found.statistic == pytest.approx(expected)
    assert found.degrees_of_freedom == 3
    assert found.p_value == pytest.approx(chi2.sf(expected, 3))


def test_products_within_clusters_are_added_to_the_variance() -> None:
    rng = np.random.default_rng(1)
    basis = rng.normal(size=(60, 2))
    # Residuals that are alike within a cluster: the products are large, and no share is cut.
    residuals = np.repeat(rng.normal(size=20), 3) + 0.1 * rng.normal(size=60)
    basis = np.repeat(basis[::3], 3, axis=0)
    rows = basis * residuals[:, None]
    clusters = rows.reshape(20, 3, 2).sum(axis=1)
    variances = np.full(60, 1.0)
    independent = basis.T @ basis
    products = clusters.T @ clusters - rows.T @ rows
    found = score_test(clusters, Functions(basis, variances, residuals**2))
    assert found.statistic == pytest.approx(by_hand(clusters, independent + products))


def test_a_variance_is_at_least_half_of_that_of_independent_rows() -> None:
    """Residuals that cancel within clusters would leave no variance at all."""
    basis = np.ones((4, 1))
    residuals = np.array([1.0, -1.0, 1.0, -0.5])
    clusters = np.array([[0.0], [0.5]])
    found = score_test(clusters, Functions(basis, np.ones(4), residuals**2))
    assert found.statistic == pytest.approx(0.5**2 / (0.5 * 4))


def test_copies_of_a_function_count_once() -> None:
    rng = np.random.default_rng(2)
    one = rng.normal(size=(30, 1))
    residuals = rng.normal(size=30)
    basis = np.hstack([one, 2 * one, one + 1e-9])
    found = score_test(basis * residuals[:, None], Functions(basis, np.ones(30), residuals**2))
    single = score_test(one * residuals[:, None], Functions(one, np.ones(30), residuals**2))
    assert found.degrees_of_freedom == 1
    assert found.statistic == pytest.approx(single.statistic, rel=1e-6)
    # A small function of its own is no copy.
    small = np.hstack([one, 1e-3 * rng.normal(size=(30, 1))])
    assert score_test(small, Functions(small, np.ones(30), np.ones(30))).degrees_of_freedom == 2
    scaled = 1e6 * small
    assert score_test(scaled, Functions(scaled, np.ones(30), np.ones(30))).degrees_of_freedom == 2


def test_nothing_left_to_chance() -> None:
    nothing, ones = np.zeros(2), np.ones((2, 1))
    assert score_test(0 * ones, Functions(ones, nothing, nothing)) == (0.0, 0, 1.0)
    assert score_test(ones, Functions(ones, nothing, np.ones(2))) == (0.0, 0, 0.0)


def test_users_are_clusters_whatever_their_names() -> None:
    rng = np.random.default_rng(3)
    p = rng.uniform(0.1, 0.9, 90)
    labels = (rng.random(90) < p).astype(float)
    numbers = rng.integers(0, 30, 90)
    named = cr.calibration_test(p, labels, users=[f"u{number}" for number in numbers])
    evidence = cr.naive(labels)
    residuals = labels - p
    basis = score_functions(p, np.ones(90))
    rows = basis * residuals[:, None]
    clusters = np.array([rows[numbers == number].sum(axis=0) for number in np.unique(numbers)])
    expected = score_test(clusters, Functions(basis, row_variances(p, evidence), residuals**2))
    assert named == pytest.approx(expected)
    alone = cr.calibration_test(p, labels, users=np.arange(90))
    assert alone == pytest.approx(cr.calibration_test(p, labels))
    assert named.statistic != pytest.approx(alone.statistic)


def test_few_positives_are_simulated_at_the_right_size() -> None:
    """With 5 expected positives, the chi-squared test rejects 2.5% to 3.5% at the 1% level."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(150):
        p = np.exp(3 * rng.normal(size=300))
        p = np.minimum(5 * p / p.sum(), 0.95)
        found.append(cr.calibration_test(p, (rng.random(300) < p).astype(float)).p_value)
    assert np.mean(np.array(found) <= 0.01) <= 0.03
    assert 0.01 <= np.mean(np.array(found) <= 0.05) <= 0.1
    # Far too many positives are as surprising as 999 simulated tables can say; and few negatives.
    assert cr.calibration_test([0.01] * 300, [1] * 40 + [0] * 260).p_value == 0.001
    assert cr.calibration_test([0.99] * 300, [0] * 40 + [1] * 260).p_value == 0.001


def drawn_with_propensities(
    rng: np.random.Generator, rows: int, positives: float
) -> tuple[np.ndarray, cr.Evidence]:
    p = np.exp(rng.normal(size=rows))
    p = np.minimum(positives * p / p.sum(), 0.9)
    propensity = np.clip(rng.beta(0.6, 1, rows), 0.05, 1)
    return p, cr.ips((rng.random(rows) < p * propensity).astype(float), propensity)


@pytest.mark.parametrize(("rows", "positives"), [(300, 3), (1_000, 60), (3_000, 500)])
def test_inverse_propensities_do_not_refuse_right_probabilities(rows: int, positives: int) -> None:
    """Squared residuals as variances refused 95%, 43% and 20% at the 5% level."""
    rng = np.random.default_rng(4)
    tables = [drawn_with_propensities(rng, rows, positives) for _ in range(100)]
    found = [cr.calibration_test(*table).p_value for table in tables]
    assert np.mean(np.array(found) <= 0.05) <= 0.1
    wrong = []
    for _ in range(20):
        p, evidence = drawn_with_propensities(rng, 3_000, 500)
        wrong.append(cr.calibration_test(p / 2, evidence).p_value)
    assert np.median(wrong) < 0.01


def test_propensities_without_a_positive_contradict_nothing() -> None:
    assert cr.calibration_test([0.2] * 50, cr.ips([0] * 50, [0.5] * 50)).p_value == 1


def test_few_heavy_positives_are_few() -> None:
    """40 positives with weights of infinite variance: chi-squared refused 7.5% and 3.5%."""
    rng = np.random.default_rng(5)
    p = np.full(400, 0.1)
    found = []
    for _ in range(200):
        evidence = cr.naive(rng.random(400) < 0.1, weights=rng.pareto(1.2, 400) + 0.1)
        found.append(cr.calibration_test(p, evidence).p_value)
    assert np.mean(np.array(found) <= 0.01) <= 0.03
