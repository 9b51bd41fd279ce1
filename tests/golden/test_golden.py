"""Fits and metrics on a fixed table keep their numbers; `rows.py` says how to change them."""

from typing import Any

import pytest

from calibrank.registry import CALIBRATORS, EVIDENCE
from tests.golden.rows import ROWS, compute_rows, read_rows


@pytest.fixture(scope="module")
def computed() -> dict[str, dict[str, Any]]:
    return compute_rows()


@pytest.mark.parametrize("kind", EVIDENCE)
@pytest.mark.parametrize("name", CALIBRATORS)
def test_numbers_are_unchanged(computed: dict[str, Any], name: str, kind: str) -> None:
    frozen = read_rows()[f"{name}/{kind}"]
    row = computed[f"{name}/{kind}"]
    assert set(row) == set(frozen)
    for field, expected in frozen.items():
        # The absolute tolerance is for zeros, such as the standard error of a bounded coefficient.
        assert row[field] == pytest.approx(expected, rel=1e-9, abs=1e-12), field


def test_no_frozen_row_is_left_over(computed: dict[str, Any]) -> None:
    assert set(read_rows()) == set(computed)


def test_frozen_rows_stay_small() -> None:
    assert ROWS.stat().st_size < 200_000
