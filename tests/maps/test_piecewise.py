"""Piecewise curves: interpolation, straight lines beyond the knots, intervals and their checks."""

from dataclasses import replace

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import logit
from calibrank.maps import PiecewiseCurve
from tests.maps.samples import map_of


@pytest.fixture
def curve() -> PiecewiseCurve:
    return PiecewiseCurve(
        knots=(-1.0, 0.0, 2.0),
        values=(-3.0, -1.0, 0.5),
        end_slopes=(1.0, 0.1),
        value_errors=(0.1, 0.2, 0.4),
        slope_errors=(0.5, 0.6),
    )


def test_log_odds_are_linear_between_knots_and_straight_beyond(curve: PiecewiseCurve) -> None:
    scores = [-3.0, -1.0, -0.5, 0.0, 1.0, 2.0, 12.0]
    expected = [-5.0, -3.0, -2.0, -1.0, -0.25, 0.5, 1.5]
    np.testing.assert_allclose(map_of(curve).log_odds(scores), expected)


def test_scores_far_from_zero_lose_no_digits(curve: PiecewiseCurve) -> None:
    shift = 2.0**40
    knots = tuple(knot + shift for knot in curve.knots)
    scores = np.linspace(-3, 3, 49)
    expected = map_of(curve).predict(scores)
    shifted = map_of(replace(curve, knots=knots)).predict(scores + shift)
    np.testing.assert_array_equal(shifted, expected)


def test_intervals_interpolate_standard_errors_and_widen_beyond_the_knots(
    curve: PiecewiseCurve,
) -> None:
    def widths(score: float) -> list[float]:
        fitted = map_of(curve)
        ends = np.array(fitted.sampling_interval(score))
        return (np.abs(logit(ends) - fitted.log_odds(score)) / 1.959964).tolist()

    assert widths(0.0) == pytest.approx([0.2, 0.2], rel=1e-6)
    assert widths(1.0) == pytest.approx([0.3, 0.3], rel=1e-6)
    assert widths(-3.0)[0] == pytest.approx(0.1 + 2 * 0.5, rel=1e-6)
    assert widths(3.0)[1] == pytest.approx(0.4 + 0.6, rel=1e-6)


def test_an_end_bounds_the_curve_on_its_other_side_too(curve: PiecewiseCurve) -> None:
    """The curve increases: it is below the upper ends of higher scores, above lower ends."""
    fitted = map_of(curve)
    scores = np.linspace(-40, 40, 401)
    low, high = fitted.sampling_interval(scores)
    assert (np.diff(low) >= -1e-12).all()
    assert (np.diff(high) >= -1e-12).all()


def test_one_knot_is_a_line_with_a_bend(curve: PiecewiseCurve) -> None:
    bent = replace(curve, knots=(1.0,), values=(0.0,), value_errors=(0.1,))
    np.testing.assert_allclose(bent.log_odds(np.array([0.0, 1.0, 2.0])), [-1.0, 0.0, 0.1])
    assert bent.span == (0.5, 1.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knots": (0.0, 0.0, 2.0)}, "knots must be strictly increasing"),
        ({"values": (0.0, -1.0, 2.0)}, "values must not decrease"),
        ({"values": (0.0, 1.0)}, "must have 3 values each, got 2 and 3"),
        ({"end_slopes": (-1.0, 0.0)}, "end_slopes must not be negative"),
        ({"value_errors": (0.1, -0.1, 0.1)}, "standard errors must not be negative"),
        ({"knots": (), "values": (), "value_errors": ()}, "knots must be 1 to 1000, got 0"),
    ],
)
def test_impossible_curves_are_rejected(
    curve: PiecewiseCurve, change: dict[str, tuple[float, ...]], message: str
) -> None:
    with pytest.raises(cr.DataError, match=message):
        replace(curve, **change)
