"""The binned metrics of many resamples at once are those of each resample alone."""

from collections.abc import Callable

import numpy as np
import pytest

import calibrank as cr
from calibrank.metrics._resampled import (
    PooledBins,
    _errors,
    _Losses,
    _shorten,
    _spread,
    decompose_brier,
    fit_recalibrations,
    smooth_eces,
)
from calibrank.metrics.clustered_bootstrap import cluster_sums, resampled_blocks
from calibrank.metrics.corp import LogOddsBinned, Miscalibration, decompose_sums, pooled_bins
from calibrank.metrics.recalibration import IDENTITY, Recalibration, _Loss, fit_recalibration
from calibrank.metrics.recalibration import _shorten as shorten_one
from calibrank.metrics.smooth import _Smoother, mirrored

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
    metric = LogOddsBinned(Miscalibration())
    sums = cluster_sums(metric, probabilities, evidence, rng.integers(0, 20, 400), 20)
    return list(resampled_blocks(sums, resamples=80))


@pytest.mark.parametrize("start", [0.0, 0.02, 1.0])
def test_smooth_ece(blocks: list[np.ndarray], start: float) -> None:
    for block in blocks:
        found = smooth_eces(PooledBins.of(block), start)
        expected = [cr.SmoothECE().evaluate(*pooled_bins(one), None) for one in block]
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("start", [IDENTITY, Recalibration(-2.0, 3.0)])
def test_slope_and_intercept(blocks: list[np.ndarray], start: Recalibration) -> None:
    for block in blocks:
        found = np.column_stack(fit_recalibrations(PooledBins.of(block), start))
        expected = [fit_recalibration(*pooled_bins(one), start) for one in block]
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


def test_the_decomposition_of_the_brier_score(blocks: list[np.ndarray]) -> None:
    for block in blocks:
        miscalibration, discrimination = decompose_brier(PooledBins.of(block))
        expected = [decompose_sums(one) for one in block]
        np.testing.assert_allclose(
            miscalibration, [one.miscalibration for one in expected], atol=1e-12
        )
        np.testing.assert_allclose(
            discrimination, [one.discrimination for one in expected], atol=1e-12
        )


def test_residuals_at_both_ends_count_fully_without_smoothing() -> None:
    """The sum of absolute residuals; with the widest kernel, the absolute value of their sum."""
    probabilities = np.array([[0.0, 0.5, 1.0], [0.25, 0.5, 1.0], [0.0, 0.125, 0.75]])
    residuals = np.array([[0.3, -0.2, 0.4], [0.1, 0.2, -0.5], [-0.6, 0.1, 0.1]])
    spectra = np.fft.rfft(mirrored(_spread(probabilities, residuals)))
    np.testing.assert_allclose(_errors(spectra, np.zeros(3)), [0.9, 0.8, 0.8])
    np.testing.assert_allclose(_errors(spectra, np.full(3, 9.0)), [0.5, 0.2, 0.4])
    for p, each, sizes in zip(probabilities, residuals, [0.9, 0.8, 0.8], strict=True):
        smoother = _Smoother(p, each)
        assert smoother.error(0.0) == pytest.approx(sizes)
        assert smoother.error(9.0) == pytest.approx(abs(each.sum()))


PROBABILITIES = np.array([[0.1, 0.5, 0.8], [0.0, 0.2, 1.0], [0.3, 0.3, 0.6]])
POSITIVE = np.array([[1.0, 0.5, 2.0], [0.2, 3.0, 1.0], [0.0, 1.0, 4.0]])
TOTAL = np.array([[3.0, 1.0, 2.5], [2.0, 2.0, 4.0], [1.0, 1.0, 2.0]])
SLOPE, INTERCEPT = np.array([1.2, 0.8, -0.5]), np.array([0.1, -0.3, 0.4])


def test_losses_of_resamples_and_their_derivatives_are_those_of_each() -> None:
    losses = _Losses.of(PooledBins(PROBABILITIES, POSITIVE, TOTAL))
    values = losses.values(SLOPE, INTERCEPT)
    gradients, entries = losses.derivatives(SLOPE, INTERCEPT)
    for row in range(3):
        one = _Loss.of(PROBABILITIES[row], POSITIVE[row], TOTAL[row])
        at = np.array([SLOPE[row], INTERCEPT[row]])
        assert values[row] == pytest.approx(one.value(at))
        assert losses.ridge[row] == pytest.approx(one.ridge)
        gradient, hessian = one.derivatives(at)
        np.testing.assert_allclose(gradients[row], gradient)
        np.testing.assert_allclose(entries[:, row], hessian[[0, 0, 1], [0, 1, 1]])


def test_only_checked_steps_are_halved_until_the_loss_does_not_rise() -> None:
    losses = _Losses.of(PooledBins(PROBABILITIES, POSITIVE, TOTAL))
    gradients, _ = losses.derivatives(SLOPE, INTERCEPT)
    steps = np.array([[50.0], [1e-3], [50.0]]) * gradients
    found = _shorten(losses, SLOPE, INTERCEPT, steps, np.array([True, True, False]))
    np.testing.assert_array_equal(found[1:], steps[1:])
    one = _Loss.of(PROBABILITIES[0], POSITIVE[0], TOTAL[0])
    at = np.array([SLOPE[0], INTERCEPT[0]])
    halved = shorten_one(one, at, steps[0])
    np.testing.assert_array_equal(found[0], halved)
    assert one.value(at - halved) <= one.value(at) < one.value(at - 2 * halved)
    assert (halved != steps[0]).all()
    nothing = np.zeros(3, dtype=bool)
    assert _shorten(losses, SLOPE, INTERCEPT, steps, nothing) is steps
