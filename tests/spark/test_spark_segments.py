"""Fits by segment in Spark: the map of one machine, from sums that executors make."""

from typing import Any

import numpy as np
import pytest

import calibrank as cr
from tests.spark_session import session

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

ROWS = 150_000
COUNTRIES = np.array(["NL", "DE", 'it\'s "BE"', None], dtype=object)


@pytest.fixture(scope="module")
def columns() -> dict[str, Any]:
    """Continuous scores; countries and cities that differ; some of both are missing."""
    rng = np.random.default_rng(0)
    country = rng.integers(0, 4, ROWS)
    city = rng.integers(0, 6, ROWS)
    scores = np.sinh(rng.normal(size=ROWS))
    z = scores - 4 + 0.5 * country + rng.normal(0, 0.5, (4, 6))[country, city]
    labels = (rng.random(ROWS) < 1 / (1 + np.exp(-z))).astype(np.int64)
    return {
        "score": scores,
        "label": labels,
        "w": rng.uniform(0.2, 1, ROWS),
        "v": rng.integers(0, 3, ROWS).astype(float),
        "country": COUNTRIES[country],
        "city": np.where(city == 5, None, city.astype(object)),
    }


@pytest.fixture(scope="module")
def frame(columns: dict[str, Any]) -> Any:
    arrays = {name: pa.array(values) for name, values in columns.items()}
    return session().createDataFrame(pa.table(arrays)).repartition(3).cache()


CASES = {
    "labels": ({}, lambda rows: rows["label"]),
    "propensities": (
        {"propensity": "w", "weight": "v"},
        lambda rows: cr.ips(rows["label"], rows["w"], weights=rows["v"]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fit_by_segment_is_that_of_one_machine(
    columns: dict[str, Any], frame: Any, case: str
) -> None:
    from calibrank import spark

    options, evidence = CASES[case]
    by_city = cr.Segments(("country", "city"), base=cr.Platt())
    found = spark.fit(by_city, frame, **options)
    expected = by_city.fit(columns["score"], evidence(columns), columns)
    assert found.keys == expected.keys
    assert ("NL", "3") in found.keys
    assert len(found.keys) == 3 + 3 * 5
    assert [segment.rows for segment in found.segments] == [
        segment.rows for segment in expected.segments
    ]
    np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.slopes, expected.slopes, rtol=1e-6)
    errors = [[each.error for each in fitted.segments] for fitted in (found, expected)]
    np.testing.assert_allclose(*errors, rtol=1e-6)


def test_a_stage_of_a_pipeline_is_fitted_and_applied_by_segment(
    columns: dict[str, Any], frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrank import spark

    # Also where results are collected without Arrow.
    def no_arrow(_: Any) -> None:
        raise ImportError("pyarrow")

    stage = spark.CalibrationEstimator(calibrator=cr.Platt()).setSegmentCols(["country"])
    with monkeypatch.context() as patched:
        patched.setattr(type(frame), "toArrow", no_arrow)
        model = stage.fit(frame)
    expected = cr.Segments("country", base=cr.Platt()).fit(
        columns["score"], columns["label"], {"country": columns["country"]}
    )
    rows = model.transform(frame.limit(50)).collect()
    by = {"country": [row["country"] for row in rows]}
    wanted = expected.predict([row["score"] for row in rows], by)
    np.testing.assert_allclose([row["probability"] for row in rows], wanted, rtol=1e-6)


def test_segment_columns_must_exist_and_be_text_or_whole_numbers(frame: Any) -> None:
    from calibrank import spark

    with pytest.raises(cr.DataError, match="frame must have a column 'day'"):
        spark.fit(cr.Segments("day"), frame)
    with pytest.raises(cr.DataError, match="'w' must hold text or whole numbers, got type double"):
        spark.fit(cr.Segments("w"), frame)
    empty = frame.where("country is null")
    with pytest.raises(cr.DataError, match="'country' must have values, got only missing ones"):
        spark.fit(cr.Segments("country"), empty)


def test_rows_that_change_between_passes_raise(frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from calibrank import spark
    from calibrank.spark import aggregate

    summary = spark.summarize(frame.limit(100))
    monkeypatch.setattr(aggregate, "summarize", lambda *_, **__: summary)
    with pytest.raises(cr.DataError, match="must hold the same rows each time"):
        spark.fit(cr.Segments("country"), frame)
