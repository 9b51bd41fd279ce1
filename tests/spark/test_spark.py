"""The Spark engine: a real cluster, bad rows, popularity, pipelines that are saved, native plans."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.propensity import Popularity
from tests.spark_session import missing, session

pytest.importorskip("pyspark")
pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def engine() -> Any:
    session()
    from calibrank import spark

    return spark


def frame(rows: list[tuple[Any, ...]], names: str) -> Any:
    return session().createDataFrame(rows, names)


def test_a_cluster_of_processes_even_when_one_is_killed(tmp_path: Path) -> None:
    if missing() or not Path("/proc").is_dir():
        pytest.skip(missing() or "finding executor processes needs /proc")
    rng = np.random.default_rng(0)
    scores, propensity = rng.normal(size=400_000), rng.uniform(0.2, 1, 400_000)
    labels = (rng.random(400_000) < 1 / (1 + np.exp(2 - scores))).astype(float)
    table = pa.table({"score": scores, "label": labels, "w": propensity})
    for part, (start, size) in enumerate([(0, 5), (5, 0), (5, 400_000)]):
        pq.write_table(
            table.slice(start, size), tmp_path / f"{part}.parquet", row_group_size=10_000
        )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "tests" / "cluster_job.py"), str(tmp_path)],
        capture_output=True, text=True, check=False, env=environment, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["processes"]["before"] == 2
    assert found["processes"]["killed"] == 1
    assert found["processes"]["replaced"] == 1
    expected = cr.Gaussian().fit(scores, cr.ips(labels, propensity))
    assert len(found["fitted"]) == 3
    for parameters in found["fitted"].values():
        assert parameters == pytest.approx(expected.parameters, rel=1e-9)
    some = cr.Gaussian().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    assert found["applied"] == pytest.approx(some.predict(scores).sum(), rel=1e-9)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [(1.0, 0.0, 0.5, 1.0), (None, 1.0, 0.5, 1.0)],
            "score must be finite and within +-1e30, got null in 1 row.",
        ),
        (
            [(float("nan"), 0.0, 0.5, 1.0)] * 2,
            "score must be finite and within +-1e30, got NaN in 2 rows. Drop",
        ),
        (
            [(-3.4e38, 0.0, 0.5, 1.0)],
            "score must be finite and within +-1e30, got -3.4E38 in 1 row.",
        ),
        ([(1.0, 0.5, 0.5, 1.0)], "label must be 0 or 1, got 0.5 in 1 row. Turn ratings into likes"),
        ([(1.0, None, 0.5, 1.0)], "label must be 0 or 1, got null"),
        ([(1.0, float("nan"), 0.5, 1.0)], "label must be 0 or 1, got NaN"),
        (
            [(1.0, 1.0, 0.0, 1.0)],
            "propensity (column 'w') must lie in (0, 1], got 0.0 in 1 row. Clip it",
        ),
        ([(1.0, 0.0, 1.5, 1.0)], "propensity (column 'w') must lie in (0, 1], got 1.5"),
        (
            [(1.0, 0.0, 0.5, -1.0)],
            "weight (column 'v') must be finite and not negative, got -1.0 in 1 row.",
        ),
        (
            [(1.0, 0.0, 0.5, float("inf"))],
            "weight (column 'v') must be finite and not negative, got Infinity",
        ),
        (
            [(1.0, 0.0, 0.5, 0.0)] * 3,
            "weights must not all be zero, got 3 rows that count for nothing.",
        ),
        ([(1.0, 3.0, 0.5, 0.0)], "label must be 0 or 1, got 3.0"),
        ([], "frame must hold at least one row, got none."),
    ],
)
def test_bad_rows_are_named(engine: Any, rows: list[tuple[Any, ...]], message: str) -> None:
    bad = frame(rows, "score double, label double, w double, v double")
    with pytest.raises(cr.DataError, match=re.escape(message)):
        engine.summarize(bad, propensity="w", weight="v")


def test_bad_columns_are_named(engine: Any) -> None:
    good = frame([(1.0, "yes")], "score double, label string")
    with pytest.raises(
        cr.DataError, match=r"must have a column 'x', got score, label. Name it, e.g. score='x'"
    ):
        engine.summarize(good, score="x")
    with pytest.raises(
        cr.DataError, match=r"label must be numbers, got column 'label' of type string. Cast it"
    ):
        engine.summarize(good)
    with pytest.raises(cr.DataError, match="frame must be a Spark DataFrame, got dict"):
        engine.summarize({"score": [1.0]})


def test_bad_probabilities_are_named(engine: Any) -> None:
    bad = frame([(1.5, 0), (0.5, 1)], "probability double, label int")
    with pytest.raises(
        cr.DataError, match=re.escape("probability must lie in [0, 1], got 1.5 in 1 row.")
    ):
        engine.evaluate(bad)
    with pytest.raises(cr.DataError, match="metrics must have distinct names, got ECE, ECE"):
        engine.evaluate(bad, [cr.ECE(10), cr.ECE(15)])


def test_what_is_not_a_score_gets_null_and_ansi_does_not_raise(engine: Any) -> None:
    odd = [None, float("nan"), float("inf"), -3.4e38, 1e30, -1e30, 0.0]
    given = session().createDataFrame([(value,) for value in odd], "`my.score` double")
    assert session().conf.get("spark.sql.ansi.enabled") == "true"
    scores, labels = [0.0, 1.0, 2.0, 3.0, 5.0], [0, 1, 0, 1, 1]
    for member in (cr.Gaussian(), cr.GammaGaussian(), cr.Beta(), cr.Isotonic(), cr.MinMax()):
        fitted = member.fit(scores, labels)
        found = [
            row[1] for row in engine.transform(fitted, given, score="my.score", to="p").collect()
        ]
        assert found[:4] == [None] * 4
        np.testing.assert_allclose(found[4:], fitted.predict([1e30, -1e30, 0.0]), atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 63, 64, 65, 127, 128, 129, 4_001])
def test_a_map_of_many_steps_is_right_without_a_udf(engine: Any, steps: int) -> None:
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(size=steps - 1))
    values = np.sort(rng.random(steps))
    record = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]).record
    from calibrank.maps import StepMap

    fitted = StepMap("Isotonic", tuple(scores), tuple(values), tuple(np.ones(steps)), record)
    asked = np.concatenate([scores[:300], np.nextafter(scores[:300], -np.inf), [-9, 9]])
    given = session().createDataFrame(pa.table({"row": np.arange(len(asked)), "score": asked}))
    applied = engine.transform(fitted, given.repartition(1))
    found = applied.orderBy("row").toArrow()["probability"].to_numpy()
    np.testing.assert_array_equal(found, fitted.predict(asked))
    assert "UDF" not in plan(applied)


def test_settings_of_the_session_are_put_back(engine: Any) -> None:
    settings = session().conf
    names = ("spark.sql.shuffle.partitions", "spark.sql.codegen.aggregate.map.vectorized.enable")
    before = [settings.get(name, None) for name in names]
    good = (
        session().range(200_000).selectExpr("sin(id) * id AS score", "cast(id % 2 AS int) AS label")
    )
    assert engine.summarize(good).rows == 200_000
    assert [settings.get(name, None) for name in names] == before
    with pytest.raises(cr.DataError, match="label must be 0 or 1, got 2"):
        engine.summarize(good.withColumn("label", good.label * 2))
    assert [settings.get(name, None) for name in names] == before


def test_scores_beyond_what_a_first_look_shows(engine: Any) -> None:
    rng = np.random.default_rng(0)
    calm, wild = rng.normal(size=140_000), rng.standard_cauchy(1_000) * 1e6
    for later in (wild, np.abs(wild), np.array([1e29]), np.array([-5e-324, 0.0, -0.0])):
        scores = np.concatenate([calm, later])
        labels = (rng.random(len(scores)) < 0.2).astype(np.int8)
        given = session().createDataFrame(pa.table({"score": scores, "label": labels})).coalesce(1)
        mine, theirs = engine.summarize(given), cr.Summary.of(scores + 0.0, labels)
        assert (mine.rows, mine.low, mine.high, mine.grid) == (
            theirs.rows,
            theirs.low,
            theirs.high,
            theirs.grid,
        )
        np.testing.assert_array_equal(mine.keys, theirs.keys)
        np.testing.assert_array_equal(mine.total, theirs.total)
        np.testing.assert_array_equal(mine.positive, theirs.positive)
    with pytest.raises(cr.DataError, match="score must be finite"):
        engine.summarize(
            session().createDataFrame(
                pa.table({"score": [*calm, np.nan], "label": [0, 1] * 70_000 + [0]})
            )
        )


def plan(given: Any) -> str:
    return given._jdf.queryExecution().executedPlan().toString()


def test_popularity_is_that_of_one_machine(engine: Any) -> None:
    rng = np.random.default_rng(0)
    items, labels = rng.integers(0, 40, 500) ** 2, (rng.random(500) < 0.3).astype(int)
    log = cr.Interactions(np.arange(500), items, labels)
    for power, clip in ((0.5, 0.1), (1.0, 0.3), (0.0, 0.2)):
        given = session().createDataFrame(pa.table({"it.em": items, "label": labels}))
        found = engine.popularity(given, item="it.em", power=power, clip=clip, to="w").toArrow()
        assert found.column_names == ["it.em", "label", "w"]
        order = np.argsort(found["it.em"].to_numpy(), kind="stable")
        expected = Popularity(power, clip).fit(log).predict(np.zeros(500), np.sort(items))
        np.testing.assert_allclose(found["w"].to_numpy()[order], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 0)], "labels must hold a positive to tell popularity, got none."),
        ([(None, 1)], "item must be ids (integers or strings), got null."),
        ([(1, 2)], "label must be 0 or 1, got 2 in 1 row."),
    ],
)
def test_popularity_of_bad_rows(engine: Any, rows: list[tuple[Any, ...]], message: str) -> None:
    with pytest.raises(cr.DataError, match=re.escape(message)):
        engine.popularity(frame(rows, "item int, label int"))


def test_pipelines_are_saved_and_loaded_whole(engine: Any, tmp_path: Path) -> None:
    from pyspark.ml import Pipeline, PipelineModel

    rng = np.random.default_rng(0)
    scores = rng.normal(size=300)
    labels, propensity = (rng.random(300) < 0.4).astype(int), rng.uniform(0.4, 1, 300)
    given = session().createDataFrame(pa.table({"s": scores, "y": labels, "w": propensity}))
    stage = engine.CalibrationEstimator(
        calibrator=cr.BBQ(bins=(3, 8)), scoreCol="s", labelCol="y", propensityCol="w", outputCol="p"
    )
    Pipeline(stages=[stage]).write().overwrite().save(str(tmp_path / "pipeline"))
    pipeline = Pipeline.load(str(tmp_path / "pipeline"))
    assert pipeline.getStages()[0].getCalibrator() == cr.BBQ(bins=(3, 8))
    model = pipeline.fit(given)
    model.write().overwrite().save(str(tmp_path / "model"))
    loaded = PipelineModel.load(str(tmp_path / "model"))
    expected = cr.BBQ(bins=(3, 8)).fit(scores, cr.ips(labels, propensity))
    assert loaded.stages[0].getMap().edges == expected.edges
    found = loaded.transform(given).toArrow()["p"].to_numpy()
    np.testing.assert_allclose(found, expected.predict(scores), rtol=1e-9)


def test_a_changed_model_is_refused(engine: Any, tmp_path: Path) -> None:
    model = engine.CalibrationModel(map=cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]))
    model.write().save(str(tmp_path / "model"))
    [part] = (tmp_path / "model" / "metadata").glob("part-*")
    changed = re.sub(r'(intercept\\": -?)\d', r"\g<1>7", part.read_text())
    assert changed != part.read_text()
    session().createDataFrame([(changed.strip(),)], "value string").coalesce(1).write.text(
        str(tmp_path / "bad/metadata")
    )
    with pytest.raises(ValueError, match="map must match its digest"):
        engine.CalibrationModel.load(str(tmp_path / "bad"))


def test_stages_say_what_is_missing(engine: Any) -> None:
    with pytest.raises(
        cr.DataError, match=r"map must be given, got none. Fit a CalibrationEstimator"
    ):
        engine.CalibrationModel().getMap()
    with pytest.raises(cr.DataError, match=r"calibrator must be one of MinMax, .* got 3"):
        engine.CalibrationEstimator(calibrator=3)
    with pytest.raises(cr.DataError, match="calibrator, settings must be those of Platt"):
        engine.CalibrationEstimator(calibrator='{"name": "Platt", "settings": {"bins": 3}}')
    stage = (
        engine.CalibrationEstimator()
        .setScoreCol("a")
        .setLabelCol("b")
        .setPropensityCol("c")
        .setWeightCol("d")
    )
    assert stage.setOutputCol("e").setCalibrator(cr.Platt()).getCalibrator() == cr.Platt()
    assert stage.copy().getOutputCol() == "e"


def test_without_pyspark_the_install_command() -> None:
    code = "import sys; sys.modules['pyspark'] = None\nimport calibrank.spark"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (
        "MissingExtraError: pyspark is not installed. Run: pip install 'calibrank[spark]'"
        in result.stderr
    )
