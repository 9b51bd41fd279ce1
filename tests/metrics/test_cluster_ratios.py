"""Intervals of rates over clusters."""

import numpy as np
import pytest
from scipy.stats import binomtest

from calibrank.metrics.cluster_ratios import _wilson


@pytest.mark.parametrize(("successes", "trials"), [(0, 3), (5, 10), (29, 30)])
def test_wilsons_interval_is_that_of_scipy(successes: int, trials: int) -> None:
    low, high = _wilson(np.array([successes / trials]), np.array([trials]))
    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-4)
