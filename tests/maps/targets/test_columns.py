"""Columns of terms in every engine: null in, null out, and one rule for the text of levels."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import calibrank as cr
from calibrank.export import to_onnx, to_sql, to_torch
from calibrank.maps import LevelTerm
from tests import engines, table_engines
from tests.engines import numbers
from tests.maps.samples import gaussian_map, level_term, map_of, position_term, smooth_term
from tests.table_engines import Kinds, TableEngine

CURVE = gaussian_map().curve
TEXT = 'it\'s \\ a "test"\n'
"""A level of `level_term` that is hard to write in SQL."""
MAPS = {
    "level": map_of(CURVE, level_term("country", typical=-0.4)),
    "nested": map_of(CURVE, level_term("country", "city", typical=-0.4)),
    "smooth": map_of(CURVE, smooth_term("price")),
    "position": map_of(CURVE, position_term("rank")),
    "level and smooth": map_of(CURVE, level_term("country"), smooth_term("price")),
    "all": map_of(CURVE, level_term("country", "city"), smooth_term("price"), position_term()),
}
KINDS: Kinds = {
    "score": "double",
    "country": "text",
    "city": "text",
    "price": "double",
    "rank": "double",
}
VALID = (0.5, "NL", "Delft", 0.25, 2.0)
# Values that `predict` takes, and that it refuses, by column.
TAKEN: dict[str, list[Any]] = {
    "score": [-1e30, 0.0, 1e30],
    "country": ["NL", TEXT, "7", "unknown", "${spark.app.name}", "Ünïcode ☃", ""],
    "city": ["Delft", "8", "unknown"],
    "price": [-1e30, -1.0, 0.0, 2.0, 1e30],
    "rank": [1.0, 5.0, 6.0, 1e9],
}
_NUMBERS = [None, math.nan, math.inf, -math.inf, 1e31, -1e31]
REFUSED: dict[str, list[Any]] = {
    "score": _NUMBERS,
    "country": [None],
    "city": [None],
    "price": _NUMBERS,
    "rank": [*_NUMBERS, 0.0, -1.0, 2e9],
}


ENGINES = [*table_engines.SQL_AND_FRAMES, *table_engines.WITHOUT_DECIMALS, "postgresql"]


@pytest.fixture(params=ENGINES, ids=lambda each: getattr(each, "__name__", each))
def engine(request: pytest.FixtureRequest) -> TableEngine:
    if request.param == "postgresql":
        return table_engines.postgresql(request.getfixturevalue("server"))
    return request.param


def rows_with(changes: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    """The valid row, once with each of the values."""
    rows = []
    for place, name in enumerate(KINDS):
        rows += [(*VALID[:place], value, *VALID[place + 1 :]) for value in changes[name]]
    return rows


def predicted(fitted: cr.CalibrationMap, rows: list[tuple[Any, ...]]) -> np.ndarray:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(KINDS)}
    return fitted.predict(columns["score"], columns)


def is_read(fitted: cr.CalibrationMap, row: tuple[Any, ...]) -> bool:
    """Whether a changed value of a row is one of a column that the map reads."""
    names = list(KINDS)
    changed = [name for name, value, valid in zip(names, row, VALID, strict=True) if value != valid]
    return changed[0] in ("score", *fitted.columns)


@pytest.mark.parametrize("name", MAPS)
def test_spark_and_every_engine_agree_with_predict(engine: TableEngine, name: str) -> None:
    rows = rows_with(TAKEN)
    found = engine(MAPS[name], KINDS, rows)
    np.testing.assert_allclose(found, predicted(MAPS[name], rows), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", MAPS)
def test_spark_and_every_engine_give_null_where_predict_refuses(
    engine: TableEngine, name: str
) -> None:
    fitted = MAPS[name]
    rows = [row for row in rows_with(REFUSED) if is_read(fitted, row)]
    for row in rows:
        with pytest.raises(cr.DataError):
            predicted(fitted, [row])
    found = engine(fitted, KINDS, [*rows, VALID])
    assert np.isnan(found[:-1]).all()
    np.testing.assert_allclose(found[-1], predicted(fitted, [VALID])[0], rtol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_spark_and_every_engine_refuse_an_absent_column(engine: TableEngine, name: str) -> None:
    fitted = MAPS[name]
    for missing in fitted.columns:
        kinds = {each: kind for each, kind in KINDS.items() if each != missing}
        row = [value for each, value in zip(KINDS, VALID, strict=True) if each != missing]
        # SQL engines have errors of their own, which name the column as well.
        with pytest.raises((Exception, AssertionError), match=missing):
            engine(fitted, kinds, [row])
        columns = dict(zip(kinds, [[value] for value in row], strict=True))
        with pytest.raises(cr.DataError, match=missing):
            fitted.predict(columns["score"], columns)


KEYS = LevelTerm(
    ("key",),
    (("1",), ("0",), ("true",), ("false",), ("12345678",), ("-7",), ("1.0",), ("nan",), ("x",)),
    tuple(np.linspace(-2, 2, 9).tolist()),
    (1.0,) * 9,
    (0.1,) * 9,
    (1,) * 9,
    (1.0,),
    typical=3.0,
)
BY_KIND: dict[str, tuple[list[Any], list[Any]]] = {
    "integer": ([1, 0, -7, 12345678, 2], [None]),
    "boolean": ([True, False], [None]),
    "text": (["1", "1.0", "true", "nan", "x", "y"], [None]),
    "double": (
        [1.0, -0.0, -7.0, 12345678.0, 2.0],
        [None, math.nan, math.inf, 0.5, -1.25, 1e-10, 1 + 1e-10, 2.0**53, 1e16, -1e17, 1e300],
    ),
    "decimal": ([Decimal(1), Decimal(0), Decimal(-7), Decimal(12345678)], [None, Decimal("0.5")]),
}


@pytest.mark.parametrize("kind", BY_KIND)
def test_spark_and_every_engine_write_the_keys_of_levels_alike(
    engine: TableEngine, kind: str
) -> None:
    """Whole numbers without decimals, booleans as true and false, text as it is."""
    if kind == "boolean" and engine is table_engines.sqlite:
        return  # It has no booleans, as the documentation says.
    if kind in ("double", "decimal") and engine in table_engines.WITHOUT_DECIMALS:
        return
    taken, refused = BY_KIND[kind]
    fitted = map_of(CURVE, KEYS)
    rows = [(0.5, value) for value in (*taken, *refused)]
    found = engine(fitted, {"score": "double", "key": kind}, rows)
    expected = fitted.predict([0.5] * len(taken), {"key": taken})
    # Every value but the last ones of a kind is a known level.
    assert len(set(expected)) == len(taken)
    np.testing.assert_allclose(found[: len(taken)], expected, rtol=1e-9)
    assert np.isnan(found[len(taken) :]).all()
    for value in refused:
        with pytest.raises(cr.DataError):
            fitted.predict([0.5], {"key": [value]})


@pytest.mark.parametrize(
    "values",
    [
        np.array(["2024-05-01"], dtype="datetime64[ns]"),
        np.array([3], dtype="timedelta64[s]"),
        [np.datetime64("2024-05-01")],
    ],
    ids=["dates", "durations", "objects"],
)
def test_dates_and_times_are_no_levels(values: Any) -> None:
    with pytest.raises(cr.DataError, match="write dates as text"):
        map_of(CURVE, KEYS).predict([0.5], {"key": values})


def test_a_lazy_frame_of_dates_is_an_error() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.LazyFrame({"score": [0.5], "key": ["2024-05-01"]})
    frame = frame.with_columns(polars.col("key").str.to_date())
    with pytest.raises(cr.DataError, match="'key' must hold text, whole numbers or booleans"):
        map_of(CURVE, KEYS).transform(frame)


def test_a_level_with_a_character_0_is_an_error_in_sql() -> None:
    term = LevelTerm(("key",), (("a\0b",),), (1.0,), (1.0,), (0.1,), (1,), (1.0,))
    with pytest.raises(cr.DataError, match="must have no character 0 in SQL"):
        to_sql(map_of(CURVE, term), "duckdb")


def many_levels(count: int) -> cr.CalibrationMap:
    """Two nested columns: two parents with `count` children each."""
    keys = [("a",), ("b",)]
    keys += [(parent, f"k{number}") for parent in "ab" for number in range(count)]
    rng = np.random.default_rng(count)
    size = len(keys)
    slopes = np.exp(rng.normal(0, 0.1, size))
    term = LevelTerm(
        ("group", "key"),
        tuple(keys),
        tuple(rng.normal(size=size).tolist()),
        tuple(slopes.tolist()),
        (0.1,) * size,
        (1,) * size,
        (1.0, 1.0),
    )
    return map_of(CURVE, term)


def test_spark_and_every_engine_look_up_a_thousand_levels(engine: TableEngine) -> None:
    fitted = many_levels(600)
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 620, 50).tolist()
    rows = [(number / 300 - 1, "abc"[number % 3], f"k{number}") for number in numbers]
    kinds = {"score": "double", "group": "text", "key": "text"}
    columns = {name: [row[place] for row in rows] for place, name in enumerate(kinds)}
    expected = fitted.predict(columns["score"], columns)
    np.testing.assert_allclose(engine(fitted, kinds, rows), expected, rtol=1e-9)


def test_sql_of_many_levels_looks_them_up_in_a_table() -> None:
    # The first characters that could divide a table, quotes, and what ends a string.
    names = ["\x01", "\x02\x03", "it's", "", "\ue000", "${x}", *map(str, range(2_000))]
    rng = np.random.default_rng(0)
    size = len(names)
    intercepts = tuple(rng.normal(size=size).tolist())
    slopes = tuple(np.exp(rng.normal(0, 0.1, size)).tolist())
    keys = tuple((name,) for name in names)
    term = LevelTerm(("key",), keys, intercepts, slopes, (0.1,) * size, (1,) * size, (1.0,), 0.3)
    fitted = map_of(CURVE, term)
    rows: list[tuple[float | None, str | None]] = [(0.5, name) for name in [*names, "unknown"]]
    kinds = {"score": "double", "key": "text"}
    expected = fitted.predict([0.5] * len(rows), {"key": [row[1] for row in rows]})
    found = table_engines.duckdb(fitted, kinds, [*rows, (0.5, None), (None, "7")])
    np.testing.assert_allclose(found, [*expected, np.nan, np.nan], rtol=1e-9)
    # One condition each for the row, the range of scores and the type of the column.
    assert to_sql(fitted, "duckdb").count("WHEN") < 12


def whole_numbers() -> cr.CalibrationMap:
    """More levels than `CASE` compares, most of them numbers."""
    names = ["true", "false", "1.0", "05", "-0", "item 5", str(2**63)]
    names += [str(number) for number in (*range(-50, 300), 123456792, 2**63 - 1, -(2**63))]
    size = len(names)
    rng = np.random.default_rng(5)
    intercepts = tuple(rng.normal(size=size).tolist())
    slopes = tuple(rng.uniform(0.5, 2, size).tolist())
    keys = tuple((name,) for name in names)
    term = LevelTerm(("key",), keys, intercepts, slopes, (0.1,) * size, (1,) * size, (1.0,))
    return map_of(CURVE, term)


@pytest.mark.parametrize(
    ("kind", "levels"),
    {
        "VARCHAR": {"5": "5", "1.0": "1.0", "05": "05", "1": "1", "-0": "-0", "+5": "new"},
        "BOOLEAN": {"true": "true", "false": "false"},
        "TINYINT": {"5": "5", "-7": "-7", "-100": "new"},
        "INTEGER": {"5": "5", "123456792": "123456792", "1000": "new"},
        "BIGINT": {"0": "0", str(2**63 - 1): str(2**63 - 1), str(-(2**63)): str(-(2**63))},
        "UBIGINT": {"5": "5", str(2**63): str(2**63)},
        "HUGEINT": {"5": "5", str(2**64): "new"},
        "FLOAT": {"1.0": "1", "-0.0": "0", "123456792": "123456792", "0.5": None, "1e30": None},
        "DOUBLE": {"1.0": "1", "-0.0": "0", "-7": "-7", "0.5": None, "NaN": None, "inf": None},
        "DECIMAL(12, 3)": {"1": "1", "-7.000": "-7", "123456792": "123456792", "1.001": None},
        "DECIMAL(38, 0)": {"5": "5", str(2**64): None},
        "DATE": {"2020-01-01": None},
        "BIGINT[]": {"[5]": None},
        "DECIMAL(9, 3)[]": {"[5]": None},
    }.items(),
)
def test_sql_of_many_levels_reads_columns_of_any_type(
    kind: str, levels: dict[str, str | None]
) -> None:
    fitted = whole_numbers()
    rows = pa.table({"row": range(len(levels) + 1), "key": [*levels, None]})
    with pytest.importorskip("duckdb").connect() as connection:
        connection.register("rows", rows)
        cast = f"(SELECT row, 0.3 AS score, key::{kind} AS key FROM rows)"  # noqa: S608  (our own)
        query = f"SELECT {to_sql(fitted, 'duckdb')} FROM {cast} ORDER BY row"  # noqa: S608
        found = numbers([row[0] for row in connection.execute(query).fetchall()])
    known = [level is not None for level in (*levels.values(), None)]
    names = [level for level in levels.values() if level is not None]
    assert (~np.isnan(found)).tolist() == known
    expected = fitted.predict([0.3] * len(names), {"key": names}) if names else []
    np.testing.assert_allclose(found[known], expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["VARCHAR", "BIGINT"])
def test_duckdb_joins_many_levels_without_grouping_rows(kind: str) -> None:
    with pytest.importorskip("duckdb").connect() as connection:
        connection.execute(f"CREATE TABLE t (score DOUBLE, key {kind})")
        query = f"EXPLAIN SELECT {to_sql(whole_numbers(), 'duckdb')} FROM t"  # noqa: S608  (ours)
        plan = connection.execute(query).fetchall()[0][1].upper().replace("_", " ")
    assert "HASH JOIN" in plan
    assert "GROUP BY" not in plan
    assert "DELIM" not in plan


def graph_inputs(
    fitted: cr.CalibrationMap, rows: list[tuple[Any, ...]], dtype: str
) -> dict[str, np.ndarray]:
    """The inputs of a graph: scores, numbers, and numbers of levels by hand."""
    names = list(KINDS)
    inputs = {"score": np.array([row[0] for row in rows], dtype=dtype)}
    for name, term in zip(fitted.input_names(), fitted.terms, strict=True):
        if isinstance(term, LevelTerm):
            found = []
            for row in rows:
                key = tuple(row[names.index(column)] for column in term.columns)
                while key and key not in term.keys:
                    key = key[:-1]
                found.append(term.keys.index(key) + 1 if key else 0)
            inputs[name] = np.array(found)
        else:
            place = names.index(term.columns[0])
            inputs[name] = np.array([row[place] for row in rows], dtype=dtype)
    return inputs


def run_onnx(fitted: cr.CalibrationMap, inputs: dict[str, np.ndarray], dtype: str) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    model = to_onnx(fitted, dtype).SerializeToString()
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == list(inputs)
    return session.run(["probability"], inputs)[0]


def run_torch(fitted: cr.CalibrationMap, inputs: dict[str, np.ndarray], dtype: str) -> np.ndarray:
    torch = pytest.importorskip("torch")
    return to_torch(fitted, dtype)(*map(torch.from_numpy, inputs.values())).numpy()


GRAPHS = pytest.mark.parametrize("run", [run_onnx, run_torch])


@GRAPHS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MAPS)
def test_graphs_agree_and_give_nan_where_predict_refuses(name: str, dtype: str, run: Any) -> None:
    fitted = MAPS[name]
    taken = [row for row in rows_with(TAKEN) if abs(row[0]) < 1e30 and abs(row[3]) < 1e30]
    tolerance = 1e-5 if dtype == "float32" else 1e-9
    found = run(fitted, graph_inputs(fitted, taken, dtype), dtype)
    np.testing.assert_allclose(found, predicted(fitted, taken), atol=tolerance)
    refused = [row for row in rows_with(REFUSED) if is_read(fitted, row) and None not in row]
    inputs = graph_inputs(fitted, refused, dtype)
    assert np.isnan(run(fitted, inputs, dtype)).all()
    for input_name, term in zip(fitted.input_names(), fitted.terms, strict=True):
        if isinstance(term, LevelTerm):
            valid = graph_inputs(fitted, [VALID] * 4, dtype)
            valid[input_name] = np.array([-1, len(term) + 1, 0, len(term)])
            assert np.isnan(run(fitted, valid, dtype)).tolist() == [True, True, False, False]


@GRAPHS
def test_columns_may_have_the_names_of_other_inputs(run: Any) -> None:
    terms = [smooth_term("probability"), smooth_term("score"), level_term("__add_0")]
    fitted = map_of(CURVE, *terms, level_term("a", "b"), smooth_term("a_b"))
    names = ["probability_", "score_", "__add_0", "a_b", "a_b_"]
    assert fitted.input_names() == names
    columns = {"probability": [0.3], "score": [-0.5], "__add_0": ["7"], "a": ["NL"], "a_b": [1.0]}
    expected = fitted.predict([0.5], {**columns, "b": ["Delft"]})
    numbers = (np.array([0.3]), np.array([-0.5]), np.array([3]), np.array([4]), np.array([1.0]))
    inputs = {"score": np.array([0.5]), **dict(zip(names, numbers, strict=True))}
    np.testing.assert_allclose(run(fitted, inputs, "float64"), expected, rtol=1e-12)


def test_sql_of_columns_with_the_names_of_outputs() -> None:
    fitted = map_of(CURVE, smooth_term("probability"), smooth_term("score"))
    expression = to_sql(fitted, "duckdb", score="margin")
    found = engines.duckdb_query(
        f"(SELECT {expression} FROM (SELECT 0.3 AS probability, -0.5 AS score))",  # noqa: S608
        [0.5],
        column='"margin"',
    )
    expected = fitted.predict([0.5], {"probability": [0.3], "score": [-0.5]})
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("kind", BY_KIND)
def test_eager_frames_write_the_keys_of_levels_alike(library: str, kind: str) -> None:
    fitted = map_of(CURVE, KEYS)
    taken, refused = BY_KIND[kind]
    kinds = {"score": "double", "key": kind}
    frames = [
        table_engines.table(kinds, [(0.5, value) for value in values])
        for values in (taken, [taken[0], refused[0]])
    ]
    if library == "pandas":
        # Whole numbers with gaps become decimals there.
        frames = [frame.to_pandas() for frame in frames]
    elif library == "polars":
        frames = [pytest.importorskip("polars").from_arrow(frame) for frame in frames]
    found = np.asarray(fitted.transform(frames[0])["probability"])
    expected = fitted.predict([0.5] * len(taken), {"key": taken})
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(cr.DataError, match="'key' must not be missing, got no value at row 1"):
        fitted.transform(frames[1])
