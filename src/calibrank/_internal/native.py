"""Load the C loops of `native.c`; if they were not compiled, NumPy does the same work slower."""

import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrank._internal.threads import in_threads, row_slices

Floats: TypeAlias = npt.NDArray[np.floating[Any]]

SOURCE = Path(__file__).with_name("native.c")

# Scores up to which the overhead of a call matters, and from which on threads are worth starting.
_SMALL = 8192
_LARGE = 1_500_000


def load_loops() -> Any:
    """The module of C loops; None unless it was built from the source files next to it."""
    try:
        loaded = import_module("calibrank._internal._loops")
        sources = [SOURCE, *sorted(SOURCE.parent.glob("native*.h"))]
        current = zlib.crc32(b"".join(file.read_bytes() for file in sources)) & 0x7FFFFFFF
    except (ImportError, OSError, SystemError):  # the last one in a free-threaded Python
        return None
    return loaded if loaded.source_checksum == current else None


loops: Any = load_loops()
"""The functions of `native_module.h`; the C files name the arguments of each, as METHOD."""

READY = loops is not None
_fill: Callable[[Floats, Floats, bytes], bool]
if READY:
    _fill = loops.fill_probabilities


def probabilities(scores: Floats, program: bytes) -> Floats | None:
    """The probability of each score by a map that `maps/_program.py` packed.

    None if a score is invalid, and where there are no loops, or none for the type of the scores or
    for the map.
    """
    if not (program and READY):
        return None
    if scores.size > _SMALL:
        return _of_many(scores, program)
    # A copy is contiguous, and the only array whose memory the loop has to ask for.
    result = scores.copy()
    return result if _fill(result, result, program) else None


def _of_many(scores: Floats, program: bytes) -> Floats | None:
    given = np.require(scores, requirements=("C", "A"))
    result = np.empty_like(given)
    if given.size < _LARGE:
        return result if _fill(given, result, program) else None
    flat, filled = given.reshape(-1), result.reshape(-1)

    def in_rows(rows: slice) -> bool:
        return _fill(flat[rows], filled[rows], program)

    return result if all(in_threads(in_rows, row_slices(len(flat)))) else None


def look_up(values: npt.NDArray[Any], low: int, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`table[value - low]` of every value; integers from `low` on, in a table of int32."""
    if not READY or values.dtype not in (np.int32, np.int64):
        places = values if low == 0 else np.subtract(values, low, dtype=np.int64)
        return table[places]
    result = np.empty(len(values), dtype=np.int32)
    loops.look_up(np.require(values, requirements=["C", "ALIGNED"]), low, table, result)
    return result
