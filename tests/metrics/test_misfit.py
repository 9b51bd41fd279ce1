"""Misfit: a family of the wrong shape is reported, one of the right shape is not."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.metrics.pooled import Misfit, misfit


def summary_of(kink: float, seed: int, propensity: float = 1.0) -> cr.Summary:
    """Labels whose log odds are linear in the score, or flat above 0 with a kink of 1."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=20_000)
    log_odds = 2 * scores - kink * 2 * np.maximum(scores, 0) - 1
    shown = rng.random(20_000) < propensity
    labels = (rng.random(20_000) < expit(log_odds)) & shown
    return cr.Summary.of(scores, cr.ips(labels.astype(float), np.full(20_000, propensity)))


@pytest.mark.parametrize("propensity", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_the_right_family_is_not_reported(seed: int, propensity: float) -> None:
    summary = summary_of(0, seed, propensity)
    found = misfit(cr.Platt().fit_summary(summary).predict(summary.scores), summary)
    assert not found.matters


@pytest.mark.parametrize("method", [cr.Gaussian(), cr.Gamma(), cr.Beta()])
@pytest.mark.parametrize("seed", range(3))
def test_truth_in_other_families_is_not_reported(method: cr.Calibrator, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.01, 0.99, 5_000)
    bent = (rng.random(5_000) < expit(6 * scores**2 - 4)).astype(float)
    truth = method.fit(scores, bent)
    labels = (rng.random(5_000) < truth.predict(scores)).astype(float)
    summary = cr.Summary.of(scores, labels)
    fitted = method.fit_summary(summary)
    assert not misfit(fitted.predict(summary.scores), summary).matters


def test_a_wrong_family_is_reported_with_its_size() -> None:
    summary = summary_of(1, 0)
    found = misfit(cr.Platt().fit_summary(summary).predict(summary.scores), summary)
    assert found.matters
    assert abs(found.largest_difference) > 0.2
    assert "Use the method auto" in found.message
    spline = misfit(cr.Spline().fit_summary(summary).predict(summary.scores), summary)
    assert not spline.matters


def test_the_comparison_does_not_load_scipy_optimize() -> None:
    # It takes longer to load than most fits take.
    code = """
import sys
import calibrank as cr
from calibrank.metrics.pooled import misfit
summary = cr.Summary.of([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
misfit(cr.Platt().fit_summary(summary).predict(summary.scores), summary)
print("scipy.optimize" in sys.modules)"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("largest", "gain", "matters"),
    [
        (0.03, 7.1, True),
        (-0.03, 7.1, True),
        (0.03, 7.0, False),
        (0.02, 7.1, False),
        (-0.02, 7.1, False),
    ],
)
def test_a_misfit_matters_beyond_2_points_and_a_gain_of_three_and_a_half_variances(
    largest: float, gain: float, matters: bool
) -> None:
    assert Misfit(0.01, largest, gain, noise=2.0).matters is matters


def test_the_parts_of_a_misfit_by_hand() -> None:
    """Rates 1/4 and 3/4 of four rows each, both predicted as 1/2."""
    summary = cr.Summary.of(np.repeat([0.0, 1.0], 4), [0, 0, 0, 1, 0, 1, 1, 1])
    found = misfit(np.array([0.5, 0.5]), summary)
    # Squared errors fall from 1/4 to 3/16 in each of 8 rows; each residual is 1/2.
    assert found == pytest.approx((0.25, -0.25, 0.5, 0.5))
    assert "off by 25 points on average, and too high by 25 points over 1%" in found.size
    assert "too low by 25 points" in found._replace(largest_difference=0.25).size
