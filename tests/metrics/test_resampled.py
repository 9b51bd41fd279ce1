"""Pooled metrics of many resamples at once are those of each resample alone."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import logit

import calibrank as cr
from calibrank.metrics import (
    CalibrationIntercept,
    CalibrationSlope,
    Discrimination,
    Miscalibration,
    recalibration,
)
from calibrank.metrics.clustered_bootstrap import draw_matrix
from calibrank.metrics.pooled import Pooled, PooledBins, pooled_bins
from calibrank.metrics.recalibration import _Losses, _shorten
from calibrank.metrics.smooth import _errors, _mirrored, _spread
from tests.metrics.sums import cluster_sums

Distort = Callable[[np.ndarray], np.ndarray]
DISTORTIONS: dict[str, Distort] = {
    "calibrated": lambda p: p,
    "far too low": lambda p: p / 20,
    "too extreme": lambda p: 1 / (1 + (1 / p - 1) ** 4),
    "constant": lambda p: np.full_like(p, 0.3),
    "certain and wrong": lambda p: np.where(p > 0.5, 0.0, 1.0),
}


@pytest.fixture(params=DISTORTIONS)
def blocks(request: pytest.FixtureRequest) -> list[np.ndarray]:
    """Resampled sums of few users, so that resamples have empty bins and rates above 1."""
    rng = np.random.default_rng(0)
    truth = rng.beta(1, 2, 400).clip(1e-3, 1 - 1e-3)
    labels = (rng.random(400) < truth).astype(float)
    evidence = cr.ips(labels, rng.uniform(0.1, 1, 400))
    probabilities = DISTORTIONS[request.param](truth)
    sums = cluster_sums(Miscalibration(), probabilities, evidence, rng.integers(0, 20, 400), 20)
    return [np.tensordot(draw_matrix(20, 80), sums, 1)]


POOLED = (
    cr.SmoothECE(),
    CalibrationSlope(),
    CalibrationIntercept(),
    Miscalibration(),
    Discrimination(),
    Discrimination(score=cr.LogLoss()),
)


@pytest.mark.parametrize("metric", POOLED, ids=str)
def test_many_resamples_are_each_alone(metric: Pooled, blocks: list[np.ndarray]) -> None:
    for block in blocks:
        found = metric.evaluate_all(PooledBins.of(block))
        expected = [metric.evaluate(*pooled_bins(one), None) for one in block]
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


def test_the_bandwidth_of_the_smooth_ece_is_its_error() -> None:
    """Against a kernel that is written out, with images at both ends."""
    rng = np.random.default_rng(0)
    p = np.round(rng.random(50) * 1024) / 1024
    labels = rng.integers(0, 2, 50).astype(float)
    grid = np.arange(1025) / 1024

    def error(bandwidth: float) -> float:
        smoothed = np.zeros(1025)
        for image in range(-6, 7, 2):
            for place in (p + image, image - p):
                distance = (grid[:, None] - place) / bandwidth
                kernel = np.exp(-(distance**2) / 2) / (bandwidth * np.sqrt(2 * np.pi))
                smoothed += kernel @ (labels - p) / len(p)
        return float(np.trapezoid(np.abs(smoothed), grid))

    expected = brentq(lambda bandwidth: error(bandwidth) - bandwidth, 0.01, 1, xtol=1e-9)
    assert cr.SmoothECE()(p, labels) == pytest.approx(expected, abs=1e-6)


def test_residuals_at_both_ends_count_fully_without_smoothing() -> None:
    """The sum of absolute residuals; with the widest kernel, the absolute value of their sum."""
    probabilities = np.array([[0.0, 0.5, 1.0], [0.25, 0.5, 1.0], [0.0, 0.125, 0.75]])
    residuals = np.array([[0.3, -0.2, 0.4], [0.1, 0.2, -0.5], [-0.6, 0.1, 0.1]])
    spectra = np.fft.rfft(_mirrored(_spread(probabilities, residuals)))
    np.testing.assert_allclose(_errors(spectra, np.zeros(3)), [0.9, 0.8, 0.8])
    np.testing.assert_allclose(_errors(spectra, np.full(3, 9.0)), [0.5, 0.2, 0.4])


PROBABILITIES = np.array([[0.1, 0.5, 0.8], [0.0, 0.2, 1.0], [0.3, 0.3, 0.6]])
POSITIVE = np.array([[1.0, 0.5, 2.0], [0.2, 1.5, 1.0], [0.0, 1.0, 1.5]])
TOTAL = np.array([[3.0, 1.0, 2.5], [2.0, 2.0, 4.0], [1.0, 1.0, 2.0]])
SLOPE, INTERCEPT = np.array([1.2, 0.8, -0.5]), np.array([0.1, -0.3, 0.4])


def test_derivatives_of_the_losses_are_those_of_differences() -> None:
    losses = _Losses.of(PooledBins(PROBABILITIES, POSITIVE, TOTAL))
    gradients, (first, mixed, second) = losses.derivatives(SLOPE, INTERCEPT)
    step = 1e-6
    for column, (slope, intercept) in enumerate(((step, 0.0), (0.0, step))):
        after = losses.values(SLOPE + slope, INTERCEPT + intercept)
        before = losses.values(SLOPE - slope, INTERCEPT - intercept)
        np.testing.assert_allclose(gradients[:, column], (after - before) / (2 * step), rtol=1e-4)
        ahead, _ = losses.derivatives(SLOPE + slope, INTERCEPT + intercept)
        behind, _ = losses.derivatives(SLOPE - slope, INTERCEPT - intercept)
        hessian = [(first, mixed), (mixed, second)][column]
        for row in range(2):
            found = (ahead - behind)[:, row] / (2 * step)
            np.testing.assert_allclose(hessian[row], found, rtol=1e-4)


def test_slope_and_intercept_minimize_the_log_loss() -> None:
    p, positive, total = PROBABILITIES[0], POSITIVE[0], TOTAL[0]

    def loss(at: np.ndarray) -> float:
        log_odds = at[0] * logit(p) + at[1]
        return float(np.sum(total * np.logaddexp(0, log_odds) - positive * log_odds))

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-14})
    assert recalibration(p, cr.Evidence(positive, total)) == pytest.approx(best.x, abs=1e-4)


def test_only_checked_steps_are_halved_until_the_loss_does_not_rise() -> None:
    losses = _Losses.of(PooledBins(PROBABILITIES, POSITIVE, TOTAL))
    gradients, _ = losses.derivatives(SLOPE, INTERCEPT)
    steps = np.array([[50.0], [1e-3], [50.0]]) * gradients
    found = _shorten(losses, SLOPE, INTERCEPT, steps, np.array([True, True, False]))
    np.testing.assert_array_equal(found[1:], steps[1:])
    before = losses.values(SLOPE, INTERCEPT)[0]

    def after(taken: np.ndarray) -> float:
        return float(losses.values(SLOPE - taken[:, 0], INTERCEPT - taken[:, 1])[0])

    assert after(found) <= before < after(2 * found)
    nothing = np.zeros(3, dtype=bool)
    assert _shorten(losses, SLOPE, INTERCEPT, steps, nothing) is steps
