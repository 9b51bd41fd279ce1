"""Segments of rows: text values of some columns, and the most specific known segment of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from calibrank._internal import native
from calibrank._internal.arguments import listed, shown
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import (
    Indices,
    Integers,
    Mask,
    changed,
    is_missing,
    require_unmasked,
)
from calibrank.errors import DataError

Key: TypeAlias = tuple[str, ...]
"""The values of the first one or more segment columns."""


# Fewer rows than this are not worth a thread.
_THREADS_FROM = 2**20

LARGEST_TABLE = 2**24
"""Numbers over a smaller range are found in a table of that size, without sorting them."""


class Encoded(NamedTuple):
    """A segment column: the number of each row's value, and the values; None is missing."""

    codes: Integers
    values: list[str | None]


def encode(name: str, column: Any) -> Encoded:
    """Number the values of a column of text, whole numbers or booleans.

    A whole number stands for the text it is written as, as in ids.

    >>> encode("country", ["NL", None, "NL"])
    Encoded(codes=array([0, 1, 0]), values=['NL', None])
    """
    if isinstance(column, Encoded):
        return column
    # A single score has a single value, and scores of any shape have values of that shape.
    require_unmasked(f"column {name!r}", column)
    try:
        array = np.asarray(column).reshape(-1)
    except ValueError:
        raise _not_a_segment(name, "rows of different lengths") from None
    if isinstance(column, list | tuple) and (array.dtype.kind == "U" or bool in map(type, column)):
        # A NaN among texts would become the text "nan", and True among numbers 1.
        array = np.array(column, dtype=object).reshape(-1)
    if array.dtype.kind in "mM":
        raise _not_a_segment(name, "dates or times")
    if array.dtype.kind in "iub":
        distinct, codes = distinct_numbers(array)
        texts = [str(value) for value in distinct.tolist()]
        is_boolean = array.dtype.kind == "b"
        return Encoded(codes, [text.lower() if is_boolean else text for text in texts])
    numbers: dict[Any, int] = {}
    try:
        # Faster than sorting: most values occur many times.
        found = [numbers.setdefault(value, len(numbers)) for value in array.tolist()]
        if array.dtype.kind == "O" and (0 in numbers or 1 in numbers):
            # True equals 1, and is another level.
            numbers.clear()
            values = [_boolean_as_text(value) for value in array.tolist()]
            found = [numbers.setdefault(value, len(numbers)) for value in values]
    except TypeError:
        raise _not_a_segment(name, "values such as lists") from None
    # 3 and "3" are one level: pandas reads both from one file.
    places: dict[str | None, int] = {}
    place_of = [places.setdefault(_text(name, value), len(places)) for value in numbers]
    codes = np.array(found, dtype=np.intp)
    if len(places) < len(place_of):
        codes = np.array(place_of, dtype=np.intp)[codes]
    return Encoded(codes, list(places))


def _boolean_as_text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool | np.bool_) else value


def distinct_numbers(array: Integers) -> tuple[Integers, Integers]:
    """The distinct values of an array in increasing order, and the place of each row's there."""
    is_number = array.dtype.kind in "iu" and len(array)
    low, high = (int(array.min()), int(array.max())) if is_number else (0, LARGEST_TABLE)
    if not -(2**62) < low <= high < min(low + LARGEST_TABLE, 2**62):
        return np.unique(array, return_inverse=True)
    # Much faster than sorting.
    try:
        is_present = _present(array, low, high)
        distinct = np.flatnonzero(is_present)
        if low == 0 and len(distinct) == len(is_present):
            return distinct, array
        numbers = np.zeros(len(is_present), dtype=np.int32)
        numbers[distinct] = np.arange(len(distinct))
        return distinct + low, native.look_up(array, low, numbers)
    except (IndexError, ValueError):  # of a value beyond the extremes
        raise changed("levels") from None


def _present(array: Integers, low: int, high: int) -> Mask:
    """Whether each number from `low` to `high` occurs in an array."""
    is_present = np.zeros(high - low + 1, dtype=bool)
    if not native.READY or array.dtype not in (np.int32, np.int64):
        is_present[np.subtract(array, low, dtype=np.int64)] = True
        return is_present
    values = np.require(array, requirements=["C", "ALIGNED"])
    slices = row_slices(len(values)) if len(values) > _THREADS_FROM else [slice(0, len(values))]
    in_threads(lambda rows: native.loops.mark_present(values[rows], low, is_present), slices)
    return is_present


