"""Maps with a curve for the first positions, in every engine, and their JSON."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, logit

import calibrank as cr
from calibrank.export import to_json, to_onnx, to_torch
from calibrank.maps import Term, TopMap
from tests.maps.engines_of_tables import check_engines, check_saved
from tests.maps.samples import RECORD, gaussian_map
from tests.spark_session import session

SCORES = np.array([-2.0, 0.3, 40.0, 0.0, 1.0])
RANKS = np.array([1, 5, 6, 5.5, 400])
IS_TOP = np.array([True, True, False, False, False])


TERM = Term("list rank", (1.0, 3.0, 5.5), (0.7, 0.2, -0.3))
# At ranks 1 and 5; 0 for the others, which are not at the top.
ADDED = np.array([0.7, -0.2, 0, 0, 0])


def example(term: Term | None = TERM) -> TopMap:
    top = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    return TopMap("Gaussian by rank", gaussian_map(), top, "list rank", 5, RECORD, term)


def by_hand(fitted: TopMap) -> np.ndarray:
    added = ADDED if fitted.term is not None else 0.0
    inside = expit(logit(fitted.top.predict(SCORES)) + added)
    return np.where(IS_TOP, inside, fitted.base.predict(SCORES))


@pytest.mark.parametrize("term", [None, TERM])
def test_every_engine_agrees_with_the_two_maps(tmp_path: Path, term: Term | None) -> None:
    fitted = example(term)
    expected = by_hand(fitted)
    np.testing.assert_allclose(fitted.predict(SCORES, RANKS), expected, rtol=1e-12)
    assert fitted.predict(0.3, 5) == pytest.approx(expected[1])
    rows = pa.table({"score": SCORES, "list rank": RANKS})
    check_engines(fitted, rows, expected)
    check_saved(fitted, tmp_path)


def test_graphs_take_the_rank() -> None:
    fitted = example()
    torch = pytest.importorskip("torch")
    onnxruntime = pytest.importorskip("onnxruntime")
    result = to_torch(fitted, "float64")(torch.tensor(SCORES), torch.tensor(RANKS)).numpy()
    np.testing.assert_allclose(result, by_hand(fitted), rtol=1e-9)
    session = onnxruntime.InferenceSession(to_onnx(fitted, "float64").SerializeToString())
    result = session.run(None, {"score": SCORES, "list rank": RANKS})[0]
    np.testing.assert_allclose(result, by_hand(fitted), rtol=1e-9)


def test_spark_reads_the_rank() -> None:
    spark = session()
    from calibrank.spark import transform

    columns = zip(range(5), SCORES.tolist(), RANKS.tolist(), strict=True)
    frame = spark.createDataFrame(list(columns), "id int, score double, `list rank` double")
    found = transform(example(), frame).orderBy("id").collect()
    probabilities = [row.probability for row in found]
    np.testing.assert_allclose(probabilities, by_hand(example()), rtol=1e-9)


def test_vectors_hold_the_rank() -> None:
    fitted = example()
    document = json.loads(to_json(fitted))
    seen = set()
    for vector in document["vectors"]:
        rank = vector["features"]["list rank"]
        seen.add(rank)
        expected = fitted.base.predict(vector["score"])
        if rank <= 5:
            added = 0.7 if rank == 1 else -0.2
            expected = expit(fitted.top.log_odds(vector["score"]) + added)
        assert vector["probability"] == pytest.approx(expected, rel=1e-12, abs=1e-300)
    assert seen == {1, 5, 6, 1000}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: example().predict(SCORES, [1, 2]), "one number per score"),
        (lambda: example().predict([0.0], [np.nan]), "must be finite"),
        (
            lambda: TopMap("m", example(), example().top, "rank", 5, RECORD),
            "must be of scores alone",
        ),
        (lambda: TopMap("m", gaussian_map(), gaussian_map(), "rank", 0, RECORD), "n must"),
        (
            lambda: TopMap("m", gaussian_map(), gaussian_map(), "rank", 5, RECORD, TERM),
            "must be of the column 'rank', got 'list rank'",
        ),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()
