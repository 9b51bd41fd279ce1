"""A bad value in a column of a fit is refused, or counts as what it stands for.

It never becomes a level, a group or a number of its own: NaN among texts is not the text "nan".
The values are those of `test_bad_values.py`, in a list and in an array of objects.
"""

import math
import warnings
from functools import cache
from itertools import product

import numpy as np
import pytest

import calibrank as cr
from calibrank.errors import CalibrankError
from tests.laws import test_composition as law
from tests.laws.test_bad_values import NUMBERS, RANKS, TEXTS

ROWS = 150
BAD = 70  # the row with the bad value
SCORES, LABELS = law.SCORES[:ROWS], law.LABELS[:ROWS]
COLUMNS = {name: values[:ROWS] for name, values in law.COLUMNS.items()}
COLUMNS["query"] = np.repeat([f"q{number}" for number in range(ROWS // 10)], 10)
AT = {"country": ["NL"] * 3, "city": ["NL/1"] * 3, "price": [2.0] * 3, "rank": [3.0] * 3}
AT["shop"] = [1] * 3
PLATT = cr.Platt()
LEVELS = PLATT + cr.Level("country", "city")


def with_column(name, values):
    return {**COLUMNS, name: values}


@cache
def start():
    return (LEVELS + cr.Smooth("price")).fit(SCORES, LABELS, COLUMNS)


def fitted(model):
    return lambda columns: model.fit(SCORES, LABELS, columns)


def anchored(*terms):
    return lambda columns: cr.anchor(start(), SCORES, LABELS, columns, terms=terms)


def at_rate(columns):
    return cr.to_base_rate(start(), 0.1, SCORES, columns=columns)


# What reads a column, by its name.
READERS = {
    "level": ("country", fitted(PLATT + cr.Level("country"))),
    "outer level": ("country", fitted(LEVELS)),
    "inner level": ("city", fitted(LEVELS)),
    "joint level": ("shop", fitted(PLATT + cr.Level("shop") + cr.Smooth("price"))),
    "smooth": ("price", fitted(PLATT + cr.Smooth("price"))),
    "line": ("price", fitted(PLATT + cr.Smooth("price", knots=2))),
    "group": ("query", fitted(PLATT + cr.Group("query"))),
    "anchored level": ("city", anchored()),
    "anchored smooth": ("price", anchored()),
    "new level": ("shop", anchored(cr.Level("shop"))),
    "position": ("rank", anchored(cr.Position("rank", n=5))),
    "level at a rate": ("country", at_rate),
    "smooth at a rate": ("price", at_rate),
}


def column_with(name, value, form):
    """The column with one more value, as a list or as an array of objects."""
    values = COLUMNS[name].tolist()
    values[BAD] = value
    if form == "list":
        return values
    array = np.empty(ROWS, dtype=object)
    array[:] = values
    return array


def predictions(read, name, values):
    """Probabilities of the map, or None where the column is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read(with_column(name, values)).predict([0.0, 1.0, 2.0], AT)
        except CalibrankError:
            return None


# What is anchored reads columns as a fit does, and takes longer.
CASES = [
    *product(READERS, ["list"]),
    *product(["level", "inner level", "joint level", "smooth", "group"], ["array"]),
]


@pytest.mark.parametrize(("reader", "form"), CASES)
def test_a_bad_value_is_refused_or_counts_as_what_it_stands_for(reader, form) -> None:
    name, read = READERS[reader]
    kinds = {"price": NUMBERS, "rank": RANKS}.get(name, TEXTS)
    wrong = []
    for kind, (value, stands_for) in kinds.items():
        if value is stands_for and value is not None:
            continue  # a text is itself
        found = predictions(read, name, column_with(name, value, form))
        if found is None:
            continue
        if stands_for is None:
            wrong.append((kind, found))
            continue
        right = predictions(read, name, column_with(name, stands_for, form))
        if not np.allclose(found, right, rtol=1e-6):
            wrong.append((kind, found, right))
    assert not wrong


@pytest.mark.parametrize("reader", READERS)
def test_the_column_without_bad_values_is_read(reader) -> None:
    name, read = READERS[reader]
    found = predictions(read, name, COLUMNS[name].tolist())
    assert found is not None
    assert all(map(math.isfinite, found))


def test_whole_numbers_and_their_texts_are_one_level() -> None:
    """pandas reads both from one file where a chunk has other texts."""
    model = PLATT + cr.Level("shop") + cr.Smooth("price")
    mixed = [value if row % 2 else str(value) for row, value in enumerate(COLUMNS["shop"].tolist())]
    found = predictions(fitted(model), "shop", mixed)
    assert found == pytest.approx(predictions(fitted(model), "shop", COLUMNS["shop"]), rel=1e-9)
