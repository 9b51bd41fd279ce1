"""Parts of an anchoring whose results are known by construction."""

from statistics import NormalDist

import numpy as np
import pytest

from calibrank._internal.logit import expit
from calibrank.anchoring._population import Population
from calibrank.anchoring._terms_of import _sum_of_levels
from calibrank.anchoring.anchor import _piecewise_curve, _rate
from calibrank.anchoring.posterior import PosteriorCurve, _intercept_sd
from calibrank.maps import LevelTerm


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


def test_the_sum_of_levels_has_what_each_level_has_in_both() -> None:
    slopes, errors = (1.2, 0.7), (0.3, 0.4)
    first = LevelTerm(("x",), (("a",), ("b",)), (0.5, -0.5), slopes, errors, (9, 9), (1.0,), 0.1)
    second = LevelTerm(
        ("x",), (("b",), ("c",)), (2.0, 3.0), (1, 1), (0.3, 0.2), (4, 5), (1.0,), 0.2
    )
    both = _sum_of_levels(first, second)
    assert both.keys == (("a",), ("b",), ("c",))
    assert both.intercepts == pytest.approx((0.7, 1.5, 3.1))
    assert both.slopes == (1.2, 0.7, 1.0)
    assert both.rows == (0, 4, 5)
    assert both.errors[1] == pytest.approx(0.5)


def test_a_rate_at_an_end_keeps_an_interval_inside() -> None:
    population = Population.of(np.linspace(-2, 2, 1_000))
    size = len(population.grid)
    for certain in (0.0, 1.0):
        probabilities = np.full(size, certain)
        curve = PosteriorCurve(
            population.grid, probabilities, np.zeros((size, size)), 1.0, 1.0, 1.0, 1.0
        )
        rate, (low, high) = _rate(curve, population)
        assert rate == pytest.approx(certain, abs=1e-8)
        assert 0 < low <= rate <= high < 1
