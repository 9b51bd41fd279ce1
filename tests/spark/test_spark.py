"""The Spark engine: a real cluster, invalid rows, popularity, saved pipelines, native plans."""

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
from calibrank.maps import StepCurve
from calibrank.propensity import Exposure
from calibrank.tables import Interactions
from tests.spark_session import missing, session

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def engine() -> Any:
    session()
    from calibrank import spark

    return spark


def frame(rows: list[tuple[Any, ...]], schema: str) -> Any:
    return session().createDataFrame(rows, schema)


def from_arrays(**columns: np.ndarray) -> Any:
    return session().createDataFrame(pa.table(columns))


def some_map() -> cr.CalibrationMap:
    return cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])


def test_a_cluster_gives_the_same_map_even_when_an_executor_is_killed(tmp_path: Path) -> None:
    if missing() or not Path("/proc").is_dir():
        pytest.skip(missing() or "finding executor processes needs /proc")
    rng = np.random.default_rng(0)
    rows = 150_000  # more than the 131,072 whose range the driver reads first
    scores = rng.normal(size=rows)
    propensity = rng.uniform(0.2, 1, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(2 - scores))).astype(float)
    table = pa.table({"score": scores, "label": labels, "w": propensity})
    for file, (start, size) in enumerate([(0, 5), (5, 0), (5, rows)]):
        path = tmp_path / f"{file}.parquet"
        pq.write_table(table.slice(start, size), path, row_group_size=10_000)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "tests" / "cluster_job.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["processes"] == {"before": 2, "killed": 1, "replaced": 1}
    expected = cr.Gaussian().fit(scores, cr.ips(labels, propensity))
    assert len(found["fitted"]) == 3
    for parameters in found["fitted"].values():
        assert parameters == pytest.approx(expected.parameters, rel=1e-9)
    applied = cr.Gaussian().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    assert found["applied"] == pytest.approx(applied.predict(scores).sum(), rel=1e-9)


SCORE = "score must be finite and within +-1e30"
PROPENSITY = "propensity (column 'w') must lie in (0, 1]"
WEIGHT = "weight (column 'v') must be finite and not negative"
NAN = float("nan")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1.0, 0.0, 0.5, 1.0), (None, 1.0, 0.5, 1.0)], f"{SCORE}, got null in 1 row."),
        ([(NAN, 0.0, 0.5, 1.0)] * 2, f"{SCORE}, got NaN in 2 rows. Drop padded"),
        ([(-3.4e38, 0.0, 0.5, 1.0)], f"{SCORE}, got -3.4E38 in 1 row."),
        ([(1.0, 0.5, 0.5, 1.0)], "label must be 0 or 1, got 0.5 in 1 row. Turn ratings into likes"),
        (
            [(1.0, None, 0.5, 1.0)],
            "label must be 0 or 1, got null in 1 row. Drop rows whose label is missing",
        ),
        (
            [(1.0, NAN, 0.5, 1.0)],
            "label must be 0 or 1, got NaN in 1 row. Drop rows whose label is missing",
        ),
        ([(1.0, 1.0, 0.0, 1.0)], f"{PROPENSITY}, got 0.0 in 1 row. Clip in the estimator"),
        ([(1.0, 0.0, 1.5, 1.0)], f"{PROPENSITY}, got 1.5"),
        ([(1.0, 0.0, NAN, 1.0)], f"{PROPENSITY}, got NaN"),
        ([(1.0, 0.0, 0.5, -1.0)], f"{WEIGHT}, got -1.0 in 1 row."),
        ([(1.0, 0.0, 0.5, float("inf"))], f"{WEIGHT}, got Infinity"),
        ([(1.0, 0.0, 0.5, NAN)], f"{WEIGHT}, got NaN"),
        ([(1.0, 0.0, 0.5, 0.0)] * 3, "weights must not all be zero, got 3 rows without weight."),
        ([(1.0, 3.0, 0.5, 0.0)], "label must be 0 or 1, got 3.0"),
        ([], "frame must hold at least one row, got none."),
    ],
)
def test_invalid_rows_raise_with_column_value_and_count(
    engine: Any, rows: list[tuple[Any, ...]], message: str
) -> None:
    invalid = frame(rows, "score double, label double, w double, v double")
    with pytest.raises(cr.DataError, match=re.escape(message)):
        engine.summarize(invalid, propensity="w", weight="v")


