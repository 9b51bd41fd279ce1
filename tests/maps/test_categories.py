"""Maps with category terms in every engine, and their JSON."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.export import to_json, to_onnx, to_torch
from calibrank.maps import AdditiveMap, CategoryTerm, Term
from tests.maps.engines_of_tables import check_engines, check_saved
from tests.maps.samples import RECORD, gaussian_map
from tests.spark_session import session

SCORES = np.array([-2.0, 0.3, 40.0, 0.0, 1.0])
FEATURES = {"x": np.array([-5.0, 0.5, 1.0, 99.0, 0.0]), "a b": ["O'Hara", "7", None, "??", "7"]}


def example() -> AdditiveMap:
    terms = (
        Term("x", (-1.0, 0.0, 2.0), (0.5, -0.3, 1.0)),
        CategoryTerm("a b", ("7", "O'Hara", "ü"), (-1.0, 0.7, 0.2)),
    )
    return AdditiveMap("Gaussian with x", gaussian_map(), -0.2, 0.8, terms, RECORD)


def by_hand(fitted: AdditiveMap) -> np.ndarray:
    z = -0.2 + 0.8 * fitted.base.log_odds(SCORES)
    z = z + np.interp(FEATURES["x"], (-1.0, 0.0, 2.0), (0.5, -0.3, 1.0))
    return expit(z + np.array([0.7, -1.0, 0.0, 0.0, -1.0]))


def test_every_engine_agrees_with_the_formula(tmp_path: Path) -> None:
    fitted = example()
    expected = by_hand(fitted)
    np.testing.assert_allclose(fitted.predict(SCORES, FEATURES), expected, rtol=1e-12)
    one = fitted.predict(SCORES[0], {"x": -5.0, "a b": "O'Hara"})
    assert one == pytest.approx(expected[0])
    rows = pa.table({"score": SCORES, **FEATURES})
    check_engines(fitted, rows, expected)
    check_saved(fitted, tmp_path)


def test_graphs_take_the_numbers_of_categories() -> None:
    fitted = example()
    torch = pytest.importorskip("torch")
    onnxruntime = pytest.importorskip("onnxruntime")
    numbers = fitted.category_index(FEATURES)["a b"]
    assert numbers.tolist() == [2, 1, 0, 0, 1]
    tensors = [torch.tensor(column) for column in (SCORES, FEATURES["x"], numbers)]
    result = to_torch(fitted, "float64")(*tensors).numpy()
    np.testing.assert_allclose(result, by_hand(fitted), rtol=1e-9)
    model = to_onnx(fitted, "float64")
    assert [each.name for each in model.graph.input] == ["score", "x", "a b"]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = {"score": SCORES, "x": FEATURES["x"], "a b": numbers.astype(np.int64)}
    np.testing.assert_allclose(session.run(None, inputs)[0], by_hand(fitted), rtol=1e-9)


def test_spark_joins_the_categories() -> None:
    spark = session()
    from calibrank.spark import transform

    columns = zip(SCORES.tolist(), FEATURES["x"].tolist(), FEATURES["a b"], strict=True)
    rows = [(number, *values) for number, values in enumerate(columns)]
    frame = spark.createDataFrame(rows, "id int, score double, x double, `a b` string")
    found = transform(example(), frame).orderBy("id").collect()
    probabilities = [row.probability for row in found]
    np.testing.assert_allclose(probabilities, by_hand(example()), rtol=1e-9)
    with pytest.raises(cr.DataError, match="must have the column 'a b' of the map"):
        transform(example(), frame.drop("a b"))


def test_vectors_hold_the_features_and_follow_from_the_document_alone() -> None:
    document = json.loads(to_json(example()))
    content = document["map"]["map"]
    seen = set()
    for vector in document["vectors"]:
        z = content["intercept"] + content["slope"] * gaussian_map().log_odds(vector["score"])
        for term in content["terms"]:
            value = vector["features"][term["column"]]
            if "categories" in term:
                seen.add(value)
                values = dict(zip(term["categories"], term["values"], strict=True))
                z += values.get(value, 0.0)
            else:
                z += np.interp(value, term["knots"], term["values"])
        assert vector["probability"] == pytest.approx(float(expit(z)), rel=1e-9, abs=1e-300)
    assert {"7", "O'Hara", "ü", None} < seen


def test_frames_of_text_are_categories() -> None:
    rng = np.random.default_rng(0)
    scores, x = rng.normal(size=(2, 2_000))
    features = {"country": rng.choice(["NL", "DE", "BE"], 2_000), "x": x}
    labels = rng.random(2_000) < expit(scores + (features["country"] == "NL"))
    expected = cr.Covariates(("country", "x")).fit(scores, labels, features)
    frames = [pd.DataFrame(features), pl.DataFrame(features), pa.table(features)]
    frames.append(pd.DataFrame(features).astype({"country": "category"}))
    for frame in frames:
        assert cr.Covariates(("country", "x")).fit(scores, labels, frame).terms == expected.terms


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CategoryTerm("x", (), ()), "one or more different categories"),
        (lambda: CategoryTerm("x", ("a", "a"), (1.0, 2.0)), "one or more different categories"),
        (lambda: CategoryTerm("x", ("a",), (1.0, 2.0)), "as many values, got 1 and 2"),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()
