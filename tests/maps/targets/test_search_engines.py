"""Expressions of search engines agree with `predict`, by an evaluator of their grammars.

Vespa, Elasticsearch and OpenSearch themselves do not run here.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import calibrank as cr
from calibrank.curves import Calibrator
from calibrank.export import hard_scores, to_painless, to_sql, to_vespa
from tests import engines
from tests.cli.running import run_here
from tests.members import CALIBRATORS, Table, fit, name, probe, tables
from tests.optional import pipeline_package
from tests.script_engine import Expression

EXPORTERS = {"vespa": to_vespa, "painless": to_painless}
every_calibrator = pytest.mark.parametrize("member", CALIBRATORS, ids=name)


@pytest.mark.parametrize("language", EXPORTERS)
@every_calibrator
@settings(max_examples=5)
@given(table=tables())
def test_expressions_agree_with_predict(language: str, member: Calibrator, table: Table) -> None:
    fitted = fit(member, table.scores, table.labels)
    scores = np.concatenate([probe(table.scores), hard_scores(fitted), table.scores])
    evaluate = Expression(language, EXPORTERS[language](fitted, "s"), "s")
    values = [evaluate(score) for score in scores.tolist()]
    # Neither language has log1p, which Beta needs where the sigmoid of the scores saturates.
    is_saturated = isinstance(member, cr.Beta) and np.abs(table.scores).max() > 10
    tolerance = 1e-3 if is_saturated else 1e-9
    np.testing.assert_allclose(values, fitted.predict(scores), rtol=tolerance, atol=1e-8)


@pytest.mark.parametrize("language", EXPORTERS)
def test_invalid_scores_get_0(language: str) -> None:
    fitted = cr.Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    evaluate = Expression(language, EXPORTERS[language](fitted, "s"), "s")
    assert [evaluate(score) for score in (math.nan, math.inf, -math.inf, 1.1e30)] == [0.0] * 4


def test_the_command_writes_every_language(tmp_path: Path) -> None:
    fitted = cr.Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    fitted.save(tmp_path / "map.json")
    for language, exporter in EXPORTERS.items():
        code, text, error = run_here(
            "export", tmp_path / "map.json", "--to", language, "--score", "s"
        )
        assert code == 0, error
        assert text.strip() == exporter(fitted, "s")


@pytest.mark.parametrize("dialect", ["snowflake", "trino"])
def test_new_dialects_agree_when_translated_to_duckdb(dialect: str) -> None:
    """Neither engine runs here: sqlglot reads their SQL, and DuckDB runs its translation."""
    sqlglot = pytest.importorskip("sqlglot")
    for fitted, scores in _examples():
        text = to_sql(fitted, dialect)
        translated = sqlglot.transpile(text, read=dialect, write="duckdb")[0]
        values = engines.duckdb_query(translated, [*scores.tolist(), None, math.nan, 1.1e30])
        np.testing.assert_allclose(values[:-3], fitted.predict(scores), rtol=1e-9, atol=1e-11)
        assert np.isnan(values[-3:]).all()
    if dialect == "trino":
        assert "ATANH" not in to_sql(cr.Beta().fit(*_rows()), dialect)


def test_clickhouse_agrees_with_predict() -> None:
    chdb = pipeline_package("chdb")
    for fitted, scores in _examples():
        given = [*scores.tolist(), math.nan, 1.1e30]
        texts = ", ".join("nan" if math.isnan(score) else repr(score) for score in given)
        expression = to_sql(fitted, "clickhouse", 'a"b\\c')
        rows = f'(SELECT arrayJoin([{texts}, NULL]) AS "a\\"b\\\\c")'
        query = f"SELECT {expression} FROM {rows}"  # noqa: S608  (what is tested)
        lines = str(chdb.query(query, "TabSeparated")).splitlines()
        values = [math.nan if line == "\\N" else float(line) for line in lines]
        np.testing.assert_allclose(values[:-3], fitted.predict(scores), rtol=1e-9, atol=1e-11)
        assert np.isnan(values[-3:]).all()


def _rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    scores = rng.normal(size=300)
    return scores, rng.random(300) < 1 / (1 + np.exp(-scores))


def _examples() -> list[tuple[cr.CalibrationMap, np.ndarray]]:
    scores, labels = _rows()
    members = (cr.Platt(), cr.Beta(), cr.Gamma(), cr.Spline(), cr.Isotonic(), cr.MinMax())
    return [(member.fit(scores, labels), probe(scores)) for member in members]
