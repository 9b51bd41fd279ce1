"""A bad value in a column is refused, has no probability, or is right, for every consumer.

It is never a number that looks like a probability and is not. The consumers, and the independent
reader of the saved document, are those of `test_composition.py`.
"""

import json
import math
import sqlite3
import warnings

import numpy as np
import pytest

import calibrank as cr
from calibrank.errors import CalibrankError, CalibrankWarning
from calibrank.maps import LevelTerm
from tests.laws import test_composition as law
from tests.plain_map import reader

# What each kind of column may hold by mistake, and the value that it may stand for: None if it
# stands for nothing, so that a probability would be wrong.
TEXTS = {
    "null": (None, None),
    "NaN": (math.nan, None),
    "infinite": (math.inf, None),
    "a number that is not whole": (1.5, None),
    "nearly a whole number": (1e-10, None),
    "a negative zero": (-0.0, "0"),
    "a number that stands for many": (2.0**53, None),
    "bytes": (b"NL", None),
    # DuckDB reads it from pandas as the text of the object.
    "an object": (object(), "<object>"),
    # One value in a list is that value.
    "a list": (["NL"], "NL"),
    "a whole number": (3, "3"),
    "a decimal": (3.0, "3"),
    "a boolean": (True, "true"),
    "an unknown level": ("??", "??"),
    "nothing": ("", ""),
    "a space after it": ("NL ", "NL "),
    "another case": ("nl", "nl"),
    "quotes": ("'; DROP TABLE rows; --\"`", "'; DROP TABLE rows; --\"`"),
    "a setting of Spark": ("${env:HOME}", "${env:HOME}"),
    "other scripts": ("中文\U0001f389é", "中文\U0001f389é"),
    "the character 0": ("a\0b", "a\0b"),
    "a long text": ("x" * 100_000, "x" * 100_000),
    "the text nan": ("nan", "nan"),
}
NUMBERS = {
    "null": (None, None),
    "NaN": (math.nan, None),
    "infinite": (math.inf, None),
    "minus infinite": (-math.inf, None),
    "a padding value": (-3.4e38, None),
    "too large": (1.1e30, None),
    "text": ("abc", None),
    "no text": ("", None),
    "a number as text": ("5", 5.0),
    # NumPy reads the digits where a graph's input is made.
    "bytes": (b"5", 5.0),
    "a list": ([5.0], 5.0),
    "complex": (5 + 0j, None),
    "a large integer": (10**400, None),
    "an integer": (5, 5.0),
    "a boolean": (True, 1.0),
}
RANKS = {"zero": (0, None), "below zero": (-1.0, None), **NUMBERS}
COLUMNS = {
    "score": NUMBERS,
    "country": TEXTS,
    "city": TEXTS,
    "price": NUMBERS,
    "age": NUMBERS,
    "rank": RANKS,
    # SQLite has no booleans: true is 1, which is a shop.
    "shop": {kind: value for kind, value in TEXTS.items() if kind != "a boolean"},
}
CELLS = {"no term": "assumed", "two levels + two smooth": "random labels at the top"}
CONSUMERS = {**law.CONSUMERS, **law.ENGINES}
# Of our own, and of engines that refuse a value of another type than the column's.
REFUSALS: tuple[type[Exception], ...] = (CalibrankError, sqlite3.Error)


def one_row(column, value):
    """A row of the fit, with another value in a column."""
    row = {name: values[1] for name, values in law.AT.items()}
    table = {}
    for name, each in {**row, column: value}.items():
        values = np.empty(1, dtype=object)
        values[0] = each
        is_plain = name != column or isinstance(value, float)
        table[name] = np.array([each]) if is_plain and name not in ("country", "city") else values
    return table


def answer(consumer, fitted, table):
    """The probability that a consumer gives, or None where it refuses the row or has none."""
    refusals = REFUSALS
    for package, name in (("duckdb", "Error"), ("polars.exceptions", "PolarsError")):
        module = pytest.importorskip(package)
        refusals = (*refusals, getattr(module, name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.ma.filled(np.ma.asarray(consumer(fitted, table)).astype(float), np.nan)
    except refusals:
        return None
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        # Raised where a table or a tensor is made of the value, and never by calibrank itself.
        where = error.__traceback__
        while where.tb_next is not None:
            where = where.tb_next
        if "src/calibrank" in where.tb_frame.f_code.co_filename:
            raise
        return None
    (probability,) = found.reshape(-1)
    return None if math.isnan(probability) else probability


@pytest.fixture(scope="module", params=CELLS)
def fitted(request):
    made = law.made(law.GAUSSIAN, request.param, "naive", CELLS[request.param])
    assert isinstance(made, cr.CalibrationMap), made
    return made


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_bad_value_is_refused_or_has_no_probability_or_is_right(fitted, consumer) -> None:
    probability = reader(json.loads(fitted.to_json()))
    wrong = []
    for column in ("score", *fitted.columns):
        for kind, (value, stands_for) in COLUMNS[column].items():
            table = one_row(column, value)
            found = answer(CONSUMERS[consumer], fitted, table)
            if found is None:
                continue
            right = math.nan
            if stands_for is not None:
                row = {name: values[0] for name, values in table.items()} | {column: stands_for}
                right = probability(float(row["score"]), row)
            if not math.isclose(found, right, rel_tol=1e-6, abs_tol=1e-9):
                wrong.append((column, kind, found, right))
    assert not wrong


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_valid_row_has_its_probability(fitted, consumer) -> None:
    """The law above would hold if nothing ever had a probability."""
    row = {name: values[1] for name, values in law.AT.items()}
    expected = reader(json.loads(fitted.to_json()))(float(row["score"]), row)
    found = answer(CONSUMERS[consumer], fitted, one_row("country", row["country"]))
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_column_that_is_absent_is_refused(fitted) -> None:
    for missing in fitted.columns:
        table = one_row("country", "NL")
        del table[missing]
        for name, consumer in CONSUMERS.items():
            # The test itself reads the columns of these.
            if name not in ("by_sqlite", "by_onnx", "by_torch"):
                assert answer(consumer, fitted, table) is None, name


def test_a_million_levels() -> None:
    count = 1_000_000
    keys = tuple([(f"k{number}",) for number in range(count)])
    intercepts = np.random.default_rng(0).normal(size=count)
    zeros = (0.0,) * count
    term = LevelTerm(
        ("country",), keys, tuple(intercepts.tolist()), (1.0,) * count, zeros, (1,) * count, (0.0,)
    )
    base = cr.Platt().fit(law.SCORES, law.LABELS)
    fitted = cr.CalibrationMap(base.curve, base.record, (term,))
    numbers = [0, 7, count - 1]
    scores = np.array([0.5, -1.0, 2.0])
    rows = {"country": [f"k{number}" for number in numbers]}
    expected = 1 / (1 + np.exp(-(base.log_odds(scores) + intercepts[numbers])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrankWarning)
        np.testing.assert_allclose(fitted.predict(scores, rows), expected, rtol=1e-12)
        alone = fitted.scalar()(0.5, {"country": "k0"})
    assert alone == pytest.approx(expected[0], rel=1e-12)
    assert fitted.level_index(rows)["country"].tolist() == [1, 8, count]
    table = {"score": scores, **{name: np.array(values) for name, values in rows.items()}}
    np.testing.assert_allclose(law.by_duckdb(fitted, table), expected, rtol=1e-9)
