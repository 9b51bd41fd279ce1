"""A lazy frame gives null where `predict` would refuse the score: an expression cannot raise."""

from typing import Any

import duckdb
import polars as pl
import pytest

import calibrank as cr
from calibrank.maps import CalibrationMap

SCORES = [0.3, float("nan"), float("inf"), -3.4e38, None, 0.7]
MAPS = [cr.Platt(), cr.Isotonic(), cr.Beta(), cr.Gamma()]


def in_duckdb(fitted: CalibrationMap) -> list[Any]:
    connection = duckdb.connect()
    connection.register("frame", pl.DataFrame({"score": pl.Series(SCORES, dtype=pl.Float64)}))
    relation = connection.sql("select * from frame")
    return [row[1] for row in fitted.transform(relation).fetchall()]


def in_polars(fitted: CalibrationMap) -> list[Any]:
    frame = pl.LazyFrame({"score": pl.Series(SCORES, dtype=pl.Float64)})
    return fitted.transform(frame).collect()["probability"].to_list()


@pytest.mark.parametrize("run", [in_duckdb, in_polars])
@pytest.mark.parametrize("calibrator", MAPS, ids=lambda each: each.name)
def test_invalid_scores_become_null(run: Any, calibrator: cr.Calibrator) -> None:
    fitted = calibrator.fit([0.1, 0.4, 0.2, 0.9, 0.5], [0, 1, 0, 1, 0])
    found = run(fitted)
    assert found[1:5] == [None] * 4
    assert found[0] == pytest.approx(fitted.predict([0.3])[0])
    assert found[5] == pytest.approx(fitted.predict([0.7])[0])