def encode_columns(
    names: Sequence[str], columns: Any, rows: int | None = None, what: str = "columns"
) -> list[Encoded]:
    """Number the values of the named columns of a mapping or a dataframe."""
    encoded: list[Encoded] = []
    for name in names:
        column = encode(name, column_of(what, name, columns))
        rows = len(column.codes) if rows is None else rows
        if len(column.codes) != rows:
            raise DataError(
                f"column {name!r}", f"have one value per score ({rows})", len(column.codes)
            )
        encoded.append(column)
    return encoded


def column_of(what: str, name: str, frame: Any) -> Any:
    """A column of a mapping or a dataframe; `what` names the argument in errors."""
    names = names_of(what, frame, name)
    if name not in names:
        raise DataError(what, f"have the column {shown(name)}", listed(names), "Add it.")
    if names.count(name) > 1:
        raise DataError(what, "have columns of different names", shown(name), "Rename one.")
    return frame[name]


def columns_by_name(what: str, frame: Any) -> dict[str, Any]:
    """All columns of a mapping or a dataframe."""
    return {name: frame[name] for name in names_of(what, frame)}


def names_of(what: str, frame: Any, name: str = "country") -> list[str]:
    """The names of the columns of a mapping or a dataframe; an error shows `name` as an example."""
    if isinstance(frame, Mapping):
        return list(frame)
    # The columns of an Arrow table are data; its names are elsewhere.
    for attribute in ("column_names", "columns"):
        if hasattr(frame, attribute):
            return list(getattr(frame, attribute))
    rule = "be a mapping of column names to values or a dataframe"
    remedy = f"For example {what}={{{name!r}: [...]}}."
    raise DataError(what, rule, type(frame).__name__, remedy)


def _text(name: str, value: Any) -> str | None:
    """A value as the text that identifies its segment; None if it is missing."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return str(_boolean_as_text(value))
    # Larger decimals stand for many integers.
    is_decimal = isinstance(value, float | Decimal)
    if is_decimal and abs(float(value)) < 2**53 and value == int(value):
        return str(int(value))
    raise _not_a_segment(name, shown(value))


def _not_a_segment(name: str, found: str) -> DataError:
    remedy = "Put other numbers into groups first, such as quantiles, and write dates as text."
    return DataError(f"column {name!r}", "hold text, whole numbers or booleans", found, remedy)


def leaves_of(columns: Sequence[Encoded]) -> tuple[Integers, list[Key]]:
    """The number of each row's key, and the keys: values up to the first one that is missing."""
    places = columns[0].codes
    keys: list[Key] = [() if value is None else (value,) for value in columns[0].values]
    for depth, column in enumerate(columns[1:], start=1):
        # Rows with the same prefix and the same value share a key.
        width = max(len(column.values), 1)
        distinct, places = distinct_numbers(places.astype(np.int64) * width + column.codes)
        parents, codes = np.divmod(distinct, width)
        extended: list[Key] = []
        for parent, code in zip(parents.tolist(), codes.tolist(), strict=True):
            extended.append(_extended(keys[parent], column.values[code], depth))
        keys = extended
    return places.reshape(-1), keys


def _extended(prefix: Key, value: str | None, depth: int) -> Key:
    """A key with one more value, unless this value or one before it is missing."""
    if value is None or len(prefix) < depth:
        return prefix
    return (*prefix, value)


def number_nodes(keys: Sequence[Key]) -> dict[Key, int]:
    """The number of each key, from 1 on."""
    return {key: node for node, key in enumerate(keys, start=1)}


def find_nodes(numbers: Mapping[Key, int], columns: Sequence[Encoded]) -> Indices:
    """The node of each row: the number of the longest key that matches it, 0 without any."""
    places, leaves = leaves_of(columns)
    nodes = [_node_of(leaf, numbers) for leaf in leaves]
    return np.array(nodes, dtype=np.intp)[places]


def _node_of(leaf: Key, numbers: Mapping[Key, int]) -> int:
    while leaf and leaf not in numbers:
        leaf = leaf[:-1]
    return numbers.get(leaf, 0)
