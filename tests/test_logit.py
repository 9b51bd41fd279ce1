"""Log odds, against scipy.special."""

import numpy as np
from scipy import special

from calibrank._internal.logit import expit, logit


def test_expit_is_that_of_scipy() -> None:
    log_odds = np.array([-1000, -710, -30, -1, -1e-9, 0, 1, 30, 710, 1000])
    np.testing.assert_allclose(expit(log_odds), special.expit(log_odds), rtol=1e-14, atol=1e-300)


def test_logit_is_that_of_scipy() -> None:
    probabilities = np.array([0, 1e-300, 1e-9, 0.1, 0.5, 0.9, 1 - 1e-9, 1])
    np.testing.assert_allclose(logit(probabilities), special.logit(probabilities), rtol=1e-12)


def test_they_are_inverse_to_each_other() -> None:
    log_odds = np.linspace(-20, 20, 41)
    np.testing.assert_allclose(logit(expit(log_odds)), log_odds, rtol=1e-7, atol=1e-12)
