"""Position terms: a curve for the first positions, in every engine, and its JSON."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.export import to_json, to_onnx, to_torch
from calibrank.maps import PositionTerm
from tests import plain_map
from tests.maps.engines_of_tables import check_engines, check_saved
from tests.maps.samples import gaussian_map, map_of, position_term
from tests.spark_session import session

SCORES = np.array([-2.0, 0.3, 40.0, 0.0, 1.0])
RANKS = np.array([1, 5, 6, 5.5, 400])
COLUMNS = {"list rank": RANKS}
IS_TOP = np.array([True, True, False, False, False])
TERM = position_term("list rank")
WITHOUT_RANK = replace(TERM, by_rank=None)
# By linear interpolation at ranks 1 and 5; 0 for the others, which are not at the top.
ADDED = np.array([0.7, -0.2, 0, 0, 0])


def example(term: PositionTerm = TERM) -> cr.CalibrationMap:
    return map_of(gaussian_map().curve, term)


def by_hand(term: PositionTerm = TERM) -> np.ndarray:
    added = ADDED if term.by_rank is not None else 0.0
    inside = expit(term.curve.log_odds(SCORES) + added)
    return np.where(IS_TOP, inside, gaussian_map().predict(SCORES))


@pytest.mark.parametrize("term", [WITHOUT_RANK, TERM], ids=["curve", "curve and rank"])
def test_every_engine_agrees_with_the_two_curves(tmp_path: Path, term: PositionTerm) -> None:
    fitted = example(term)
    expected = by_hand(term)
    np.testing.assert_allclose(fitted.predict(SCORES, COLUMNS), expected, rtol=1e-12)
    assert fitted.predict(0.3, {"list rank": 5}) == pytest.approx(expected[1])
    assert fitted.number_columns == {"list rank": "rank"}
    check_engines(fitted, pa.table({"score": SCORES, **COLUMNS}), expected)
    check_saved(fitted, tmp_path)


@pytest.mark.parametrize("score", [1e10, -1e30, 1e30])
def test_far_from_the_fit_the_other_curve_leaves_no_rounding_error(score: float) -> None:
    flat = replace(TERM, curve=replace(TERM.curve, end_slopes=(0.0, 0.0)))
    found = example(flat).predict(score, {"list rank": 1})
    value = flat.curve.values[0 if score < 0 else -1]
    assert found == pytest.approx(expit(value + 0.7), rel=1e-12)


def test_an_interval_is_that_of_the_curve_of_the_position() -> None:
    fitted = example(WITHOUT_RANK)
    found = fitted.sampling_interval(SCORES, COLUMNS)
    top = map_of(TERM.curve).sampling_interval(SCORES)
    rest = fitted.without_terms().sampling_interval(SCORES)
    for end in (0, 1):
        expected = np.where(IS_TOP, top[end], rest[end])
        np.testing.assert_allclose(found[end], expected, rtol=1e-9)


def test_graphs_take_the_rank() -> None:
    fitted = example()
    torch = pytest.importorskip("torch")
    onnxruntime = pytest.importorskip("onnxruntime")
    result = to_torch(fitted, "float64")(torch.tensor(SCORES), torch.tensor(RANKS)).numpy()
    np.testing.assert_allclose(result, by_hand(), rtol=1e-9)
    session = onnxruntime.InferenceSession(to_onnx(fitted, "float64").SerializeToString())
    result = session.run(None, {"score": SCORES, "list rank": RANKS})[0]
    np.testing.assert_allclose(result, by_hand(), rtol=1e-9)


def test_spark_reads_the_rank() -> None:
    spark = session()
    from calibrank.spark import transform

    columns = zip(range(5), SCORES.tolist(), RANKS.tolist(), strict=True)
    frame = spark.createDataFrame(list(columns), "id int, score double, `list rank` double")
    found = transform(example(), frame).orderBy("id").collect()
    probabilities = [row.probability for row in found]
    np.testing.assert_allclose(probabilities, by_hand(), rtol=1e-9)


def test_vectors_hold_the_rank() -> None:
    document = json.loads(to_json(example()))
    evaluate = plain_map.reader(document["map"])
    for vector in document["vectors"]:
        actual = evaluate(vector["score"], vector["columns"])
        assert actual == pytest.approx(vector["probability"], rel=1e-9, abs=1e-300)
    seen = {vector["columns"]["list rank"] for vector in document["vectors"]}
    assert seen == {1, 5, 6, 1000}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: example().predict(SCORES, {"list rank": [1, 2]}), "one value per score"),
        (lambda: example().predict([0.0], {"list rank": [np.nan]}), "must be a rank"),
        (lambda: example().predict([0.0], {"rank": [1]}), "the column 'list rank', got 'rank'"),
        (lambda: replace(TERM, n=0), "n must"),
        (lambda: replace(TERM, column="rank"), "of the column 'rank', got 'list rank'"),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()