def test_missing_and_text_columns_raise(engine: Any) -> None:
    given = frame([(1.0, "yes")], "score double, label string")
    message = "must have a column 'x', got 'score', 'label'. Name it, e.g. score='x'"
    with pytest.raises(cr.DataError, match=message):
        engine.summarize(given, score="x")
    message = "label must be numbers, got column 'label' of type string. Cast it"
    with pytest.raises(cr.DataError, match=message):
        engine.summarize(given)
    message = "not have a column 'score' already, got 'score', 'label'"
    with pytest.raises(cr.DataError, match=message):
        engine.transform(some_map(), given, to="score")
    with pytest.raises(cr.DataError, match="frame must be a Spark DataFrame, got dict"):
        engine.summarize({"score": [1.0]})


def test_invalid_probabilities_and_equal_metric_names_raise(engine: Any) -> None:
    invalid = frame([(1.5, 0), (0.5, 1)], "probability double, label int")
    message = "probability must lie in [0, 1], got 1.5 in 1 row."
    with pytest.raises(cr.DataError, match=re.escape(message)):
        engine.evaluate(invalid)
    with pytest.raises(cr.DataError, match="metrics must have distinct names, got ECE, ECE"):
        engine.evaluate(invalid, [cr.ECE(), cr.ECE()])


@pytest.mark.parametrize(
    "calibrator",
    [cr.Gaussian(), cr.GammaGaussian(), cr.Beta(), cr.Isotonic(), cr.MinMax()],
    ids=lambda calibrator: calibrator.name,
)
def test_invalid_scores_get_null_even_in_ansi_mode(engine: Any, calibrator: cr.Calibrator) -> None:
    assert session().conf.get("spark.sql.ansi.enabled") == "true"
    scores = [None, NAN, float("inf"), -3.4e38, 1e30, -1e30, 0.0]
    given = frame([(score,) for score in scores], "`my.score` double")
    fitted = calibrator.fit([0.0, 1.0, 2.0, 3.0, 5.0], [0, 1, 0, 1, 1])
    applied = engine.transform(fitted, given, score="my.score", to="p")
    found = [row["p"] for row in applied.collect()]
    assert found[:4] == [None] * 4
    np.testing.assert_allclose(found[4:], fitted.predict([1e30, -1e30, 0.0]), atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 63, 64, 65, 127, 128, 129, 4_001])
def test_a_step_map_is_exact_and_needs_no_udf(engine: Any, steps: int) -> None:
    rng = np.random.default_rng(0)
    edges = np.sort(rng.normal(size=steps - 1))
    values = np.sort(rng.random(steps))
    record = some_map().record
    curve = StepCurve(tuple(edges), tuple(values), tuple(np.ones(steps)))
    fitted = cr.CalibrationMap(curve, record)
    scores = np.concatenate([edges[:300], np.nextafter(edges[:300], -np.inf), [-9, 9]])
    given = from_arrays(row=np.arange(len(scores)), score=scores)
    applied = engine.transform(fitted, given.repartition(1))
    found = applied.orderBy("row").toArrow()["probability"].to_numpy()
    np.testing.assert_array_equal(found, fitted.predict(scores))
    plan = applied._jdf.queryExecution().executedPlan().toString()
    assert "UDF" not in plan


def test_settings_of_the_session_are_restored(engine: Any) -> None:
    settings = session().conf
    names = ("spark.sql.shuffle.partitions", "spark.sql.codegen.aggregate.map.vectorized.enable")
    before = [settings.get(name, None) for name in names]
    columns = ("sin(id) * id AS score", "cast(id % 2 AS int) AS label")
    valid = session().range(200_000).selectExpr(*columns)
    assert engine.summarize(valid).rows == 200_000
    assert [settings.get(name, None) for name in names] == before
    with pytest.raises(cr.DataError, match="label must be 0 or 1, got 2"):
        engine.summarize(valid.withColumn("label", valid.label * 2))
    assert [settings.get(name, None) for name in names] == before


