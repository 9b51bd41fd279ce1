"""Logistic regression with priors: formulas, derivatives and integrals by other means."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit

import calibrank as cr
from calibrank.calibrators import _ridge
from calibrank.calibrators._ridge import Design, fit_ridge

RNG = np.random.default_rng(0)
MATRIX = np.column_stack([np.ones(30), RNG.normal(size=(30, 2))])
TOTAL = RNG.uniform(0.5, 2, 30)
POSITIVE = TOTAL * (RNG.random(30) < 0.4)
AT = np.array([0.3, -0.7, 0.2])
PRECISION = np.array([0.1, 2.0, 5.0])


def problem(dispersion: float = 1.5, offset: float = 0.0) -> _ridge._Problem:
    made = _ridge._Problem(MATRIX, POSITIVE, TOTAL, dispersion)
    made.offset = offset * MATRIX[:, 1]
    return made


def test_the_loss_is_the_mean_log_loss_at_the_log_odds_and_the_offset() -> None:
    z = MATRIX @ AT + 0.4 * MATRIX[:, 1]
    losses = -POSITIVE * np.log(expit(z)) - (TOTAL - POSITIVE) * np.log(expit(-z))
    assert problem(offset=0.4).mean_loss(AT) == pytest.approx(losses.sum() / TOTAL.sum())
    penalty = (PRECISION * AT**2).sum() / 2
    expected = losses.sum() / 1.5 + penalty
    assert problem(offset=0.4).value(AT, PRECISION) == pytest.approx(expected)


def test_the_loss_of_extreme_log_odds_is_finite() -> None:
    assert np.isfinite(problem().mean_loss(np.array([1e5, 0.0, 0.0])))
    assert np.isfinite(problem().mean_loss(np.array([-1e5, 0.0, 0.0])))


@pytest.mark.parametrize("offset", [0.0, 0.4])
def test_derivatives_are_those_of_the_value(offset: float) -> None:
    made = problem(offset=offset)
    none = np.zeros(3)
    gradient = approx_fprime(AT, lambda point: made.value(point, none), 1e-6)
    np.testing.assert_allclose(made.gradient(AT), gradient, atol=1e-4)
    hessian = [
        approx_fprime(AT, lambda point, i=i: made.gradient(point)[i], 1e-7) for i in range(3)
    ]
    np.testing.assert_allclose(made.hessian(AT), hessian, atol=1e-4)


def test_the_residual_is_relative_to_the_positive_mass_and_the_spread_of_a_column() -> None:
    made = problem()
    gradient = made.gradient(AT) + PRECISION * AT
    scale = np.sqrt((MATRIX**2).mean(axis=0)) * POSITIVE.sum() / 1.5
    assert made.residual(AT, PRECISION) == pytest.approx(np.abs(gradient / scale).max())


@pytest.mark.parametrize("start", [np.zeros(3), np.array([30.0, -30.0, 30.0])])
def test_the_minimum_is_found_from_near_and_far(start: np.ndarray) -> None:
    made = problem()
    found, iterations = made.minimize(start, PRECISION)
    reference = minimize(made.value, np.zeros(3), args=(PRECISION,), method="BFGS")
    np.testing.assert_allclose(found, reference.x, atol=1e-5)
    assert made.residual(found, PRECISION) < 1e-10
    assert 3 <= iterations <= 30
    assert made.minimize(found, PRECISION)[1] == 1


def test_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ridge, "_MAX_STEPS", 2)
    assert problem().minimize(np.zeros(3), PRECISION)[1] == 2


@pytest.mark.parametrize(
    ("positive", "total", "expected"),
    [
        ([1.0, 0.0, 1.0], [1.0, 1.0, 1.0], 1.0),
        ([2.0, 0.0, 4.0], [1.0, 1.0, 2.0], 20 / 6),
        ([1.0, 0.0, 0.0], [1.0, 1.0, 4.0], 18 / 6),
        ([0.0, 0.0], [1.0, 3.0], 10 / 4),
        ([1e-200, 0.0], [1.0, 3.0], 10 / 4),
    ],
)
def test_dispersion_is_the_larger_mean_weight_by_mass(
    positive: list[float], total: list[float], expected: float
) -> None:
    found = _ridge._dispersion(np.array(positive), np.array(total))
    assert found == pytest.approx(expected)


def test_the_marginal_likelihood_is_the_integral_over_the_prior() -> None:
    hessian, linear, precision = 3.0, 0.8, 2.0
    grid = np.linspace(-12, 12, 200_001)
    prior = np.sqrt(precision / (2 * np.pi)) * np.exp(-precision * grid**2 / 2)
    likelihood = np.exp(linear * grid - hessian * grid**2 / 2)
    expected = np.log((prior * likelihood).sum() * (grid[1] - grid[0]))
    found = _ridge._log_marginal(np.array([[hessian]]), np.array([linear]), np.array([precision]))
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_group_has_the_precision_of_its_prior_and_others_hardly_any() -> None:
    columns = [np.arange(4.0), np.ones((4, 3))]
    design = Design(columns, [slice(2, 3), slice(3, 5)])
    np.testing.assert_array_equal(design.matrix[:, 0], np.ones(4))
    np.testing.assert_array_equal(design.matrix[:, 1], np.arange(4.0))
    expected = [1 / 900, 1 / 900, 1 / 0.04, 1 / 9, 1 / 9]
    np.testing.assert_allclose(design.precision([0.2, 3.0]), expected)
    with pytest.raises(ValueError, match="zip"):
        design.precision([0.2])


def world(effect: float) -> tuple[Design, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    curve = rng.normal(size=800)
    x = rng.normal(size=(800, 2))
    labels = (rng.random(800) < expit(curve + effect * x[:, 0])).astype(float)
    return Design([curve, x], [slice(2, 3), slice(3, 4)]), labels, np.ones(800)


def test_the_fit_is_the_mode_under_the_best_of_the_priors() -> None:
    """Every pair of priors by hand: the chosen one has the highest marginal likelihood."""
    design, positive, total = world(0.8)
    solution = fit_ridge(design, positive, total)
    made = _ridge._Problem(design.matrix, positive, total, 1.0)
    hessian = made.hessian(solution.coefficients)
    linear = hessian @ solution.coefficients - made.gradient(solution.coefficients)
    best = max(
        [[first, second] for first in _ridge.SDS for second in _ridge.SDS],
        key=lambda sds: _ridge._log_marginal(hessian, linear, design.precision(sds)),
    )
    assert best[0] == 1.0
    precision = design.precision(best)
    assert made.residual(solution.coefficients, precision) < 1e-8
    assert solution.residual == pytest.approx(made.residual(solution.coefficients, precision))
    assert solution.loss == made.mean_loss(solution.coefficients)
    assert 4 <= solution.iterations <= 40
    # The effect that is not there is shrunk more than the one that is.
    assert abs(solution.coefficients[3]) < 0.05
    assert solution.coefficients[2] > 0.7


def test_a_score_without_use_keeps_the_smallest_slope_and_the_rest_is_fitted() -> None:
    rng = np.random.default_rng(2)
    curve = rng.normal(size=500)
    x = rng.normal(size=500)
    positive = (rng.random(500) < expit(x - curve)).astype(float)
    total = np.ones(500)
    design = Design([curve, x[:, None]], [slice(2, 3)])
    solution = fit_ridge(design, positive, total)
    assert solution.coefficients[1] == 0.01
    precision = design.precision([0.3])

    def value(free: np.ndarray) -> float:
        z = free[0] + 0.01 * curve + free[1] * x
        penalty = precision[0] * free[0] ** 2 + precision[2] * free[1] ** 2
        return float((np.logaddexp(0, z) - positive * z).sum() + penalty / 2)

    reference = minimize(value, np.zeros(2), method="BFGS")
    np.testing.assert_allclose(solution.coefficients[[0, 2]], reference.x, atol=1e-4)
    z = design.matrix @ solution.coefficients
    assert solution.loss == pytest.approx((np.logaddexp(0, z) - positive * z).mean(), abs=1e-6)
    assert solution.residual < 1e-6
    assert solution.iterations > 1


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ridge, "_MAX_STEPS", 1)
    monkeypatch.setattr(_ridge, "_ROUNDS", 1)
    message = r"must reach an optimality residual of 1e-07, got .*\. Drop outlying features"
    with pytest.raises(cr.FitError, match=message):
        fit_ridge(*world(2.0))
