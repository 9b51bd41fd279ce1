"""Covariates that are categories: truth by construction, shrinkage, and unknown ones."""

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.curves._covariate_columns import NumberBlock, NumberColumn
from calibrank.curves._design import Codes, Design
from calibrank.maps import AdditiveMap, CategoryTerm, Term

SHIFTS = {"NL": 1.0, "DE": -0.8, "BE": 0.3, "FR": 0.0}


def world(
    rows: int, seed: int = 0, countries: tuple[str, ...] = tuple(SHIFTS)
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Scores, labels, features and true probabilities; `device` has no effect."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=rows)
    country = rng.choice(countries, rows)
    x = rng.normal(size=rows)
    shift = np.array([SHIFTS[name] for name in country])
    truth = expit(scores - 1 + shift + 0.5 * x)
    features = {"country": country, "x": x, "device": rng.choice(["a", "b", "c"], rows)}
    return scores, (rng.random(rows) < truth).astype(float), features, truth


@pytest.fixture(scope="module")
def fitted() -> AdditiveMap:
    scores, labels, features, _ = world(20_000)
    return cr.Covariates(("country", "x", "device")).fit(scores, labels, features)


def test_categories_and_numbers_recover_the_truth(fitted: AdditiveMap) -> None:
    scores, _, features, truth = world(10_000, 1)
    assert np.abs(fitted.predict(scores, features) - truth).mean() < 0.012
    country, x, device = fitted.terms
    assert isinstance(country, CategoryTerm)
    assert isinstance(x, Term)
    by_name = dict(zip(country.categories, country.values, strict=True))
    assert by_name["NL"] - by_name["DE"] == pytest.approx(1.8, abs=0.12)
    assert np.ptp(device.values) < 0.08
    assert fitted.record.residual < 1e-8


def test_a_category_that_was_not_seen_or_is_missing_adds_nothing(fitted: AdditiveMap) -> None:
    shown = {"country": ["ZZ", None], "x": [0.0, 0.0], "device": ["?", None]}
    found = fitted.predict([0.4, 0.4], shown)
    x = np.interp(0.0, fitted.terms[1].knots, fitted.terms[1].values)
    expected = expit(fitted.intercept + fitted.slope * fitted.base.log_odds(0.4) + x)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_rows_with_a_missing_category_have_no_level_of_their_own() -> None:
    scores, labels, features, _ = world(4_000)
    country = features["country"].astype(object)
    country[::3] = None
    fitted = cr.Covariates("country").fit(scores, labels, {"country": country})
    assert fitted.terms[0].categories == ("BE", "DE", "FR", "NL")
    assert fitted.record.residual < 1e-8


def test_small_categories_shrink_more_than_large_ones() -> None:
    rng = np.random.default_rng(2)
    sizes = [3_000, 3_000, 3_000, 12]
    country = np.repeat(["a", "b", "c", "small"], sizes)
    scores = rng.normal(size=len(country))
    shift = np.repeat([0.8, -0.8, 0.0, 0.0], sizes)
    labels = (rng.random(len(country)) < expit(scores + shift)).astype(float)
    labels[country == "small"] = 1.0
    fitted = cr.Covariates("country").fit(scores, labels, {"country": country})
    by_name = dict(zip(fitted.terms[0].categories, fitted.terms[0].values, strict=True))
    assert by_name["a"] - by_name["b"] == pytest.approx(1.6, abs=0.15)
    # All of its labels are positive: without shrinkage it would be infinite.
    assert 0.5 < by_name["small"] - by_name["c"] < 4.5


def test_it_agrees_with_ridge_regression_of_one_hot_columns() -> None:
    from sklearn.linear_model import LogisticRegression

    scores, labels, features, _ = world(40_000)
    fitted = cr.Covariates("country", cr.Platt()).fit(scores, labels, features)
    one_hot = np.column_stack([features["country"] == name for name in SHIFTS])
    design = np.column_stack([scores, one_hot])
    reference = LogisticRegression(C=1e8, tol=1e-10, max_iter=1_000).fit(design, labels)
    expected = reference.predict_proba(design)[:, 1]
    np.testing.assert_allclose(fitted.predict(scores, features), expected, atol=2e-3)


def test_numbers_are_categories_where_they_are_declared() -> None:
    scores, labels, features, _ = world(4_000)
    codes = {"country": np.array([list(SHIFTS).index(name) for name in features["country"]])}
    by_number = cr.Covariates("country", categories=("country",)).fit(scores, labels, codes)
    by_name = cr.Covariates("country").fit(scores, labels, features)
    assert by_number.terms[0].categories == ("0", "1", "2", "3")
    np.testing.assert_allclose(
        by_number.predict(scores, codes), by_name.predict(scores, features), rtol=1e-9
    )


def test_the_design_equals_the_matrix_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrank.curves._design._CHUNK_ROWS", 7)
    monkeypatch.setattr("calibrank.curves._design._KEPT_ROWS", 14)
    rng = np.random.default_rng(5)
    rows = 40
    z, x, weights = rng.normal(size=(3, rows))
    # The largest number is a missing category.
    first, second = rng.integers(0, 4, rows), rng.integers(0, 3, rows)
    block = NumberBlock.of(NumberColumn("x", x), np.ones(rows), 5, smooth=True)
    design = Design(z, [block], [Codes(first, 3), Codes(second, 2)], [])
    dense = np.column_stack([np.ones(rows), z, block.columns(slice(0, rows))])
    matrix = np.hstack([dense, first[:, None] == np.arange(3), second[:, None] == np.arange(2)])
    assert design.width == matrix.shape[1]
    coefficients = rng.normal(size=design.width)
    np.testing.assert_allclose(design.linear(coefficients), matrix @ coefficients, atol=1e-12)
    np.testing.assert_allclose(design.transposed(weights), matrix.T @ weights, atol=1e-12)
    expected = matrix.T @ (matrix * weights[:, None])
    np.testing.assert_allclose(design.gram(weights), expected, atol=1e-12)
    np.testing.assert_allclose(design.mean_squares(), (matrix**2).mean(axis=0), atol=1e-12)
    assert block.columns(slice(0, rows)).mean(axis=0) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cr.Covariates("x", categories=("y",)), "among the columns, got 'y'"),
        (
            lambda: cr.Covariates("x").fit([0.0, 1, 2, 3], [0, 1, 0, 1], {"x": ["a"] * 4}),
            "must have 2 to 1,000 categories, got 1",
        ),
        (
            lambda: cr.Covariates("x").fit([0.0, 1, 2, 3], [0, 1, 0, 1], {"x": ["a"] * 3}),
            "one value per score",
        ),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()


def test_more_rows_than_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrank.curves.covariates.MOST_ROWS", 1_000)
    scores, labels, features, _ = world(1_001)
    with pytest.raises(cr.DataError, match=r"at most 1,000 rows, .* random sample"):
        cr.Covariates("country").fit(scores, labels, features)
