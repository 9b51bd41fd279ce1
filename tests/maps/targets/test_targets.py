"""Exported maps where they are hard: missing scores, odd types and names, many steps, large offsets, fusing."""

import json
import math
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.export import DIALECTS, to_json, to_onnx, to_sql, to_torch
from calibrank.maps import FitRecord, LogisticMap, RescaleMap, StepMap
from calibrank.maps.basis import Linear, Log, Quadratic, Softplus
from calibrank.maps.format import parse
from tests import engines, plain_map

ROOT = Path(__file__).parents[3]
RECORD = FitRecord("naive", 4, 2.0, 4.0, exact=True)
Query = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def fitted() -> LogisticMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2_000)
    result = cr.Gaussian().fit(scores, rng.random(2_000) < 1 / (1 + np.exp(1 - 2 * scores)))
    assert isinstance(result, LogisticMap)
    return result


def staircase(steps: int) -> StepMap:
    rng = np.random.default_rng(steps)
    edges = np.sort(rng.normal(size=steps - 1))
    values = np.sort(rng.random(steps))
    return StepMap(
        "Isotonic", tuple(edges.tolist()), tuple(values.tolist()), (1.0,) * steps, RECORD
    )


@pytest.fixture(scope="module")
def server() -> Iterator[engines.Server]:
    with engines.short_folder() as folder, engines.postgresql_server(folder) as started:
        yield started


@pytest.fixture(params=["duckdb", "sqlite", "spark", "spark without ANSI", "postgresql"])
def engine(request: pytest.FixtureRequest) -> tuple[str, Query]:
    """A dialect, and what runs an expression of it over a column."""
    if request.param == "postgresql":
        return "postgresql", request.getfixturevalue("server").query
    if request.param == "spark without ANSI":
        return "spark", lambda *a, **k: engines.spark_query(*a, **k, ansi=False)
    return request.param, getattr(engines, f"{request.param}_query")


def test_what_is_no_score_is_null(engine: tuple[str, Query], fitted: LogisticMap) -> None:
    dialect, query = engine
    for tried in (fitted, staircase(5), cr.MinMax().fit([0.0, 1.0], [0, 1])):
        answer = query(
            to_sql(tried, dialect), [None, math.inf, -math.inf, math.nan, 1.1e30, -1.1e30, 0.5]
        )
        assert np.isnan(answer[:-1]).all()
        assert answer[-1] == pytest.approx(tried.predict([0.5])[0], rel=1e-12)


@pytest.mark.parametrize("kind", ["single", "integer", "decimal"])
def test_columns_of_other_types(engine: tuple[str, Query], fitted: LogisticMap, kind: str) -> None:
    dialect, query = engine
    types = {
        "duckdb": {"single": "FLOAT", "integer": "BIGINT", "decimal": "DECIMAL(9, 3)"},
        "sqlite": {"single": "REAL", "integer": "INTEGER", "decimal": "NUMERIC"},
        "spark": {"single": "FLOAT", "integer": "BIGINT", "decimal": "DECIMAL(9, 3)"},
        "postgresql": {"single": "real", "integer": "bigint", "decimal": "numeric"},
    }[dialect]
    scores: list[Any] = (
        [-4, -1, 0, 1, 2, 7] if kind == "integer" else [-3.5, -0.25, 0.125, 0.5, 1.75, 6.5]
    )
    given: list[Any] = scores
    if kind == "decimal" and dialect == "spark":
        from decimal import Decimal

        given = [Decimal(str(score)) for score in scores]
    unit = LogisticMap(
        "Gaussian", fitted.basis, 0.0, 1.0, -1.0, (1.0, 2.0), ((0.0,) * 3,) * 3, RECORD
    )
    for tried in (fitted, unit, staircase(5), cr.MinMax().fit([0.0, 1.0], [0, 1])):
        answer = query(to_sql(tried, dialect), given, types[kind])
        np.testing.assert_allclose(answer, tried.predict(np.array(scores, dtype=float)), rtol=1e-12)


@pytest.mark.parametrize(
    "column", ["a b", 'say "x"', "it`s", "x'; DROP TABLE t; --", "select", "Größe", "{}", "a\\b"]
)
def test_any_column_name_is_only_a_name(
    engine: tuple[str, Query], fitted: LogisticMap, column: str
) -> None:
    dialect, query = engine
    answer = query(
        to_sql(fitted, dialect, score=column), [0.5], column=DIALECTS[dialect].name(column)
    )
    np.testing.assert_allclose(answer, fitted.predict([0.5]), rtol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 300, 3_000])
