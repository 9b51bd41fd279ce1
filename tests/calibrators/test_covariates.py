"""Calibration with covariates: truth by construction, shrinkage, order, and every engine."""

import sqlite3
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.calibrators import list_means
from calibrank.export import to_onnx, to_sql, to_torch
from calibrank.maps import AdditiveMap, Term
from calibrank.testing import check_map
from tests.maps.samples import RECORD, gaussian_map
from tests.spark_session import session


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


def test_a_wide_prior_agrees_with_plain_logistic_regression() -> None:
    """An effect so clear that shrinkage is negligible; scikit-learn has no prior here."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(3)
    scores = rng.normal(size=50_000)
    x = rng.uniform(-1, 1, 50_000)
    labels = rng.random(50_000) < expit(scores + 2 * x)
    fitted = cr.Covariates("x", cr.Platt(), smooth=False).fit(scores, labels, {"x": x})
    design = np.column_stack([scores, x])
    reference = LogisticRegression(C=1e10, tol=1e-10).fit(design, labels)
    expected = reference.predict_proba(design)[:, 1]
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


SCORES = np.array([-2.0, 0.3, 40.0, 0.0])
FEATURES = {"x": np.array([-5.0, 0.5, 1.0, 99.0]), "a b": np.array([0.0, 1.0, 2.0, 3.0])}


def example() -> AdditiveMap:
    terms = (Term("x", (-1.0, 0.0, 2.0), (0.5, -0.3, 1.0)), Term("a b", (0.0, 2.0), (-1.0, 1.0)))
    return AdditiveMap("Gaussian with x", gaussian_map(), -0.2, 0.8, terms, RECORD)


def by_hand(fitted: AdditiveMap) -> np.ndarray:
    z = -0.2 + 0.8 * fitted.base.log_odds(SCORES)
    for term in fitted.terms:
        z = z + np.interp(FEATURES[term.column], term.knots, term.values)
    return expit(z)


def test_every_engine_agrees_with_the_formula(tmp_path: Path) -> None:
    fitted = example()
    expected = by_hand(fitted)
    np.testing.assert_allclose(fitted.predict(SCORES, FEATURES), expected, rtol=1e-12)
    rows = pa.table({"score": SCORES, **FEATURES})
    for frame in (rows, rows.to_pandas(), pl.from_arrow(rows)):
        result = np.asarray(fitted.transform(frame)["probability"])
        np.testing.assert_allclose(result, expected, rtol=1e-9)
    lazy = fitted.transform(pl.from_arrow(rows).lazy()).collect()["probability"].to_numpy()
    np.testing.assert_allclose(lazy, expected, rtol=1e-9)
    query = "SELECT " + to_sql(fitted, "duckdb") + " AS p FROM rows"  # noqa: S608  (what we test)
    np.testing.assert_allclose(duckdb.sql(query).fetchnumpy()["p"], expected, rtol=1e-9)
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (score, x, `a b`)")
    values = np.column_stack([SCORES, *FEATURES.values()]).tolist()
    database.executemany("INSERT INTO t VALUES (?, ?, ?)", values)
    query = "SELECT " + to_sql(fitted, "sqlite") + " FROM t"  # noqa: S608  (what we test)
    found = [row[0] for row in database.execute(query)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    fitted.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json") == fitted
    check_map(fitted, examples=3)


def test_graphs_take_one_more_input_per_column() -> None:
    fitted = example()
    torch = pytest.importorskip("torch")
    onnxruntime = pytest.importorskip("onnxruntime")
    tensors = [torch.tensor(column) for column in (SCORES, *FEATURES.values())]
    result = to_torch(fitted, "float64")(*tensors).numpy()
    np.testing.assert_allclose(result, by_hand(fitted), rtol=1e-9)
    session = onnxruntime.InferenceSession(to_onnx(fitted, "float64").SerializeToString())
    result = session.run(None, {"score": SCORES, **FEATURES})[0]
    np.testing.assert_allclose(result, by_hand(fitted), rtol=1e-9)


def test_spark_reads_the_columns() -> None:
    spark = session()
    from calibrank.spark import transform

    columns = np.column_stack([SCORES, *FEATURES.values()]).tolist()
    rows = [(number, *values) for number, values in enumerate(columns)]
    schema = "id int, score double, x double, `a b` double"
    frame = spark.createDataFrame([*rows, (4, 0.0, None, 1.0)], schema)
    found = transform(example(), frame).orderBy("id").collect()
    probabilities = [row.probability for row in found[:4]]
    np.testing.assert_allclose(probabilities, by_hand(example()), rtol=1e-9)
    assert found[4].probability is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Term("x", (1.0,), (1.0,)), "two or more knots"),
        (lambda: Term("x", (1.0, 1.0), (1.0, 2.0)), "strictly increasing"),
        (lambda: AdditiveMap("m", gaussian_map(), 0, 1, (), RECORD), "one or more different"),
        (lambda: AdditiveMap("m", gaussian_map(), 0, 0, example().terms, RECORD), "positive"),
        (lambda: AdditiveMap("m", example(), 0, 1, example().terms, RECORD), "scores alone"),
        (
            lambda: example().predict(SCORES, {"x": [1.0] * 4}),
            "features must have the column 'a b'",
        ),
        (lambda: example().predict([0.0], {"x": [np.nan], "a b": [0.0]}), "must be finite"),
        (lambda: example().predict([0.0], {"x": [1.0, 2.0], "a b": [0.0]}), "one number per score"),
        (
            lambda: cr.Covariates("x").fit([0.0, 1, 2, 3], [0, 1, 0, 1], {"x": [1.0] * 4}),
            "must differ",
        ),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()
