"""A batch of rows in memory, and conversions between Arrow and numpy.

The conversions use Arrow's buffers directly. `pyarrow.array` and `Array.to_numpy` import pandas,
and that takes longer than reading most tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.validation import Ids
from calibrank.errors import DataError
from calibrank.tabular.csv_files import numbers_of_text, values_of_text
from calibrank.tabular.ids import parse_ids


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive rows of one file."""

    file: Path
    first: int
    """Number of the first row within the file, counted from 0."""
    rows: pa.RecordBatch
    before: int = 0
    """Number of rows of the whole table that come before this batch."""
    from_csv: bool = False
    """Whether the columns are the text of a CSV file."""
    # A column is checked first and used later; text is converted only once.
    _converted: dict[tuple[str, str], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return a numeric column: integers keep their type, and missing values become NaN."""
        column = self.rows.column(name)
        if self.from_csv and pa.types.is_string(column.type):
            return self._once("numbers", name, self._numbers_of_text)
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        is_integer = pa.types.is_integer(column.type)
        if not is_integer and not pa.types.is_floating(column.type):
            raise DataError(
                f"{self.file}, column {name}",
                "hold numbers",
                column.type,
                "Convert it, or name another column.",
            )
        if column.null_count or pa.types.is_float16(column.type):
            column = column.cast(pa.float64()).fill_null(np.nan)
        return numbers_of(column)

    def ids(self, name: str) -> pa.Array:
        """Return a column of ids: integers, or text."""
        return self._once("ids", name, self._parse_ids)

    def segments(self, name: str) -> pa.Array:
        """Return a column of ids: integers, or one with a dictionary; null is a missing value."""
        return self._once("segments", name, self._parse_segments)

    def texts(self, name: str) -> npt.NDArray[Any]:
        """Return a column of ids as Python texts; None is a missing value."""
        column = self.segments(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        names = [str(value) for value in column.dictionary.to_pylist()]
        indices = column.indices.cast(pa.int32()).fill_null(len(names))
        return np.array([*names, None], dtype=object)[numbers_of(indices)]

    def values(self, name: str) -> pa.Array:
        """Return a column that is neither ids nor checked numbers, with its own type."""
        column = self.rows.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            raise DataError(
                f"{self.file}, column {name}",
                "hold text or numbers",
                column.type,
                "Convert it, or name another column.",
            )
        return values_of_text(column) if self.from_csv else column

    def _once(self, kind: str, name: str, convert: Callable[[str], Any]) -> Any:
        key = (kind, name)
        if key not in self._converted:
            self._converted[key] = convert(name)
        return self._converted[key]

    def _numbers_of_text(self, name: str) -> npt.NDArray[Any]:
        return numbers_of_text(self.rows.column(name), f"{self.file}, column {name}", self.first)

    def _parse_ids(self, name: str) -> pa.Array:
        column = self.rows.column(name)
        return parse_ids(column, f"{self.file}, column {name}", from_csv=self.from_csv)

    def _parse_segments(self, name: str) -> pa.Array:
        column = self.rows.column(name)
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = column.dictionary_encode()
        if not pa.types.is_dictionary(column.type) or column.dictionary.null_count:
            ids = self.ids(name)
            is_plain = pa.types.is_integer(ids.type) and not ids.null_count
            return ids if is_plain else ids.dictionary_encode()
        # Each distinct value is parsed once.
        where = f"{self.file}, column {name}"
        values = parse_ids(column.dictionary, where, from_csv=self.from_csv)
        indices = column.indices
        if not pa.types.is_int32(indices.type):
            indices = indices.cast(pa.int32())
        return pa.DictionaryArray.from_arrays(indices, values)


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


class IdNumbers:
    """Numbers ids by their text: files may store the same ids as numbers and as text."""

    def __init__(self) -> None:
        self.names = pa.nulls(0, pa.large_string())

    def of(self, ids: pa.Array) -> npt.NDArray[np.intp]:
        """The number of each id, the same in every batch."""
        import pyarrow.compute as pc  # noqa: PLC0415  (slow to load)

        encoded = ids.dictionary_encode()
        distinct = encoded.dictionary.cast(pa.large_string())
        found = pc.index_in(distinct, self.names)
        if found.null_count:
            new = distinct.filter(found.is_null())
            self.names = pa.concat_arrays([self.names, new])
            found = pc.index_in(distinct, self.names)
        return numbers_of(found).astype(np.intp)[indices_of(encoded)]


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
