"""The content of a saved summary, checked: what is read from a file is not trusted.

Each rule is one that every summary made from rows obeys. Rules about sums allow for their rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.npz import Arrays
from calibrank._internal.rules import LARGEST_SCORE
from calibrank._internal.validation import Floats
from calibrank.summary.bins import Masses
from calibrank.summary.grid import (
    CAPACITY,
    DOUBLE,
    MOST_DISTINCT,
    Grid,
    Keys,
    Placement,
    with_both_zeros,
)

VERSION = 2
"""2: the spread of scores in a bin, and the placement of the grid."""

# A summary of 2**20 distinct scores takes 80 MB.
LARGEST_FILE = 2**27

# Relative error of a sum over many rows; one row is far above it, even in the largest bins.
_ROUNDING = 1e-9

_NAMES = frozenset({"version", "scores", "keys", "masses", "rows", "low", "high", "grid", "kind"})
_LONGEST_KIND = 200


class Content(NamedTuple):
    """The fields of a summary."""

    scores: Floats
    masses: Masses
    rows: int
    low: float
    high: float
    kind: str
    grid: Grid | None
    keys: Keys


def pack(content: Any) -> Arrays:
    """The fields of a summary as arrays, by name."""
    grid: list[float] = []
    if content.grid is not None:
        grid = [content.grid.top, content.grid.bits, *content.grid.placement]
    arrays: dict[str, Any] = {
        "version": np.int64(VERSION),
        "scores": content.scores,
        "keys": content.keys,
        "masses": np.array(content.masses),
        "rows": np.int64(content.rows),
        "low": np.float64(content.low),
        "high": np.float64(content.high),
        "grid": np.array(grid, dtype=np.float64),
        "kind": np.array(content.kind),
    }
    return arrays


def unpack(arrays: Arrays) -> Content:
    """The fields that `pack` packed, checked; a `ValueError` says what is wrong with others."""
    version = int(_number(arrays, "version", np.int64))
    if version > VERSION:
        raise ValueError(f"its version is {version}, upgrade calibrank")
    _require(version == VERSION, f"its version is {version}, and {VERSION} is needed")
    unknown = sorted(_NAMES.symmetric_difference(arrays))
    _require(not unknown, f"its arrays are wrong: {', '.join(unknown)} missing or unknown")
    content = _content(arrays)
    _check_scores(content)
    _check_masses(content)
    if content.grid is None:
        _check_distinct(content)
    else:
        _check_bins(content, content.grid)
    return content


def _content(arrays: Arrays) -> Content:
    """The fields, each of its type and shape."""
    scores = _array(arrays, "scores", np.float64, 1)
    bins = len(scores)
    _require(0 < bins <= MOST_DISTINCT, f"it has {bins:,} bins, not 1 to {MOST_DISTINCT:,}")
    masses = _array(arrays, "masses", np.float64, 2)
    fields = len(Masses._fields)
    _require(masses.shape == (fields, bins), f"masses have the shape {masses.shape}")
    return Content(
        scores=scores,
        masses=Masses(*masses),
        rows=int(_number(arrays, "rows", np.int64)),
        low=float(_number(arrays, "low", np.float64)),
        high=float(_number(arrays, "high", np.float64)),
        kind=_kind(arrays["kind"]),
        grid=_grid(_array(arrays, "grid", np.float64, 1)),
        keys=_array(arrays, "keys", np.int64, 1),
    )


def _array(arrays: Arrays, name: str, dtype: Any, ndim: int) -> npt.NDArray[Any]:
    values = arrays[name]
    _require(values.ndim == ndim, f"{name} has {values.ndim} dimensions, not {ndim}")
    # Of either byte order: files move between machines.
    _require(values.dtype.newbyteorder("=") == dtype, f"{name} is of type {values.dtype}")
    return values.astype(dtype)


def _number(arrays: Arrays, name: str, dtype: Any) -> Any:
    _require(name in arrays, f"{name} is missing")
    return _array(arrays, name, dtype, 0)[()]


def _kind(values: npt.NDArray[Any]) -> str:
    _require(values.ndim == 0 and values.dtype.kind == "U", "kind is not a text")
    kind = str(values)
    _require(0 < len(kind) <= _LONGEST_KIND and kind.isprintable(), "kind is not a name")
    return kind


def _grid(values: npt.NDArray[Any]) -> Grid | None:
    if not len(values):
        return None
    _require(len(values) == 4, f"grid has {len(values)} numbers, not 4")
    _require(np.isfinite(values).all(), "grid is not finite")
    top, bits, origin, octaves = values.tolist()
    for name, number in {"top": top, "bits": bits, "octaves": octaves}.items():
        _require(number == int(number), f"the grid's {name} is {number}, not a whole number")
    _require(-DOUBLE.bias - DOUBLE.mantissa <= top <= DOUBLE.bias + 1, f"grid ends at 2**{top:g}")
    _require(0 <= bits <= DOUBLE.mantissa, f"grid keeps {bits:g} bits")
    _require(0 <= octaves <= 2 * DOUBLE.bias, f"grid has {octaves:g} octaves")
    _require(abs(origin) <= LARGEST_SCORE, f"the origin of the grid is {origin:g}")
    return Grid(int(top), int(bits), Placement(origin, int(octaves)))


def _check_scores(content: Content) -> None:
    scores = content.scores
    _require(np.abs(scores).max() <= LARGEST_SCORE, "scores are not finite and within +-1e30")
    ends = np.array([content.low, content.high])
    _require(np.abs(ends).max() <= LARGEST_SCORE, "low and high are not scores")
    is_inside = (scores >= content.low) & (scores <= content.high)
    _require(is_inside.all(), "scores lie outside [low, high]")
    _require(content.rows >= len(scores), f"{content.rows:,} rows are in {len(scores):,} bins")


def _check_masses(content: Content) -> None:
    masses = content.masses
    for name, sums in zip(Masses._fields, masses, strict=True):
        _require(np.isfinite(sums).all(), f"{name} is not finite")
    _require((masses.total > 0).all(), "total is not above 0")
    slack = _ROUNDING * masses.total
    _require((masses.positive >= -slack).all(), "positive is negative")
    # A moment is a mass times the mean offset of the bin, which lies within the range.
    origin = 0.0 if content.grid is None else content.grid.origin
    largest = max(abs(content.low - origin), abs(content.high - origin), abs(origin))
    largest *= 1 + _ROUNDING
    bound = (np.abs(masses.positive) + slack) * largest
    _require((np.abs(masses.positive_moment) <= bound).all(), "positive_moment is too large")
    gap = np.abs(masses.moment - masses.total * (content.scores - origin))
    _require((gap <= slack * largest).all(), "moment does not match the scores")
    # By Cauchy and Schwarz; the second moment of one score is its square.
    smallest = masses.moment**2 / masses.total
    spread = masses.second_moment - smallest
    square = slack * largest**2
    _require((spread >= -square).all(), "second_moment is too small for the moment")
    _require(
        (masses.second_moment <= masses.total * largest**2 + square).all(),
        "second_moment is too large",
    )
    _require(content.grid is not None or (spread <= square).all(), "second_moment does not match")
    square_slack = _ROUNDING * masses.total**2
    for name in ("positive_squared", "cross", "total_squared"):
        _require((getattr(masses, name) >= -square_slack).all(), f"{name} is negative")


def _check_distinct(content: Content) -> None:
    """Each bin is one distinct score."""
    scores = content.scores
    _require((np.diff(scores) > 0).all(), "scores are not in increasing order")
    _require(content.low == scores[0] and content.high == scores[-1], "low and high do not match")
    _require(not len(content.keys), "there are keys without a grid")


def _check_bins(content: Content, grid: Grid) -> None:
    """Each bin is one of the grid, and holds its mean score."""
    keys = content.keys
    _require(len(keys) == len(content.scores), "there is not one key per bin")
    _require((np.diff(keys) > 0).all(), "keys are not in increasing order")
    _require(len(keys) <= CAPACITY, f"it has {len(keys):,} bins of a grid, more than {CAPACITY:,}")
    ends = np.array(with_both_zeros(content.low - grid.origin, content.high - grid.origin))
    largest = float(np.abs(ends).max())
    _require(largest <= np.ldexp(1.0, grid.top), f"scores reach beyond the grid, to {largest:.4g}")
    first, last = grid.keys_of_offsets(ends).tolist()
    _require(last - first < CAPACITY, f"the grid has {last - first + 1:,} bins")
    _require(first <= keys[0] and keys[-1] <= last, "keys lie outside [low, high]")
    inner = grid.inner_edges(keys)
    # Keys count away from zero on either side: the next bin outwards starts where this one ends.
    outer = grid.inner_edges(np.where(keys < 0, keys - 1, keys + 1))
    slack = _ROUNDING * max(largest, abs(grid.origin))
    offsets = content.scores - grid.origin
    is_inside = offsets >= np.minimum(inner, outer) - slack
    is_inside &= offsets <= np.maximum(inner, outer) + slack
    _require(is_inside.all(), "scores lie outside their bins")


def _require(holds: Any, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
