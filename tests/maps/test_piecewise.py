"""Piecewise maps: interpolation, straight lines beyond the knots, intervals and their checks."""

from dataclasses import replace

import numpy as np
import pytest

import calibrank as cr
from calibrank.maps import FitRecord, PiecewiseMap

RECORD = FitRecord("naive", rows=10, positive=2.0, total=10.0, exact=True)


@pytest.fixture
def fitted() -> PiecewiseMap:
    return PiecewiseMap(
        method="Spline",
        knots=(-1.0, 0.0, 2.0),
        values=(-3.0, -1.0, 0.5),
        end_slopes=(1.0, 0.1),
        value_errors=(0.1, 0.2, 0.4),
        slope_errors=(0.5, 0.6),
        record=RECORD,
    )


def test_log_odds_are_linear_between_knots_and_straight_beyond(fitted: PiecewiseMap) -> None:
    scores = [-3.0, -1.0, -0.5, 0.0, 1.0, 2.0, 12.0]
    expected = [-5.0, -3.0, -2.0, -1.0, -0.25, 0.5, 1.5]
    np.testing.assert_allclose(fitted.log_odds(scores), expected)


def test_scores_far_from_zero_lose_no_digits(fitted: PiecewiseMap) -> None:
    shift = 2.0**40
    knots = tuple(knot + shift for knot in fitted.knots)
    scores = np.linspace(-3, 3, 49)
    expected = fitted.predict(scores)
    np.testing.assert_array_equal(replace(fitted, knots=knots).predict(scores + shift), expected)


def test_intervals_interpolate_standard_errors_and_widen_beyond_the_knots(
    fitted: PiecewiseMap,
) -> None:
    def half_width(score: float) -> float:
        low, high = fitted.interval(score)
        return float(np.log(high / (1 - high)) - np.log(low / (1 - low))) / 2 / 1.959964

    assert half_width(0.0) == pytest.approx(0.2, rel=1e-6)
    assert half_width(1.0) == pytest.approx(0.3, rel=1e-6)
    assert half_width(-3.0) == pytest.approx(0.1 + 2 * 0.5, rel=1e-6)
    assert half_width(3.0) == pytest.approx(0.4 + 0.6, rel=1e-6)


def test_one_knot_is_a_line_with_a_bend(fitted: PiecewiseMap) -> None:
    bent = replace(fitted, knots=(1.0,), values=(0.0,), value_errors=(0.1,))
    np.testing.assert_allclose(bent.log_odds([0.0, 1.0, 2.0]), [-1.0, 0.0, 0.1])
    assert bent.span == (0.5, 1.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knots": (0.0, 0.0, 2.0)}, "knots must be strictly increasing"),
        ({"values": (0.0, -1.0, 2.0)}, "values must not decrease"),
        ({"values": (0.0, 1.0)}, r"must be as many as knots \(3\), got 2 and 3"),
        ({"end_slopes": (-1.0, 0.0)}, "end_slopes must be 2 numbers of 0 or more"),
        ({"value_errors": (0.1, -0.1, 0.1)}, "no standard error negative"),
        ({"knots": (), "values": (), "value_errors": ()}, "knots must be 1 to 1000, got 0"),
    ],
)
def test_impossible_maps_are_rejected(
    fitted: PiecewiseMap, change: dict[str, tuple[float, ...]], message: str
) -> None:
    with pytest.raises(cr.DataError, match=message):
        replace(fitted, **change)
