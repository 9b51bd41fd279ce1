"""Targets one operation at a time, against NumPy, Python's arithmetic and loops over keys."""

import sqlite3
from collections.abc import Callable
from typing import Any

import duckdb
import narwhals as nw
import numpy as np
import polars as pl
import pytest
from scipy.special import log_expit

import calibrank as cr
from calibrank._internal import native
from calibrank._internal.logit import expit
from calibrank.export import to_sql
from calibrank.maps import LevelTerm
from calibrank.maps.basis import Linear
from calibrank.maps.targets.narwhals import NarwhalsTarget
from calibrank.maps.targets.numpy import FloatTarget, NumpyTarget
from calibrank.maps.targets.onnx import OnnxTarget, Value
from calibrank.maps.targets.sql import Sql, SqlTarget
from calibrank.maps.targets.sql_dialects import DIALECTS
from calibrank.maps.targets.target import Target, broken_line
from calibrank.maps.targets.torch import TorchTarget
from tests.maps.samples import gaussian_map, logistic_map, map_of

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

Formula = Callable[[Target, Any], Any]
HARD = np.array([-800.0, -700.5, -40.0, -1.5, -1e-9, 0.0, 0.25, 1.0, 2.0, 37.0, 700.5, 800.0])


def in_numpy(formula: Formula, scores: np.ndarray) -> Any:
    return formula(NumpyTarget(), scores)


def in_floats(formula: Formula, scores: np.ndarray) -> Any:
    return [formula(FloatTarget(), score) for score in scores.tolist()]


def in_torch(formula: Formula, scores: np.ndarray) -> Any:
    return formula(TorchTarget(torch, "float64"), torch.from_numpy(scores)).numpy()


def in_polars(formula: Formula, scores: np.ndarray) -> Any:
    frame = nw.from_native(pl.DataFrame({"s": scores}))
    return frame.select(formula(NarwhalsTarget(), nw.col("s")).alias("p"))["p"].to_numpy()


def in_onnx(formula: Formula, scores: np.ndarray) -> Any:
    target = OnnxTarget(onnx, "float64", ["s"])
    target.add("Identity", formula(target, Value("s", target)), output="p")
    kind = onnx.TensorProto.DOUBLE
    ends = [onnx.helper.make_tensor_value_info(name, kind, ["n"]) for name in "sp"]
    graph = onnx.helper.make_graph(target.nodes, "g", ends[:1], ends[1:], target.constants)
    imports = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"s": scores})[0]


def in_sqlite(formula: Formula, scores: np.ndarray) -> Any:
    target = SqlTarget(DIALECTS["sqlite"])
    text = target.text(formula(target, target.column("s")))
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (s REAL)")
    database.executemany("INSERT INTO t VALUES (?)", [(score,) for score in scores.tolist()])
    return [row[0] for row in database.execute(f"SELECT {text} FROM t")]  # noqa: S608


def in_duckdb(formula: Formula, scores: np.ndarray) -> Any:
    target = SqlTarget(DIALECTS["duckdb"])
    text = target.text(formula(target, target.column("s")))
    rows = pl.DataFrame({"s": scores})  # noqa: F841  (read by duckdb)
    return duckdb.sql(f"SELECT {text} AS p FROM rows").fetchnumpy()["p"]  # noqa: S608


ENGINES = (in_numpy, in_floats, in_torch, in_polars, in_onnx, in_sqlite, in_duckdb)
every_engine = pytest.mark.parametrize("engine", ENGINES)
OPERATIONS: dict[str, tuple[Formula, Callable[[np.ndarray], np.ndarray]]] = {
    "sigmoid": (lambda target, s: target.sigmoid(s), expit),
    "softplus": (lambda target, s: target.softplus(s), lambda s: -log_expit(-s)),
    "minimum": (lambda target, s: target.minimum(s, 0.5), lambda s: np.minimum(s, 0.5)),
    "maximum": (lambda target, s: target.maximum(s, 0.5), lambda s: np.maximum(s, 0.5)),
    "log": (lambda target, s: target.log(s * s + 0.5), lambda s: np.log(s**2 + 0.5)),
    "place": (lambda target, s: target.place(s, -0.1, 0.7), lambda s: (s + 0.1) / 0.7),
    "no width": (lambda target, s: target.place(s, 0.0, 1.0), lambda s: s),
}


