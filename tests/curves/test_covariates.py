"""Calibration with covariates: truth by construction, shrinkage, and order."""

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.curves import covariates, list_means
from calibrank.maps import AdditiveMap


def world(
    rows: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Scores, labels, features and true probabilities; `noise` has no effect."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=rows)
    features = {
        "popularity": rng.exponential(size=rows),
        "age": rng.uniform(-2, 2, rows),
        "noise": rng.normal(size=rows),
    }
    z = scores - 1 - 0.8 * features["popularity"] + np.cos(2 * features["age"])
    truth = expit(z)
    return scores, (rng.random(rows) < truth).astype(float), features, truth


@pytest.fixture(scope="module")
def fitted() -> AdditiveMap:
    scores, labels, features, _ = world(30_000)
    return cr.Covariates(("popularity", "age", "noise")).fit(scores, labels, features)


def test_it_recovers_the_truth_where_one_curve_cannot(fitted: AdditiveMap) -> None:
    scores, _, features, truth = world(20_000, 1)
    error = np.abs(fitted.predict(scores, features) - truth).mean()
    assert error < 0.015
    assert error < np.abs(fitted.predict(scores) - truth).mean() / 6


def test_a_column_without_effect_is_shrunk_to_nothing(fitted: AdditiveMap) -> None:
    by_column = {term.column: np.array(term.values) for term in fitted.terms}
    assert np.ptp(by_column["noise"]) < 0.1
    assert np.ptp(by_column["age"]) > 1.5
    assert np.ptp(by_column["popularity"]) > 1.5


def test_straight_lines_can_be_asked_for() -> None:
    scores, labels, features, _ = world(5_000)
    linear = cr.Covariates(("popularity",), smooth=False).fit(scores, labels, features)
    assert len(linear.terms[0].knots) == 2


def test_the_residual_certifies_the_optimum_and_the_loss_is_that_of_the_rows(
    fitted: AdditiveMap,
) -> None:
    assert fitted.record.residual < 1e-8
    scores, labels, features, _ = world(30_000)
    assert fitted.record.loss == pytest.approx(
        cr.LogLoss()(fitted.predict(scores, features), labels)
    )


def logistic_regression(design: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Maximum likelihood by Newton's method."""
    coefficients = np.zeros(design.shape[1])
    for _ in range(30):
        p = expit(design @ coefficients)
        information = design.T @ (design * (p * (1 - p))[:, None])
        coefficients += np.linalg.solve(information, design.T @ (labels - p))
    return coefficients


def test_a_wide_prior_agrees_with_plain_logistic_regression() -> None:
    """An effect so clear that shrinkage is negligible; the reference has no prior."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=50_000)
    x = rng.uniform(-1, 1, 50_000)
    labels = rng.random(50_000) < expit(scores + 2 * x)
    fitted = cr.Covariates("x", cr.Platt(), smooth=False).fit(scores, labels, {"x": x})
    design = np.column_stack([np.ones(50_000), scores, x])
    expected = expit(design @ logistic_regression(design, labels))
    np.testing.assert_allclose(fitted.predict(scores, {"x": x}), expected, atol=2e-3)


def test_probabilities_increase_with_the_score_even_if_a_feature_explains_all() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=4_000)
    scores = x + 0.1 * rng.normal(size=4_000)
    labels = rng.random(4_000) < expit(2 * x - (scores - x))
    fitted = cr.Covariates("x").fit(scores, labels, {"x": x})
    grid = np.linspace(-3, 3, 30)
    assert (np.diff(fitted.predict(grid, {"x": np.zeros(30)})) > 0).all()


def test_few_rows_stay_near_the_map_of_scores_alone() -> None:
    rng = np.random.default_rng(5)
    losses = []
    test_scores, _, _, _ = world(5_000, 9)
    truth = expit(test_scores - 1)
    for _ in range(10):
        scores = rng.normal(size=150)
        labels = rng.random(150) < expit(scores - 1)
        labels[:2] = [0, 1]
        features = {"a": rng.normal(size=150), "b": rng.normal(size=150)}
        fitted = cr.Covariates(("a", "b")).fit(scores, labels, features)
        shown = {name: rng.normal(size=5_000) for name in features}
        p = np.array([fitted.predict(test_scores), fitted.predict(test_scores, shown)])
        losses.append(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean(axis=1))
    excess = np.diff(losses).ravel()
    assert excess.mean() < 0.02


def test_the_order_of_lists_is_kept_where_it_is_asked_for() -> None:
    scores, labels, features, _ = world(4_000)
    users = np.arange(4_000) // 10
    calibrator = cr.Covariates("age", keep_list_order=True)
    with pytest.raises(cr.DataError, match="constant within a list"):
        calibrator.fit(scores, labels, features, users)
    with pytest.raises(cr.DataError, match="lists must be given"):
        calibrator.fit(scores, labels, features)
    means = {"age": list_means(features["age"], users)}
    probabilities = calibrator.fit(scores, labels, means, users).predict(scores, means)
    for user in range(20):
        rows = users == user
        assert (np.argsort(probabilities[rows]) == np.argsort(scores[rows])).all()


def test_a_column_must_differ_from_row_to_row() -> None:
    with pytest.raises(cr.DataError, match="feature 'x' must differ from row to row, got only 1"):
        cr.Covariates("x").fit([0.0, 1, 2, 3], [0, 1, 0, 1], {"x": [1.0] * 4})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cr.Covariates("x", base="Gaussian"), "base must be of type Calibrator"),
        (lambda: cr.Covariates("x", knots=2), "knots must"),
        (lambda: cr.Covariates("x", knots=51), "knots must"),
        (lambda: cr.Covariates(("x", "x")), "one or more different column names"),
        (lambda: cr.Covariates(()), "one or more different column names"),
    ],
)
def test_settings_are_checked(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()


@pytest.mark.parametrize("knots", [3, np.int64(50)])
def test_the_number_of_knots_may_be_at_its_bounds(knots: int) -> None:
    calibrator = cr.Covariates("age", knots=knots)
    assert type(calibrator.knots) is int
    scores, labels, features, _ = world(300)
    assert len(calibrator.fit(scores, labels, features).terms[0].knots) == int(knots)


def test_a_feature_of_two_values_has_two_knots_and_one_prior() -> None:
    scores, labels, _, _ = world(2_000)
    binary = {"x": np.arange(2_000) % 2.0}
    for smooth in (True, False):
        term = cr.Covariates("x", smooth=smooth).fit(scores, labels, binary).terms[0]
        assert term.knots == (0.0, 1.0)
        # Centred over the rows, of which each value has half.
        assert sum(term.values) == pytest.approx(0, abs=1e-9)


def test_terms_are_centred_by_weight() -> None:
    scores, labels, features, _ = world(2_000)
    weights = np.random.default_rng(6).uniform(0, 2, 2_000)
    fitted = cr.Covariates(("popularity", "age")).fit(
        scores, cr.naive(labels, weights=weights), features
    )
    for term in fitted.terms:
        values = np.interp(features[term.column], term.knots, term.values)
        assert weights @ values == pytest.approx(0, abs=1e-6)
    assert fitted.method == "Gaussian with popularity, age"


def test_rows_up_to_the_limit_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covariates, "MOST_ROWS", 500)
    scores, labels, features, _ = world(501)
    calibrator = cr.Covariates("age")
    age = {"age": features["age"]}
    with pytest.raises(cr.DataError, match=r"at most 500 rows, which are all in memory, got 501\."):
        calibrator.fit(scores, labels, age)
    calibrator.fit(scores[:500], labels[:500], {"age": age["age"][:500]})


def test_columns_that_vary_within_a_list_are_named() -> None:
    lists = ["u", "v", "u", "v"]
    features = {
        "number": [1.0, 2.0, 1.0, 2.0],
        "varying number": [1.0, 2.0, 1.0, 3.0],
        "category": ["a", "b", "a", "b"],
        "varying category": ["a", "b", "b", "b"],
    }
    columns = cr.Covariates(tuple(features)).read(features, 4)
    assert covariates.varying_columns(columns, lists) == ["varying number", "varying category"]


def test_rows_of_different_lengths_are_no_column() -> None:
    with pytest.raises(cr.DataError, match="feature 'x' must"):
        cr.Covariates("x").fit([0.0, 1, 2, 3], [0, 1, 0, 1], {"x": [["a"], ["a", "b"], [], []]})
