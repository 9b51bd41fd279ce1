"""Saved sums by segment: arrays with a digest; what is read from a file is checked."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.npz import Arrays
from calibrank._internal.rules import LARGEST_SCORE
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats
from calibrank.summary._segment_cells import BINS, Cells

VERSION = 2

LARGEST_FILE = 2**31
"""A million segments, all of whose bins are occupied, and their names."""

_TYPES = {
    "version": "i8",
    "edges": "f8",
    "text": "u1",
    "lengths": "i8",
    "depths": "i8",
    "places": "i8",
    "by_bin": "f8",
    "by_segment": "f8",
    "about": "u1",
}
"""Type of each array; `text` holds the values of all keys in UTF-8, one after the other.

`about` is JSON: the columns, and the kind of evidence. Version 1 did not have it.
"""


class Content(NamedTuple):
    """What a file holds."""

    edges: Floats
    keys: list[Key]
    cells: Cells
    names: tuple[str, ...] = ()
    kind: str | None = None


def pack(content: Content) -> Arrays:
    """Sums as arrays; only cells that have rows."""
    edges, keys, cells, names, kind = content
    about = json.dumps([names, kind]).encode()
    values = [value.encode() for key in keys for value in key]
    flat = cells.flat[: len(keys) * BINS]
    places = np.flatnonzero(flat[:, 1] > 0)
    return {
        "version": np.array(VERSION, dtype=np.int64),
        "edges": edges.astype(np.float64),
        "text": np.frombuffer(b"".join(values), dtype=np.uint8),
        "lengths": np.array([len(value) for value in values], dtype=np.int64),
        "depths": np.array([len(key) for key in keys], dtype=np.int64),
        "places": places.astype(np.int64),
        "by_bin": flat[places],
        "by_segment": cells.by_segment[: len(keys)],
        "about": np.frombuffer(about, dtype=np.uint8),
    }


def unpack(given: Arrays) -> Content:
    """What `pack` packed; a `ValueError` says what is wrong with anything else."""
    arrays = dict(given)
    if "about" not in arrays and arrays.get("version") == 1:
        unknown_columns = np.frombuffer(b"[[], null]", dtype=np.uint8)
        arrays |= {"about": unknown_columns, "version": np.array(VERSION, dtype=np.int64)}
    unknown = sorted(set(_TYPES).symmetric_difference(arrays))
    _require(not unknown, f"its arrays are wrong: {', '.join(unknown)} missing or unknown")
    for name, values in arrays.items():
        _require(
            values.dtype.newbyteorder("=") == np.dtype(_TYPES[name]),
            f"{name} is of type {values.dtype}",
        )
        arrays[name] = values.astype(_TYPES[name])
    _require(arrays["version"] == VERSION, f"its version is {arrays['version']}, not {VERSION}")
    edges = arrays["edges"]
    _require(edges.ndim == 1 and len(edges) < BINS, f"it has {len(edges)} edges")
    _require((np.abs(edges) <= LARGEST_SCORE).all(), "edges are not scores")
    _require((np.diff(edges) > 0).all(), "edges are not in increasing order")
    keys = _keys(arrays)
    names, kind = _about(arrays["about"])
    deepest = max(map(len, keys), default=0)
    _require(not names or deepest <= len(names), f"keys have more values than {names}")
    return Content(edges, keys, _cells(arrays, len(keys), len(edges) + 1), names, kind)


def _about(values: Any) -> tuple[tuple[str, ...], str | None]:
    """The columns and the kind of evidence."""
    _require(values.ndim == 1, f"about has {values.ndim} dimensions")
    try:
        names, kind = json.loads(values.tobytes())
    except (TypeError, ValueError, RecursionError):
        raise ValueError("about is not a list of columns and a kind of evidence") from None
    is_valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
    _require(is_valid and isinstance(kind, str | None), "about has other types than text")
    return tuple(names), kind


def _keys(arrays: Arrays) -> list[Key]:
    depths, lengths, text = arrays["depths"], arrays["lengths"], arrays["text"]
    for name in ("depths", "lengths", "text"):
        _require(arrays[name].ndim == 1, f"{name} has {arrays[name].ndim} dimensions")
    _require((depths > 0).all() and depths.sum() == len(lengths), "depths do not match")
    _require((lengths >= 0).all() and lengths.sum() == len(text), "lengths do not match the text")
    content = text.tobytes()
    values = []
    first = 0
    for length in lengths.tolist():
        values.append(content[first : first + length].decode())
        first += length
    keys = []
    first = 0
    for depth in depths.tolist():
        keys.append(tuple(values[first : first + depth]))
        first += depth
    _require(len(set(keys)) == len(keys), "two segments have the same key")
    return keys


def _cells(arrays: Arrays, segments: int, bins: int) -> Cells:
    places, by_bin, by_segment = arrays["places"], arrays["by_bin"], arrays["by_segment"]
    _require(by_segment.shape == (segments, 3), f"by_segment has the shape {by_segment.shape}")
    _require(places.ndim == 1, f"places has {places.ndim} dimensions")
    _require(by_bin.shape == (len(places), 3), f"by_bin has the shape {by_bin.shape}")
    inside = (places >= 0) & (places < segments * BINS) & (places % BINS < bins)
    _require(inside.all() and (np.diff(places) > 0).all(), "places are out of range or order")
    for name in ("by_bin", "by_segment"):
        _require(np.isfinite(arrays[name]).all(), f"{name} is not finite")
    _require((by_segment >= 0).all() and (by_bin[:, 0] >= 0).all(), "a mass is negative")
    _require((by_bin[:, 1] > 0).all(), "total is not above 0")
    largest = LARGEST_SCORE * (1 + 1e-9)
    _require((np.abs(by_bin[:, 2]) <= by_bin[:, 1] * largest).all(), "moments are too large")
    cells = Cells(segments)
    cells.flat[places] = by_bin
    cells.by_segment = by_segment
    return cells


def _require(holds: Any, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
