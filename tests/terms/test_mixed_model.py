"""The random intercept model: its likelihood by integration, and its gradient by differences."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.special import expit
from scipy.stats import norm

from calibrank.terms import _groups
from calibrank.terms._groups import fit_mixed_model, integrated

RNG = np.random.default_rng(0)
GROUP = np.repeat(np.arange(4), [1, 3, 8, 20])
CURVE = RNG.normal(size=32)
TOTAL = RNG.uniform(0.5, 2, 32)
POSITIVE = TOTAL * (RNG.random(32) < expit(CURVE + np.array([2.0, -1.0, 0.5, 1.0])[GROUP]))
ROWS = _groups._Rows.of(CURVE, POSITIVE, TOTAL, GROUP)


def likelihood(level: float, group: int, intercept: float, slope: float) -> float:
    rows = group == GROUP
    z = intercept + slope * CURVE[rows] + level
    return float((POSITIVE[rows] * z - TOTAL[rows] * np.logaddexp(0, z)).sum())


@pytest.mark.parametrize("parameters", [(0.2, 1.3, np.log(0.8)), (-1.0, 0.5, np.log(2.0))])
def test_levels_are_integrated_out(parameters: tuple[float, float, float]) -> None:
    intercept, slope, log_spread = parameters
    spread = float(np.exp(log_spread))
    expected = 0.0
    for group in range(4):

        def density(level: float, n: int = group) -> float:
            value = np.exp(likelihood(level, n, intercept, slope))
            return float(value * norm.pdf(level, scale=spread))

        expected -= np.log(quad(density, -12 * spread, 12 * spread, points=[0.0])[0])
    found, gradient = _groups._loss(np.array(parameters), ROWS)
    # Without the constants of the quadrature: sqrt(pi) per group.
    assert found == pytest.approx(expected - 4 * np.log(np.sqrt(np.pi)), abs=1e-5)
    numerical = approx_fprime(np.array(parameters), lambda at: _groups._loss(at, ROWS)[0], 1e-6)
    np.testing.assert_allclose(gradient, numerical, atol=1e-3)


def test_modes_are_the_most_probable_levels() -> None:
    mode, width = _groups._modes(0.3 + CURVE, 1.5, ROWS)
    for group in range(4):

        def value(level: float, n: int = group) -> float:
            return likelihood(level, n, 0.3, 1.0) - level**2 / (2 * 1.5**2)

        at = mode[group]
        assert (value(at + 1e-4) - value(at - 1e-4)) / 2e-4 == pytest.approx(0, abs=1e-6)
        curvature = (value(at + 1e-3) + value(at - 1e-3) - 2 * value(at)) / 1e-6
        assert width[group] == pytest.approx(1 / np.sqrt(-curvature), rel=1e-4)


def test_modes_far_away_are_reached_in_short_steps() -> None:
    mode, _ = _groups._modes(CURVE - 30.0, 10.0, ROWS)
    assert mode.max() > 20


def test_the_fit_has_no_gradient() -> None:
    model = fit_mixed_model(CURVE, POSITIVE, TOTAL, GROUP)
    parameters = np.array([model.intercept, model.slope, np.log(model.spread)])
    np.testing.assert_allclose(_groups._loss(parameters, ROWS)[1], 0, atol=1e-3)


def test_a_slope_is_not_negative() -> None:
    model = fit_mixed_model(-3 * CURVE, POSITIVE, TOTAL, GROUP)
    assert model.slope == 0


@pytest.mark.parametrize("spread", [0.001, 1.5, 4.0])
def test_the_probability_of_a_new_group_is_a_mean_over_levels(spread: float) -> None:
    for log_odds in (-3.0, 0.0, 1.0):
        expected = quad(
            lambda level, z=log_odds: expit(z + spread * level) * norm.pdf(level), -9, 9
        )[0]
        found = integrated(np.array([log_odds]), spread)
        np.testing.assert_allclose(found, expected, atol=2e-3)
