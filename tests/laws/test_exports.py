"""Every map in every engine it is exported to agrees with `predict`, at every score."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calibrank as cr
from calibrank._internal.rules import LARGEST_SCORE
from calibrank.curves import Calibrator
from calibrank.export import hard_scores, to_json, to_sql, to_torch
from calibrank.maps import LogisticCurve, StepCurve
from calibrank.maps.targets.target import LARGEST_FLOAT32_TERM
from tests import engines, plain_map
from tests.members import CALIBRATORS, Table, fit, name, probe, tables

every_calibrator = pytest.mark.parametrize("member", CALIBRATORS, ids=name)
any_scores = st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20)
FLOAT64_ENGINES = [
    engines.duckdb,
    engines.sqlite,
    engines.onnx("float64"),
    engines.torch("float64"),
]
FLOAT32_ENGINES = [engines.onnx("float32"), engines.torch("float32")]


def scores_to_test(fitted: cr.CalibrationMap, table: Table, more: list[float]) -> np.ndarray:
    """Ordinary scores, difficult ones for this map, those of the fit (ties), and random ones."""
    return np.concatenate([probe(table.scores), hard_scores(fitted), table.scores, more])


@st.composite
def tables_with_an_end_at_0(draw: st.DrawFn) -> Table:
    """Tables with any offset; many start or end at exactly 0, where differences become tiny."""
    table = draw(tables())
    zero = draw(st.sampled_from([0.0, table.scores.min(), table.scores.max()]))
    return table._replace(scores=table.scores - zero)


def check(engine: engines.Engine, member: Calibrator, table: Table, more: list[float]) -> None:
    fitted = fit(member, table.scores, table.labels)
    scores = scores_to_test(fitted, table, more)
    expected = fitted.predict(scores)
    np.testing.assert_allclose(engine(fitted, scores), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("engine", FLOAT64_ENGINES, ids=lambda engine: engine.__name__)
@every_calibrator
@settings(max_examples=10)
@given(table=tables_with_an_end_at_0(), more=any_scores)
def test_float64_engines_agree_with_predict(
    engine: engines.Engine, member: Calibrator, table: Table, more: list[float]
) -> None:
    check(engine, member, table, more)


@every_calibrator
@settings(max_examples=2)
@given(table=tables_with_an_end_at_0(), more=any_scores)
def test_spark_sql_agrees_with_predict(member: Calibrator, table: Table, more: list[float]) -> None:
    check(engines.spark, member, table, more)


@pytest.fixture(scope="module")
def server() -> Iterator[engines.Server]:
    with engines.short_folder() as folder, engines.postgresql_server(folder) as started:
        yield started


@every_calibrator
@settings(max_examples=5)
@given(table=tables_with_an_end_at_0(), more=any_scores)
def test_postgresql_agrees_with_predict(
    server: engines.Server, member: Calibrator, table: Table, more: list[float]
) -> None:
    def engine(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
        return server.query(to_sql(fitted, "postgresql"), scores.tolist())

    check(engine, member, table, more)


@pytest.mark.parametrize("engine", FLOAT32_ENGINES, ids=lambda engine: engine.__name__)
@every_calibrator
@settings(max_examples=15)
@given(table=tables_with_an_end_at_0(), more=any_scores)
def test_float32_engines_agree_with_predict_or_refuse(
    engine: engines.Engine, member: Calibrator, table: Table, more: list[float]
) -> None:
    fitted = fit(member, table.scores, table.labels)
    scores = scores_to_test(fitted, table, more).clip(-9.9e29, 9.9e29).astype(np.float32)
    if fitted.largest_term > LARGEST_FLOAT32_TERM:
        with pytest.raises(cr.DataError, match="must stay within 300"):
            engine(fitted, scores)
        return
    expected = fitted.predict(scores.astype(np.float64))
    probabilities = engine(fitted, scores)
    assert probabilities.dtype == np.float32
    tolerance = 2e-6 + 1e-7 * fitted.largest_term
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=tolerance)
    if isinstance(fitted.curve, StepCurve):
        np.testing.assert_array_equal(probabilities, expected.astype(np.float32))


@every_calibrator
@settings(max_examples=10)
@given(table=tables())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_gradients_are_finite_at_every_valid_score(
    dtype: str, member: Calibrator, table: Table
) -> None:
    torch = pytest.importorskip("torch")
    fitted = fit(member, table.scores, table.labels)
    if fitted.largest_term > LARGEST_FLOAT32_TERM:
        dtype = "float64"
    largest = 0.99 * LARGEST_SCORE
    extreme = np.concatenate([hard_scores(fitted), [largest, -largest]]).astype(dtype)
    scores = torch.tensor(extreme, requires_grad=True)
    probabilities = to_torch(fitted, dtype)(scores)
    probabilities.sum().backward()
    assert torch.isfinite(probabilities).all()
    assert torch.isfinite(scores.grad).all()


@every_calibrator
@settings(max_examples=10)
@given(table=tables())
def test_torch_gradients_agree_with_numeric_derivatives(member: Calibrator, table: Table) -> None:
    torch = pytest.importorskip("torch")
    fitted = fit(member, table.scores, table.labels)
    if not isinstance(fitted.curve, LogisticCurve):
        return
    low, high = fitted.curve.span
    width = high - low
    tested = np.concatenate([[low, high], np.linspace(low - width, high + width, 20)])
    scores = torch.tensor(tested, requires_grad=True)
    to_torch(fitted, "float64")(scores).sum().backward()
    # A larger step would be inaccurate at the ends of a GammaGaussian map, where the slope
    # changes fast.
    step = 1e-6 * width
    numeric = (fitted.predict(tested + step) - fitted.predict(tested - step)) / (2 * step)
    scale = max(fitted.curve.end_slopes) + 1 / width
    np.testing.assert_allclose(scores.grad.numpy() / scale, numeric / scale, rtol=1e-3, atol=1e-4)


@every_calibrator
@settings(max_examples=10)
@given(table=tables())
def test_a_reader_written_from_the_json_page_agrees(member: Calibrator, table: Table) -> None:
    document = json.loads(to_json(fit(member, table.scores, table.labels)))
    evaluate = plain_map.reader(document["map"])
    evaluated = [evaluate(vector["score"]) for vector in document["vectors"]]
    expected = [vector["probability"] for vector in document["vectors"]]
    np.testing.assert_allclose(evaluated, expected, rtol=1e-9, atol=1e-12)


def test_that_reader_imports_only_the_standard_library() -> None:
    text = Path(plain_map.__file__).read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if "import" in line] == [
        "import math",
        "from bisect import bisect_right",
    ]
