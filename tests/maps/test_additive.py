"""Additive maps: every engine agrees with the formula, and what such a map must be."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.export import to_onnx, to_torch
from calibrank.maps import AdditiveMap, Term
from tests.maps.engines_of_tables import check_engines, check_saved
from tests.maps.samples import RECORD, gaussian_map
from tests.spark_session import session

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
    check_engines(fitted, rows, expected)
    check_saved(fitted, tmp_path)


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
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()
