"""Fits by group, summaries, tests and intervals keep their numbers; `numbers.py` has them."""

from typing import Any

import pytest

from tests.golden.numbers import MEMBERS, NUMBERS, compute_numbers, read_numbers


def assert_close(found: Any, expected: Any, place: str) -> None:
    """Equal structures whose numbers agree; pytest.approx does not look into nested ones."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), place
        for name, value in expected.items():
            assert_close(found[name], value, f"{place}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for index, value in enumerate(expected):
            assert_close(found[index], value, f"{place}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-10), place
    else:
        assert found == expected, place


@pytest.mark.parametrize("name", MEMBERS)
def test_numbers_are_unchanged(name: str) -> None:
    assert_close(compute_numbers(name), read_numbers()[name], name)


def test_no_frozen_number_is_left_over() -> None:
    assert set(read_numbers()) == set(MEMBERS)


def test_frozen_numbers_stay_small() -> None:
    assert NUMBERS.stat().st_size < 100_000
