"""Number the values of a segment column, over all batches of a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from calibrank._segment_keys import Encoded
from calibrank._validation import Mask
from calibrank.tabular.batch import indices_of, to_arrow
from calibrank.tabular.ids import unify_ids


class SegmentCodes:
    """Numbers that values keep from batch to batch; each value becomes a Python text once."""

    def __init__(self) -> None:
        # Code 0 is a missing value.
        self.values: list[str | None] = [None]
        self._known: pa.Array | None = None

    def encode(self, column: pa.DictionaryArray) -> Encoded:
        """The code of each row; the list of values grows as new ones are found."""
        column = self._unified(column)
        new = column.dictionary[len(self.values) - 1 :]
        self.values += [str(value) for value in new.to_pylist()]
        codes = indices_of(column) + np.int32(1)
        if column.null_count:
            codes[~_is_valid(column)] = 0
        return Encoded(codes, self.values)

    def _unified(self, column: pa.DictionaryArray) -> pa.DictionaryArray:
        """The column with the known values first in its dictionary, in their order."""
        if self._known is not None:
            known, values = unify_ids([self._known, column.dictionary])
            no_rows = to_arrow(np.empty(0, dtype=np.int32))
            before = pa.DictionaryArray.from_arrays(no_rows, known)
            column = pa.DictionaryArray.from_arrays(column.indices, values)
            column = pa.chunked_array([before, column]).unify_dictionaries().chunk(1)
        self._known = column.dictionary
        return column


def as_segments(column: pa.DictionaryArray) -> Encoded:
    """Number the values of a single segment column."""
    return SegmentCodes().encode(column)


def _is_valid(column: pa.DictionaryArray) -> Mask:
    """Which rows have a value, from Arrow's bits: its functions are slow to load."""
    bits = np.frombuffer(column.indices.buffers()[0], dtype=np.uint8)
    first = column.indices.offset
    return np.unpackbits(bits, bitorder="little")[first : first + len(column)].astype(bool)
