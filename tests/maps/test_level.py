"""Level terms: which level a row belongs to, and agreement of every engine with the formula."""

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
from scipy.special import expit

import calibrank as cr
from calibrank.errors import ScoreShiftWarning
from calibrank.export import DIALECTS, to_json, to_onnx, to_sql, to_torch
from calibrank.maps import LevelTerm
from tests import plain_map
from tests.checks import check_map
from tests.maps.samples import gaussian_map, level_term, map_of, min_max_map, spline_map, step_map
from tests.spark_session import session

TYPICAL = -0.4
TERM = level_term("country", "city", typical=TYPICAL)
COUNTRIES = ["NL", "NL", "NL", 'it\'s \\ a "test"\n', "7", "7", "BE", "BE"]
CITIES = ["Delft", "Gouda", "Leiden", "Delft", "8", "9", "Delft", "8"]
NODES = [4, 1, 1, 2, 5, 3, 0, 0]
SCORES = np.array([-2.0, 0.3, 1.1, 0.0, 40.0, -1.0, 0.7, 0.2])
ROWS = {"country": COUNTRIES, "city": CITIES}
# A missing value anywhere makes a level unknowable.
MISSING = {"country": [None, "NL", None], "city": ["Delft", None, None]}


def with_levels(curve: cr.CalibrationMap | None = None) -> cr.CalibrationMap:
    start = gaussian_map() if curve is None else curve
    return replace(start, terms=(TERM,))


@pytest.fixture(params=[gaussian_map, spline_map, lambda: step_map(9)], ids=["g", "spline", "step"])
def fitted(request: pytest.FixtureRequest) -> cr.CalibrationMap:
    return with_levels(request.param())


def expected(fitted: cr.CalibrationMap) -> np.ndarray:
    """The formula, by hand."""
    slopes = np.array([1.0, *TERM.slopes])[NODES]
    intercepts = np.array([TYPICAL, *TERM.intercepts])[NODES]
    return expit(intercepts + slopes * fitted.without_terms().log_odds(SCORES))


