"""Number the values of a segment column, over all batches of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from calibrank._internal.native import look_up
from calibrank._internal.segment_keys import LARGEST_TABLE, Encoded, distinct_numbers
from calibrank._internal.validation import Integers
from calibrank.tabular.batch import numbers_of, to_arrow


class SegmentCodes:
    """Codes that values keep from batch to batch; each value becomes a Python text once."""

    def __init__(self) -> None:
        # Code 0 is a missing value.
        self.values: list[str | None] = [None]
        self._codes: dict[str, int] = {}
        # The texts that were found in dictionaries, and the code of each.
        self._texts: pa.Array = pa.nulls(0, pa.large_string())
        self._text_codes: Integers = np.empty(0, dtype=np.int32)
        # The codes of whole numbers from `_low` on, -1 for unknown ones.
        self._low = 0
        self._table: Integers = np.empty(0, dtype=np.int32)

    def encode(self, column: pa.Array) -> Encoded:
        """The code of each row; the list of values grows as new ones are found."""
        if pa.types.is_dictionary(column.type):
            return Encoded(self._encode_texts(column), self.values)
        return Encoded(self._encode_numbers(numbers_of(column)), self.values)

    def _encode_texts(self, column: pa.DictionaryArray) -> Integers:
        import pyarrow.compute as pc  # noqa: PLC0415  (slow to load)

        # A dictionary may have values that no row has: only those of rows get a code. Its end
        # stands for missing values.
        end = len(column.dictionary)
        indices = column.indices.fill_null(end) if column.null_count else column.indices
        used, places = distinct_numbers(numbers_of(indices))
        present = used[used < end]
        texts = column.dictionary.take(to_arrow(present)).cast(pa.large_string())
        found = numbers_of(pc.index_in(texts, value_set=self._texts).fill_null(-1))
        codes = np.zeros(len(used), dtype=np.int32)
        codes[: len(present)][found >= 0] = self._text_codes[found[found >= 0]]
        if (found < 0).any():
            new = texts.take(to_arrow(np.flatnonzero(found < 0)))
            new_codes = np.array([self._code(text) for text in new.to_pylist()], dtype=np.int32)
            codes[: len(present)][found < 0] = new_codes
            self._texts = pa.concat_arrays([self._texts, new])
            self._text_codes = np.append(self._text_codes, new_codes)
        return look_up(places, 0, codes)

    def _encode_numbers(self, numbers: Integers) -> Integers:
        low, high = int(numbers.min()), int(numbers.max())
        if high - low >= LARGEST_TABLE:
            distinct, places = distinct_numbers(numbers)
            return np.array([self._code(str(value)) for value in distinct.tolist()])[places]
        self._cover(low, high)
        codes = look_up(numbers, self._low, self._table)
        if codes.min() < 0:
            new = distinct_numbers(numbers[codes < 0])[0]
            self._table[new - self._low] = [self._code(str(value)) for value in new.tolist()]
            codes = look_up(numbers, self._low, self._table)
        return codes

    def _cover(self, low: int, high: int) -> None:
        """Let the table of codes cover a range of numbers; where it would be too large, anew."""
        known = self._low, self._low + len(self._table)
        start, end = min(low, known[0]), max(high + 1, known[1])
        if (start, end) == known:
            return
        is_extended = len(self._table) > 0 and end - start <= LARGEST_TABLE
        if not is_extended:
            start, end = low, high + 1
        table = np.full(end - start, -1, dtype=np.int32)
        if is_extended:
            table[known[0] - start : known[1] - start] = self._table
        self._low, self._table = start, table

    def _code(self, text: str) -> int:
        """The code of a text; a new one is appended to the values."""
        code = self._codes.setdefault(text, len(self.values))
        if code == len(self.values):
            self.values.append(text)
        return code


def as_segments(column: pa.Array) -> Encoded:
    """Number the values of a single segment column."""
    return SegmentCodes().encode(column)


def join_segments(columns: Sequence[pa.Array]) -> Encoded:
    """Number the values of a segment column that comes in parts; only those that rows have."""
    codes = SegmentCodes()
    joined = np.concatenate([codes.encode(column).codes for column in columns])
    used, places = distinct_numbers(joined)
    return Encoded(places, [codes.values[code] for code in used.tolist()])
