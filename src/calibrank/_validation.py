"""Arrays at the edge: what a user hands in is checked here, once, so the inside can trust it."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from calibrank.errors import DataError

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Numbers: TypeAlias = npt.ArrayLike
Ids: TypeAlias = npt.NDArray[Any]
IdsLike: TypeAlias = npt.NDArray[Any] | Sequence[Any]

LARGEST_SCORE = 1e30
"""Beyond this a score is padding (float32's -3.4e38, float64's -1.8e308), not an opinion."""

_BLOCK = 2**15  # rows checked at a time: temporaries stay in cache

_GPU_BLOCK = 2**26

SCORE_RULE = "be finite and within +-1e30"
SCORE_REMEDY = "Drop padded, masked or missing rows before calibrating: they are not scores."


def is_tensor(values: Any) -> bool:
    """Whether it is a tensor of torch's, which nothing here needs to load to tell."""
    return type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "is_cuda")


def on_gpu(values: Any) -> bool:
    """Whether it is a tensor that numpy cannot see: it is worked on where it is."""
    return is_tensor(values) and bool(values.is_cuda)


def floats(name: str, values: Numbers) -> Floats:
    """Numbers of any shape as float32 or float64 (other number types become float64); a GPU's tensor as it is."""
    if is_tensor(values):
        values = cast("Any", values).detach()
        if on_gpu(values):
            return cast("Floats", values)
    if (
        "numpy.ma" in sys.modules
        and isinstance(values, np.ma.MaskedArray)
        and np.ma.is_masked(values)
    ):
        raise DataError(
            f"{name} must be numbers that count, got masked ones. Take them out first: .compressed()."
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(
            f"{name} must be one array of numbers, got rows of unlike length: {error}."
        ) from None
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind in "USMmcV":
        raise DataError(
            f"{name} must be real numbers, got {array.dtype} values such as {_sample(array)}."
        )
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be real numbers, got {_sample(array)}: {error}.") from None


def column(name: str, values: Numbers, rows: int | None = None) -> Floats:
    """One number a row; with `rows`, exactly that many."""
    array = floats(name, values)
    if array.ndim != 1:
        raise DataError(
            f"{name} must have one dimension, got shape {array.shape}. Flatten it first."
        )
    if rows is not None and len(array) != rows:
        raise DataError(
            f"{name} must have one value a row, got {len(array)} values for {rows} rows."
        )
    return array


def ids(name: str, values: IdsLike, rows: int | None = None) -> Ids:
    """One user or item id a row: integers or strings."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(
            f"{name} must have one dimension, got shape {array.shape}. Flatten it first."
        )
    if rows is not None and len(array) != rows:
        raise DataError(
            f"{name} must have one value a row, got {len(array)} values for {rows} rows."
        )
    if array.dtype.kind == "f":
        require(
            np.isfinite, name, "be ids (integers or strings)", array, "Drop rows without an id."
        )
    elif array.dtype.kind == "O":
        require(
            _is_present, name, "be ids (integers or strings)", array, "Drop rows without an id."
        )
        if len({isinstance(value, str) for value in array}) > 1:
            raise DataError(
                f"{name} must be ids of one kind, got both texts and numbers. Convert them first."
            )
        array = np.array(array.tolist())
    return array


def row_numbers(name: str, values: Ids, size: int) -> npt.NDArray[np.intp]:
    """Ids that number the rows of a table of that size."""
    if values.dtype.kind not in "iu":
        raise DataError(
            f"{name} must be numbers below {size}, got {values.dtype} values. Recode the ids."
        )

    def is_row(rows: Ids) -> npt.NDArray[np.bool_]:
        return (rows >= 0) & (rows < size)

    require(is_row, name, f"be numbers below {size}", values, "Recode the ids.")
    return values.astype(np.intp)


def require(
    rule: Callable[[Any], npt.NDArray[np.bool_]],
    name: str,
    words: str,
    values: npt.NDArray[Any],
    remedy: str,
) -> None:
    """Raise a `DataError` about the first row that breaks a rule; `words` say the rule."""
    flat = values.reshape(-1)
    block = _GPU_BLOCK if on_gpu(flat) else _BLOCK
    if all(rule(flat[start : start + block]).all() for start in range(0, len(flat), block)):
        return
    good = np.asarray(cast("Any", rule(flat)).cpu()) if on_gpu(flat) else rule(flat)
    row = int(np.argmin(good))
    bad = int(good.size - np.count_nonzero(good))
    more = f" ({bad:,} such rows)" if bad > 1 else ""
    raise DataError(f"{name} must {words}, got {flat[row]} at row {row}{more}. {remedy}")


def is_binary(values: Floats) -> npt.NDArray[np.bool_]:
    """0 or 1: the only numbers that are their own square."""
    return values * values == values


def is_mass(values: Floats) -> npt.NDArray[np.bool_]:
    """Finite and not negative."""
    return (values >= 0) & (values < np.inf)


def is_probability(values: Floats) -> npt.NDArray[np.bool_]:
    """Within [0, 1]."""
    return (values >= 0) & (values <= 1)


def add_up(bins: npt.NDArray[np.integer[Any]], masses: Floats | None, size: int = 0) -> Floats:
    """The sum of masses in each bin, from bin 0 on; without masses, the number of rows."""
    sums: npt.NDArray[np.float64] = np.bincount(bins, masses, size).astype(np.float64, copy=False)
    return sums


def starts_of(ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a new value starts among values in order (`np.unique` takes longer to load than most fits take)."""
    starts = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    return starts


def score_column(scores: Numbers) -> tuple[Floats, float, float]:
    """Scores to fit on, with the lowest and the highest: one dimension, not empty, finite, no padding sentinels."""
    array = column("scores", scores)
    if len(array) == 0:
        raise DataError("scores must hold at least one row, got none.")
    return array, *require_scores(array)


def require_scores(scores: Floats) -> tuple[float, float]:
    """The lowest and the highest score; they tell whether all are fine, for a NaN fails both comparisons."""
    if len(scores.reshape(-1)) == 0:
        return 0.0, 0.0
    low, high = map(
        float, cast("Any", scores).aminmax() if on_gpu(scores) else (scores.min(), scores.max())
    )
    # The nearest float32 to the bound is a little above it.
    largest = (
        float(np.float32(LARGEST_SCORE)) if str(scores.dtype).endswith("float32") else LARGEST_SCORE
    )
    if low >= -largest and high <= largest:
        return low, high
    require(lambda block: abs(block) <= LARGEST_SCORE, "scores", SCORE_RULE, scores, SCORE_REMEDY)
    raise AssertionError("a score outside the bounds was not found")


def probability_column(probabilities: Numbers, rows: int | None = None) -> Floats:
    """Probabilities to judge: one dimension, within [0, 1]."""
    array = column("probabilities", probabilities, rows)
    if array.size == 0:
        raise DataError("probabilities must hold at least one row, got none.")
    require(is_probability, "probabilities", "lie in [0, 1]", array, "Calibrate scores first.")
    return array


def _is_present(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    def is_missing(value: Any) -> bool:
        return (
            value is None
            or type(value).__name__ == "NAType"
            or (isinstance(value, float) and math.isnan(value))
        )

    return ~np.array([is_missing(value) for value in values], dtype=bool)


def _sample(array: npt.NDArray[Any]) -> str:
    return repr(array.ravel()[0]) if array.size else "nothing"
