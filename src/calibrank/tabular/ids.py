"""Ids of users and items. An id is text: two ids are the same if, and only if, their text is.

A whole number stands for the text it is written as, so the number 7 in a Parquet file and the text
"7" in a CSV file are one id, and "007" is another. Integer columns stay integers, which is faster;
`unify_ids` gives columns that are compared one type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from calibrank._internal.validation import Ids
from calibrank.errors import DataError

# float64 holds every whole number up to here; beyond, neighbours become one number.
_LARGEST_WHOLE_FLOAT = 2**53

# What pandas makes of whole numbers in a column with missing values.
_WHOLE_DECIMAL = r"^(-?(?:0|[1-9][0-9]*))\.0+$"


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
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise _not_ids(where, str(kind))
    text = _as_text(column, where)
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
    in_range = pc.less_equal(pc.abs(numbers), _LARGEST_WHOLE_FLOAT)
    valid = pc.and_(in_range, pc.equal(pc.floor(numbers), numbers))
    if pc.all(valid).as_py() is False:
        bad = numbers.filter(pc.invert(valid))[0]
        raise _not_ids(where, f"the decimal number {bad}")
    return numbers.cast(pa.int64())


def _as_text(column: pa.Array, where: str) -> pa.Array:
    try:
        text = column.cast(pa.large_string())
        text.validate(full=True)  # bytes may be no UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _not_ids(where, str(column.type)) from None
    return text


def _without_decimals(text: pa.Array) -> pa.Array:
    """Return "7.0" as "7": pandas writes whole numbers so if some are missing."""
    import pyarrow.compute as pc  # noqa: PLC0415  (slow to load)

    if not pc.any(pc.match_substring(text, ".0")).as_py():
        return text
    return pc.replace_substring_regex(text, _WHOLE_DECIMAL, r"\1")


def _not_ids(where: str, found: Any) -> DataError:
    return DataError(where, "hold ids (text or whole numbers)", found, "Convert them to text.")
