"""Smooth terms, alone and beside levels: every engine agrees with the formula."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import expit, logit

import calibrank as cr
from calibrank.export import to_json, to_onnx, to_torch
from calibrank.maps import LevelTerm, SmoothTerm
from tests import plain_map
from tests.maps.engines_of_tables import check_engines, check_saved
from tests.maps.samples import gaussian_map, map_of, smooth_term
from tests.spark_session import session

SCORES = np.array([-2.0, 0.3, 40.0, 0.0, 1.0])
LEVELS = LevelTerm(
    ("a b",),
    (("7",), ("O'Hara",), ("ü",)),
    intercepts=(-1.0, 0.7, 0.2),
    slopes=(1.0,) * 3,
    errors=(0.1,) * 3,
    rows=(5,) * 3,
    spreads=(1.0,),
)
LINE = SmoothTerm("y", (0.0, 2.0), (-1.0, 1.0), (0.2, 0.1))
COLUMNS = {
    "x": np.array([-5.0, 0.5, 1.0, 99.0, 0.0]),
    "y": np.array([0.0, 1.0, 2.0, 3.0, -1.0]),
    "a b": ["O'Hara", "7", "ß", "??", "7"],
}
ADDED_BY_LEVEL = np.array([0.7, -1.0, 0.0, 0.0, -1.0])


def example() -> cr.CalibrationMap:
    return map_of(gaussian_map().curve.moved(-0.2, 0.8), smooth_term("x"), LINE, LEVELS)


def by_hand() -> np.ndarray:
    z = -0.2 + 0.8 * gaussian_map().log_odds(SCORES)
    z += np.interp(COLUMNS["x"], (-1.0, 0.0, 2.0), (0.5, -0.3, 1.0))
    return expit(z + np.interp(COLUMNS["y"], (0.0, 2.0), (-1.0, 1.0)) + ADDED_BY_LEVEL)


def test_every_engine_agrees_with_the_formula(tmp_path: Path) -> None:
    fitted = example()
    np.testing.assert_allclose(fitted.predict(SCORES, COLUMNS), by_hand(), rtol=1e-12)
    one = fitted.predict(SCORES[0], {"x": -5.0, "y": 0.0, "a b": "O'Hara"})
    assert one == pytest.approx(by_hand()[0])
    check_engines(fitted, pa.table({"score": SCORES, **COLUMNS}), by_hand())
    check_saved(fitted, tmp_path)


def test_columns_are_named_with_their_roles() -> None:
    fitted = example()
    assert fitted.columns == ("x", "y", "a b")
    assert fitted.level_columns == ("a b",)
    assert fitted.number_columns == {"x": "feature", "y": "feature"}
    assert fitted.input_names() == ["x", "y", "a b"]


def test_an_interval_adds_the_variances_of_curve_and_terms() -> None:
    fitted = example()
    low, high = fitted.sampling_interval(SCORES, COLUMNS)
    alone = fitted.without_terms().sampling_interval(SCORES)
    errors = [
        (logit(alone.high) - logit(alone.low)) / 2 / 1.959964,
        np.interp(COLUMNS["x"], (-1.0, 0.0, 2.0), (0.1, 0.05, 0.2)),
        np.interp(COLUMNS["y"], (0.0, 2.0), (0.2, 0.1)),
        # An unknown level differs by the spread of the known ones.
        np.array([0.1, 0.1, 1.0, 1.0, 0.1]),
    ]
    expected = np.sqrt(sum(error**2 for error in errors))
    found = (logit(high) - logit(low)) / 2 / 1.959964
    inside = np.abs(SCORES) < 3
    np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-3)


def test_graphs_take_one_input_per_term() -> None:
    fitted = example()
    torch = pytest.importorskip("torch")
    onnxruntime = pytest.importorskip("onnxruntime")
    numbers = fitted.level_index(COLUMNS)["a b"]
    assert numbers.tolist() == [2, 1, 0, 0, 1]
    inputs = {"score": SCORES, "x": COLUMNS["x"], "y": COLUMNS["y"], "a b": numbers}
    result = to_torch(fitted, "float64")(*map(torch.tensor, inputs.values())).numpy()
    np.testing.assert_allclose(result, by_hand(), rtol=1e-9)
    model = to_onnx(fitted, "float64")
    assert [each.name for each in model.graph.input] == list(inputs)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_allclose(session.run(None, inputs)[0], by_hand(), rtol=1e-9)


def test_spark_reads_the_columns() -> None:
    spark = session()
    from calibrank.spark import transform

    columns = [values.tolist() for values in (SCORES, COLUMNS["x"], COLUMNS["y"])]
    rows = list(zip(range(5), *columns, COLUMNS["a b"], strict=True))
    schema = "id int, score double, x double, y double, `a b` string"
    invalid = [(5, 0.0, None, 1.0, "7"), (6, 0.0, 0.0, 1.0, None)]
    frame = spark.createDataFrame([*rows, *invalid], schema)
    found = [row.probability for row in transform(example(), frame).orderBy("id").collect()]
    np.testing.assert_allclose(found[:5], by_hand(), rtol=1e-9)
    assert found[5:] == [None, None]
    with pytest.raises(cr.DataError, match="must have the column 'a b'"):
        transform(example(), frame.drop("a b"))


def test_vectors_hold_the_columns_and_follow_from_the_document_alone() -> None:
    document = json.loads(to_json(example()))
    evaluate = plain_map.reader(document["map"])
    seen = set()
    for vector in document["vectors"]:
        actual = evaluate(vector["score"], vector["columns"])
        assert actual == pytest.approx(vector["probability"], rel=1e-9, abs=1e-300)
        seen.add(vector["columns"]["a b"])
    assert {"7", "O'Hara", "ü"} < seen


def test_columns_of_any_library_give_the_same_fit() -> None:
    rng = np.random.default_rng(0)
    scores, x = rng.normal(size=(2, 2_000))
    columns = {"country": rng.choice(["NL", "DE", "BE"], 2_000), "x": x}
    labels = rng.random(2_000) < expit(scores + (columns["country"] == "NL"))
    model = cr.Gaussian() + cr.Level("country") + cr.Smooth("x")
    expected = model.fit(scores, labels, columns)
    frames = [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)]
    frames.append(pd.DataFrame(columns).astype({"country": "category"}))
    for frame in frames:
        assert model.fit(scores, labels, frame).terms == expected.terms


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in COLUMNS.items() if key != name}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SmoothTerm("x", (1.0,), (1.0,)), "two or more knots"),
        (lambda: SmoothTerm("x", (1.0, 1.0), (1.0, 2.0)), "strictly increasing"),
        (lambda: SmoothTerm("x", (1.0, 2.0), (1.0,)), "as many values, got 2 and 1"),
        (lambda: replace(LINE, errors=(0.1,)), "one per knot, none negative"),
        (lambda: replace(LINE, errors=(0.1, -0.1)), "one per knot, none negative"),
        (lambda: replace(LINE, values=(0.0, 1e10)), r"within \+-1e9"),
        (lambda: map_of(gaussian_map().curve, LINE, LINE), "terms must be of different columns"),
        (lambda: example().predict(SCORES), "columns must have x, y, a b.* got none"),
        (lambda: example().predict(SCORES, without("y")), "must have the column 'y'"),
        (
            lambda: example().predict(SCORES, {**COLUMNS, "x": [np.nan] * 5}),
            "column 'x' must be finite",
        ),
        (
            lambda: example().predict(SCORES, {**COLUMNS, "x": [1.0]}),
            r"column 'x' must have one value per score \(5\), got 1",
        ),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()