def test_scores_outside_the_range_of_the_first_rows(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrank.spark.aggregate._FIRST_ROWS", 70_000)
    rng = np.random.default_rng(0)
    first = rng.normal(size=72_000)
    extreme = rng.standard_cauchy(1_000) * 1e6
    for later in (extreme, np.abs(extreme), np.array([1e29]), np.array([-5e-324, 0.0, -0.0])):
        scores = np.concatenate([first, later])
        labels = (rng.random(len(scores)) < 0.2).astype(np.int8)
        found = engine.summarize(from_arrays(score=scores, label=labels).coalesce(1))
        expected = cr.Summary.of(scores + 0.0, labels)
        assert (found.rows, found.grid) == (expected.rows, expected.grid)
        assert (found.low, found.high) == (expected.low, expected.high)
        assert found.total.sum() == expected.total.sum()
        assert found.positive.sum() == expected.positive.sum()
        assert found.grid is not None
        if found.grid.placement.octaves > 39:  # over so many octaves Spark groups by roots
            assert len(found) == pytest.approx(len(expected), rel=0.01)
            continue
        np.testing.assert_array_equal(found.keys, expected.keys)
        np.testing.assert_array_equal(found.total, expected.total)
        np.testing.assert_array_equal(found.positive, expected.positive)
    invalid = from_arrays(score=np.append(first, np.nan), label=np.arange(72_001) % 2)
    with pytest.raises(cr.DataError, match="score must be finite"):
        engine.summarize(invalid)


def test_results_are_collected_without_arrow_too(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = frame([(0.1, 0), (0.5, 0), (0.5, 1), (0.9, 1)], "score double, label int")
    expected = engine.summarize(given)

    def no_arrow(_: Any) -> None:
        raise ImportError("pyarrow")

    monkeypatch.setattr(type(given), "toArrow", no_arrow)
    found = engine.summarize(given)
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(found.positive, expected.positive)
    np.testing.assert_array_equal(found.total, expected.total)


def test_without_pyspark_the_error_is_the_install_command() -> None:
    code = "import sys; sys.modules['pyspark'] = None\nimport calibrank.spark"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    message = "MissingExtraError: pyspark is not installed. Run: pip install 'calibrank[spark]'"
    assert message in result.stderr


def test_impressions_are_weighted_as_on_one_machine(engine: Any) -> None:
    rng = np.random.default_rng(5)
    rows = 3_000
    users = rng.integers(0, 40, rows)
    items = rng.zipf(1.5, rows).clip(max=30)
    labels = (rng.random(rows) < 0.3).astype(float)
    scores = rng.normal(size=rows)
    weights = rng.uniform(0.5, 2, rows)
    propensity = Exposure().fit(Interactions(users, items, labels)).predict(users, items)
    table = from_arrays(label=labels, score=scores, v=weights, w=propensity)
    for weight, given in ((None, None), ("v", weights)):
        evidence = cr.impressions(labels, propensity, weights=given)
        expected = cr.Gaussian().fit(scores, evidence)
        found = engine.fit(
            cr.Gaussian(), table, propensity="w", weight=weight, evidence=cr.impressions
        )
        assert found.record.evidence == "impressions"
        assert found.parameters == pytest.approx(expected.parameters, rel=1e-9)
        assert found.standard_errors == pytest.approx(expected.standard_errors, rel=1e-9)
    with pytest.raises(cr.DataError, match="evidence must be naive, ips or impressions"):
        engine.summarize(table, propensity="w", evidence=cr.positive_ips)


@pytest.mark.parametrize("kind", ["far from zero", "cauchy cubed", "outlier"])
def test_scores_that_a_grid_around_zero_resolves_badly(engine: Any, kind: str) -> None:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=100_000)
    scores = {
        "far from zero": normal + 1e6,
        "cauchy cubed": rng.standard_cauchy(100_000) ** 3,
        "outlier": np.append(normal, 1e20),
    }[kind]
    ranks = np.searchsorted(np.sort(scores), scores) / len(scores)
    labels = (rng.random(len(scores)) < ranks**2).astype(float)
    table = from_arrays(score=scores, label=labels)
    summary = engine.summarize(table)
    expected = cr.Summary.of(scores, labels)
    assert summary.grid == expected.grid
    if kind == "far from zero":
        np.testing.assert_array_equal(summary.keys, expected.keys)
    assert summary.rows == expected.rows
    assert summary.positive.sum() == expected.positive.sum()
    fitted = cr.Spline().fit_summary(summary)
    on_arrays = cr.Spline().fit_summary(expected)
    assert np.abs(fitted.predict(scores) - on_arrays.predict(scores)).mean() < 1e-4
