"""Every map in every engine it is exported to gives what `predict` gives, at any score."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calibrank as cr
from calibrank.calibrators import Calibrator
from calibrank.export import to_json, to_sql, to_torch
from calibrank.export.vectors import hard_scores
from calibrank.maps.targets.target import largest_term
from tests import engines, plain_map
from tests.members import CALIBRATORS, Table, fit, name, probe, tables

every = pytest.mark.parametrize("member", CALIBRATORS, ids=name)
any_scores = st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20)
DOUBLE = [engines.duckdb, engines.sqlite, engines.onnx("float64"), engines.torch("float64")]
SINGLE = [engines.onnx("float32"), engines.torch("float32")]


def asked(fitted: cr.CalibrationMap, table: Table, more: list[float]) -> np.ndarray:
    """Ordinary scores, the hard ones of this map, those it was fitted on (ties) and any that Hypothesis thinks of."""
    return np.concatenate([probe(table.scores), hard_scores(fitted), table.scores, more])


@st.composite
def tables_with_ends(draw: st.DrawFn) -> Table:
    """Tables of any place; many real ones start or end at exactly 0, where differences of scores become tiny."""
    table = draw(tables())
    zero = draw(st.sampled_from([0.0, table.scores.min(), table.scores.max()]))
    return table._replace(scores=table.scores - zero)


def check(engine: engines.Engine, member: Calibrator, table: Table, more: list[float]) -> None:
    fitted = fit(member, table.scores, table.labels)
    scores = asked(fitted, table, more)
    np.testing.assert_allclose(
        engine(fitted, scores), fitted.predict(scores), rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("engine", DOUBLE, ids=lambda engine: engine.__name__)
@every
@settings(max_examples=10)
@given(table=tables_with_ends(), more=any_scores)
def test_every_engine_in_float64(
    engine: engines.Engine, member: Calibrator, table: Table, more: list[float]
) -> None:
    check(engine, member, table, more)


@every
@settings(max_examples=2)
@given(table=tables_with_ends(), more=any_scores)
def test_spark(member: Calibrator, table: Table, more: list[float]) -> None:
    check(engines.spark, member, table, more)


@pytest.fixture(scope="module")
def server() -> Iterator[engines.Server]:
    with engines.short_folder() as folder, engines.postgresql_server(folder) as started:
        yield started


@every
@settings(max_examples=5)
@given(table=tables_with_ends(), more=any_scores)
def test_postgresql(
    server: engines.Server, member: Calibrator, table: Table, more: list[float]
) -> None:
    check(
        lambda fitted, scores: server.query(to_sql(fitted, "postgresql"), scores.tolist()),
        member,
        table,
        more,
    )


@pytest.mark.parametrize("engine", SINGLE, ids=lambda engine: engine.__name__)
@every
@settings(max_examples=15)
@given(table=tables_with_ends(), more=any_scores)
def test_every_engine_in_float32(
    engine: engines.Engine, member: Calibrator, table: Table, more: list[float]
) -> None:
    fitted = fit(member, table.scores, table.labels)
    scores = asked(fitted, table, more).clip(-9.9e29, 9.9e29).astype(np.float32)
    size = largest_term(fitted) if isinstance(fitted, cr.maps.LogisticMap) else 1.0
    if size > 300:
        with pytest.raises(cr.DataError, match="must stay within 300"):
            engine(fitted, scores)
        return
    expected = fitted.predict(scores.astype(np.float64))
    given = engine(fitted, scores)
    assert given.dtype == np.float32
    np.testing.assert_allclose(given, expected, rtol=0, atol=2e-6 + 1e-7 * size)
    if isinstance(fitted, cr.maps.StepMap):
        np.testing.assert_array_equal(given, expected.astype(np.float32))


@every
@settings(max_examples=10)
@given(table=tables())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_gradients_are_right_and_finite_at_any_finite_score(
    dtype: str, member: Calibrator, table: Table
) -> None:
    torch = pytest.importorskip("torch")
    fitted = fit(member, table.scores, table.labels)
    if isinstance(fitted, cr.maps.LogisticMap) and largest_term(fitted) > 300:
        dtype = "float64"
    largest = float(np.finfo(dtype).max)
    hard = np.concatenate([hard_scores(fitted), [largest, -largest]]).astype(dtype)
    scores = torch.tensor(hard, requires_grad=True)
    given = to_torch(fitted, dtype)(scores)
    given.sum().backward()
    assert torch.isfinite(given).all()
    assert torch.isfinite(scores.grad).all()
    if isinstance(fitted, cr.maps.LogisticMap) and dtype == "float64":
        width = fitted.high - fitted.low
        middle = np.array(
            [fitted.low, fitted.high, *np.linspace(fitted.low - width, fitted.high + width, 20)]
        )
        scores = torch.tensor(middle, requires_grad=True)
        to_torch(fitted, dtype)(scores).sum().backward()
        step = 1e-6 * width  # the slope turns fast at the ends of a GammaGaussian
        numeric = (fitted.predict(middle + step) - fitted.predict(middle - step)) / (2 * step)
        scale = max(fitted.end_slopes) + 1 / width
        np.testing.assert_allclose(
            scores.grad.numpy() / scale, numeric / scale, rtol=1e-3, atol=1e-4
        )


@every
@settings(max_examples=10)
@given(table=tables())
def test_json_can_be_implemented_from_its_page(member: Calibrator, table: Table) -> None:
    document = json.loads(to_json(fit(member, table.scores, table.labels)))
    evaluate = plain_map.reader(document["map"])
    given = [evaluate(vector["score"]) for vector in document["vectors"]]
    expected = [vector["probability"] for vector in document["vectors"]]
    np.testing.assert_allclose(given, expected, rtol=1e-9, atol=1e-12)


def test_the_plain_reader_needs_nothing() -> None:
    text = Path(plain_map.__file__).read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if "import" in line] == [
        "import math",
        "from bisect import bisect_right",
    ]
