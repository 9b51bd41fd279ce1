"""Check and convert user input once, at public functions, so that internal code can trust it."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import shown
from calibrank._internal.rules import COLUMN_RULES, remedy_for
from calibrank._internal.rules import LARGEST_SCORE as LARGEST_SCORE  # noqa: PLC0414  (re-exported)
from calibrank.errors import DataError

Numbers: TypeAlias = npt.ArrayLike
"""Anything that NumPy converts to an array of numbers: a list, an array, a column, a tensor."""

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
"""A NumPy array of float32 or float64."""

IdsLike: TypeAlias = npt.NDArray[Any] | Sequence[Any]
"""User or item ids as a caller gives them: a sequence of integers or of strings."""

Ids: TypeAlias = npt.NDArray[Any]
"""A checked NumPy array of integer or string ids."""

Integers: TypeAlias = npt.NDArray[np.integer[Any]]
"""A NumPy array of integers, such as the bin of each row."""

Indices: TypeAlias = npt.NDArray[np.intp]
"""Row numbers, to index an array with."""

Mask: TypeAlias = npt.NDArray[np.bool_]
"""One boolean per row."""

# Rows checked at a time. On a CPU the temporary arrays of a block stay in the cache; on a GPU a
# block is large enough to keep the device busy and small enough to spare its memory.
_BLOCK = 2**15
_GPU_BLOCK = 2**26

# Comparing with one edge after the other takes less time than a search, and 8 bits can count them.
_MOST_EDGES = 64

# A predicate of the rule table, for callers that phrase the error for their own column.
is_probability = COLUMN_RULES["probability"].holds


def is_tensor(values: Any) -> bool:
    """Whether `values` is a torch tensor; finding out does not import torch."""
    return type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "is_cuda")


def on_gpu(values: Any) -> bool:
    """Whether `values` is a tensor in GPU memory, which NumPy cannot read."""
    return is_tensor(values) and bool(values.is_cuda)


def as_frame(values: Any) -> Any:
    """A dataframe of any library as one of narwhals; None if it is no dataframe."""
    import narwhals as nw  # noqa: PLC0415  (only frames need it)

    try:
        frame: Any = nw.from_native(values, pass_through=True)
    except nw.exceptions.DuplicateError:
        # The columns of an Arrow table are data; its names are elsewhere.
        names = list(getattr(values, "column_names", values.columns))
        found = ", ".join(sorted({repr(name) for name in names if names.count(name) > 1}))
        raise DataError("frame", "have columns of different names", found, "Rename one.") from None
    return None if frame is values else frame


def floats(name: str, values: Numbers) -> Floats:
    """Convert numbers of any shape to float32 or float64 (other types become float64).

    A tensor on a GPU is returned as it is.
    """
    # The most frequent case first: it matters where a batch has a thousand scores.
    if type(values) is np.ndarray and values.dtype.char in "fd" and values.dtype.isnative:
        return values
    if is_tensor(values):
        tensor = cast("Any", values).detach()
        if on_gpu(tensor):
            return cast("Floats", tensor)
        # NumPy has no such type.
        values = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    require_unmasked(name, values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(
            name, "be one array of numbers", "rows of different lengths", "Pass one number per row."
        ) from None
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    return _from_objects(name, array.astype(object))


def _from_objects(name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Python objects, as columns of dataframes are, as numbers; NumPy would parse text."""
    if array.ndim == 0:
        raise _not_a_column(name, array)
    for value in array.flat:
        is_number = hasattr(value, "__float__") and not isinstance(value, str | bytes)
        if not is_number and not is_missing(value):
            raise DataError(name, "be real numbers", shown(value), "Convert it to numbers first.")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise DataError(
            name, "be real numbers", "an integer beyond the largest float", "Rescale it."
        ) from None
    except (TypeError, ValueError):  # pandas' missing value, or arrays among numbers
        raise DataError(name, "be one number per row", "other objects", "Convert it.") from None


def _not_a_column(name: str, array: npt.NDArray[Any]) -> DataError:
    return DataError(name, "be one number per row", shown(array.item()), "Pass an array or a list.")


def require_unmasked(name: str, values: Any) -> None:
    """Refuse an array with masked values, which NumPy would use as if they were valid."""
    # Importing numpy.ma takes long; if nobody has done it, there are no masked arrays.
    if "numpy.ma" not in sys.modules:
        return
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(name, "be without masked values", "some", "Drop them first: .compressed().")


def column(name: str, values: Numbers, rows: int | None = None) -> Floats:
    """Convert one number per row to floats; with `rows`, require exactly that many."""
    array = floats(name, values)
    _require_shape(name, array, rows)
    return array


