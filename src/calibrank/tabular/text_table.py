"""Find texts among those of earlier batches, with the C loops of `native_segments.h`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal import native
from calibrank._internal.validation import Integers

# Slots per text: searches stay short while fewer than half of the slots are taken.
_SLOTS = 2


class TextTable:
    """A hash table of texts, which Arrow would build anew for every batch."""

    def __init__(self) -> None:
        self._known: _Texts | None = None
        self._slots: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)

    def update(self, texts: pa.Array) -> None:
        """Know these texts; those known before come first among them, in the same order."""
        known = _Texts.of(texts)
        first = 0 if self._known is None else self._known.size
        self._known = known
        if known is None:
            return
        if 2 * known.size > len(self._slots):
            self._slots = np.zeros(_SLOTS << known.size.bit_length(), dtype=np.uint64)
            first = 0
        native.loops.insert_texts(known.offsets, known.content, first, self._slots)

    def find(self, texts: pa.Array) -> Integers | None:
        """The number of each text, -1 if it is not known; None where there is no loop for them."""
        given = _Texts.of(texts)
        if given is None or self._known is None:
            return None
        numbers = np.empty(given.size, dtype=np.int32)
        native.loops.find_texts(*given, *self._known, self._slots, numbers)
        return numbers


class _Texts(NamedTuple):
    """The memory of texts, which lives as long as this does."""

    offsets: npt.NDArray[np.int64]
    content: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, texts: pa.Array) -> _Texts | None:
        is_text = pa.types.is_large_string(texts.type) and not texts.null_count
        if not native.READY or not is_text or not len(texts):
            return None
        _, offsets, content = texts.buffers()
        places = np.frombuffer(offsets, dtype=np.int64)[texts.offset :][: len(texts) + 1]
        has_content = content is not None and content.size
        buffer: Any = content if has_content else b"\0"
        return cls(places, np.frombuffer(buffer, dtype=np.uint8))

    @property
    def size(self) -> int:
        return len(self.offsets) - 1


def take_texts(texts: pa.Array, chosen: Integers) -> pa.Array:
    """Some of the texts, of type large_string; `Array.take` imports what is slow to load."""
    _, offsets, content = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    sizes = np.diff(places)[chosen]
    ends = np.append(0, np.cumsum(sizes))
    # The bytes of a text follow each other, from its first one on.
    places_of_bytes = np.arange(ends[-1]) + np.repeat(places[chosen] - ends[:-1], sizes)
    found = np.frombuffer(content or b"", dtype=np.uint8)[places_of_bytes]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.large_string(), len(chosen), buffers)
