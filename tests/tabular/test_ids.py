"""Ids are text: equal if their text is, in whichever type and file they are stored."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.data.table import load_table
from calibrank.tabular.arrow import compact_ids, names_like, parse_ids, unify_ids


def parsed(values: Any, *, from_csv: bool = False) -> list[Any]:
    return parse_ids(pa.array(values), "t, column x", from_csv=from_csv).to_pylist()


def test_ids_keep_their_text() -> None:
    long = [str(10**19 + row) for row in range(3)]
    assert parsed(long, from_csv=True) == long
    assert parsed(["007", "7", "7.0", "7.5", None], from_csv=True) == ["007", "7", "7", "7.5", None]
    assert parsed(["007", "7.0"]) == ["007", "7.0"]
    assert parsed([7.0, None, float("nan")]) == [7, None, None]
    assert parsed([Decimal("7.00"), None]) == [7, None]
    assert parsed(pa.array([2**63, 1], pa.uint64())) == [str(2**63), "1"]


@pytest.mark.parametrize(
    "column",
    [[[1]], [{"a": 1}], [1.5], [Decimal("7.5")], [2.0**53], [b"\xff"], pa.nulls(2)],
    ids=["list", "struct", "fraction", "decimal", "from 2^53 on", "bytes", "null"],
)
def test_other_columns_are_no_ids(column: Any) -> None:
    with pytest.raises(cr.DataError, match="column x must hold ids"):
        parsed(column)


def test_columns_of_different_types_are_compared_as_text() -> None:
    numbers, text = unify_ids([pa.array([7]), pa.array(["7", "007"])])
    assert numbers.to_pylist() == ["7"]
    assert text.to_pylist() == ["7", "007"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [(["7", "-8", "0"], "i"), (["7", "08"], "U"), (["7", "a"], "U"), ([str(2**63)], "U")],
)
def test_text_becomes_numbers_only_without_a_loss(text: list[str], kind: str) -> None:
    ids = compact_ids(pa.array(text, pa.large_string()))
    assert [str(value) for value in ids.to_pylist()] == text
    assert pa.types.is_integer(ids.type) == (kind == "i")


def test_ids_are_found_in_a_model_that_stores_them_in_another_type() -> None:
    assert names_like(np.array([7, 8]), np.array(["8", "08", "x"])).tolist() == [8, 9, 9]
    assert names_like(np.array(["7", "x"]), np.array([7, 8])).tolist() == ["7", "8"]


def test_a_log_and_its_test_set_may_store_ids_differently(tmp_path: Path) -> None:
    pq.write_table(pa.table({"user": [1, 2], "item": [1, 2]}), tmp_path / "log.parquet")
    (tmp_path / "test.csv").write_text("user,item\n1,02\n2,1\n")
    dataset = load_table(tmp_path / "log.parquet", tmp_path / "test.csv")
    assert dataset.users.names.tolist() == [1, 2]
    assert dataset.items.names.tolist() == ["02", "1", "2"]


def test_a_time_that_is_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,time\n1,1,5\n2,1,\n")
    with pytest.raises(cr.DataError, match=r"time must be finite, got nan at row 1"):
        load_table(tmp_path / "log.csv")