def close(actual: object, fitted: cr.CalibrationMap, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(
        np.asarray(actual, float), expected(fitted), rtol=tolerance, atol=1e-12
    )


def test_a_row_belongs_to_the_most_specific_known_level(fitted: cr.CalibrationMap) -> None:
    assert fitted.level_index(ROWS)["country_city"].tolist() == NODES
    close(fitted.predict(SCORES, ROWS), fitted)
    close(expit(fitted.log_odds(SCORES, ROWS)), fitted)


def test_without_terms_it_is_the_curve() -> None:
    fitted = with_levels()
    alone = fitted.without_terms()
    assert alone.columns == ()
    np.testing.assert_array_equal(alone.predict(SCORES), gaussian_map().predict(SCORES))


def test_a_single_score_has_single_values_and_any_shape_is_kept() -> None:
    fitted = with_levels()
    one = fitted.predict(0.3, {"country": "NL", "city": "Gouda"})
    assert one == pytest.approx(expected(fitted)[1])
    matrix = SCORES.reshape(2, 4).astype(np.float32)
    rows = {name: np.array(values, dtype=object).reshape(2, 4) for name, values in ROWS.items()}
    result = fitted.predict(matrix, rows)
    assert result.shape == (2, 4)
    assert result.dtype == np.float32
    close(result.ravel(), fitted, 1e-5)


@pytest.mark.parametrize(
    "values",
    [np.array([7, 8]), np.array([7.0, 8.0]), ["7", "8"], pd.Series([7, 8]), pa.array(["7", "8"])],
    ids=lambda values: type(values).__name__,
)
def test_a_whole_number_is_the_text_of_its_digits(values: object) -> None:
    found = with_levels().level_index({"country": values, "city": ["-", "-"]})
    assert found["country_city"].tolist() == [3, 0]


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
@pytest.mark.parametrize("column", ["country", "city"])
def test_a_missing_level_is_refused_with_its_row(column: str, missing: object) -> None:
    rows = {"country": ["NL", "NL"], "city": ["Delft", "Delft"]}
    rows[column][1] = missing
    message = f"column '{column}' must not be missing, got no value at row 1. Drop such rows"
    for method in (cr.CalibrationMap.predict, cr.CalibrationMap.interval):
        with pytest.raises(cr.DataError, match=message):
            method(with_levels(), [0.0, 0.0], rows)


def test_rows_of_unknown_levels_give_a_warning_if_they_are_most() -> None:
    fitted = with_levels()
    rows = {"country": ["nl"] * 20 + ["NL"] * 10, "city": ["Delft"] * 30}
    message = "20 of 30 rows have a country that the map does not know, such as 'nl'"
    with pytest.warns(ScoreShiftWarning, match=message) as found:
        fitted.predict(np.zeros(30), rows)
    assert found[0].filename == __file__
    few = {name: values[:25] for name, values in rows.items()}
    fitted.predict(np.zeros(25), few)


def test_a_map_of_many_levels_is_saved_on_one_line(tmp_path: Path) -> None:
    count = 60_000
    keys = tuple((f"{i:06d}",) for i in range(count))
    numbers = [(number,) * count for number in (0.1, 1.0, 0.1)]
    term = LevelTerm(("country",), keys, *numbers, rows=(5,) * count, spreads=(0.5,))
    many = replace(with_levels(), terms=(term,))
    many.save(tmp_path / "map.json")
    assert len((tmp_path / "map.json").read_text().splitlines()) == 1
    assert cr.load(tmp_path / "map.json").terms == many.terms


def test_saved_and_loaded_it_is_equal(fitted: cr.CalibrationMap, tmp_path: Path) -> None:
    fitted.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json") == fitted


def test_the_documented_format_is_enough_to_evaluate_it(fitted: cr.CalibrationMap) -> None:
    document = json.loads(to_json(fitted))
    evaluate = plain_map.reader(document["map"])
    seen = set()
    for vector in document["vectors"]:
        actual = evaluate(vector["score"], vector["columns"])
        assert actual == pytest.approx(vector["probability"], rel=1e-9, abs=1e-12)
        seen.add(tuple(vector["columns"].values()))
    assert len(seen) == len(TERM) + 1


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy polars", "pyarrow", "duckdb"])
def test_dataframes_of_every_library(fitted: cr.CalibrationMap, kind: str) -> None:
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


def test_what_predict_refuses_is_null_in_lazy_frames_and_sql(fitted: cr.CalibrationMap) -> None:
    rows = pa.table({"score": np.zeros(3), **MISSING})
    lazy = fitted.transform(pl.from_arrow(rows).lazy()).collect()
    assert lazy["probability"].to_list() == [None] * 3
    query = "SELECT " + to_sql(fitted, "duckdb") + " AS p FROM rows"  # noqa: S608  (what we test)
    assert duckdb.sql(query).fetchall() == [(None,)] * 3


def test_sql_of_duckdb(fitted: cr.CalibrationMap) -> None:
    rows = pa.table({"score": SCORES, **ROWS})  # noqa: F841  (read by duckdb)
    query = "SELECT " + to_sql(fitted, "duckdb") + " AS p FROM rows"  # noqa: S608  (what we test)
    close(duckdb.sql(query).fetchnumpy()["p"], fitted)


def test_sql_of_sqlite_also_with_numbers(fitted: cr.CalibrationMap) -> None:
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
    sql = to_sql(with_levels(), dialect)
    assert r"WHEN 'it\'s \\ a " in sql
    assert "\n" not in sql


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_invalid_score_is_null_in_sql(dialect: str) -> None:
    assert to_sql(with_levels(), dialect).startswith("CASE WHEN ")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_takes_the_number_of_the_level(fitted: cr.CalibrationMap, dtype: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(fitted, dtype).SerializeToString())
    inputs = {"score": SCORES.astype(dtype), **fitted.level_index(ROWS)}
    close(session.run(None, inputs)[0], fitted, 2e-4 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_takes_the_number_of_the_level(fitted: cr.CalibrationMap, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    scores = torch.tensor(SCORES, dtype=getattr(torch, dtype))
    nodes = torch.tensor(fitted.level_index(ROWS)["country_city"])
    close(
        to_torch(fitted, dtype)(scores, nodes).numpy(), fitted, 2e-4 if dtype == "float32" else 1e-9
    )


def test_spark_joins_the_levels(fitted: cr.CalibrationMap) -> None:
    spark = session()
    from calibrank.spark import transform

    rows = list(zip(range(8), SCORES.tolist(), COUNTRIES, CITIES, strict=True))
    frame = spark.createDataFrame(rows, "id int, score double, country string, city string")
    result = transform(fitted, frame)
    assert result.columns == ["id", "score", "country", "city", "probability"]
    close([row.probability for row in result.orderBy("id").collect()], fitted)
    query = frame.selectExpr("id", to_sql(fitted, "spark") + " AS p").orderBy("id")
    close([row.p for row in query.collect()], fitted)


def test_an_interval_contains_the_probability_and_is_wider_for_an_unknown_level() -> None:
    fitted = with_levels()
    low, high = fitted.sampling_interval(SCORES, ROWS)
    middle = fitted.predict(SCORES, ROWS)
    assert (low <= middle).all()
    assert (middle <= high).all()
    known = fitted.sampling_interval(0.0, {"country": "NL", "city": "Delft"})
    unknown = fitted.sampling_interval(0.0, {"country": "BE", "city": "Delft"})
    assert unknown.high - unknown.low > 3 * (known.high - known.low)


def test_the_map_keeps_the_laws_of_maps() -> None:
    check_map(with_levels(), examples=7)


def one(**changes: object) -> LevelTerm:
    numbers = {"intercepts": (0.0,), "slopes": (1.0,), "errors": (0.0,), "rows": (1,)}
    start = LevelTerm(("a",), (("x",),), **numbers, spreads=(0.0,))
    return replace(start, **changes)


TWICE = {
    "keys": (("x",), ("x",)),
    "intercepts": (0.0, 0.0),
    "slopes": (1.0, 1.0),
    "errors": (0.0, 0.0),
    "rows": (1, 1),
}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: one(keys=((),)), "must have 1 to 1 values"),
        (lambda: one(slopes=(0.0,)), "must be positive, got 0.0"),
        (lambda: one(errors=(-1.0,)), "must not be negative"),
        (lambda: one(rows=()), "must have 1 values each, got 1 and 1 and 1 and 0"),
        (lambda: one(**TWICE), "different keys"),
        (lambda: one(keys=(("a", "b"),)), "must have 1 to 1 values"),
        (lambda: one(columns=("a", "b"), keys=(("x", "y"),), spreads=(0, 0)), "its parent"),
        (lambda: one(columns=()), "one or more different column names"),
        (lambda: one(columns=("a", "a"), spreads=(0, 0)), "one or more different column names"),
        (lambda: one(spreads=()), "spreads of columns must have 1 values each"),
        (lambda: one(intercepts=(1e10,)), r"within \+-1e9, got 10000000000.0"),
        (lambda: map_of(gaussian_map().curve, one(), one()), "terms must be of different columns"),
        (lambda: with_levels(min_max_map()), "MinMax must not go with terms"),
        (lambda: with_levels().predict(SCORES), "columns must have country, city.* got none"),
        (lambda: with_levels().predict(SCORES, {"country": COUNTRIES}), "'city', got 'country'"),
        (lambda: with_levels().predict(SCORES, COUNTRIES), "got list. For example columns="),
        (lambda: with_levels().predict([0.5], ROWS), "one value per score"),
        (
            lambda: with_levels().predict([0.0], {"country": [1.5], "city": [1]}),
            "must hold text, whole numbers or booleans, got 1.5",
        ),
        (
            lambda: with_levels().transform(pl.DataFrame({"score": [0.0]})),
            "must have a column 'country'",
        ),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make()


def test_levels_are_numbered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200)
    rows = {"country": np.tile(["DE", "NL"], 100)}
    model = cr.Gaussian() + cr.Level("country")
    fitted = model.fit(scores, rng.random(200) < expit(scores), rows)
    first = fitted.predict(scores, rows)

    def fail(*_: object) -> None:
        raise AssertionError("a second time")

    monkeypatch.setattr("calibrank.maps.level.number_nodes", fail)
    np.testing.assert_array_equal(fitted.predict(scores, rows), first)
