"""A new kind of curve runs on every target: it states its formula once; no target is changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.export import hard_scores, to_json, to_sql
from calibrank.maps import Curve
from calibrank.maps.format import CURVES
from calibrank.maps.targets.script import kernel_source
from calibrank.maps.targets.target import LARGEST_FLOAT32_TERM, Target, UnsupportedOperationError
from tests import engines
from tests.maps.samples import map_of
from tests.spark_session import session

ENGINES = [
    engines.duckdb,
    engines.sqlite,
    engines.onnx("float64"),
    engines.torch("float64"),
    engines.onnx("float32"),
    engines.torch("float32"),
]


@dataclass(frozen=True)
class PiecewiseCurve(Curve):
    """Log odds that are linear between knots and constant beyond."""

    kind: ClassVar[str] = "piecewise"

    knots: tuple[float, ...]
    knot_log_odds: tuple[float, ...]

    @property
    def description(self) -> str:
        return f"Log odds linear between {len(self.knots)} knots."

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.knots

    @property
    def largest_term(self) -> float:
        intercepts, slopes = self.pieces()
        return float(max(np.abs(intercepts).max(), np.abs(slopes).max()))

    def pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """Intercept and slope of each piece: log odds = intercept + slope * position."""
        width = self.knots[-1] - self.knots[0]
        positions = (np.array(self.knots) - self.knots[0]) / width
        slopes = np.diff(self.knot_log_odds) / np.diff(positions)
        return np.array(self.knot_log_odds)[:-1] - slopes * positions[:-1], slopes

    def log_odds_on(self, target: Target, score: Any) -> Any:
        position = target.place(score, self.knots[0], self.knots[-1] - self.knots[0])
        inside = target.maximum(target.minimum(position, 1.0), 0.0)
        intercepts, slopes = self.pieces()
        inner_knots = self.knots[1:-1]
        intercept = target.steps(score, inner_knots, tuple(intercepts.tolist()))
        slope = target.steps(score, inner_knots, tuple(slopes.tolist()))
        return slope * inside + intercept

    def interval_ends(self, scores: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        return self.probabilities(scores), self.probabilities(scores)


def piecewise_map(knots: int, offset: float = 0.0) -> cr.CalibrationMap:
    rng = np.random.default_rng(knots)
    positions = np.sort(rng.normal(size=knots)) + offset
    log_odds = np.sort(rng.normal(-2.0, 2.0, size=knots))
    return map_of(PiecewiseCurve(tuple(positions.tolist()), tuple(log_odds.tolist())))


def interpolated(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    """The same function without any target."""
    return expit(np.interp(scores, fitted.curve.knots, fitted.curve.knot_log_odds))


@pytest.mark.parametrize("knots", [2, 3, 80])
def test_arrays(knots: int) -> None:
    fitted = piecewise_map(knots)
    scores = hard_scores(fitted)
    expected = interpolated(fitted, scores)
    np.testing.assert_allclose(fitted.predict(scores), expected, rtol=1e-12)
    np.testing.assert_allclose(expit(fitted.log_odds(scores)), expected, rtol=1e-12)
    assert fitted.predict(0.3) == pytest.approx(interpolated(fitted, np.array(0.3)), rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
@pytest.mark.parametrize(("knots", "offset"), [(2, 0.0), (3, 0.0), (80, 0.0), (5, 1e5)])
def test_exports(engine: engines.Engine, knots: int, offset: float) -> None:
    fitted = piecewise_map(knots, offset)
    is_single = engine.__name__.endswith("float32")
    scores = hard_scores(fitted).clip(-9.9e29, 9.9e29)
    if is_single:
        scores = scores.astype(np.float32)
    expected = interpolated(fitted, scores.astype(np.float64))
    if is_single and fitted.largest_term > LARGEST_FLOAT32_TERM:
        with pytest.raises(cr.DataError, match="terms of log odds must stay within"):
            engine(fitted, scores)
        return
    tolerance = 2e-6 + 1e-7 * fitted.largest_term if is_single else 1e-9
    np.testing.assert_allclose(engine(fitted, scores), expected, atol=tolerance)


def test_postgresql(server: engines.Server) -> None:
    fitted = piecewise_map(5)
    scores = hard_scores(fitted)
    probabilities = server.query(to_sql(fitted, "postgresql"), scores.tolist())
    np.testing.assert_allclose(probabilities, interpolated(fitted, scores), atol=1e-9)


@pytest.mark.parametrize("knots", [3, 80])
def test_dataframes_and_tensors(knots: int) -> None:
    polars = pytest.importorskip("polars")
    torch = pytest.importorskip("torch")
    fitted = piecewise_map(knots)
    scores = hard_scores(fitted)
    expected = interpolated(fitted, scores)
    frame = fitted.transform(polars.DataFrame({"score": scores}).lazy()).collect()
    np.testing.assert_allclose(frame["probability"].to_numpy(), expected, rtol=1e-9)
    probabilities = fitted.predict(torch.from_numpy(scores))
    np.testing.assert_allclose(probabilities.numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("knots", [3, 80])
def test_spark_columns(knots: int) -> None:
    pytest.importorskip("pyspark")
    arrow = pytest.importorskip("pyarrow")
    from calibrank import spark

    fitted = piecewise_map(knots)
    scores = hard_scores(fitted)
    table = arrow.table({"row": np.arange(len(scores)), "score": scores})
    result = spark.transform(fitted, session().createDataFrame(table)).orderBy("row").toArrow()
    assert result.column_names == ["row", "score", "probability"]
    expected = interpolated(fitted, scores)
    np.testing.assert_allclose(result["probability"].to_numpy(), expected, rtol=1e-9)


def test_one_entry_in_the_format_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CURVES, PiecewiseCurve.kind, PiecewiseCurve)
    fitted = piecewise_map(4)
    fitted.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json") == fitted
    assert '"kind": "piecewise"' in to_json(fitted)


def test_the_checks_of_float32_ask_the_map() -> None:
    narrow = map_of(PiecewiseCurve((0.0, 1e-35), (-1.0, 1.0)))
    with pytest.raises(cr.DataError, match="at least 1e-30 wide for float32"):
        engines.torch("float32")(narrow, np.zeros(1))


def test_a_kernel_is_not_available_with_steps() -> None:
    with pytest.raises(UnsupportedOperationError):
        kernel_source(piecewise_map(3), single=True)
