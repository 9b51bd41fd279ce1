"""Number the values of a segment column, over all batches of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from calibrank._internal.native import look_up
from calibrank._internal.segment_keys import LARGEST_TABLE, Encoded, distinct_numbers
from calibrank._internal.validation import Integers, Mask
from calibrank.tabular.batch import indices_of, numbers_of, to_arrow
from calibrank.tabular.ids import unify_ids
from calibrank.tabular.text_table import TextTable, take_texts


class SegmentCodes:
    """Codes that values keep from batch to batch; each value becomes a Python text once.

    A value that occurs as a number and as text has two codes with the same text.
    """

    def __init__(self) -> None:
        # Code 0 is a missing value.
        self.values: list[str | None] = [None]
        # Text: the values so far, and the code of each.
        self._texts: pa.Array | None = None
        self._text_codes: Integers = np.empty(0, dtype=np.int32)
        self._table_of_texts = TextTable()
        # Numbers: the code of each, and those from `_low` on in a table, -1 for unknown ones.
        self._numbers: dict[int, int] = {}
        self._low = 0
        self._table: Integers = np.empty(0, dtype=np.int32)

    def encode(self, column: pa.Array) -> Encoded:
        """The code of each row; the list of values grows as new ones are found."""
        if pa.types.is_dictionary(column.type):
            return Encoded(self._encode_dictionary(column), self.values)
        return Encoded(self._encode_numbers(numbers_of(column)), self.values)

    def _encode_dictionary(self, column: pa.DictionaryArray) -> Integers:
        places = self._places(column.dictionary)
        indices = indices_of(column)
        if not column.null_count:
            return self._codes_of_texts(places, indices)
        codes = np.zeros(len(column), dtype=np.int32)
        valid = _is_valid(column)
        codes[valid] = self._codes_of_texts(places, indices[valid])
        return codes

    def _codes_of_texts(self, places: Integers, indices: Integers) -> Integers:
        codes = look_up(indices, 0, self._text_codes[places])
        if len(codes) and codes.min() < 0:
            # A dictionary may have values that no row has: only those of rows get a code.
            new = places[distinct_numbers(indices[codes < 0])[0]]
            self._text_codes[new] = self._new_codes(len(new))
            self.values += _texts_at(cast("pa.Array", self._texts), new)
            codes = look_up(indices, 0, self._text_codes[places])
        return codes

    def _places(self, dictionary: pa.Array) -> Integers:
        """The place of each value of a dictionary among the known ones; new ones are appended."""
        if self._texts is not None:
            # Row groups often have the same dictionary, and comparing is faster than hashing.
            if self._texts[: len(dictionary)].equals(dictionary):
                return np.arange(len(dictionary))
            places = self._table_of_texts.find(dictionary)
            if places is not None:
                return self._with_new(dictionary, places)
        places, texts = self._unified(dictionary)
        self._know(texts)
        return places

    def _with_new(self, dictionary: pa.Array, places: Integers) -> Integers:
        """Append the values of a dictionary that were not found."""
        unknown = np.flatnonzero(places < 0)
        if len(unknown):
            new = take_texts(dictionary, unknown)
            self._know(pa.concat_arrays([self._texts, new]))
            places[unknown] = cast("Integers", self._table_of_texts.find(new))
        return places

    def _know(self, texts: pa.Array) -> None:
        self._texts = texts
        self._table_of_texts.update(texts)
        more = np.full(len(texts) - len(self._text_codes), -1, dtype=np.int32)
        self._text_codes = np.append(self._text_codes, more)

    def _unified(self, dictionary: pa.Array) -> tuple[Integers, pa.Array]:
        """As `_places`, and the known values with the new ones after them, by Arrow."""
        if self._texts is None:
            return np.arange(len(dictionary)), dictionary
        known, values = unify_ids([self._texts, dictionary])
        no_rows = to_arrow(np.empty(0, dtype=np.int32))
        each = to_arrow(np.arange(len(values), dtype=np.int32))
        before = pa.DictionaryArray.from_arrays(no_rows, known)
        chunks = [before, pa.DictionaryArray.from_arrays(each, values)]
        unified = pa.chunked_array(chunks).unify_dictionaries().chunk(1)
        return indices_of(unified), unified.dictionary

    def _encode_numbers(self, numbers: Integers) -> Integers:
        low, high = int(numbers.min()), int(numbers.max())
        if high - low >= LARGEST_TABLE:
            distinct, places = distinct_numbers(numbers)
            return np.array([self._code(value) for value in distinct.tolist()])[places]
        self._cover(low, high)
        codes = look_up(numbers, self._low, self._table)
        if codes.min() < 0:
            new = distinct_numbers(numbers[codes < 0])[0]
            self._table[new - self._low] = [self._code(value) for value in new.tolist()]
            codes = look_up(numbers, self._low, self._table)
        return codes

    def _cover(self, low: int, high: int) -> None:
        """Let the table of codes cover a range of numbers; where it would be too large, anew."""
        start, stop = self._low, self._low + len(self._table)
        if len(self._table) and start <= low and high < stop:
            return
        if not len(self._table) or max(high + 1, stop) - min(low, start) > LARGEST_TABLE:
            start = stop = low
            self._table = self._table[:0]
        larger = np.full(max(high + 1, stop) - min(low, start), -1, dtype=np.int32)
        self._low = min(low, start)
        larger[start - self._low : stop - self._low] = self._table
        self._table = larger

    def _code(self, number: int) -> int:
        """The code of a number; a new one is appended to the values."""
        code = self._numbers.setdefault(number, len(self.values))
        if code == len(self.values):
            self.values.append(str(number))
        return code

    def _new_codes(self, count: int) -> Integers:
        return np.arange(len(self.values), len(self.values) + count, dtype=np.int32)


def as_segments(column: pa.Array) -> Encoded:
    """Number the values of a single segment column."""
    return SegmentCodes().encode(column)


def join_segments(columns: Sequence[pa.Array]) -> Encoded:
    """Number the values of a segment column that comes in parts; only those that rows have."""
    codes = SegmentCodes()
    joined = np.concatenate([codes.encode(column).codes for column in columns])
    used, places = distinct_numbers(joined)
    # A number and the same number as text have two codes.
    numbers: dict[str | None, int] = {}
    found = [numbers.setdefault(codes.values[code], len(numbers)) for code in used.tolist()]
    return Encoded(np.array(found, dtype=np.intp)[places], list(numbers))


def _texts_at(dictionary: pa.Array, places: Integers) -> list[str]:
    """Values of a dictionary as text."""
    if len(places) > len(dictionary) // 8:
        values = dictionary.to_pylist()
        return [str(values[place]) for place in places.tolist()]
    return [str(dictionary[place].as_py()) for place in places.tolist()]


def _is_valid(column: pa.DictionaryArray) -> Mask:
    """Which rows have a value, from Arrow's bits: its functions are slow to load."""
    bits = np.frombuffer(column.indices.buffers()[0], dtype=np.uint8)
    first = column.indices.offset
    return np.unpackbits(bits, bitorder="little")[first : first + len(column)].astype(bool)
