"""Arrow columns as NumPy arrays: ids of users and items, and the codes of segments.

Conversions use Arrow's buffers directly. `pyarrow.array` and `Array.to_numpy` import pandas, and
that takes longer than reading most tables.

An id is text: two ids are the same if, and only if, their text is. A whole number stands for the
text it is written as, so the number 7 in a Parquet file and the text "7" in a CSV file are one id,
and "007" is another. Integer columns stay integers, which is faster; `unify_ids` gives columns that
are compared one type.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal import native
from calibrank._internal.segment_keys import LARGEST_TABLE, Encoded, distinct_numbers
from calibrank._internal.validation import Ids, Integers
from calibrank.errors import DataError

# float64 holds every whole number below; from here on, neighbours become one number.
_FIRST_INEXACT = 2**53

# What pandas makes of whole numbers in a column with missing values.
_WHOLE_DECIMAL = r"^(-?(?:0|[1-9][0-9]*))\.0+$"

# Slots per text: searches stay short while fewer than half of the slots are taken.
_SLOTS = 2


def parse_ids(column: pa.Array, where: str, *, from_csv: bool) -> pa.Array:
    """Return a column of ids as integers or text; missing ones are null. Others are an error."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return parse_ids(column.dictionary_decode(), where, from_csv=from_csv)
    if pa.types.is_uint64(kind):
        return _unsigned_ids(column)
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_floating(kind):
        return _whole_numbers(column, where)
    if pa.types.is_decimal(kind):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise _not_ids(where, f"numbers of {kind} that are not whole") from None
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise _not_ids(where, str(kind))
    try:
        text = column.cast(pa.large_string())
        text.validate(full=True)  # bytes may be no UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _not_ids(where, str(kind)) from None
    return _without_decimals(text) if from_csv else text


def unify_ids(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Return columns of ids of one type, in which the same id is the same value."""
    if len({ids.type for ids in columns}) < 2:
        return list(columns)
    if all(pa.types.is_signed_integer(ids.type) for ids in columns):
        return [ids.cast(pa.int64()) for ids in columns]
    return [ids.cast(pa.large_string()) for ids in columns]


def compact_ids(ids: pa.Array) -> pa.Array:
    """Return text as int64 where every id is a whole number as it is usually written.

    Nothing is lost: the text of each number is the id. "007" is not, so such a column stays text.
    """
    if pa.types.is_integer(ids.type):
        return ids
    try:
        numbers = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return ids
    return numbers if numbers.cast(ids.type).equals(ids) else ids


def names_like(known: Ids, names: Ids) -> Ids:
    """Return ids in the type of the known ones; an id that cannot be one of them is another.

    >>> names_like(np.array([7, 8]), np.array(["7", "007"])).tolist()
    [7, 9]
    >>> names_like(np.array(["7", "x"]), np.array([7])).tolist()
    ['7']
    """
    if (known.dtype.kind in "iu") == (names.dtype.kind in "iu"):
        return names
    if names.dtype.kind in "iu":
        return names.astype(np.str_)
    # Sorted, so the last is the largest; one more is no known id.
    unknown = int(known[-1]) + 1 if len(known) else 0
    distinct, positions = np.unique(names, return_inverse=True)
    numbers = [_number_of(str(name), unknown) for name in distinct]
    return np.array(numbers)[positions]


def _number_of(name: str, otherwise: int) -> int:
    digits = name.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 19
    return int(name) if is_number and str(int(name)) == name else otherwise


def _unsigned_ids(column: pa.Array) -> pa.Array:
    """Return int64, or text where a number does not fit."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column.cast(pa.large_string())


def _whole_numbers(column: pa.Array, where: str) -> pa.Array:
    """Return floats that are whole as integers: a missing value turns integers into floats."""
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to load)

    numbers = column.cast(pa.float64())
    numbers = pc.if_else(pc.is_nan(numbers), None, numbers)
    in_range = pc.less(pc.abs(numbers), _FIRST_INEXACT)
    valid = pc.and_(in_range, pc.equal(pc.floor(numbers), numbers))
    if pc.all(valid).as_py() is False:
        bad = numbers.filter(pc.invert(valid))[0]
        raise _not_ids(where, f"the decimal number {bad}")
    return numbers.cast(pa.int64())


