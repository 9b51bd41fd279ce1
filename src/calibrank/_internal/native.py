"""Load the C loops of `native.c`; if they were not compiled, NumPy does the same work slower."""

import ctypes
import zlib
from collections.abc import Callable
from ctypes import (
    POINTER,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
)
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from calibrank._internal import builtin
from calibrank._internal.threads import in_threads, row_slices

Floats: TypeAlias = npt.NDArray[np.floating[Any]]

LIBRARY = Path(__file__).with_name("libcalibrank.so")
"""Where the build puts the library, under the same name on every system."""

SOURCE = Path(__file__).with_name("native.c")
FLOAT_POINTER = POINTER(c_float)
DOUBLE_POINTER = POINTER(c_double)

# Scores up to which the overhead of a call matters, and from which on threads are worth starting.
_SMALL = 8192
_LARGE = 1_500_000

# Types of scores that the loops of maps read.
_TYPES = (np.dtype(np.float32), np.dtype(np.float64))


_SEGMENT_ROWS: list[Any] = [
    c_void_p,  # scores
    c_size_t,  # rows
    c_void_p,  # codes
    c_void_p,  # numbers
    c_size_t,  # known
    c_void_p,  # positive
    c_int,  # positive_type
    c_void_p,  # edges
    c_size_t,  # edge_count
    c_size_t,  # segments
]

_SEGMENT_MODES_ARGUMENTS: list[Any] = [
    *[c_void_p] * 6,  # positive, total, offset, x, starts, dispersion
    c_size_t,  # segments
    *[c_double] * 2,  # tau, kappa
    c_int,  # most_steps
    c_double,  # tolerance
    *[c_void_p] * 4,  # intercepts, slopes, variances, log_marginal
]


