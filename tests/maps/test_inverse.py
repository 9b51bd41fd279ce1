"""`score_at`: the inverse of `predict`, for every curve and with terms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrank as cr
from calibrank.errors import DataError
from calibrank.maps import StepCurve
from calibrank.registry import CALIBRATORS
from tests.maps.samples import map_of, smooth_term

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=2_000)
LABELS = (RNG.random(2_000) < 1 / (1 + np.exp(1 - SCORES))).astype(float)
# Bins of their own may fall, which is refused.
INCREASING = {**CALIBRATORS, "Histogram": cr.Histogram(bins=3), "BBQ": cr.Isotonic()}
MAPS = {name: calibrator.fit(SCORES, LABELS) for name, calibrator in INCREASING.items()}


@pytest.mark.parametrize("name", MAPS)
@given(probability=st.floats(0.2, 0.5))
def test_a_cutoff_divides_the_scores_by_probability(name: str, probability: float) -> None:
    fitted = MAPS[name]
    low, high = fitted.score_at(probability)
    # A curve may round to the value of the score before; never beyond that.
    assert fitted.predict(low) >= probability
    assert fitted.predict(low - 1e-9) < probability
    assert low <= high
    if low < high:
        assert np.all(fitted.predict(np.linspace(low, high, 11)) == probability)
    assert fitted.predict(high + 1e-9) > probability


def test_a_flat_piece_is_an_interval_without_end_at_the_ends() -> None:
    fitted = cr.Isotonic().fit([0.0, 1.0, 2.0, 3.0, 4.0], [0, 0, 1, 0, 1])
    # Steps are halfway between scores; the upper end is the last score before the next step.
    assert fitted.score_at(0.5) == (1.5, np.nextafter(3.5, 0)) == fitted.score_at(0.5, {})
    low, high = fitted.score_at(0.0)
    assert low == -np.inf
    assert fitted.predict(high) == 0
    assert fitted.score_at(1.0).high == np.inf


def test_a_probability_that_is_not_reached_names_the_range() -> None:
    labels = [0, 0, 1, 1, 1, 0, 1, 1] * 2
    with pytest.raises(DataError, match="must increase with the score"):
        cr.Histogram(bins=4).fit([0.0, 1.0, 2.0, 3.0] * 4, labels).score_at(0.1)
    fitted = cr.Histogram(bins=2).fit([0.0, 1.0, 2.0, 3.0] * 4, labels)
    with pytest.raises(DataError, match=r"reaches, 0\.25 to 1, got 0\.1"):
        fitted.score_at(0.1)
    with pytest.raises(DataError, match="probability must lie in"):
        fitted.score_at(1.5)


def test_terms_have_a_cutoff_per_row() -> None:
    country = np.where(RNG.random(2_000) < 0.5, "NL", "DE")
    price = RNG.normal(size=2_000)
    rows = {"country": country, "price": price}
    fitted = (cr.Platt() + cr.Level("country") + cr.Smooth("price")).fit(SCORES, LABELS, rows)
    few = {"country": ["NL", "DE", "BE"], "price": [0.0, 1.0, -1.0]}
    low, high = fitted.score_at(0.4, few)
    np.testing.assert_allclose(fitted.predict(low, few), 0.4, rtol=1e-12)
    np.testing.assert_array_equal(low, high)
    with pytest.raises(DataError, match="columns must have country, price"):
        fitted.score_at(0.4)


def steps_at(*edges: float) -> cr.CalibrationMap:
    """Steps of 0.2, 0.4, ... between these scores."""
    values = tuple((0.2 * np.arange(1, len(edges) + 2)).round(1).tolist())
    return map_of(StepCurve(edges, values, (1.0,) * len(values)))


@pytest.mark.parametrize("edge", [-1e29, -3.7, -1e-300, -5e-324, 0.0, 5e-324, 1e-12, 3.7, 1e30])
def test_a_jump_is_found_to_its_last_digit(edge: float) -> None:
    assert steps_at(edge).score_at(0.3) == (edge, edge)
    low, high = steps_at(edge).score_at(0.2)
    assert (low, high) == (-np.inf, np.nextafter(edge, -np.inf))
    assert steps_at(edge).score_at(0.4) == (edge, np.inf)


@pytest.mark.parametrize("start", [-1e6, 0.0, 1e6])
@pytest.mark.parametrize("is_point", [True, False])
def test_a_flat_piece_that_rounding_may_have_made_is_a_point(start: float, is_point: bool) -> None:
    # 1e-9 of the scores, or of the range that a plot shows: here 1.2.
    width = max(1.2, abs(start)) * (0.5e-9 if is_point else 2e-9)
    low, high = steps_at(start, start + width, start + 1).score_at(0.4)
    assert low == start
    assert high == (start if is_point else np.nextafter(start + width, -np.inf))


def test_a_fall_by_rounding_is_none() -> None:
    falls = StepCurve((0.0, 1.0), (0.2, 0.2 - 1e-13, 0.8), (1.0,) * 3)
    assert map_of(falls).score_at(0.5) == (1.0, 1.0)
    with pytest.raises(DataError, match="a map must increase with the score"):
        map_of(replace(falls, values=(0.2, 0.2 - 2e-12, 0.8))).score_at(0.5)
    flat = map_of(StepCurve((), (0.25,), (1.0,)))
    assert flat.score_at(0.25) == (-np.inf, np.inf)


def test_the_row_that_does_not_reach_a_probability_is_named() -> None:
    fitted = replace(steps_at(0.0, 1.0), terms=(smooth_term("x"),))
    assert fitted.score_at(0.41, {"x": [0.0, 1.0]}).low.tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match=r"map reaches, 0\.40461 to 0\.80305, got 0\.3 at row 1"):
        fitted.score_at(0.3, {"x": [0.0, 2.0]})
    with pytest.raises(DataError, match=r"got 0\.3\.$"):
        fitted.score_at(0.3, {"x": [2.0]})