def _without_decimals(text: pa.Array) -> pa.Array:
    """Return "7.0" as "7": pandas writes whole numbers so if some are missing."""
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to load)

    if not pc.any(pc.match_substring(text, ".0")).as_py():
        return text
    return pc.replace_substring_regex(text, _WHOLE_DECIMAL, r"\1")


def _not_ids(where: str, found: Any) -> DataError:
    return DataError(where, "hold ids (text or whole numbers)", found, "Convert them to text.")


def to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Wrap a numeric array as an Arrow array without a copy."""
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def take_ids(ids: pa.Array, rows: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Select ids by row number."""
    if pa.types.is_integer(ids.type) and not ids.null_count:
        # `Array.take` imports pyarrow.compute, which is slow to load.
        return to_arrow(numbers_of(ids)[rows])
    return ids.take(to_arrow(rows))


def names_of(column: pa.Array) -> Ids:
    """Convert a column of ids to a numpy array of integers or strings."""
    if pa.types.is_integer(column.type):
        return numbers_of(column)
    # Each distinct id is converted to a Python string once.
    encoded = column.dictionary_encode()
    distinct = [str(name) for name in encoded.dictionary.to_pylist()]
    return np.array(distinct, dtype=np.str_)[indices_of(encoded)]


def indices_of(encoded: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    """Return the indices of a dictionary-encoded array."""
    indices = encoded.indices
    values = np.frombuffer(indices.buffers()[1], dtype=np.int32)
    return values[indices.offset : indices.offset + len(indices)]


def numbers_of(column: pa.Array) -> npt.NDArray[Any]:
    """Return the values of a numeric array without nulls, as a view of its buffer."""
    kind = column.type.to_pandas_dtype()
    values: npt.NDArray[Any] = np.frombuffer(column.buffers()[1], dtype=kind)
    return values[column.offset : column.offset + len(column)]


class SegmentCodes:
    """Codes that values keep from batch to batch; each value becomes a Python text once.

    Columns are integers, text, or text with a dictionary. Numbers are found in a table, until the
    first text comes: from then on they are texts too.
    """

    def __init__(self) -> None:
        # Code 0 is a missing value.
        self.values: list[str | None] = [None]
        # Text: the values so far, and the code of each, -1 as long as no row has it.
        self._texts = _TextTable()
        self._text_codes: Integers = np.empty(0, dtype=np.int32)
        self._last: tuple[Any, Integers] = (self._texts.known, self._text_codes)
        # Numbers: the code of each, and those from `_low` on in a table, -1 for unknown ones.
        self._numbers: dict[int, int] = {}
        self._low = 0
        self._table: Integers = np.empty(0, dtype=np.int32)

    def encode(self, column: pa.Array) -> Encoded:
        """The code of each row; the list of values grows as new ones are found."""
        if pa.types.is_large_string(column.type) and not len(self._texts.known):
            column = compact_ids(column)  # numbers are found several times faster
        if pa.types.is_integer(column.type):
            if not len(self._texts.known) and not column.null_count and len(column):
                return Encoded(self._encode_numbers(numbers_of(column)), self.values)
            column = column.cast(pa.large_string())
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        return Encoded(self._encode_texts(column), self.values)

    def _encode_texts(self, column: pa.DictionaryArray) -> Integers:
        if self._numbers and not len(self._texts.known):
            self._places(pa.array(self.values[1:], pa.large_string()))
            self._text_codes = np.arange(1, len(self.values), dtype=np.int32)
        places = self._places(column.dictionary.cast(pa.large_string()))
        indices = indices_of(column)
        if column.null_count:
            indices = numbers_of(column.indices.fill_null(len(places)))
        codes = self._codes_at(places, indices)
        if len(codes) and codes.min() < 0:
            # A dictionary may have values that no row has: only those of rows get a code.
            new = places[distinct_numbers(indices[codes < 0])[0]]
            self._text_codes[new] = np.arange(len(self.values), len(self.values) + len(new))
            self.values += self._texts.known.take(to_arrow(new)).to_pylist()
            codes = self._codes_at(places, indices)
        return codes

    def _codes_at(self, places: Integers, indices: Integers) -> Integers:
        # The last one is that of a missing value.
        return native.look_up(indices, 0, np.append(self._text_codes[places], np.int32(0)))

    def _places(self, texts: pa.Array) -> Integers:
        """The place of each text among the known ones; new ones are appended."""
        # Row groups often have the same dictionary, and comparing is faster than hashing.
        if texts.equals(self._last[0]):
            return self._last[1]
        places = self._texts.find(texts)
        unknown = np.flatnonzero(places < 0)
        if len(unknown):
            new = texts if len(unknown) == len(texts) else texts.take(to_arrow(unknown))
            self._texts.append(new)
            # A dictionary may hold a text twice.
            places[unknown] = self._texts.find(new)
            more = np.full(len(unknown), -1, dtype=np.int32)
            self._text_codes = np.append(self._text_codes, more)
        self._last = (texts, places)
        return places

    def _encode_numbers(self, numbers: Integers) -> Integers:
        low, high = int(numbers.min()), int(numbers.max())
        if high - low >= LARGEST_TABLE:
            distinct, places = distinct_numbers(numbers)
            return self._codes_of(distinct)[places]
        self._cover(low, high)
        codes = native.look_up(numbers, self._low, self._table)
        if codes.min() < 0:
            new = distinct_numbers(numbers[codes < 0])[0]
            self._table[new - self._low] = self._codes_of(new)
            codes = native.look_up(numbers, self._low, self._table)
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

    def _codes_of(self, numbers: Integers) -> Integers:
        """The codes of distinct numbers; new ones are appended to the values."""
        given = numbers.tolist()
        new = [number for number in given if number not in self._numbers]
        self._numbers.update(zip(new, count(len(self.values))))
        self.values += map(str, new)
        return np.array([self._numbers[number] for number in given], dtype=np.int32)


class _TextTable:
    """A hash table of texts, which Arrow would build anew for every batch."""

    def __init__(self) -> None:
        self.known: pa.Array = pa.nulls(0, pa.large_string())
        self._slots: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)

    def append(self, texts: pa.Array) -> None:
        """Know these texts too."""
        first = len(self.known)
        self.known = pa.concat_arrays([self.known, texts])
        size = len(self.known)
        if 2 * size > len(self._slots):
            self._slots = np.zeros(_SLOTS << size.bit_length(), dtype=np.uint64)
            first = 0
        if native.READY and size:
            native.loops.insert_texts(*_Texts.of(self.known), first, self._slots)

    def find(self, texts: pa.Array) -> Integers:
        """The place of each text, -1 if it is not known."""
        numbers = np.full(len(texts), -1, dtype=np.int32)
        if not len(self.known) or not len(texts):
            return numbers
        if not native.READY:
            import pyarrow.compute as pc  # noqa: PLC0415  (slow to load)

            return numbers_of(pc.index_in(texts, value_set=self.known).fill_null(-1)).copy()
        native.loops.find_texts(*_Texts.of(texts), *_Texts.of(self.known), self._slots, numbers)
        return numbers


class _Texts(NamedTuple):
    """The memory of texts, which lives as long as this does."""

    offsets: npt.NDArray[np.int64]
    content: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, texts: pa.Array) -> _Texts:
        _, offsets, content = texts.buffers()
        places = np.frombuffer(offsets, dtype=np.int64)[texts.offset :][: len(texts) + 1]
        has_content = content is not None and content.size
        buffer: Any = content if has_content else b"\0"
        return cls(places, np.frombuffer(buffer, dtype=np.uint8))


def as_segments(column: pa.Array) -> Encoded:
    """Number the values of a single column."""
    return SegmentCodes().encode(column)


def join_segments(columns: Sequence[pa.Array]) -> Encoded:
    """Number the values of a column that comes in parts; only those that rows have."""
    codes = SegmentCodes()
    joined = np.concatenate([codes.encode(column).codes for column in columns]).astype(np.intp)
    if len(joined) and joined.min() == 0:
        return Encoded(joined, codes.values)
    return Encoded(joined - 1, codes.values[1:])
