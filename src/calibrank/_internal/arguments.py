"""Check arguments that are single values: numbers, seeds, paths, and objects of one type.

Constructors and public functions call these once; arrays are checked by `validation`.
"""

from __future__ import annotations

import datetime as dt
import operator
import os
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from calibrank._internal.rules import Range
from calibrank.errors import DataError

MOST_BINS = 10**6
"""More bins than this hold nothing, and only fill the memory."""

LARGEST_COUNT = 2**31 - 1
"""The largest count that any argument may be: a larger one is a mistake, or fills any memory."""

_LONGEST_SHOWN = 60
_LONGEST_NAME = 255
_MOST_LISTED = 20
_LONGEST_PATH = 4096

# Values that are told by what they are; of others, the type says more.
_TELLING = (str, bytes, bool, int, float, complex, np.generic, type(None))

Kind = TypeVar("Kind")


def shown(value: object) -> str:
    """A value as an error message shows it: short, in one line, and without control characters."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if not isinstance(value, _TELLING):
        return type(value).__name__
    try:
        text = repr(value)
    except ValueError:  # an integer with too many digits to print
        return "a huge integer"
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def listed(names: Iterable[object]) -> str:
    """Names as an error message lists them: quoted, and the first ones of many."""
    quoted = [shown(str(name)) for name in names]
    if len(quoted) <= _MOST_LISTED:
        return ", ".join(quoted) or "none"
    return f"{', '.join(quoted[:_MOST_LISTED])} and {len(quoted) - _MOST_LISTED:,} more"


def whole(name: str, value: Any, low: int = 0, high: int = LARGEST_COUNT, remedy: str = "") -> int:
    """An integer of Python or NumPy between `low` and `high`, as Python's."""
    number = _as_integer(value)
    if number is not None and low <= number <= high:
        return number
    is_bounded = high < LARGEST_COUNT or (number is not None and number > high)
    rule = f"{low:,} to {high:,}" if is_bounded else f"{low} or more"
    raise DataError(name, f"be a whole number, {rule}", shown(value), remedy)


def whole_numbers(name: str, values: Any, low: int, high: int, example: str) -> list[int]:
    """A sequence of integers between `low` and `high`, not empty."""
    is_column = isinstance(values, np.ndarray) and values.ndim == 1
    if isinstance(values, str | bytes) or not (isinstance(values, Sequence) or is_column):
        raise DataError(name, "be a list of whole numbers", shown(values), example)
    if len(values) == 0:
        raise DataError(name, "hold at least one whole number", "none", example)
    return [whole(name, value, low, high) for value in values]


def _as_integer(value: Any) -> int | None:
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(_without_array(value))
    except TypeError:
        return None


def real(name: str, value: Any, interval: str = "(-inf, inf)", remedy: str = "") -> float:
    """A number of Python or NumPy within an interval such as "(0, 1]", as a float."""
    allowed = Range(interval)
    number = _as_float(_without_array(value))
    if number is not None and allowed.holds(number):
        return number
    raise DataError(name, allowed.as_rule(), shown(value), remedy)


def _as_float(value: Any) -> float | None:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond the largest float
        return None


def _without_array(value: Any) -> Any:
    """The number in an array or tensor of no dimensions; anything else as it is."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def instance(
    name: str, value: Any, kind: type[Kind] | tuple[type[Any], ...], remedy: str = ""
) -> Kind:
    """An object of one type, or of one of several."""
    if isinstance(value, kind):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = " or ".join(each.__name__ for each in kinds)
    if isinstance(value, type) and issubclass(value, kind):
        remedy = f"Create one: {value.__name__}(...)."
    raise DataError(name, f"be of type {names}", shown(value), remedy)


def text(name: str, value: Any, remedy: str = "") -> str:
    """A string that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise DataError(name, "be a string", shown(value), remedy)


def label(name: str, value: Any, remedy: str = "") -> str:
    """A string that is printed as it is: not empty, short, and of printable characters."""
    given = text(name, value, remedy)
    if given.isprintable() and len(given) <= _LONGEST_NAME:
        return given
    rule = f"be at most {_LONGEST_NAME} printable characters"
    raise DataError(name, rule, shown(value), remedy)


def date_of(name: str, value: Any) -> str:
    """A date in the one form that sorts as text."""
    try:
        parsed = dt.date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        parsed = None
    # Some versions of Python read other forms, such as 20260131.
    if parsed is None or parsed != value:
        raise DataError(name, "be a date such as 2026-01-31", shown(value))
    return parsed


def seeded(seed: Any, *stream: int) -> np.random.Generator:
    """A generator as it is, or a new one from an integer seed.

    Functions that share a seed pass different `stream` numbers, so that their draws are
    independent.
    """
    require_seed(seed)
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng([int(seed), *stream] if stream else int(seed))


def require_seed(seed: Any) -> None:
    """Check a seed that will be used later."""
    if isinstance(seed, np.random.Generator):
        return
    number = _as_integer(seed)
    if number is None or number < 0:
        rule = "be a whole number, 0 or more, or a numpy.random.Generator"
        raise DataError("seed", rule, shown(seed), "Use e.g. seed=0.")


def path_of(name: str, value: Any) -> Path:
    """A path from a string or a path."""
    if isinstance(value, bytes) or not isinstance(value, str | os.PathLike):
        raise DataError(name, "be a string or a path", shown(value))
    written = os.fspath(value)
    if not isinstance(written, str) or not written or "\0" in written:
        raise DataError(name, "be the name of a file or folder", shown(written))
    try:
        os.fsencode(written)
    except UnicodeEncodeError:
        raise DataError(name, "be text that can be encoded", shown(written)) from None
    path = Path(written)
    too_long = [part for part in path.parts if len(os.fsencode(part)) > _LONGEST_NAME]
    if too_long or len(os.fsencode(written)) > _LONGEST_PATH:
        raise DataError(
            name, f"be at most {_LONGEST_NAME} bytes per part", shown(written), "Shorten it."
        )
    return path


def regular_file(path: Path, rule: str, remedy: str) -> Path:
    """Require a file to read; `rule` completes "<path> must be ...", such as "a saved map"."""
    if path.is_file():
        return path
    if path.is_dir():
        found = "a folder"
    else:
        found = "a pipe or a device" if path.exists() else "no such file"
    raise DataError(path, f"be {rule}", found, remedy)
