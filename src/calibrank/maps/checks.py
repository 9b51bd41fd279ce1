"""What the constructors of curves and terms require of their numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from calibrank._internal.arguments import text
from calibrank.errors import DataError

_LARGEST_NUMBER = 1e9


def require(holds: object, subject: str, rule: str, got: object = "") -> None:
    """Raise a `DataError` unless a rule holds."""
    if not holds:
        raise DataError(subject, rule, got)


def require_one_of(name: str, value: str, known: Collection[str]) -> None:
    """Raise a `DataError` unless a text is one of those that are known."""
    require(value in known, name, f"be one of {', '.join(known)}", f"{value!r}")


def require_rows(name: str, found: int, rows: int) -> None:
    """Raise a `DataError` unless a column has one value per score."""
    require(found == rows, f"column {name!r}", f"have one value per score ({rows})", found)


def require_names(columns: Sequence[str], what: str) -> None:
    """Raise a `DataError` unless these are one or more different names."""
    for name in columns:
        text(what, name, "It names a column.")
    is_set = columns and len(set(columns)) == len(columns)
    require(is_set, what, "be one or more different column names", columns)


def require_sizes(what: str, count: int, *columns: Sequence[object]) -> None:
    """Raise a `DataError` unless each column has so many values."""
    sizes = [*map(len, columns)]
    require({*sizes} == {count}, what, f"have {count} values each", " and ".join(map(str, sizes)))


def require_none_negative(what: str, values: Sequence[float]) -> None:
    """Raise a `DataError` if a number is below 0, or NaN."""
    lowest = np.asarray(values, np.float64).min(initial=0.0)
    require(lowest >= 0, what, "not be negative", float(lowest))


def require_finite(what: str, values: Sequence[float]) -> None:
    """Raise a `DataError` if a number is so large that sums of log odds would not be finite."""
    found = np.asarray(values, np.float64)
    largest = found[np.abs(found).argmax()] if len(found) else 0.0
    require(abs(largest) <= _LARGEST_NUMBER, what, "lie within +-1e9", float(largest))


def require_increasing(what: str, values: Sequence[float]) -> None:
    """Raise a `DataError` unless numbers are strictly increasing."""
    is_increasing = all(low < high for low, high in pairwise(values))
    require(is_increasing, what, "be strictly increasing")


def require_range(low: float, high: float) -> None:
    """Raise a `DataError` unless a range of scores has a width."""
    require(low < high, "low", "be below high", f"{low} and {high}")


def scaled(values: Sequence[float], factor: float) -> tuple[float, ...]:
    """Numbers times a factor."""
    return tuple(factor * value for value in values)
