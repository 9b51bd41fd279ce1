"""Every map on every dataframe library gives what `predict` gives, and lazy frames stay lazy."""

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import calibrank as cr
from calibrank.calibrate import Calibrator
from tests.members import CALIBRATORS, Table, fit, name, probe, tables


def library(module: str) -> Any:
    return pytest.importorskip(module)


def pandas(scores: np.ndarray) -> tuple[Any, Any]:
    return library("pandas").DataFrame({"score": scores}), lambda frame: frame["p"].to_numpy()


def polars(scores: np.ndarray) -> tuple[Any, Any]:
    return library("polars").DataFrame({"score": scores}), lambda frame: frame["p"].to_numpy()


def polars_lazy(scores: np.ndarray) -> tuple[Any, Any]:
    pl = library("polars")

    def collect(frame: Any) -> np.ndarray:
        assert isinstance(frame, pl.LazyFrame)
        return frame.collect()["p"].to_numpy()

    return pl.LazyFrame({"score": scores}), collect


def pyarrow(scores: np.ndarray) -> tuple[Any, Any]:
    return library("pyarrow").table({"score": scores}), lambda frame: frame["p"].to_numpy()


def duckdb(scores: np.ndarray) -> tuple[Any, Any]:
    db = library("duckdb")
    table = library("pyarrow").table({"row": np.arange(len(scores)), "score": scores})
    connection = db.connect()

    def collect(frame: Any) -> np.ndarray:
        assert isinstance(frame, db.DuckDBPyRelation)
        result = frame.order("row").fetchnumpy()["p"]
        connection.close()
        return result

    return connection.from_arrow(table), collect


FRAMES = [pandas, polars, polars_lazy, pyarrow, duckdb]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
@settings(max_examples=5)
@given(table=tables(spread=1.0))
def test_transform_is_predict(frame: Any, member: Calibrator, table: Table) -> None:
    fitted = fit(member, table.scores, table.labels)
    scores = np.random.default_rng(0).permutation(probe(table.scores))
    native, collect = frame(scores)
    np.testing.assert_allclose(collect(fitted.transform(native, to="p")), fitted.predict(scores), rtol=1e-9, atol=1e-12)


def test_bad_frames() -> None:
    fitted = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    with pytest.raises(cr.DataError, match="must have a column 'score', got prediction"):
        fitted.transform(library("pandas").DataFrame({"prediction": [1.0]}))
    with pytest.raises(cr.DataError, match="frame must be a dataframe of"):
        fitted.transform([1.0, 2.0])


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_columns_of_frames_fit(module: str) -> None:
    frame = importlib.import_module(module).DataFrame({"score": [0.0, 1.0, 2.0, 3.0], "label": [0, 1, 0, 1]})
    fitted = cr.Platt().fit(frame["score"], frame["label"])
    assert fitted == cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
