"""Laws that hold for every model, and for every curve with every term."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit, logit

import calibrank as cr
from calibrank.evidence import impressions, ips, naive, positive_ips
from calibrank.maps import CalibrationMap, Curve, Term
from calibrank.maps.format import parse
from calibrank.registry import parse_model
from tests.checks import check_map
from tests.maps.samples import (
    gaussian_map,
    level_term,
    map_of,
    position_term,
    smooth_term,
    spline_map,
    step_map,
)
from tests.members import GROUPED, MODELS, name

ROWS = 600
RNG = np.random.default_rng(11)
SCORES = RNG.normal(size=ROWS).round(2)
PLACE = RNG.choice(3, ROWS, p=[0.5, 0.3, 0.2])
COLUMNS = {
    "country": np.array(["NL", "DE", "BE"])[PLACE],
    "city": np.char.add(np.array(["NL", "DE", "BE"])[PLACE], RNG.integers(0, 3, ROWS).astype(str)),
    "price": RNG.lognormal(size=ROWS).round(2),
    "query": np.arange(ROWS) // 12,
}
TRUTH = expit(SCORES - 1 + 0.8 * (PLACE == 0) - 0.3 * np.log(COLUMNS["price"] + 0.1))
LABELS = (RNG.random(ROWS) < TRUTH).astype(float)
PROPENSITY = RNG.uniform(0.5, 1, ROWS)
SEEN = LABELS * (RNG.random(ROWS) < PROPENSITY)
# Rows of unknown levels are among the examples.
pytestmark = pytest.mark.filterwarnings("ignore::calibrank.errors.ScoreShiftWarning")
every_model = pytest.mark.parametrize("model", [*MODELS, *GROUPED], ids=name)


def rows(places: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[places] for name, values in COLUMNS.items()}


def assert_same(first: CalibrationMap, second: CalibrationMap, tolerance: float) -> None:
    pairs = [each.predict(SCORES, COLUMNS) for each in (first, second)]
    np.testing.assert_allclose(*pairs, rtol=0, atol=tolerance)


@every_model
def test_fitting_twice_gives_the_same_map(model: cr.Model) -> None:
    first = model.fit(SCORES, ips(SEEN, PROPENSITY), COLUMNS)
    assert model.fit(SCORES, ips(SEEN, PROPENSITY), COLUMNS) == first


@every_model
def test_permuting_rows_changes_nothing(model: cr.Model) -> None:
    order = np.random.default_rng(0).permutation(ROWS)
    evidence = ips(SEEN, PROPENSITY)
    first = model.fit(SCORES, evidence, COLUMNS)
    second = model.fit(SCORES[order], evidence.rows(order), rows(order))
    assert_same(first, second, 2e-3 if model.group else 1e-6)


@every_model
def test_weight_0_equals_an_absent_row(model: cr.Model) -> None:
    kept = np.arange(ROWS) % 5 != 4
    weighted = model.fit(SCORES, naive(LABELS, weights=kept.astype(float)), COLUMNS)
    present = model.fit(SCORES[kept], LABELS[kept], rows(kept))
    # Knots of functions, and bins of levels, are quantiles of the rows and not of their weights.
    assert_same(weighted, present, 0.02)


@every_model
def test_full_exposure_equals_naive_evidence(model: cr.Model) -> None:
    expected = model.fit(SCORES, LABELS, COLUMNS)
    for weighting in (ips, positive_ips, impressions):
        fitted = model.fit(SCORES, weighting(LABELS, np.ones(ROWS)), COLUMNS)
        assert_same(fitted, expected, 1e-9)


@every_model
def test_a_model_and_the_recipe_of_its_maps_parse_back(model: cr.Model) -> None:
    assert parse_model(repr(model)) == model
    fitted = model.fit(SCORES, LABELS, COLUMNS)
    refitted = parse_model(fitted.record.recipe).fit(SCORES, LABELS, COLUMNS)
    assert refitted == fitted
    assert hash(model) == hash(parse_model(repr(model)))


@every_model
def test_maps_of_models_keep_the_laws_of_maps(model: cr.Model) -> None:
    fitted = model.fit(SCORES, LABELS, COLUMNS)
    check_map(fitted, examples=8)
    assert set(fitted.columns) == set() if model.group else set(model.columns)


@every_model
def test_extra_columns_are_ignored_and_absent_ones_named(model: cr.Model) -> None:
    needed = {name: COLUMNS[name] for name in model.columns}
    assert model.fit(SCORES, LABELS, needed) == model.fit(SCORES, LABELS, COLUMNS)
    for missing in model.columns:
        rest = {name: values for name, values in needed.items() if name != missing}
        with pytest.raises(cr.DataError, match=f"column '{missing}'"):
            model.fit(SCORES, LABELS, rest)
    with pytest.raises(cr.DataError, match="columns must have"):
        model.fit(SCORES, LABELS)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_levels_and_functions_find_what_the_curve_alone_cannot(model: cr.Model) -> None:
    fitted = model.fit(SCORES, LABELS, COLUMNS)
    loss = cr.LogLoss()(fitted.predict(SCORES, COLUMNS), LABELS)
    assert fitted.record.loss == pytest.approx(loss, abs=5e-3)
    assert loss < cr.LogLoss()(model.curve.fit(SCORES, LABELS).predict(SCORES), LABELS)


CURVES: dict[str, Curve] = {
    "logistic": gaussian_map().curve,
    "piecewise": spline_map().curve,
    "step": step_map(9).curve,
}
TERMS: dict[str, tuple[Term, ...]] = {
    "none": (),
    "level": (level_term("country"),),
    "nested level": (level_term("country", "city", typical=-0.4),),
    "smooth": (smooth_term("x"),),
    "position": (position_term("rank"),),
    "all": (
        level_term("country", "city", typical=0.3),
        smooth_term("x"),
        smooth_term("y"),
        position_term("rank"),
    ),
}
every_pair = pytest.mark.parametrize(("curve", "terms"), list(product(CURVES, TERMS)))
GRID = np.linspace(-4, 4, 41)


def made(curve: str, terms: str) -> CalibrationMap:
    return map_of(CURVES[curve], *TERMS[terms])


def examples(fitted: CalibrationMap) -> list[dict[str, str | float]]:
    """Rows at all levels, knots and ranks, and at unknown ones."""
    found = []
    for place in range(12):
        row: dict[str, str | float] = {}
        for term in fitted.terms:
            row |= term.example(place)
        found.append(row)
    return found


def repeated(row: dict[str, str | float]) -> dict[str, np.ndarray]:
    return {name: np.full(len(GRID), value) for name, value in row.items()}


@every_pair
def test_every_curve_with_every_term_keeps_the_laws_of_maps(curve: str, terms: str) -> None:
    check_map(made(curve, terms), examples=8)


@every_pair
@pytest.mark.parametrize(("shift", "slope"), [(-1.5, 1.0), (0.7, 0.4), (2.0, 1.8)])
def test_moving_changes_the_log_odds_exactly_at_every_row(
    curve: str, terms: str, shift: float, slope: float
) -> None:
    fitted = made(curve, terms)
    moved = fitted.moved(shift, slope)
    for row in examples(fitted):
        columns = repeated(row)
        expected = shift + slope * fitted.log_odds(GRID, columns)
        np.testing.assert_allclose(moved.log_odds(GRID, columns), expected, rtol=1e-9, atol=1e-9)
    before, after = fitted.sampling_interval(GRID, columns), moved.sampling_interval(GRID, columns)
    for one, two in zip(before, after, strict=True):
        # Those of steps are intervals of a rate, which are made anew.
        if curve != "step":
            np.testing.assert_allclose(logit(two), shift + slope * logit(one), rtol=1e-6)


@every_pair
def test_an_absent_column_is_named_and_the_average_map_needs_none(curve: str, terms: str) -> None:
    fitted = made(curve, terms)
    alone = fitted.without_terms()
    assert alone.columns == ()
    np.testing.assert_array_equal(alone.predict(GRID), map_of(CURVES[curve]).predict(GRID))
    for missing in fitted.columns:
        row = {name: value for name, value in examples(fitted)[0].items() if name != missing}
        for method in (fitted.predict, fitted.log_odds, fitted.interval):
            with pytest.raises(cr.DataError, match=f"the column '{missing}'"):
                method(GRID, repeated(row))
        with pytest.raises(cr.DataError, match=missing):
            fitted.scalar()(0.0, row)


@every_pair
def test_a_saved_map_is_the_same_map(curve: str, terms: str) -> None:
    fitted = made(curve, terms)
    again = parse("map", fitted.to_json())
    assert again == fitted
    assert again.digest == fitted.digest
    row = repeated(examples(fitted)[3])
    np.testing.assert_array_equal(again.predict(GRID, row), fitted.predict(GRID, row))
