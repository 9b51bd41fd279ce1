"""Scores that `predict` refuses have no probability on any target: null, or NaN without nulls."""

from __future__ import annotations

import sqlite3
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import calibrank as cr
from calibrank.export import to_onnx, to_sql, to_torch

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=200)
LABELS = (RNG.random(200) < 1 / (1 + np.exp(-SCORES))).astype(float)
# Every kind of map: logistic, on each basis, step, rescale, and piecewise.
CALIBRATORS = [cr.Platt(), cr.Gamma(), cr.Beta(), cr.Isotonic(), cr.MinMax(), cr.Spline()]
MAPS = {calibrator.name: calibrator.fit(SCORES, LABELS) for calibrator in CALIBRATORS}

INVALID = [np.nan, np.inf, -np.inf, -3.4e38, 3.4e38, -2e30, 2e30]
VALID = [0.3, 0.0, -5.0, 1e29, -1e29]


def _sql(fitted: cr.CalibrationMap, scores: list[float]) -> list[Any]:
    rows = [(score,) for score in scores]
    query = f"SELECT {to_sql(fitted, 'duckdb', 'score')} FROM scores"  # noqa: S608  (our own text)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE scores (score DOUBLE)")
        connection.executemany("INSERT INTO scores VALUES (?)", rows)
        return [value for (value,) in connection.execute(query).fetchall()]


def _sqlite(fitted: cr.CalibrationMap, scores: list[float]) -> list[Any]:
    query = f"SELECT {to_sql(fitted, 'sqlite', 'score')} FROM scores"  # noqa: S608  (our own text)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE scores (score REAL)")
    connection.executemany("INSERT INTO scores VALUES (?)", [(score,) for score in scores])
    return [value for (value,) in connection.execute(query).fetchall()]


def _polars(fitted: cr.CalibrationMap, scores: list[float]) -> list[Any]:
    frame = fitted.transform(pl.LazyFrame({"score": scores}))
    values: list[Any] = frame.collect()["probability"].to_list()
    return values


def _duckdb_relation(fitted: cr.CalibrationMap, scores: list[float]) -> list[Any]:
    table = pl.DataFrame({"score": scores}).to_arrow()
    relation = fitted.transform(duckdb.from_arrow(table))
    return [value for _, value in relation.fetchall()]


def _onnx(fitted: cr.CalibrationMap, scores: list[float]) -> list[Any]:
    runtime = pytest.importorskip("onnxruntime")
    content = to_onnx(fitted, "float64").SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (values,) = session.run(None, {"score": np.array(scores)})
    return list(values.tolist())


def _torch(fitted: cr.CalibrationMap, scores: list[float]) -> list[Any]:
    torch = pytest.importorskip("torch")
    values: list[Any] = to_torch(fitted, "float64")(
        torch.tensor(scores, dtype=torch.float64)
    ).tolist()
    return values


def _tensor(fitted: cr.CalibrationMap, scores: list[float]) -> list[Any]:
    torch = pytest.importorskip("torch")
    values: list[Any] = fitted.predict(torch.tensor(scores, dtype=torch.float64)).tolist()
    return values


WITH_NULLS = [_sql, _sqlite, _polars, _duckdb_relation]
WITHOUT_NULLS = [_onnx, _torch, _tensor]


@pytest.mark.parametrize("target", WITH_NULLS + WITHOUT_NULLS)
@pytest.mark.parametrize("name", MAPS)
def test_an_invalid_score_has_no_probability(name: str, target: Any) -> None:
    fitted = MAPS[name]
    # SQLite stores a NaN as null, which is the same here.
    values = target(fitted, INVALID + VALID)
    for score, value in zip(INVALID, values, strict=False):
        if target in WITH_NULLS:
            assert value is None, score
        else:
            assert np.isnan(value), score
    np.testing.assert_allclose(values[len(INVALID) :], fitted.predict(VALID), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("score", INVALID)
def test_predict_refuses_it(score: float) -> None:
    with pytest.raises(cr.DataError, match="scores must be finite and within"):
        MAPS["Platt"].predict([score])
