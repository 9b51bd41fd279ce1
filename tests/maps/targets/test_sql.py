"""SQL in real engines: invalid scores, column types and names, many steps, underflow."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.export import DIALECTS, to_sql
from calibrank.maps import CalibrationMap, RescaleCurve
from calibrank.maps.basis import Linear, Log, Quadratic, Softplus
from tests import engines
from tests.maps.samples import logistic_map, map_of, min_max_map, step_map

Query = Callable[..., np.ndarray]
COLUMN_TYPES = {
    "duckdb": {"single": "FLOAT", "integer": "BIGINT", "decimal": "DECIMAL(9, 3)"},
    "sqlite": {"single": "REAL", "integer": "INTEGER", "decimal": "NUMERIC"},
    "spark": {"single": "FLOAT", "integer": "BIGINT", "decimal": "DECIMAL(9, 3)"},
    "postgresql": {"single": "real", "integer": "bigint", "decimal": "numeric"},
}


@pytest.fixture(params=["duckdb", "sqlite", "spark", "spark without ANSI", "postgresql"])
def engine(request: pytest.FixtureRequest) -> tuple[str, Query]:
    """A dialect, and a function that evaluates an expression of it over a column."""
    if request.param == "postgresql":
        return "postgresql", request.getfixturevalue("server").query
    if request.param == "spark without ANSI":

        def query_without_ansi(*arguments: Any, **options: Any) -> np.ndarray:
            return engines.spark_query(*arguments, **options, ansi=False)

        return "spark", query_without_ansi
    return request.param, getattr(engines, f"{request.param}_query")


def test_invalid_scores_give_null(engine: tuple[str, Query], fitted: CalibrationMap) -> None:
    dialect, query = engine
    scores = [None, math.inf, -math.inf, math.nan, 1.1e30, -1.1e30, 0.5]
    for tested in (fitted, step_map(5), min_max_map()):
        probabilities = query(to_sql(tested, dialect), scores)
        assert np.isnan(probabilities[:-1]).all()
        assert probabilities[-1] == pytest.approx(tested.predict(0.5), rel=1e-12)


@pytest.mark.parametrize("kind", ["single", "integer", "decimal"])
def test_columns_of_every_numeric_type_are_accepted(
    engine: tuple[str, Query], fitted: CalibrationMap, kind: str
) -> None:
    dialect, query = engine
    scores: list[Any] = [-3.5, -0.25, 0.125, 0.5, 1.75, 6.5]
    if kind == "integer":
        scores = [-4, -1, 0, 1, 2, 7]
    column = scores
    if kind == "decimal" and dialect == "spark":
        column = [Decimal(str(score)) for score in scores]
    on_unit_range = logistic_map(fitted.curve.basis, 0.0, 1.0)
    for tested in (fitted, on_unit_range, step_map(5), min_max_map()):
        probabilities = query(to_sql(tested, dialect), column, COLUMN_TYPES[dialect][kind])
        expected = tested.predict(np.array(scores, dtype=float))
        np.testing.assert_allclose(probabilities, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "column", ["a b", 'say "x"', "it`s", "x'; DROP TABLE t; --", "select", "Größe", "{}", "a\\b"]
)
def test_every_column_name_is_quoted(
    engine: tuple[str, Query], fitted: CalibrationMap, column: str
) -> None:
    dialect, query = engine
    expression = to_sql(fitted, dialect, score=column)
    probabilities = query(expression, [0.5], column=DIALECTS[dialect].name(column))
    np.testing.assert_allclose(probabilities, fitted.predict([0.5]), rtol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 300, 3_000])
def test_maps_of_many_steps_are_exact(engine: tuple[str, Query], steps: int) -> None:
    dialect, query = engine
    if dialect == "spark" and steps > 1_000:
        steps = 1_000  # Spark plans more steps slowly.
    tested = step_map(steps)
    edges = np.array(tested.curve.edges or (0.0,))[:: max(1, steps // 60)]
    scores = np.concatenate([edges, np.nextafter(edges, -np.inf), [-9.0, 9.0]])
    probabilities = query(to_sql(tested, dialect), scores.tolist())
    np.testing.assert_array_equal(probabilities, tested.predict(scores))


@pytest.mark.parametrize("low", [0.0, -3.0, -1e-200, 1e-310])
def test_no_product_underflows_near_an_end_at_0(server: engines.Server, low: float) -> None:
    tiny = np.array([1.0, 1e-20, 1e-100, 1e-101, 1e-116, 1e-117, 1e-160, 1e-200, 1e-308, 5e-324, 0])
    scores = np.concatenate([tiny, -tiny])
    for basis in (Quadratic(), Log(0.01), Softplus()):
        logistic = logistic_map(basis, low, low + 3.0)
        probabilities = server.query(to_sql(logistic, "postgresql"), scores.tolist())
        np.testing.assert_allclose(probabilities, logistic.predict(scores), rtol=1e-12)
    rescale = map_of(RescaleCurve(low, low + 3.0))
    probabilities = server.query(to_sql(rescale, "postgresql"), scores.tolist())
    np.testing.assert_allclose(probabilities, rescale.predict(scores), atol=1e-99)


def test_sums_keep_the_order_in_which_they_are_written() -> None:
    curve = logistic_map(Linear(), 1e6, 1e6 + 1).curve
    tested = map_of(replace(curve, intercept=0.1, coefficients=(1.0,)))
    scores = np.array([1e6 + 1.37, 1e6 - 0.37])
    np.testing.assert_allclose(engines.duckdb(tested, scores), tested.predict(scores), rtol=1e-14)


def test_a_misspelled_column_is_an_error_in_sqlite(fitted: CalibrationMap) -> None:
    with pytest.raises(Exception, match="no such column"):
        engines.sqlite_query(to_sql(fitted, "sqlite", score="scor"), [0.5])


def test_strings_give_null_in_sqlite(fitted: CalibrationMap) -> None:
    probabilities = engines.sqlite_query(to_sql(fitted, "sqlite"), ["0.5", "abc"], "TEXT")
    assert np.isnan(probabilities).all()


def test_step_and_rescale_maps_need_no_mathematical_functions() -> None:
    for tested in (step_map(9), min_max_map()):
        assert not re.search(r"\b(EXP|LN|POWER|ATANH)\b", to_sql(tested, "sqlite"))


def test_bigquery_expressions_use_only_functions_of_bigquery() -> None:
    keywords = {"CAST", "BETWEEN", "AND", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "FLOAT64"}
    functions = {"LEAST", "GREATEST", "EXP", "LN", "POWER", "ABS", "ATANH"}
    scores = np.random.default_rng(1).normal(size=200)
    labels = (scores + np.random.default_rng(2).normal(size=200)) > 0
    for member in (cr.Gaussian(), cr.GammaGaussian(), cr.Beta(), cr.Isotonic(), cr.MinMax()):
        text = to_sql(member.fit(scores, labels), "bigquery", score="a`b")
        assert "CAST(`a\\`b` AS FLOAT64)" in text
        without_names_and_numbers = re.sub(r"`a\\`b`|(?<!\w)[0-9.]+(e[+-]?[0-9]+)?", " ", text)
        assert set(re.findall(r"\w+", without_names_and_numbers)) <= keywords | functions
        assert text.count("(") == text.count(")")
        assert text.count("CASE") == text.count("END")


def test_an_expression_has_fewer_than_700_characters(fitted: CalibrationMap) -> None:
    assert len(to_sql(fitted, "duckdb")) < 700


def test_unknown_dialects_and_empty_names_are_errors(fitted: CalibrationMap) -> None:
    with pytest.raises(
        cr.DataError, match=r"dialect must be one of spark, duckdb, .*, got 'oracle'"
    ):
        to_sql(fitted, "oracle")
    with pytest.raises(cr.DataError, match="score must be a string, got ''"):
        to_sql(fitted, "duckdb", score="")
