"""Every map and every summary is the same for all dataframe libraries; lazy frames stay lazy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import calibrank as cr
from calibrank.curves import Calibrator
from calibrank.errors import ScoreShiftWarning
from calibrank.frames import summarize
from calibrank.tables import as_interactions
from tests.members import CALIBRATORS, Table, fit, name, probe, tables

# Each function below makes a frame of one library, and a function that reads its column "p".


def pandas(scores: np.ndarray) -> tuple[Any, Any]:
    frame = pytest.importorskip("pandas").DataFrame({"score": scores})
    return frame, lambda result: result["p"].to_numpy()


def polars(scores: np.ndarray) -> tuple[Any, Any]:
    frame = pytest.importorskip("polars").DataFrame({"score": scores})
    return frame, lambda result: result["p"].to_numpy()


def polars_lazy(scores: np.ndarray) -> tuple[Any, Any]:
    pl = pytest.importorskip("polars")

    def collect(result: Any) -> np.ndarray:
        assert isinstance(result, pl.LazyFrame)
        return result.collect()["p"].to_numpy()

    return pl.LazyFrame({"score": scores}), collect


def pyarrow(scores: np.ndarray) -> tuple[Any, Any]:
    frame = pytest.importorskip("pyarrow").table({"score": scores})
    return frame, lambda result: result["p"].to_numpy()


def duckdb(scores: np.ndarray) -> tuple[Any, Any]:
    database = pytest.importorskip("duckdb")
    columns = {"row": np.arange(len(scores)), "score": scores}
    table = pytest.importorskip("pyarrow").table(columns)
    connection = database.connect()

    def collect(result: Any) -> np.ndarray:
        assert isinstance(result, database.DuckDBPyRelation)
        probabilities = result.order("row").fetchnumpy()["p"]
        connection.close()
        return probabilities

    return connection.from_arrow(table), collect


FRAMES = [pandas, polars, polars_lazy, pyarrow, duckdb]


@pytest.mark.filterwarnings(
    "ignore::calibrank.errors.ScoreShiftWarning"
)  # probes reach far outside
@pytest.mark.parametrize("frame", FRAMES, ids=lambda function: function.__name__)
@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
@settings(max_examples=5)
@given(table=tables(spread=1.0))
def test_transform_gives_the_probabilities_of_predict(
    frame: Any, member: Calibrator, table: Table
) -> None:
    fitted = fit(member, table.scores, table.labels)
    scores = np.random.default_rng(0).permutation(probe(table.scores))
    native, collect = frame(scores)
    probabilities = collect(fitted.transform(native, to="p"))
    np.testing.assert_allclose(probabilities, fitted.predict(scores), rtol=1e-9, atol=1e-12)


def test_transform_refuses_frames_without_scores() -> None:
    fitted = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    frame = pytest.importorskip("pandas").DataFrame({"prediction": [1.0]})
    with pytest.raises(cr.DataError, match="must have a column 'score', got 'prediction'"):
        fitted.transform(frame)
    with pytest.raises(cr.DataError, match="frame must be a dataframe of"):
        fitted.transform([1.0, 2.0])


@pytest.mark.parametrize("frame", FRAMES, ids=lambda function: function.__name__)
def test_transform_overwrites_no_column(frame: Any) -> None:
    fitted = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    native, _ = frame(np.array([1.0]))
    with pytest.raises(
        cr.DataError, match=r"must not have a column 'score' already, got .*'score'\. .* to=\.\.\."
    ):
        fitted.transform(native, to="score")


def test_transform_warns_of_scores_unlike_those_of_the_fit() -> None:
    scores = np.random.default_rng(0).normal(size=2_000)
    fitted = cr.Platt().fit(scores, scores > np.random.default_rng(1).normal(size=2_000))
    for function in (pandas, polars, pyarrow):
        fitted.transform(function(scores[:500])[0])
        with pytest.warns(ScoreShiftWarning, match="do not look like") as found:
            fitted.transform(function(scores + 3)[0])
        assert found[0].filename == __file__
    fitted.transform(polars_lazy(scores + 3)[0])
    fitted.predict(scores + 3)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_frames_fit_like_lists(library: str) -> None:
    columns = {"score": [0.0, 1.0, 2.0, 3.0], "label": [0, 1, 0, 1]}
    frame = pytest.importorskip(library).DataFrame(columns)
    fitted = cr.Platt().fit(frame["score"], frame["label"])
    assert fitted == cr.Platt().fit(columns["score"], columns["label"])


def test_every_frame_and_iterator_of_frames_gives_the_same_summary() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "s": rng.normal(size=3_000),
        "y": (rng.random(3_000) < 0.3).astype(float),
        "w": rng.uniform(0.2, 1, 3_000),
        "v": rng.exponential(size=3_000),
    }
    evidence = cr.ips(columns["y"], columns["w"], weights=columns["v"])
    expected = cr.Summary.of(columns["s"], evidence)
    pl = pytest.importorskip("polars")
    arrow = pytest.importorskip("pyarrow").table(columns)
    with pytest.importorskip("duckdb").connect() as connection:
        frames = [
            pytest.importorskip("pandas").DataFrame(columns),
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
            assert (summary.rows, summary.kind) == (3_000, "ips")
            np.testing.assert_array_equal(summary.scores, expected.scores)
            for mine, theirs in zip(summary.masses, expected.masses, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_a_metric_of_a_summary_is_that_of_its_rows() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=3_000)
    labels = rng.random(3_000) < 1 / (1 + np.exp(-scores))
    evidence = cr.naive(labels, weights=rng.exponential(size=3_000))
    fitted = cr.Gaussian().fit(scores, evidence)
    summary = cr.Summary.of(scores, evidence)
    of_summary = cr.LogLoss()(fitted.predict(summary.scores), summary.evidence)
    assert of_summary == pytest.approx(cr.LogLoss()(fitted.predict(scores), evidence))


def test_empty_batches_add_nothing() -> None:
    arrow = pytest.importorskip("pyarrow").table({"score": [0.1, 0.9], "label": [0, 1]})
    summary = summarize([arrow.slice(0, 0), arrow, arrow.slice(2, 0)])
    assert summary.rows == 2


def test_summarize_refuses_what_is_not_a_frame() -> None:
    expected = "frames must be dataframes or an iterator of them, got int"
    with pytest.raises(cr.DataError, match=expected):
        summarize(3)
    with pytest.raises(cr.DataError, match="got str"):
        summarize(["score"])
    frame = pytest.importorskip("pandas").DataFrame({"score": [1.0]})
    with pytest.raises(cr.DataError, match="must have a column 'label', got 'score'"):
        summarize(frame)


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pytest.importorskip("pandas").DataFrame([[1.0, 0, 1]], columns=["score", "x", "x"])
    fitted = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    for read in (fitted.transform, summarize, as_interactions):
        with pytest.raises(cr.DataError, match="must have columns of different names, got 'x'"):
            read(frame)
