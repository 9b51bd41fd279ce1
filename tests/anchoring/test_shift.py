"""Shifts of log odds to a known rate."""

import numpy as np
import pytest

from calibrank._internal.logit import expit
from calibrank.anchoring.known_rate import shift_for, shifts_for


@pytest.mark.parametrize("rate", [1e-9, 0.03, 0.5, 0.999])
def test_every_row_is_shifted_to_the_rate(rate: float) -> None:
    rng = np.random.default_rng(0)
    # Rows from nearly constant to so steep that nearly all probabilities round to 0 or 1.
    scales = np.geomspace(0.01, 300, 9)[:, None]
    log_odds = rng.normal(3, 1, (9, 50)) * scales
    moderation = rng.uniform(1, 4, (9, 50))
    mass = rng.dirichlet(np.ones(50))
    shifts = shifts_for(log_odds, moderation, mass, rate)
    means = expit((log_odds + shifts[:, None]) / moderation) @ mass
    np.testing.assert_allclose(means, rate, rtol=1e-9)


def test_without_moderation_the_shifts_are_those_of_one_curve() -> None:
    rng = np.random.default_rng(1)
    log_odds = rng.normal(size=(4, 30))
    mass = rng.dirichlet(np.ones(30))
    found = shifts_for(log_odds, np.ones((4, 30)), mass, 0.2)
    expected = [shift_for(curve, mass, 0.2) for curve in log_odds]
    np.testing.assert_allclose(found, expected, atol=1e-12)