@every_engine
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_that_of_numpy(engine: Any, name: str) -> None:
    formula, expected = OPERATIONS[name]
    found = np.asarray(engine(formula, HARD), float)
    np.testing.assert_allclose(found, expected(HARD), rtol=1e-12, atol=1e-300)


@every_engine
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 9])
def test_steps_and_lines_are_found_between_edges(
    engine: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = np.arange(count) * 1.5 - 2
    values = np.arange(count + 1) ** 2 / 8 + 0.1
    scores = np.concatenate([edges, np.nextafter(edges, -np.inf), [-90.0, 0.3, 90.0]])
    step = [sum(edge <= score for edge in edges.tolist()) for score in scores.tolist()]
    found = engine(lambda target, s: target.steps(s, edges.tolist(), values.tolist()), scores)
    np.testing.assert_allclose(np.asarray(found, float), values[step])
    if not count:
        return
    lines = broken_line(edges.tolist(), values[1:].tolist(), (0.5, 0.25))
    expected = np.interp(scores, edges, values[1:])
    expected += 0.5 * np.minimum(scores - edges[0], 0) + 0.25 * np.maximum(scores - edges[-1], 0)
    for is_compiled in (True, False):
        monkeypatch.setattr(native, "READY", native.READY and is_compiled)
        found = engine(lambda target, s: target.lines(s, tuple(edges.tolist()), lines), scores)
        np.testing.assert_allclose(np.asarray(found, float), expected, rtol=1e-12, atol=1e-12)


@every_engine
def test_a_range_has_straight_lines_beyond(engine: Any) -> None:
    curve = logistic_map(Linear(), -0.3, 0.7).curve
    scores = np.array([-9.0, -0.3, 0.0, 0.4, 0.7, 5.0])
    found = engine(curve.log_odds_on, scores)
    np.testing.assert_allclose(np.asarray(found, float), -1 + 0.3 * (scores + 0.3), rtol=1e-12)


def test_expressions_of_sql_keep_their_order() -> None:
    """Random sums and products in SQLite are those of Python."""
    rng = np.random.default_rng(0)
    numbers = [0.0, 1.0, -1.0, 2.0, -2.5, 0.25]
    sql = SqlTarget(DIALECTS["sqlite"]).column("s")

    def grown(left: Any, right: Any, operation: int) -> Any:
        return [lambda: left + right, lambda: left - right, lambda: left * right][operation]()

    scores = np.array([-3.0, 0.5, 7.0])
    texts, expected = [], []
    for _ in range(60):
        text: Any = sql
        value: Any = scores
        for _ in range(5):
            number, operation = numbers[rng.integers(6)], int(rng.integers(3))
            other = rng.integers(5)
            if other == 0:
                text, value = grown(text, text, operation), grown(value, value, operation)
            elif other == 1:
                text, value = grown(number, text, operation), grown(number, value, operation)
            elif other == 2:
                text, value = text / 4.0, value / 4
            elif other == 3:
                inner, same = sql + 1.5, scores + 1.5
                text, value = grown(text, inner, operation), grown(value, same, operation)
            else:
                text, value = grown(text, number, operation), grown(value, number, operation)
        texts.append(text.text if isinstance(text, Sql) else repr(float(text)))
        expected.append(np.broadcast_to(value, 3))
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (s REAL)")
    database.executemany("INSERT INTO t VALUES (?)", [(score,) for score in scores.tolist()])
    found = database.execute(f"SELECT {', '.join(texts)} FROM t").fetchall()  # noqa: S608
    np.testing.assert_allclose(np.array(found, float).T, expected, rtol=1e-12, atol=1e-12)


def test_sql_leaves_out_what_changes_nothing() -> None:
    column = SqlTarget(DIALECTS["sqlite"]).column("s")
    for same in (
        column + 0.0,
        0.0 + column,
        column - 0.0,
        column * 1.0,
        1.0 * column,
        column / 1.0,
    ):
        assert same is column
    found = [column * -1.0, column * column, column - -2.0, column + -2.0, (column + 1.0) * -1.0]
    assert [each.text for each in found] == [
        "-+`s`",
        "POWER(+`s`, 2e0)",
        "+`s` + 2e0",
        "+`s` - 2e0",
        "-(+`s` + 1e0)",
    ]
    assert (1.0 / column).text == "1e0 / +`s`"
    assert (0.0 - column).text == "0e0 - +`s`"
    assert (column + 1.0 - (column - 1.0)).text == "+`s` + 1e0 - (+`s` - 1e0)"
    assert (column / (column * 2.0)).text == "+`s` / (2e0 * +`s`)"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_numbers_of_a_dialect_keep_every_digit(dialect: str) -> None:
    write = DIALECTS[dialect].number
    for number in (0.1, -2.0, 1 / 3, 1e22, 123456789.0, -5e-7, 1e100, 1e-119):
        text = write(number)
        assert float(text.removesuffix("D")) == number
        assert text.endswith("D") if dialect == "spark" else "e" in text
    # Products of smaller numbers underflow, which PostgreSQL refuses.
    for tiny in (1e-121, 1e-120, -1e-300):
        expected = 0.0 if dialect == "postgresql" else tiny
        assert float(write(tiny).removesuffix("D")) == expected


def level_map(size: int) -> tuple[cr.CalibrationMap, dict[str, list[str]]]:
    """Two nested columns with so many keys, and rows of known, half known and unknown levels."""
    rng = np.random.default_rng(size)
    first = size // 2
    keys = [(f"k{number:04d}",) for number in range(first)]
    keys += [(f"k{number % first:04d}", f"c{number}") for number in range(size - first)]
    numbers = [tuple(rng.normal(size=size).tolist()), tuple(rng.uniform(0.5, 2, size).tolist())]
    rest = ((0.1,) * size, (1,) * size, (1.0, 1.0), 0.7)
    term = LevelTerm(("a", "b"), tuple(keys), *numbers, *rest)
    found = [key if len(key) == 2 else (key[0], "?") for key in keys]
    found += [("?", "c0"), ("k", "?"), ("k0000", "c"), ("l", "c1")]
    return map_of(gaussian_map().curve, term), {
        "a": [k[0] for k in found],
        "b": [k[1] for k in found],
    }


@pytest.mark.parametrize("size", [6, 256, 257, 600])
@pytest.mark.parametrize("dialect", ["duckdb", "sqlite"])
def test_sql_finds_levels_however_many(dialect: str, size: int) -> None:
    fitted, columns = level_map(size)
    rows = len(columns["a"])
    scores = np.linspace(-2, 2, rows)
    table = list(zip(scores.tolist(), columns["a"], columns["b"], strict=True))
    text = to_sql(fitted, dialect)
    database = sqlite3.connect(":memory:") if dialect == "sqlite" else duckdb.connect()
    database.execute("CREATE TABLE t (score DOUBLE PRECISION, a VARCHAR, b VARCHAR)")
    if dialect == "sqlite":
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", table)
    else:
        frame = pl.DataFrame(table, schema=["score", "a", "b"], orient="row")
        database.register("frame", frame)
        database.execute("INSERT INTO t SELECT * FROM frame")
    found = [row[0] for row in database.execute(f"SELECT {text} FROM t").fetchall()]  # noqa: S608
    (term,) = fitted.terms
    assert isinstance(term, LevelTerm)
    nodes = []
    for key in zip(columns["a"], columns["b"], strict=True):
        known = [k for k in (key, key[:1]) if k in term.keys]
        nodes.append(term.keys.index(known[0]) + 1 if known else 0)
    intercepts, slopes = np.array([0.7, *term.intercepts]), np.array([1.0, *term.slopes])
    z = fitted.without_terms().log_odds(scores)
    expected = expit(intercepts[nodes] + slopes[nodes] * z)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    # Where a table is searched, there is no CASE per level.
    is_table = dialect == "duckdb" and size > 256
    assert (text.count("'k0001'") == 0) == is_table
    lazy = fitted.transform(pl.DataFrame({"score": scores, **columns}).lazy()).collect()
    np.testing.assert_allclose(lazy["probability"].to_numpy(), expected, rtol=1e-12)


def test_intercepts_alone_need_no_slope_in_sql() -> None:
    term = LevelTerm(("a",), (("x",), ("y",)), (0.5, -1.0), (1.0, 1.0), (0.1,) * 2, (1, 1), (1.0,))
    text = to_sql(map_of(gaussian_map().curve, term), "duckdb")
    assert text.count("WHEN 'x'") == 1
    assert "WHEN 'x' THEN 0.5e0 WHEN 'y' THEN -1e0 ELSE 0e0" in text