def _require_shape(name: str, array: npt.NDArray[Any], rows: int | None) -> None:
    if array.ndim == 0:
        raise _not_a_column(name, array)
    if array.ndim != 1:
        raise DataError(name, "have one dimension", f"shape {array.shape}", "Flatten it first.")
    if rows is not None and len(array) != rows:
        raise wrong_length(name, len(array), rows)


def wrong_length(name: str, values: int, rows: int) -> DataError:
    """The error about a column that has more or fewer values than the others."""
    found = f"{values} values for {rows} rows"
    return DataError(name, "have one value per row", found, "Pass columns of the same rows.")


def ids(name: str, values: IdsLike, rows: int | None = None) -> Ids:
    """Convert one user or item id per row to an array of integers or strings."""
    array = _id_array(name, values)
    _require_shape(name, array, rows)
    if array.dtype.kind == "O":
        _require_ids(_is_present, name, array)
        array = _array_of_objects(name, array)
    if array.dtype.kind == "f":
        _require_ids(np.isfinite, name, array)
        remedy = "Read the ids as integers or as strings: other decimals are not exact."
        require(_is_exact, name, "be whole and below 2^53 if they are decimals", array, remedy)
    elif array.dtype.kind == "M":
        _require_ids(lambda values: ~np.isnat(values), name, array)
    elif array.dtype.kind not in "biuUS":
        raise DataError(
            name, "be ids (integers or strings)", f"{array.dtype} values", "Convert them."
        )
    return _as_int64(array)


def _id_array(name: str, values: IdsLike) -> npt.NDArray[Any]:
    require_unmasked(name, values)
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise DataError(name, "be one id per row", shown(values), "Pass a list of ids.")
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(
            name, "be one id per row", "lists of different lengths", "Pass a list of ids."
        ) from None
    # A list of integers of which some fit only int64 and others only uint64 becomes floats; one of
    # texts and NaN becomes texts.
    if array.dtype.kind in "fUS" and isinstance(values, list | tuple):
        array = np.asarray(values, dtype=object)
    return array


