"""Every map on every dataframe library gives what `predict` gives, and lazy frames stay lazy."""

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import calibrank as cr
from calibrank.calibrators import Calibrator
from calibrank.frames import summarize
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
    np.testing.assert_allclose(
        collect(fitted.transform(native, to="p")), fitted.predict(scores), rtol=1e-9, atol=1e-12
    )


def test_bad_frames() -> None:
    fitted = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    with pytest.raises(cr.DataError, match="must have a column 'score', got prediction"):
        fitted.transform(library("pandas").DataFrame({"prediction": [1.0]}))
    with pytest.raises(cr.DataError, match="frame must be a dataframe of"):
        fitted.transform([1.0, 2.0])


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_columns_of_frames_fit(module: str) -> None:
    frame = importlib.import_module(module).DataFrame(
        {"score": [0.0, 1.0, 2.0, 3.0], "label": [0, 1, 0, 1]}
    )
    fitted = cr.Platt().fit(frame["score"], frame["label"])
    assert fitted == cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])


def test_every_frame_and_stream_gives_one_summary() -> None:
    rng = np.random.default_rng(0)
    scores, weights = rng.normal(size=3_000), rng.exponential(size=3_000)
    labels, propensity = (rng.random(3_000) < 0.3).astype(float), rng.uniform(0.2, 1, 3_000)
    columns = {"s": scores, "y": labels, "w": propensity, "v": weights}
    expected = cr.Gaussian().fit(scores, cr.ips(labels, propensity, weights=weights))
    pl, arrow, db = library("polars"), library("pyarrow").table(columns), library("duckdb")
    with db.connect() as connection:
        frames = [
            library("pandas").DataFrame(columns),
            pl.DataFrame(columns),
            pl.LazyFrame(columns),
            arrow,
            arrow.to_batches(max_chunksize=700),
            iter(arrow.to_batches(max_chunksize=700)),
            (pl.DataFrame(columns).slice(start, 1_000) for start in (0, 1_000, 2_000)),
            connection.from_arrow(arrow),
        ]
        for frame in frames:
            summary = summarize(frame, score="s", label="y", propensity="w", weight="v")
            assert summary.rows == 3_000
            fitted = cr.Gaussian().fit_summary(summary)
            np.testing.assert_allclose(fitted.predict(scores), expected.predict(scores), rtol=1e-9)
    assert cr.LogLoss()(expected.predict(summary.scores), summary.evidence) == pytest.approx(
        cr.LogLoss()(expected.predict(scores), cr.ips(labels, propensity, weights=weights))
    )


def test_what_is_not_a_frame_is_refused() -> None:
    with pytest.raises(
        cr.DataError, match="frames must be dataframes or an iterator of them, got int"
    ):
        summarize(3)
    with pytest.raises(cr.DataError, match="got str"):
        summarize(["score"])
    with pytest.raises(cr.DataError, match="must have a column 'label', got score"):
        summarize(library("pandas").DataFrame({"score": [1.0]}))