def test_many_steps(engine: tuple[str, Query], steps: int) -> None:
    dialect, query = engine
    if dialect == "spark" and steps > 1_000:
        steps = 1_000  # it takes more, slowly
    tried = staircase(steps)
    edges = np.array(tried.edges or (0.0,))[:: max(1, steps // 60)]
    scores = np.concatenate([edges, np.nextafter(edges, -np.inf), [-9.0, 9.0]])
    np.testing.assert_array_equal(
        query(to_sql(tried, dialect), scores.tolist()), tried.predict(scores)
    )


@pytest.mark.parametrize("low", [0.0, -3.0, -1e-200, 1e-310])
def test_nothing_underflows_at_an_end_at_0(server: engines.Server, low: float) -> None:
    tiny = [1.0, 1e-20, 1e-100, 1e-101, 1e-116, 1e-117, 1e-160, 1e-200, 1e-308, 5e-324, 0.0]
    scores = np.array([*tiny, *(-score for score in tiny)])
    zeros = ((0.0,) * 3,) * 3
    for basis in (Quadratic(), Log(0.01), Softplus()):
        tried = LogisticMap("Gaussian", basis, low, low + 3.0, -1.0, (0.3, 0.7), zeros, RECORD)
        np.testing.assert_allclose(
            server.query(to_sql(tried, "postgresql"), scores.tolist()),
            tried.predict(scores),
            rtol=1e-12,
        )
    tried = RescaleMap("MinMax", low, low + 3.0, RECORD)
    np.testing.assert_allclose(
        server.query(to_sql(tried, "postgresql"), scores.tolist()),
        tried.predict(scores),
        atol=1e-99,
    )


def test_sums_are_added_in_the_order_they_are_written() -> None:
    tried = LogisticMap("Platt", Linear(), 1e6, 1e6 + 1, 0.1, (1.0,), ((0.0, 0.0),) * 2, RECORD)
    scores = np.array([1e6 + 1.37, 1e6 - 0.37])
    np.testing.assert_allclose(engines.duckdb(tried, scores), tried.predict(scores), rtol=1e-14)


def test_a_misspelt_column_is_an_error_in_sqlite(fitted: LogisticMap) -> None:
    with pytest.raises(Exception, match="no such column"):
        engines.sqlite_query(to_sql(fitted, "sqlite", score="scor"), [0.5])


def test_texts_are_no_scores_in_sqlite(fitted: LogisticMap) -> None:
    assert np.isnan(engines.sqlite_query(to_sql(fitted, "sqlite"), ["0.5", "abc"], "TEXT")).all()


def test_steps_and_rescaling_need_no_functions_of_sqlite() -> None:
    for tried in (staircase(9), cr.MinMax().fit([0.0, 1.0], [0, 1])):
        assert not re.search(r"\b(EXP|LN|POWER|ATANH)\b", to_sql(tried, "sqlite"))


def test_bigquery_is_written_in_its_own_words() -> None:
    functions = {"CAST", "BETWEEN", "AND", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "FLOAT64"}
    functions |= {"LEAST", "GREATEST", "EXP", "LN", "POWER", "ABS", "ATANH"}
    scores = np.random.default_rng(1).normal(size=200)
    labels = (scores + np.random.default_rng(2).normal(size=200)) > 0
    for member in (cr.Gaussian(), cr.GammaGaussian(), cr.Beta(), cr.Isotonic(), cr.MinMax()):
        text = to_sql(member.fit(scores, labels), "bigquery", score="a`b")
        assert "CAST(`a\\`b` AS FLOAT64)" in text
        words = re.sub(r"`a\\`b`|(?<!\w)[0-9.]+(e[+-]?[0-9]+)?", " ", text)
        assert set(re.findall(r"\w+", words)) <= functions
        assert text.count("(") == text.count(")")
        assert text.count("CASE") == text.count("END")


def test_sql_is_short(fitted: LogisticMap) -> None:
    assert len(to_sql(fitted, "duckdb")) < 700


def test_a_map_no_target_knows_is_told_which_do() -> None:
    class Odd(cr.CalibrationMap):
        kind = "odd"
        expression = _log_odds = _probabilities = _ends = _content = span = shape = None  # type: ignore[assignment]

    for call in (lambda m: to_sql(m, "duckdb"), to_onnx, to_torch):
        with pytest.raises(
            cr.DataError,
            match=r"must be one of logistic, step, rescale for .*, got odd\. Targets that take it: json",
        ):
            call(Odd())


def test_bad_arguments(fitted: LogisticMap) -> None:
    with pytest.raises(
        cr.DataError, match=r"dialect must be one of spark, duckdb, .*, got 'oracle'"
    ):
        to_sql(fitted, "oracle")
    with pytest.raises(cr.DataError, match="score must be a column's name, got ''"):
        to_sql(fitted, "duckdb", score="")
    for call in (to_onnx, to_torch):
        with pytest.raises(cr.DataError, match="dtype must be float32 or float64, got 'float16'"):
            call(fitted, "float16")
        narrow = cr.MinMax().fit([0.0, 1e-35], [0, 1])
        with pytest.raises(
            cr.DataError,
            match=r"at least 1e-30 wide for float32, got 1e-35\. Use dtype float64, sql or json",
        ):
            call(narrow)


@pytest.mark.parametrize(("package", "call"), [("onnx", to_onnx), ("torch", to_torch)])
def test_a_missing_extra(
    package: str, call: Any, fitted: LogisticMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        cr.MissingExtraError,
        match=rf"{package} is not installed. Run: pip install 'calibrank\[{package}\]'",
    ):
        call(fitted)


def onnx_session(model: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_takes_any_number_of_scores(dtype: str, fitted: LogisticMap) -> None:
    for tried in (fitted, staircase(1), staircase(300)):
        flat = onnx_session(to_onnx(tried, dtype))
        table = onnx_session(to_onnx(tried, dtype, shape=("rows", "items")))
        for rows in (0, 1, 7, 1000):
            scores = np.random.default_rng(rows).normal(size=rows).astype(dtype)
            expected = tried.predict(scores)
            tolerance = 1e-12 if dtype == "float64" else 1e-6
            np.testing.assert_allclose(
                flat.run(None, {"score": scores})[0], expected, atol=tolerance
            )
            wide = table.run(None, {"score": np.stack([scores, scores])})[0]
            np.testing.assert_allclose(wide, np.stack([expected, expected]), atol=tolerance)
        assert np.isnan(flat.run(None, {"score": np.array([np.nan], dtype=dtype)})[0]).all()


@pytest.mark.parametrize(
    "engine32", [engines.onnx("float32"), engines.torch("float32")], ids=lambda e: e.__name__
)
@pytest.mark.parametrize("offset", [0.0, 100.0, 1e6, -1e8])
def test_float32_keeps_what_the_score_has(engine32: engines.Engine, offset: float) -> None:
    rng = np.random.default_rng(0)
    spread = max(1.0, abs(offset) * 1e-6)
    exact = rng.normal(size=3_000) * spread + offset  # so that neither end is a float32
    labels = rng.random(3_000) < 1 / (1 + np.exp(-2 * (exact - offset) / spread))
    scores = exact.astype(np.float32)
    for member in (
        cr.Gaussian(),
        cr.Gamma(),
        cr.GammaGaussian(),
        cr.Platt(),
        cr.MinMax(),
        cr.Isotonic(),
    ):
        tried = member.fit(exact, labels)
        error = np.abs(engine32(tried, scores) - tried.predict(scores.astype(np.float64)))
        assert error.max() < 2e-6


def test_torch_stands_behind_a_head_and_teaches_it(fitted: LogisticMap) -> None:
    torch = pytest.importorskip("torch")
    for tried in (fitted, staircase(50)):
        head = torch.nn.Linear(3, 1)
        fused = torch.nn.Sequential(head, to_torch(tried))
        rows = torch.randn(8, 3)
        np.testing.assert_allclose(
            fused(rows).detach(), tried.predict(head(rows).detach().numpy()), atol=1e-6
        )
        fused(rows).sum().backward()
        assert torch.isfinite(head.weight.grad).all()
        assert bool((head.weight.grad != 0).any()) == (tried is fitted)
        assert not list(to_torch(tried).parameters())


def test_torch_takes_scores_of_any_precision_and_keeps_nan(fitted: LogisticMap) -> None:
    torch = pytest.importorskip("torch")
    scores = torch.linspace(-3, 3, 25)
    for tried in (fitted, staircase(50)):
        module = to_torch(tried)
        for other in (scores.bfloat16(), scores.half(), scores.double()):
            assert torch.equal(module(other), module(other.float()))
        assert torch.isnan(module(torch.tensor([torch.nan]))).all()
    assert torch.equal(to_torch(fitted).half()(scores), to_torch(fitted)(scores))
    with pytest.raises(AssertionError, match="must stay float32"):
        to_torch(staircase(50)).half()(scores)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:The TorchScript type system:UserWarning"
)
@pytest.mark.parametrize(
    "method", [cr.Gaussian(), cr.GammaGaussian(), cr.Beta(), cr.Isotonic(), cr.MinMax()]
)
def test_torch_exports_scripts_and_pickles(method: Any) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    tried = method.fit(rng.normal(size=500), rng.random(500) < 0.3)
    module, scores = to_torch(tried), torch.linspace(-5, 5, 77)
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(module, (torch.zeros(2),), dynamic_shapes=dynamic).module()
    again = pickle.loads(pickle.dumps(module))  # noqa: S301  (our own)
    for other in (
        exported,
        torch.jit.script(module),
        torch.jit.trace(module, (torch.zeros(2),)),
        again,
    ):
        assert torch.equal(other(scores), module(scores))


def test_the_pickled_module_needs_no_calibrank(fitted: LogisticMap, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "module.pickle").write_bytes(pickle.dumps(to_torch(fitted)))
    code = "import pickle, sys, torch; m = pickle.load(open('module.pickle', 'rb')); print(m(torch.tensor([0.5])).item(), 'calibrank' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    value, loaded = done.stdout.split()
    assert float(value) == pytest.approx(fitted.predict([0.5])[0], abs=1e-6)
    assert loaded == "False"


def test_the_vectors_of_the_page() -> None:
    documents = json.loads((ROOT / "docs" / "json-vectors.json").read_text(encoding="utf-8"))
    seen = set()
    for document in documents:
        evaluate, loaded = (
            plain_map.reader(document["map"]),
            parse("vectors", json.dumps(document["map"])),
        )
        scores = np.array([vector["score"] for vector in document["vectors"]])
        expected = [vector["probability"] for vector in document["vectors"]]
        assert len(expected) > 40
        np.testing.assert_allclose(
            [evaluate(score) for score in scores.tolist()], expected, rtol=1e-9, atol=1e-12
        )
        np.testing.assert_allclose(loaded.predict(scores), expected, rtol=1e-9, atol=1e-12)
        seen.add(document["map"]["map"].get("basis", {"name": loaded.kind})["name"])
    assert seen == {"linear", "quadratic", "log", "log-quadratic", "softplus", "step", "rescale"}


def run(*arguments: object, cwd: Path) -> tuple[int, str, str]:
    command = [sys.executable, "-W", "error", "-m", "calibrank", "export", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def test_the_command(fitted: LogisticMap, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    torch = pytest.importorskip("torch")
    fitted.save(tmp_path / "map.json")
    assert run("map.json", "--to", "sql", "--dialect", "spark", "--score", "s", cwd=tmp_path) == (
        0,
        to_sql(fitted, "spark", "s") + "\n",
        "",
    )
    assert run("map.json", "--to", "json", cwd=tmp_path)[1] == to_json(fitted)
    assert (
        run("map.json", "--to", "sql", "--dialect", "duckdb", "-o", "map.sql", cwd=tmp_path)[0] == 0
    )
    assert (tmp_path / "map.sql").read_text() == to_sql(fitted, "duckdb") + "\n"
    for dtype in ("float32", "float64"):
        code, _, words = run(
            "map.json", "--to", "onnx", "--dtype", dtype, "-o", f"{dtype}.onnx", cwd=tmp_path
        )
        assert code == 0, words
        assert (tmp_path / f"{dtype}.onnx").read_bytes() == to_onnx(
            fitted, dtype
        ).SerializeToString()
    code, said, words = run("map.json", "--to", "torch", "-o", "map.pt2", cwd=tmp_path)
    assert (code, said) == (0, "Wrote map.pt2\n"), words
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(tmp_path / "map.pt2").module()
    np.testing.assert_allclose(
        program(torch.linspace(-2, 2, 9)), fitted.predict(np.linspace(-2, 2, 9)), atol=1e-6
    )


def test_the_command_knows_every_dialect() -> None:
    from calibrank.registry import DIALECT_NAMES

    assert list(DIALECT_NAMES) == list(DIALECTS)


def test_the_command_says_what_is_missing(fitted: LogisticMap, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    fitted.save(tmp_path / "map.json")
    code, _, words = run("map.json", "--to", "sql", cwd=tmp_path)
    assert (code, words) == (
        2,
        "calibrank: --to sql must have a dialect, got none. Name one of: spark, duckdb, postgresql, sqlite, bigquery\n",
    )
    code, _, words = run("map.json", "--to", "onnx", cwd=tmp_path)
    assert (code, words) == (
        2,
        "calibrank: --to onnx must have a file to write, got none. Name one with -o.\n",
    )
    code, _, words = run("map.json", "--to", "sql", "--dialect", "oracle", cwd=tmp_path)
    assert code == 2
    assert "oracle" in words
