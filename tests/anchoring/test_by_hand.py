"""Parts of an anchoring whose results are known by construction."""

from statistics import NormalDist

import numpy as np
import pytest

from calibrank._internal.logit import expit
from calibrank.anchoring._population import Population
from calibrank.anchoring.anchor import _piecewise_curve
from calibrank.anchoring.posterior import PosteriorCurve, _intercept_sd


@pytest.mark.parametrize("level", [-2.0, 0.0, 2.0])
def test_a_range_of_rates_is_that_of_curves_whose_intercept_varies_as_it_says(level: float) -> None:
    population = Population.of(np.sort(np.random.default_rng(0).normal(size=2_000)))
    curve = level + 2 * population.grid
    reach = NormalDist().inv_cdf(0.975) * 0.3
    rates = tuple([population.mean(expit(curve + shift)) for shift in (-reach, reach)])
    found = _intercept_sd((rates[0], rates[1]), expit(curve), population)
    assert found == pytest.approx(0.3, rel=0.1)


def test_errors_at_the_ends_are_those_of_the_line_that_continues() -> None:
    scores = np.linspace(-2, 2, 41)
    # A level and a slope that vary independently: only the slope does beyond the ends.
    covariance = 0.5**2 + 0.2**2 * np.outer(scores, scores)
    curve = PosteriorCurve(scores, expit(scores), covariance, 1.0, 1.0, 1.0, 1.0)
    ends = _piecewise_curve(curve, -2.0, 2.0)
    assert ends.slope_errors == pytest.approx((0.2, 0.2))
    assert ends.end_slopes == pytest.approx((1.0, 1.0), rel=1e-3)
