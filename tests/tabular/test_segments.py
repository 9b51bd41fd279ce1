"""Codes of segment values over batches: the same value has the same text, in any type."""

import numpy as np
import pyarrow as pa
import pytest

from calibrank._internal import native
from calibrank.tabular.arrow import SegmentCodes, as_segments


def texts(codes: SegmentCodes, column: pa.Array) -> list[str | None]:
    encoded = codes.encode(column)
    return [encoded.values[code] for code in encoded.codes.tolist()]


def categories(values: list[str | None]) -> pa.DictionaryArray:
    return pa.array(values, pa.large_string()).dictionary_encode()


BATCHES = {
    "text": [categories(["b", "a", None]), categories(["c", "a"]), categories(["a"])],
    "numbers": [pa.array([7, 5, 7]), pa.array([-3, 5]), pa.array([900, 7])],
    "far apart": [pa.array([2**62, -(2**62)]), pa.array([1, 2**62]), pa.array([2**40, 1])],
    "ranges far apart": [pa.array([1, 2]), pa.array([2**40, 2**40 + 1]), pa.array([2, 2**40])],
    "one type after the other": [pa.array([7, 5]), categories(["5", "x"]), pa.array([5, 7, 8])],
    "numbers as text": [
        pa.array(["7", "5"], pa.large_string()),
        pa.array(["5", "x", None], pa.large_string()),
        pa.array(["007", "7"], pa.large_string()),
    ],
    "small integers": [pa.array([-128, 127], pa.int8()), pa.array([5, -128], pa.int8())],
}


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES)
def test_codes_stand_for_the_text_of_each_value(batches: list[pa.Array]) -> None:
    codes = SegmentCodes()
    for column in batches:
        expected = [None if value is None else str(value) for value in column.to_pylist()]
        assert texts(codes, column) == expected
    # Values are appended, so that codes of earlier batches stay.
    known = list(codes.values)
    for column in batches:
        texts(codes, column)
    assert codes.values == known


def test_a_slice_of_a_column_is_encoded_from_its_own_rows() -> None:
    column = categories(["a", None, "b", None, "a"])[1:4]
    encoded = as_segments(column)
    assert [encoded.values[code] for code in encoded.codes] == [None, "b", None]
    assert as_segments(pa.array([4, 5, 6])[1:]).values == [None, "5", "6"]


def test_values_that_no_row_has_get_no_code() -> None:
    dictionary = pa.array(["a", "b", "c"], pa.large_string())
    codes = SegmentCodes()
    for indices in ([2, 2], [0, 2]):
        column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), dictionary)
        assert texts(codes, column) == [["a", "b", "c"][index] for index in indices]
    assert codes.values == [None, "c", "a"]


def test_codes_are_small_integers() -> None:
    for column in (categories(["a", None]), pa.array([3, 4])):
        assert as_segments(column).codes.dtype == np.int32


@pytest.mark.parametrize("compiled", [True, False])
def test_dictionaries_in_any_order_keep_the_codes_of_their_texts(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of all lengths, the empty one among them; every batch has new ones."""
    monkeypatch.setattr(native, "READY", compiled and native.READY)
    rng = np.random.default_rng(0)
    known = ["", "é", "a" * 7, "a" * 8, "a" * 9, "b" * 40]
    known += [f"segment {number}" for number in range(5000)]
    codes = SegmentCodes()
    seen: dict[str | None, int] = {}
    for batch in range(6):
        chosen = rng.permutation(len(known))[: 700 * (batch + 1)]
        dictionary = pa.array([known[place] for place in chosen], pa.large_string())
        indices = pa.array(rng.integers(0, len(chosen), 3000), pa.int32())
        column = pa.DictionaryArray.from_arrays(indices, dictionary)[batch:]
        encoded = codes.encode(column)
        assert texts(codes, column) == column.to_pylist()
        for text, code in zip(column.to_pylist(), encoded.codes.tolist(), strict=True):
            assert seen.setdefault(text, code) == code
    assert len(set(codes.values)) == len(codes.values) == len(seen) + 1


def test_a_dictionary_may_be_a_part_of_an_array() -> None:
    whole = pa.array(["x", "b", "", "c"], pa.large_string())
    codes = SegmentCodes()
    for part in (whole[1:], whole[:2], whole[2:]):
        column = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int32()), part)
        assert texts(codes, column) == column.to_pylist()
