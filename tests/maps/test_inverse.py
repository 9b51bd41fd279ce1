"""`score_at`: the inverse of `predict`, for every curve and with terms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrank as cr
from calibrank.errors import DataError
from calibrank.registry import CALIBRATORS

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
