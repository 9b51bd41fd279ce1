"""Maps by segment: which segment a row belongs to, and agreement of every engine with `predict`."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.export import DIALECTS, to_json, to_onnx, to_sql, to_torch
from calibrank.maps import GroupedMap, Segment
from calibrank.testing import check_map
from tests import plain_map
from tests.maps.samples import RECORD, gaussian_map, min_max_map, spline_map, step_map
from tests.spark_session import session

SEGMENTS = (
    Segment(("NL",), 0.5, 1.2, 0.1, 10),
    Segment(('it\'s \\ a "test"\n',), -1.0, 0.7, 0.1, 10),
    Segment(("7",), 2.0, 1.0, 0.1, 10),
    Segment(("NL", "Delft"), -0.3, 2.0, 0.2, 5),
    Segment(("7", "8"), 0.1, 0.5, 0.2, 5),
)
COUNTRIES = ["NL", "NL", "NL", 'it\'s \\ a "test"\n', "7", "7", "BE", None, None]
CITIES = ["Delft", "Gouda", None, "Delft", "8", "9", "Delft", "Delft", None]
NODES = [4, 1, 1, 2, 5, 3, 0, 0, 0]
SCORES = np.array([-2.0, 0.3, 1.1, 0.0, 40.0, -1.0, 0.7, 0.2, -30.0])
ROWS = {"country": COUNTRIES, "city": CITIES}


def grouped(base: cr.CalibrationMap | None = None) -> GroupedMap:
    base = gaussian_map() if base is None else base
    return GroupedMap(
        "Gaussian by country > city", base, ("country", "city"), SEGMENTS, (1, 0.5), RECORD
    )


@pytest.fixture(params=[gaussian_map, spline_map, lambda: step_map(9)], ids=["g", "spline", "step"])
def fitted(request: pytest.FixtureRequest) -> GroupedMap:
    return grouped(request.param())


def expected(fitted: GroupedMap) -> np.ndarray:
    """The formula, by hand."""
    slopes = np.array([1.0, *[each.slope for each in SEGMENTS]])[NODES]
    intercepts = np.array([0.0, *[each.intercept for each in SEGMENTS]])[NODES]
    return 1 / (1 + np.exp(-(intercepts + slopes * fitted.base.log_odds(SCORES))))


def close(actual: object, fitted: GroupedMap, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(
        np.asarray(actual, float), expected(fitted), rtol=tolerance, atol=1e-12
    )


def test_a_row_belongs_to_the_most_specific_known_segment(fitted: GroupedMap) -> None:
    assert fitted.segment_index(ROWS).tolist() == NODES
    close(fitted.predict(SCORES, ROWS), fitted)
    close(1 / (1 + np.exp(-fitted.log_odds(SCORES, ROWS))), fitted)


def test_without_segments_it_is_the_global_map() -> None:
    fitted = grouped()
    np.testing.assert_array_equal(fitted.predict(SCORES), fitted.base.predict(SCORES))
    check_map(fitted, examples=5)


def test_a_single_score_has_single_values_and_any_shape_is_kept() -> None:
    fitted = grouped()
    one = fitted.predict(0.3, {"country": "NL", "city": "Gouda"})
    assert one == pytest.approx(expected(fitted)[1])
    matrix = SCORES.reshape(3, 3).astype(np.float32)
    rows = {name: np.array(values, dtype=object).reshape(3, 3) for name, values in ROWS.items()}
    result = fitted.predict(matrix, rows)
    assert result.shape == (3, 3)
    assert result.dtype == np.float32


@pytest.mark.parametrize(
    "values",
    [np.array([7, 8]), np.array([7.0, 8.0]), ["7", "8"], pd.Series([7, 8]), pa.array(["7", "8"])],
    ids=lambda values: type(values).__name__,
)
def test_a_whole_number_is_the_text_of_its_digits(values: object) -> None:
    assert grouped().segment_index({"country": values, "city": [None, None]}).tolist() == [3, 0]


def test_missing_values_of_every_library_are_missing() -> None:
    for missing in (None, float("nan"), pd.NA):
        assert grouped().segment_index(
            {"country": ["NL", missing], "city": [missing, "Delft"]}
        ).tolist() == [1, 0]


def test_a_map_of_many_segments_is_saved_on_one_line(tmp_path: Path) -> None:
    segments = [Segment((f"{i:06d}",), 0.1, 1.0, 0.1, 5) for i in range(20_000)]
    many = replace(grouped(), columns=("country",), segments=tuple(segments), spreads=(0.5,))
    many.save(tmp_path / "map.json")
    assert len((tmp_path / "map.json").read_text().splitlines()) == 1
    assert cr.load(tmp_path / "map.json").segments == many.segments


def test_saved_and_loaded_it_is_equal(fitted: GroupedMap, tmp_path: Path) -> None:
    fitted.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json") == fitted


def test_the_documented_format_is_enough_to_evaluate_it(fitted: GroupedMap) -> None:
    document = json.loads(to_json(fitted))
    evaluate = plain_map.reader(document["map"])
    seen = set()
    for vector in document["vectors"]:
        actual = evaluate(vector["score"], vector["segments"])
        assert actual == pytest.approx(vector["probability"], rel=1e-9, abs=1e-12)
        seen.add(tuple(vector["segments"].values()))
    assert len(seen) == len(SEGMENTS) + 1


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy polars", "pyarrow", "duckdb"])
def test_dataframes_of_every_library(fitted: GroupedMap, kind: str) -> None:
    rows = pa.table({"score": SCORES, **ROWS})
    if kind == "duckdb":
        relation = fitted.transform(duckdb.sql("SELECT * FROM rows"))
        close(relation.fetchnumpy()["probability"], fitted)
        return
    frames = {
        "pandas": rows.to_pandas,
        "polars": lambda: pl.from_arrow(rows),
        "lazy polars": lambda: pl.from_arrow(rows).lazy(),
        "pyarrow": lambda: rows,
    }
    result = fitted.transform(frames[kind]())
    result = result.collect() if kind == "lazy polars" else result
    close(np.asarray(result["probability"]), fitted)


def test_sql_of_duckdb(fitted: GroupedMap) -> None:
    rows = pa.table({"score": SCORES, **ROWS})  # noqa: F841  (read by duckdb)
    query = "SELECT " + to_sql(fitted, "duckdb") + " AS p FROM rows"  # noqa: S608  (what we test)
    close(duckdb.sql(query).fetchnumpy()["p"], fitted)


def test_sql_of_sqlite_also_with_numbers(fitted: GroupedMap) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (score, country, city)")
    numbers = [int(value) if value in {"7", "8", "9"} else value for value in COUNTRIES]
    rows = list(zip(SCORES.tolist(), numbers, CITIES, strict=True))
    database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    query = "SELECT " + to_sql(fitted, "sqlite") + " FROM t"  # noqa: S608  (what we test)
    found = database.execute(query).fetchall()
    close([row[0] for row in found], fitted)


@pytest.mark.parametrize("dialect", ["spark", "bigquery"])
def test_backslashes_are_escaped_where_they_start_an_escape(dialect: str) -> None:
    sql = to_sql(grouped(), dialect)
    assert r"WHEN 'it\'s \\ a " in sql
    assert "\n" not in sql


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_invalid_score_is_null_in_sql(dialect: str) -> None:
    assert to_sql(grouped(), dialect).startswith("CASE WHEN ")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_takes_the_segment_as_a_second_input(fitted: GroupedMap, dtype: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(fitted, dtype).SerializeToString())
    inputs = {"score": SCORES.astype(dtype), "segment": fitted.segment_index(ROWS)}
    close(session.run(None, inputs)[0], fitted, 2e-4 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_takes_the_segment_as_a_second_input(fitted: GroupedMap, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    scores = torch.tensor(SCORES, dtype=getattr(torch, dtype))
    nodes = torch.tensor(fitted.segment_index(ROWS))
    close(
        to_torch(fitted, dtype)(scores, nodes).numpy(), fitted, 2e-4 if dtype == "float32" else 1e-9
    )


def test_spark_joins_the_segments(fitted: GroupedMap) -> None:
    spark = session()
    from calibrank.spark import transform

    rows = list(zip(range(9), SCORES.tolist(), COUNTRIES, CITIES, strict=True))
    frame = spark.createDataFrame(rows, "id int, score double, country string, city string")
    result = transform(fitted, frame)
    assert result.columns == ["id", "score", "country", "city", "probability"]
    close([row.probability for row in result.orderBy("id").collect()], fitted)
    query = frame.selectExpr("id", to_sql(fitted, "spark") + " AS p").orderBy("id")
    close([row.p for row in query.collect()], fitted)


def test_an_interval_contains_the_probability_and_is_wider_for_an_unknown_segment() -> None:
    fitted = grouped()
    low, high = fitted.interval(SCORES, segments=ROWS)
    middle = fitted.predict(SCORES, ROWS)
    assert (low <= middle).all()
    assert (middle <= high).all()
    known = fitted.interval(0.0, segments={"country": "NL", "city": "Delft"})
    unknown = fitted.interval(0.0, segments={"country": "BE", "city": "Delft"})
    assert unknown.high - unknown.low > 3 * (known.high - known.low)


def with_segments(*segments: Segment) -> None:
    GroupedMap("m", gaussian_map(), ("country",), segments, (0.0,), RECORD)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Segment((), 0, 1, 0, 0), "one or more values"),
        (lambda: Segment(("a",), 0, 0.0, 0, 0), "must be positive, got 0.0"),
        (lambda: Segment(("a",), 0, 1, -1.0, 0), "must not be negative"),
        (lambda: with_segments(SEGMENTS[0], SEGMENTS[0]), "different keys"),
        (lambda: with_segments(Segment(("a", "b"), 0, 1, 0, 0)), "at most 1 values"),
        (
            lambda: GroupedMap("m", gaussian_map(), ("a", "b"), SEGMENTS[3:4], (0, 0), RECORD),
            "parent",
        ),
        (
            lambda: GroupedMap("m", gaussian_map(), (), (), (), RECORD),
            "one or more different names",
        ),
        (lambda: GroupedMap("m", gaussian_map(), ("a",), (), (), RECORD), "per column"),
        (lambda: GroupedMap("m", grouped(), ("a",), (), (0,), RECORD), "not be by segment itself"),
        (lambda: grouped(min_max_map()).predict(0.5, ROWS), "one value per score"),
        (lambda: to_sql(grouped(min_max_map()), "duckdb"), "got a rescale map. Use another method"),
        (lambda: grouped().predict(SCORES, {"country": COUNTRIES}), "column 'city', got 'country'"),
        (lambda: grouped().predict(SCORES, COUNTRIES), "got list. For example segments={'country'"),
        (
            lambda: grouped().predict([0.0], {"country": [1.5], "city": [1]}),
            "whole numbers, got 1.5",
        ),
        (
            lambda: grouped().transform(pl.DataFrame({"score": [0.0]})),
            "must have the column 'country'",
        ),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()


def test_segments_are_numbered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200)
    segments = {"country": np.tile(["DE", "NL"], 100)}
    fitted = cr.Segments("country").fit(scores, rng.random(200) < expit(scores), segments)
    first = fitted.predict(scores, segments)

    def fail(*_: object) -> None:
        raise AssertionError("a second time")

    monkeypatch.setattr("calibrank.maps.grouped.number_nodes", fail)
    np.testing.assert_array_equal(fitted.predict(scores, segments), first)
