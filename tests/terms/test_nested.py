"""Levels with parents: few children each, or one that is far larger than the others."""

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit


def fit(sizes: np.ndarray, levels: np.ndarray, seed: int) -> cr.CalibrationMap:
    """Log odds of cities (columns) of countries (rows), each with so many rows."""
    rng = np.random.default_rng(seed)
    numbers = np.repeat(np.arange(sizes.size), sizes.ravel())
    country, city = np.divmod(numbers, sizes.shape[1])
    scores = rng.normal(size=len(numbers))
    labels = (rng.random(len(numbers)) < expit(scores + levels.ravel()[numbers])).astype(float)
    rows = {"country": country, "city": city}
    return (cr.Platt() + cr.Level("country", "city")).fit(scores, labels, rows)


@pytest.mark.parametrize(("countries", "cities", "rows"), [(100, 3, 20), (20, 10, 20), (4, 60, 40)])
def test_cities_differ_as_much_as_they_do(countries: int, cities: int, rows: int) -> None:
    """Of three per country they differed by 0.1: the country was where its own cities are."""
    spreads = []
    for seed in range(4):
        rng = np.random.default_rng(100 + seed)
        levels = 0.7 * rng.normal(size=(countries, 1)) + 0.5 * rng.normal(size=(countries, cities))
        fitted = fit(np.full(levels.shape, rows), levels - 1, seed)
        spreads.append(fitted.terms[0].spreads[1])
    assert np.mean(spreads) == pytest.approx(0.5, abs=0.1)


def test_a_country_is_where_its_cities_are_and_not_its_largest() -> None:
    """An unknown city was taken for the largest one: it was off by 1.7."""
    rng = np.random.default_rng(0)
    levels = 0.5 * rng.normal(size=(15, 1)) + 0.2 * rng.normal(size=(15, 12)) - 1
    typical = levels[:, 1:].mean(axis=1)
    levels[:, 0] -= 2
    sizes = np.full(levels.shape, 30)
    sizes[:, 0] = 5000
    fitted = fit(sizes, levels, 1)
    unknown = {"country": np.arange(15), "city": ["new"] * 15}
    found = fitted.log_odds(np.zeros(15), unknown)
    assert np.mean(found - typical) == pytest.approx(0, abs=0.5)
    assert np.corrcoef(found, typical)[0, 1] > 0.7


def test_cities_that_do_not_differ_stay_with_their_country() -> None:
    levels = np.linspace(-2, 0, 10)[:, None] + np.zeros(20)
    fitted = fit(np.full(levels.shape, 50), levels, 2)
    (term,) = fitted.terms
    assert term.spreads[1] < 0.2
    of_cities = [len(key) == 2 for key in term.keys]
    places = np.flatnonzero(of_cities)
    found = np.array(term.intercepts)[places]
    parents = [term.intercepts[term.node(term.keys[place][:1]) - 1] for place in places.tolist()]
    assert np.abs(found - parents).max() < 0.2
