"""Every row is checked against the column rules; invalid rows raise an error or are counted."""

import re
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import calibrank as cr
from calibrank._internal.rules import COLUMN_RULES
from calibrank.tables import Index
from calibrank.tabular.files import Batch
from calibrank.tabular.rules import Rules, _range_is_valid

NAN = float("nan")
INF = float("inf")


def batch(first: int = 0, **columns: Any) -> Batch:
    arrays = [pa.array(column) for column in columns.values()]
    rows = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    return Batch(Path("log.parquet"), first, rows)


def valid_rows(role: str, values: Any) -> list[bool]:
    found = Rules(skip=True).valid_rows(batch(x=values), {role: "x"})
    return [True] * len(values) if found is None else found.tolist()


VALUES = {
    "score": ([0.0, -1e30, NAN, INF, -INF, 1e31, 1e30], [1, 1, 0, 0, 0, 0, 1]),
    "label": ([0.0, 1.0, 0.5, 2.0, -1.0, NAN], [1, 1, 0, 0, 0, 0]),
    "propensity": ([1e-30, 1.0, 0.0, -0.5, 1.5, NAN, INF], [1, 1, 0, 0, 0, 0, 0]),
    "probability": ([0.0, 1.0, -1e-9, 1.5, NAN], [1, 1, 0, 0, 0]),
    "weight": ([0.0, 1e30, -1.0, INF, NAN], [1, 1, 0, 0, 0]),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("role", VALUES)
def test_each_value_is_checked_by_the_rule_of_its_role(role: str, dtype: type) -> None:
    """In float32, too: a bound such as the smallest positive float64 would be 0 there."""
    values, expected = VALUES[role]
    typed = np.array(values).astype(dtype)
    assert valid_rows(role, typed) == [bool(valid) for valid in expected]
    for value, valid in zip(typed, expected, strict=True):  # alone, it is its batch's range
        assert valid_rows(role, np.array([value])) == [bool(valid)]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_integers_are_checked_as_they_are(dtype: type) -> None:
    assert valid_rows("label", np.array([0, 1, 2], dtype)) == [True, True, False]
    assert valid_rows("propensity", np.array([0, 1, 2], dtype)) == [False, True, False]
    assert valid_rows("weight", np.array([0, 100], dtype)) == [True, True]


def test_nulls_are_invalid_in_every_role() -> None:
    for role in COLUMN_RULES:
        assert valid_rows(role, pa.array([1, None, 1], pa.int8())) == [True, False, True]


def test_the_range_proves_validity_only_if_every_value_is_valid() -> None:
    rng = np.random.default_rng(0)
    proven = 0
    for _ in range(300):
        role = rng.choice(list(VALUES))
        values = rng.choice(VALUES[role][0], rng.integers(1, 4))
        if _range_is_valid(COLUMN_RULES[role], values):
            proven += 1
            assert COLUMN_RULES[role].holds(values).all()
    assert proven > 30
    assert valid_rows("label", [0.0, 0.5, 1.0]) == [True, False, True]
    assert not _range_is_valid(COLUMN_RULES["score"], np.empty(0))


def test_an_error_names_file_row_value_and_remedy() -> None:
    rows = batch(first=4_000, s=[0.5, NAN, INF])
    message = (
        r"log\.parquet, row 4001: s must be finite and within \+-1e30, got nan\. "
        r"Fix the table\. Or leave such rows out with on_bad_rows='skip'\."
    )
    with pytest.raises(cr.DataError, match=message):
        Rules(skip=False).valid_rows(rows, {"score": "s"})


def test_integer_labels_are_ratings_and_not_to_be_skipped() -> None:
    message = r"row 1: y must be 0 or 1, got 5\. Declare what is liked, for example"
    with pytest.raises(cr.DataError, match=message):
        Rules(skip=False).valid_rows(batch(y=[1, 5]), {"label": "y"})
    with pytest.raises(cr.DataError, match=r"got 0\.5\. Fix the table"):
        Rules(skip=False).valid_rows(batch(y=[1, 0.5]), {"label": "y"})


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, None, 0], r"got nan\. This label is missing\. Fix the table\. Or leave"),
        ([1.0, 4.5], r"got 4\.5\. Declare what is liked"),
        ([1, 3, 87], r"got 3\. Declare what is liked"),
    ],
)
def test_labels_that_are_something_else_are_named(labels: list[float], message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        Rules(skip=False).valid_rows(batch(y=labels), {"label": "y"})


def test_skipped_rows_are_counted_by_role_and_combined() -> None:
    rules = Rules(skip=True)
    rows = batch(s=[0.5, NAN, 1.0, 2.0], y=[0, 1, 7, 1], u=["a", "b", "c", None])
    valid = rules.valid_rows(rows, {"score": "s", "label": "y"}, ["u"])
    assert valid is not None
    assert valid.tolist() == [True, False, False, False]
    assert rules.skipped == {"score": 1, "label": 1, "u": 1}


def test_valid_batches_need_no_mask() -> None:
    rules = Rules(skip=False)
    rows = batch(s=[0.5, 1.0], y=[0.0, 1.0], u=["a", "b"])
    assert rules.valid_rows(rows, {"score": "s", "label": "y"}, ["u"]) is None
    assert rules.skipped == {}


def test_missing_ids_raise() -> None:
    with pytest.raises(cr.DataError, match=r"row 1: u must be an id, got none\. Fix the table"):
        Rules(skip=False).valid_rows(batch(u=["a", None]), {}, ["u"])


def test_workers_count_skipped_rows_together() -> None:
    rules = Rules(skip=True)
    rows = batch(s=[NAN, 1.0])

    def check() -> None:
        for _ in range(500):
            rules.valid_rows(rows, {"score": "s"})

    workers = [Thread(target=check) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert rules.skipped == {"score": 2_000}


def test_ids_that_a_model_does_not_know_are_invalid() -> None:
    index = Index.of(["ann", "bob"])
    rows = batch(first=10, u=["ann", "eve", None])
    some = np.array([True, True, False])
    known = Rules(skip=True).known_rows(rows, "u", index, some)
    assert known is not None
    assert known.tolist() == [True, False, True]
    message = r"row 11: u must be known to the model, got eve\."
    with pytest.raises(cr.DataError, match=message):
        Rules(skip=False).known_rows(rows, "u", index, some)
    assert Rules(skip=False).known_rows(batch(u=["bob"]), "u", index, None) is None


def test_a_column_of_text_is_offered_a_rule_where_it_is_the_label() -> None:
    remedy = "Correct it, or declare what is liked, such as label='y == \"yes\"'."
    with pytest.raises(cr.DataError, match=re.escape(remedy)):
        Rules(skip=False).valid_rows(batch(y=["no", "yes"]), {"label": "y"})
    with pytest.raises(cr.DataError, match="Convert it, or name another column"):
        Rules(skip=False).valid_rows(batch(y=["no", "yes"]), {"score": "y"})