def load_library() -> ctypes.CDLL | None:
    """The library, if it exists and was built from the source files next to it."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        built_from = loaded.calibrank_source_checksum()
        sources = [SOURCE, *sorted(SOURCE.parent.glob("native*.h"))]
        current = zlib.crc32(b"".join(file.read_bytes() for file in sources)) & 0x7FFFFFFF
    except (OSError, AttributeError):
        return None
    if built_from != current:
        return None
    loaded.pool_float32.argtypes = _pool_arguments(c_float, c_int32)
    loaded.pool_float64.argtypes = _pool_arguments(c_double, c_int64)
    _declare_segments(loaded)
    return loaded


def _declare_segments(loaded: ctypes.CDLL) -> None:
    """Set the types of the loops for segments."""
    for loop in (loaded.pool_segments_float32, loaded.pool_segments_float64):
        # total, total_type, cells, by_segment
        loop.argtypes = [*_SEGMENT_ROWS, c_void_p, c_int, c_void_p, c_void_p]
    for loop in (loaded.count_segments_float32, loaded.count_segments_float64):
        loop.argtypes = [*_SEGMENT_ROWS, c_void_p]  # cells
    loaded.add_counts.argtypes = [c_void_p, c_size_t, c_void_p]  # counts, size, cells
    loaded.add_counts.restype = None
    for loop in (loaded.mark_present_int32, loaded.mark_present_int64):
        loop.argtypes = [c_void_p, c_size_t, c_int64, c_void_p]
        loop.restype = None
    for loop in (loaded.look_up_int32, loaded.look_up_int64):
        loop.argtypes = [c_void_p, c_size_t, c_int64, c_void_p, c_void_p]
        loop.restype = None
    # offsets, bytes, first, stop, slots, count
    loaded.insert_texts.argtypes = [c_void_p, c_void_p, c_size_t, c_size_t, c_void_p, c_size_t]
    loaded.insert_texts.restype = None
    # offsets, bytes, texts, known_offsets, known_bytes, slots, count, numbers
    known: list[Any] = [*[c_void_p] * 3, c_size_t, c_void_p]
    loaded.find_texts.argtypes = [*[c_void_p] * 2, c_size_t, *known]
    loaded.find_texts.restype = None
    loaded.segment_modes.argtypes = _SEGMENT_MODES_ARGUMENTS
    loaded.segment_modes.restype = None
    for loop in (loaded.add_cells, loaded.merge_counts):
        # cells, numbers, segments, result
        loop.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p]
        loop.restype = None
    for loop in (loaded.count_occupied_cells, loaded.count_occupied_counts):
        loop.argtypes = [c_void_p, c_size_t, c_void_p]  # cells, segments, sizes
        loop.restype = None
    for loop in (loaded.copy_occupied_cells, loaded.copy_occupied_counts):
        # cells, segments, positive, total, means
        loop.argtypes = [c_void_p, c_size_t, *[c_void_p] * 3]
        loop.restype = None
    # positive, total, log_odds, starts, segments, intercepts, slopes
    loaded.changed_loss.argtypes = [*[c_void_p] * 4, c_size_t, *[c_void_p] * 2]
    loaded.changed_loss.restype = c_double


def _pool_arguments(score: Any, integer: Any) -> list[Any]:
    """Argument types of a pooling loop for one type of scores."""
    return [
        POINTER(score),  # scores
        c_size_t,  # rows
        score,  # origin
        c_void_p,  # positive
        c_int,  # positive_type
        c_void_p,  # total
        c_int,  # total_type
        c_int,  # shift
        integer,  # offset
        integer,  # smallest
        integer,  # first
        c_int,  # exponent
        c_size_t,  # size
        *[DOUBLE_POINTER] * 3,  # totals, positives, squares
    ]


library = load_library()
READY = library is not None


MAPS_READY = READY and builtin.is_supported()
"""Whether the library can apply maps, which needs CPython and arrays of a known layout."""

_fill: Callable[[Floats, Floats, bytes], bool]
if library is not None and MAPS_READY:
    builtin.connect(library)
    _fill = builtin.builtin(library.fill_probabilities)


def probabilities(scores: Floats, program: bytes) -> Floats | None:
    """The probability of each score by a map that `maps/_program.py` packed.

    None if a score is invalid, and where there is no library, no loop for the type of the scores,
    or none for the map.
    """
    if not (program and READY and MAPS_READY):
        return None
    if scores.size > _SMALL:
        return _probabilities_of_many(scores, program)
    # A copy is contiguous and aligned, so that nothing has to be checked.
    result = scores.copy()
    if _fill(result, result, program):
        return result
    own = _with_own_type(scores)
    return None if own is scores else probabilities(own, program)


def _with_own_type(scores: Floats) -> Floats:
    """The same array with NumPy's own object for its type, by which the library knows it.

    Arrays that were unpickled, as in the workers of a process pool, have a copy of it.
    """
    for own in _TYPES:
        if scores.dtype == own and scores.dtype is not own:
            return scores.view(own)
    return scores


def _probabilities_of_many(scores: Floats, program: bytes) -> Floats | None:
    if scores.dtype not in _TYPES:
        return None
    given = np.require(_with_own_type(scores), requirements=("C", "A"))
    result = np.empty_like(given)
    if given.size < _LARGE:
        return result if _fill(given, result, program) else None
    flat, filled = given.reshape(-1), result.reshape(-1)

    def in_rows(rows: slice) -> bool:
        return _fill(flat[rows], filled[rows], program)

    return result if all(in_threads(in_rows, row_slices(len(flat)))) else None


def scalar_probability() -> Callable[[float, bytes], float]:
    """The function of one valid score and a packed map: the same digits as `probabilities`."""
    return builtin.builtin(cast("ctypes.CDLL", library).probability_of_score)


def mark_present(values: npt.NDArray[Any], low: int, present: npt.NDArray[np.bool_]) -> None:
    """Set `present[value - low]` of every value of a contiguous array of int32 or int64."""
    compiled = cast("ctypes.CDLL", library)
    is_small = values.dtype == np.int32
    loop = compiled.mark_present_int32 if is_small else compiled.mark_present_int64
    loop(values.ctypes.data, len(values), low, present.ctypes.data)


def look_up(values: npt.NDArray[Any], low: int, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`table[value - low]` of every value; integers from `low` on, in a table of int32."""
    if not READY or values.dtype not in (np.int32, np.int64):
        places = values if low == 0 else np.subtract(values, low, dtype=np.int64)
        return table[places]
    values = np.require(values, requirements=["C", "ALIGNED"])
    compiled = cast("ctypes.CDLL", library)
    result = np.empty(len(values), dtype=np.int32)
    loop = compiled.look_up_int32 if values.dtype == np.int32 else compiled.look_up_int64
    loop(values.ctypes.data, len(values), low, table.ctypes.data, result.ctypes.data)
    return result