def _array_of_objects(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Python objects as an array of one kind of id, without merging any two of them."""
    objects = array.tolist()
    kinds = {_kind_of_id(value) for value in objects}
    if kinds == {"string", "number"}:
        raise DataError(
            name, "be ids of one kind", "both strings and numbers", "Convert them first."
        )
    if "other" in kinds:
        value = next(value for value in objects if _kind_of_id(value) == "other")
        raise DataError(name, "be ids (integers or strings)", shown(value), "Convert them first.")
    is_integer = bool(objects) and all(isinstance(value, Integral) for value in objects)
    # NumPy would make decimals of integers of which some fit only int64 and others only uint64.
    fits_uint64 = is_integer and min(objects) >= 0 and max(objects) < 2**64
    converted = np.array(objects, dtype=np.uint64) if fits_uint64 else np.array(objects)
    if converted.dtype.kind == "O" or (is_integer and converted.dtype.kind == "f"):
        raise DataError(
            name, "be integers of 64 bits or strings", "larger integers", "Convert them to strings."
        )
    return converted


def _kind_of_id(value: object) -> str:
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, Real) else "other"


def _is_exact(values: Ids) -> Mask:
    """Whether decimals are whole, and small enough to tell neighbouring integers apart."""
    return (np.abs(values) < 2**53) & (values == np.trunc(values))


def _as_int64(array: Ids) -> Ids:
    """Unsigned integers as signed ones where they fit: comparing the two would round them."""
    if array.dtype.kind != "u":
        return array
    if array.dtype.itemsize == 8 and array.size and array.max() > np.iinfo(np.int64).max:
        return array
    return array.astype(np.int64)


def _require_ids(is_id: Callable[[Any], Mask], name: str, array: Ids) -> None:
    require(is_id, name, "be ids (integers or strings)", array, "Drop rows without an id.")


def _is_present(values: Ids) -> Mask:
    return np.array([not is_missing(value) for value in values], dtype=bool)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or the missing value of pandas."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float) and math.isnan(value)


def row_numbers(name: str, values: Ids, size: int) -> Indices:
    """Require ids that are row numbers of a table with `size` rows."""
    rule, remedy = f"be numbers below {size}", "Recode the ids."
    if values.dtype.kind not in "iu":
        raise DataError(name, rule, f"{values.dtype} values", remedy)
    require(lambda rows: (rows >= 0) & (rows < size), name, rule, values, remedy)
    return values.astype(np.intp)


def require(
    rule: Callable[[Any], Mask],
    name: str,
    statement: str | Callable[[float], str],
    values: npt.NDArray[Any],
    remedy: str | Callable[[float], str],
) -> None:
    """Raise a `DataError` about the first row where `rule` is false.

    `statement` words the rule: it completes the sentence "<name> must ...". It may depend on the
    invalid value, and so may the remedy.
    """
    flat = values.reshape(-1)
    block = _GPU_BLOCK if on_gpu(flat) else _BLOCK
    if all(rule(flat[start : start + block]).all() for start in range(0, len(flat), block)):
        return
    valid: Any = rule(flat)
    if on_gpu(flat):
        valid = np.asarray(valid.cpu())
    row = int(np.argmin(valid))
    invalid = int(valid.size - np.count_nonzero(valid))
    count = f" in {invalid:,} rows, the first" if invalid > 1 else ""
    # Ids may be anything; rules of columns, which word themselves, are about numbers.
    words = statement if isinstance(statement, str) else statement(float(flat[row]))
    advice = remedy if isinstance(remedy, str) else remedy(float(flat[row]))
    raise DataError(name, words, f"{flat[row]}{count}", advice, row)


def require_role(role: str, name: str, values: Floats) -> None:
    """Raise a `DataError` about the first row that breaks the column rule of `role`."""
    rule = COLUMN_RULES[role]
    # Of integers the extremes prove all: there is none between 0 and 1. They take one pass.
    is_whole = "int" in str(values.dtype) and len(values.reshape(-1)) > 0
    if is_whole and rule.holds(np.array(_extremes(values))).all():
        return
    require(rule.holds, name, rule.statement_for, values, partial(remedy_for, role))


def score_column(scores: Numbers, name: str = "scores") -> tuple[Floats, float, float]:
    """Check a nonempty column of scores; return it with its lowest and highest value."""
    array = column(name, scores)
    if len(array) == 0:
        raise DataError(name, "hold at least one row", "none")
    return array, *require_scores(array, name)


def require_scores(scores: Floats, name: str = "scores") -> tuple[float, float]:
    """Check scores of any shape; return the lowest and the highest (0 and 0 if there are none)."""
    if len(scores.reshape(-1)) == 0:
        return 0.0, 0.0
    low, high = _extremes(scores)
    # A float32 array compares with the float32 nearest to the bound, which is a little above it.
    is_float32 = str(scores.dtype).endswith("float32")
    largest = float(np.float32(LARGEST_SCORE)) if is_float32 else LARGEST_SCORE
    # One pass instead of a comparison per row: a NaN makes both extremes NaN and fails as well.
    if low >= -largest and high <= largest:
        return low, high
    require_role("score", name, scores)
    raise changed(name)


def changed(name: str) -> DataError:
    """The error that another thread wrote into a column between two passes over it."""
    return DataError(name, "stay as they are while they are read", remedy="Pass a copy.")


def _extremes(scores: Floats) -> tuple[float, float]:
    if on_gpu(scores):
        low, high = cast("Any", scores).aminmax()
        return float(low), float(high)
    return float(scores.min()), float(scores.max())


def probability_column(probabilities: Numbers, rows: int | None = None) -> Floats:
    """Check probabilities to evaluate: one dimension, not empty, within [0, 1]."""
    array = column("probabilities", probabilities, rows)
    if array.size == 0:
        raise DataError("probabilities", "hold at least one row", "none")
    require_role("probability", "probabilities", array)
    return array


def add_up(bins: Integers, masses: Floats | None, size: int = 0) -> Floats:
    """Sum the masses in each bin, from bin 0 on; without masses, count the rows."""
    return np.bincount(bins, masses, size).astype(np.float64, copy=False)


def row_parts(rows: int) -> Iterator[slice]:
    """Slices of so few rows that columns computed from them stay in cache.

    Sums of large tables take half the time so: new memory has to be cleared first.
    """
    for start in range(0, rows, _BLOCK):
        yield slice(start, min(start + _BLOCK, rows))


def bins_between(edges: Floats, values: Floats) -> Indices:
    """How many edges are at or below each value; no value is NaN.

    As `np.searchsorted(edges, values, side="right")`, in a quarter of the time if edges are few.
    """
    if len(edges) > _MOST_EDGES:
        return np.searchsorted(edges, values, side="right")
    bins = np.empty(len(values), dtype=np.intp)
    for part in row_parts(len(values)):
        counts = np.zeros(part.stop - part.start, dtype=np.uint8)
        for edge in edges:
            counts += values[part] >= edge
        bins[part] = counts
    return bins


def starts_of(ordered: npt.NDArray[Any]) -> Mask:
    """Mark where each new value starts in a sorted array.

    It replaces `np.unique` where only this is needed: importing what that needs takes longer than
    most fits.
    """
    starts = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    return starts
