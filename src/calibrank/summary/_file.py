"""Saved summaries and sums by segment: what is read from a file is not trusted, but checked.

Each rule is one that all sums made from rows obey. Rules about sums allow for their rounding.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

import numpy as np

from calibrank._internal.arguments import path_of, regular_file
from calibrank._internal.npz import Arrays, read_arrays, write_arrays
from calibrank._internal.rules import LARGEST_SCORE
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats
from calibrank.composition import refusal
from calibrank.errors import DataError
from calibrank.summary.bins import Masses
from calibrank.summary.grid import CAPACITY, DOUBLE, MOST_DISTINCT, Grid, Placement, with_both_zeros

# Names of arrays, and the type and number of dimensions of each.
_SUMMARY = {
    "scores": ("f8", 1),
    "keys": ("i8", 1),
    "masses": ("f8", 2),
    "rows": ("i8", 0),
    "low": ("f8", 0),
    "high": ("f8", 0),
    "grid": ("f8", 1),
    "kind": ("U", 0),
}
_SUMMARY_VERSION = 2

# `about` is JSON: the columns, the kind of evidence, and the keys of the segments.
_SEGMENTS = {
    "edges": ("f8", 1),
    "about": ("u1", 1),
    "places": ("i8", 1),
    "by_bin": ("f8", 2),
    "by_segment": ("f8", 2),
}
_SEGMENTS_VERSION = 3

# Relative error of a sum over many rows; one row is far above it, even in the largest bins.
_ROUNDING = 1e-9
_LONGEST_KIND = 200

Rebuilt = TypeVar("Rebuilt")


def save(path: str | PathLike[str], kind: str | None, arrays: Arrays) -> None:
    """Write arrays and their digest to a file, atomically."""
    if kind == "doubly_robust":
        raise refusal("doubly_robust", "a saved summary")
    write_arrays(path_of("path", path), arrays)


def load(
    path: str | PathLike[str], largest: int, rule: str, rebuild: Callable[[Arrays], Rebuilt]
) -> Rebuilt:
    """Rebuild what was saved; a file that is too large, damaged or of another kind is an error."""
    file = regular_file(path_of("path", path), rule, "Write it with its method save(path).")
    try:
        return rebuild(read_arrays(file, largest))
    except ValueError as error:
        raise DataError(
            path, f"be {rule}", f"another or a damaged file: {error}", "Create it again."
        ) from None


def pack_summary(summary: Any) -> Arrays:
    """The fields of a summary as arrays, by name."""
    fields = {name: getattr(summary, name) for name in _SUMMARY}
    grid = summary.grid
    fields["grid"] = [] if grid is None else [grid.top, grid.bits, *grid.placement]
    fields["masses"] = np.array(summary.masses)
    return _as_arrays(fields, _SUMMARY, _SUMMARY_VERSION)


def unpack_summary(given: Arrays) -> dict[str, Any]:
    """The fields that `pack_summary` packed; a `ValueError` says what is wrong with others."""
    arrays = _typed(given, _SUMMARY, _SUMMARY_VERSION)
    scores, masses, kind = arrays["scores"], arrays["masses"], str(arrays["kind"])
    bins = len(scores)
    require(0 < bins <= MOST_DISTINCT, f"it has {bins:,} bins, not 1 to {MOST_DISTINCT:,}")
    require(masses.shape == (len(Masses._fields), bins), f"masses have the shape {masses.shape}")
    require(0 < len(kind) <= _LONGEST_KIND and kind.isprintable(), "kind is not a name")
    numbers = {name: arrays[name].item() for name in ("rows", "low", "high")}
    fields = {**arrays, **numbers, "kind": kind, "masses": Masses(*masses)}
    return {**fields, "grid": _grid(arrays["grid"])}


def _as_arrays(fields: dict[str, Any], types: dict[str, tuple[str, int]], version: int) -> Arrays:
    arrays: dict[str, Any] = {"version": np.int64(version)}
    for name, (kind, _) in types.items():
        arrays[name] = np.array(fields[name], dtype=None if kind == "U" else kind)
    return arrays


def _typed(given: Arrays, types: dict[str, tuple[str, int]], version: int) -> dict[str, Any]:
    """The arrays of a version, each of its type and dimensions."""
    arrays = dict(given)
    found = int(_array(arrays, "version", "i8", 0))
    if found > version:
        raise ValueError(f"its version is {found}, upgrade calibrank")
    require(found == version, f"its version is {found}, and {version} is needed")
    del arrays["version"]
    unknown = sorted(set(types).symmetric_difference(arrays))
    require(not unknown, f"its arrays are wrong: {', '.join(unknown)} missing or unknown")
    return {name: _array(arrays, name, *types[name]) for name in types}


def _array(arrays: Arrays, name: str, kind: str, ndim: int) -> Any:
    require(name in arrays, f"{name} is missing")
    values = arrays[name]
    if kind == "U":
        require(values.ndim == ndim and values.dtype.kind == "U", f"{name} is not a text")
        return values
    require(values.ndim == ndim, f"{name} has {values.ndim} dimensions, not {ndim}")
    # Of either byte order: files move between machines.
    require(values.dtype.newbyteorder("=") == np.dtype(kind), f"{name} is of type {values.dtype}")
    return values.astype(kind)


def _grid(values: Floats) -> Grid | None:
    if not len(values):
        return None
    require(len(values) == 4, f"grid has {len(values)} numbers, not 4")
    require(np.isfinite(values).all(), "grid is not finite")
    top, bits, origin, octaves = values.tolist()
    for name, number in {"top": top, "bits": bits, "octaves": octaves}.items():
        require(number == int(number), f"the grid's {name} is {number}, not a whole number")
    require(-DOUBLE.bias - DOUBLE.mantissa <= top <= DOUBLE.bias + 1, f"grid ends at 2**{top:g}")
    require(0 <= bits <= DOUBLE.mantissa, f"grid keeps {bits:g} bits")
    require(0 <= octaves <= 2 * DOUBLE.bias, f"grid has {octaves:g} octaves")
    require(abs(origin) <= LARGEST_SCORE, f"the origin of the grid is {origin:g}")
    return Grid(int(top), int(bits), Placement(origin, int(octaves)))


def check_summary(summary: Any) -> None:
    """Raise a `ValueError` if a summary is not one that was made from rows."""
    scores, low, high, grid = summary.scores, summary.low, summary.high, summary.grid
    require(np.abs(scores).max() <= LARGEST_SCORE, "scores are not finite and within +-1e30")
    require(max(abs(low), abs(high)) <= LARGEST_SCORE, "low and high are not scores")
    require(((scores >= low) & (scores <= high)).all(), "scores lie outside [low, high]")
    require(summary.rows >= len(scores), f"{summary.rows:,} rows are in {len(scores):,} bins")
    _check_masses(summary.masses, scores, low, high, grid)
    if grid is not None:
        _check_bins(summary.keys, scores, low, high, grid)
        return
    require((np.diff(scores) > 0).all(), "scores are not in increasing order")
    require(low == scores[0] and high == scores[-1], "low and high do not match")
    require(not len(summary.keys), "there are keys without a grid")


def _check_masses(
    masses: Masses, scores: Floats, low: float, high: float, grid: Grid | None
) -> None:
    for name, sums in zip(Masses._fields, masses, strict=True):
        require(np.isfinite(sums).all(), f"{name} is not finite")
    require((masses.total > 0).all(), "total is not above 0")
    slack = _ROUNDING * masses.total
    require((masses.positive >= -slack).all(), "positive is negative")
    # A moment is a mass times the mean offset of the bin, which lies within the range.
    origin = 0.0 if grid is None else grid.origin
    largest = max(abs(low - origin), abs(high - origin), abs(origin)) * (1 + _ROUNDING)
    bound = (np.abs(masses.positive) + slack) * largest
    require((np.abs(masses.positive_moment) <= bound).all(), "positive_moment is too large")
    gap = np.abs(masses.moment - masses.total * (scores - origin))
    require((gap <= slack * largest).all(), "moment does not match the scores")
    # By Cauchy and Schwarz; the second moment of one score is its square.
    spread = masses.second_moment - masses.moment**2 / masses.total
    square = slack * largest**2
    require((spread >= -square).all(), "second_moment is too small for the moment")
    bound = masses.total * largest**2 + square
    require((masses.second_moment <= bound).all(), "second_moment is too large")
    require(grid is not None or (spread <= square).all(), "second_moment does not match")
    for name in ("positive_squared", "cross", "total_squared"):
        holds = getattr(masses, name) >= -_ROUNDING * masses.total**2
        require(holds.all(), f"{name} is negative")


def _check_bins(keys: Any, scores: Floats, low: float, high: float, grid: Grid) -> None:
    """Each bin is one of the grid, and holds its mean score."""
    require(len(keys) == len(scores), "there is not one key per bin")
    require((np.diff(keys) > 0).all(), "keys are not in increasing order")
    require(len(keys) <= CAPACITY, f"it has {len(keys):,} bins of a grid, more than {CAPACITY:,}")
    ends = np.array(with_both_zeros(low - grid.origin, high - grid.origin))
    largest = float(np.abs(ends).max())
    require(largest <= np.ldexp(1.0, grid.top), f"scores reach beyond the grid, to {largest:.4g}")
    first, last = grid.keys_of_offsets(ends).tolist()
    require(last - first < CAPACITY, f"the grid has {last - first + 1:,} bins")
    require(first <= keys[0] and keys[-1] <= last, "keys lie outside [low, high]")
    lower, upper = grid.ends(keys)
    slack = _ROUNDING * max(largest, abs(grid.origin))
    offsets = scores - grid.origin
    is_inside = (offsets >= lower - slack) & (offsets <= upper + slack)
    require(is_inside.all(), "scores lie outside their bins")


def pack_segments(names: tuple[str, ...], kind: str | None, keys: list[Key], sums: Any) -> Arrays:
    """Sums by segment as arrays, those of occupied cells alone; `sums` has the other ones."""
    about = np.frombuffer(json.dumps([names, kind, keys]).encode(), dtype=np.uint8)
    return _as_arrays({**sums, "about": about}, _SEGMENTS, _SEGMENTS_VERSION)


def unpack_segments(given: Arrays, most_bins: int) -> dict[str, Any]:
    """What `pack_segments` packed; a `ValueError` says what is wrong with anything else."""
    arrays = _typed(given, _SEGMENTS, _SEGMENTS_VERSION)
    edges, places, by_bin, by_segment = [
        arrays[name] for name in ("edges", "places", "by_bin", "by_segment")
    ]
    require(len(edges) < most_bins, f"it has {len(edges)} edges")
    require((np.abs(edges) <= LARGEST_SCORE).all(), "edges are not scores")
    require((np.diff(edges) > 0).all(), "edges are not in increasing order")
    names, kind, keys = _about(arrays["about"])
    segments = len(keys)
    require(by_segment.shape == (segments, 3), f"by_segment has the shape {by_segment.shape}")
    require(by_bin.shape == (len(places), 3), f"by_bin has the shape {by_bin.shape}")
    inside = (places >= 0) & (places < segments * most_bins) & (places % most_bins <= len(edges))
    require(inside.all() and (np.diff(places) > 0).all(), "places are out of range or order")
    for name in ("by_bin", "by_segment"):
        require(np.isfinite(arrays[name]).all(), f"{name} is not finite")
    require((by_segment >= 0).all() and (by_bin[:, 0] >= 0).all(), "a mass is negative")
    require((by_bin[:, 1] > 0).all(), "total is not above 0")
    largest = LARGEST_SCORE * (1 + _ROUNDING)
    require((np.abs(by_bin[:, 2]) <= by_bin[:, 1] * largest).all(), "moments are too large")
    return {**arrays, "names": names, "kind": kind, "keys": keys}


def _about(values: Any) -> tuple[tuple[str, ...], str | None, list[Key]]:
    """The columns, the kind of evidence, and the keys."""
    try:
        names, kind, given = json.loads(values.tobytes())
        keys = [tuple(key) for key in given]
    except (TypeError, ValueError, RecursionError):
        raise ValueError("about does not hold columns, a kind of evidence and keys") from None
    texts = [text for key in keys for text in key]
    is_text = isinstance(names, list) and all(isinstance(text, str) for text in names + texts)
    require(is_text and isinstance(kind, str | None), "about has other types than text")
    require(all(keys) and len(set(keys)) == len(keys), "keys are not different and of some values")
    deepest = max(map(len, keys), default=0)
    require(not names or deepest <= len(names), f"keys have more values than {tuple(names)}")
    return tuple(names), kind, keys


def require(holds: Any, otherwise: str) -> None:
    """Raise a `ValueError` with this text unless something holds."""
    if not holds:
        raise ValueError(otherwise)
