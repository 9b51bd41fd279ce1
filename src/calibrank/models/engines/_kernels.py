"""Compiled loops for training on a CPU: Adam with deferred steps, and products with a sparse graph.

Adam with weight decay updates every row at every step, although a batch has gradients for only a
few. The steps of a row without a gradient depend on that row alone. They are therefore deferred and
made up for, one after the other while the row is in cache, when a batch next needs the row. The
result is the same as if every row had been updated at every step.

Sparse matrices are symmetric and in CSR format: row `starts`, `columns` and `values`.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from calibrank.errors import MissingExtraError
from calibrank.models.engines.base import BETAS, EPSILON

try:
    from numba import njit
except ImportError as error:
    raise MissingExtraError("numba", "torch") from error

# Folders that numba keeps compiled code in, if they are set.
_FOLDERS = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")


def _can_cache() -> bool:
    """Whether compiled code can be kept from one process to the next.

    Without a folder to write to (a read-only installation without a home), numba raises an error.
    A relative folder would be one in the working folder.
    """
    folders = [os.environ[name] for name in _FOLDERS if name in os.environ]
    if not all(Path(folder).is_absolute() for folder in folders):
        return False
    try:
        njit(cache=True)(_can_cache)  # finds the folder, compiles nothing
    except RuntimeError:
        return False
    return True


_CACHE = _can_cache()

Matrix = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Columns = npt.NDArray[np.int32]

_BETA1 = np.float32(BETAS[0])
_BETA2 = np.float32(BETAS[1])
_ONE_MINUS_BETA1 = np.float32(1 - BETAS[0])
_ONE_MINUS_BETA2 = np.float32(1 - BETAS[1])
_EPSILON = np.float32(EPSILON)

# LLVM may fuse, reorder and approximate, which lets it vectorize. NaN and infinity stay exact
# ("nnan" and "ninf" are not given), so that a diverging run is noticed.
_FASTMATH = {"contract", "arcp", "reassoc", "nsz", "afn"}


def step_sizes(learning_rate: float, steps: int) -> Matrix:
    """Adam's bias corrections, one row per step from 0 (unused) to `steps`.

    The columns are the learning rate divided by 1 - beta1^t, and 1 / sqrt(1 - beta2^t), the
    factor of the square root of the second moment.
    """
    step = np.arange(steps + 1, dtype=np.float64)
    # Step 0 would divide by zero.
    step[0] = 1
    rate = learning_rate / (1 - BETAS[0] ** step)
    correction = 1 / np.sqrt(1 - BETAS[1] ** step)
    return np.column_stack([rate, correction]).astype(np.float32)


@njit(cache=_CACHE, nogil=True)
def _project(row: Matrix, squared_norm: np.float32) -> None:
    """Scale a row with this squared norm to norm 1."""
    scale = np.float32(1) / np.sqrt(squared_norm)
    for column in range(row.size):
        row[column] *= scale


@njit(cache=_CACHE, nogil=True, fastmath=_FASTMATH, error_model="numpy")
def _step_value(
    row: Matrix,
    first: Matrix,
    second: Matrix,
    column: int,
    gradient: np.float32,
    size: tuple[np.float32, np.float32],
) -> np.float32:
    """One step of Adam on one number; returns the square of its new value."""
    rate, correction = size
    mean = _BETA1 * first[column] + _ONE_MINUS_BETA1 * gradient
    square = _BETA2 * second[column] + _ONE_MINUS_BETA2 * gradient * gradient
    first[column] = mean
    second[column] = square
    row[column] -= rate * mean / (np.sqrt(square) * correction + _EPSILON)
    return row[column] * row[column]


@njit(cache=_CACHE, nogil=True, fastmath=_FASTMATH, error_model="numpy")
def _step_row(
    row: Matrix,
    first: Matrix,
    second: Matrix,
    gradient: Matrix,
    size: tuple[np.float32, np.float32],
    decay: np.float32,
    in_unit_ball: bool,  # noqa: FBT001  (numba has no keyword arguments)
) -> None:
    """One step of Adam on one row, then a projection into the unit ball where that is required."""
    squared_norm = np.float32(0)
    for column in range(row.size):
        total = gradient[column] + decay * row[column]
        squared_norm += _step_value(row, first, second, column, total, size)
    if in_unit_ball and squared_norm > 1:
        _project(row, squared_norm)


@njit(cache=_CACHE, nogil=True, fastmath=_FASTMATH, error_model="numpy")
def _step_row_without_gradient(
    row: Matrix,
    first: Matrix,
    second: Matrix,
    size: tuple[np.float32, np.float32],
    decay: np.float32,
    in_unit_ball: bool,  # noqa: FBT001  (numba has no keyword arguments)
) -> None:
    """`_step_row` with gradient 0; a separate loop, since reading zeros takes 50% longer."""
    squared_norm = np.float32(0)
    for column in range(row.size):
        squared_norm += _step_value(row, first, second, column, decay * row[column], size)
    if in_unit_ball and squared_norm > 1:
        _project(row, squared_norm)


@njit(cache=_CACHE, nogil=True)
def catch_up(
    table: Matrix,
    first: Matrix,
    second: Matrix,
    last_step: Ints,
    rows: Ints,
    now: int,
    sizes: Matrix,
    decay: np.float32,
    in_unit_ball: bool,  # noqa: FBT001  (numba has no keyword arguments)
) -> None:
    """Take the deferred steps of `rows` up to step `now`; a row may occur more than once."""
    for place in range(rows.size):
        row = rows[place]
        for step in range(last_step[row] + 1, now + 1):
            size = (sizes[step, 0], sizes[step, 1])
            _step_row_without_gradient(
                table[row], first[row], second[row], size, decay, in_unit_ball
            )
        last_step[row] = max(last_step[row], now)


@njit(cache=_CACHE, nogil=True)
def step_rows(
    table: Matrix,
    first: Matrix,
    second: Matrix,
    last_step: Ints,
    rows: Ints,
    gradients: Matrix,
    slots: Ints,
    now: int,
    sizes: Matrix,
    decay: np.float32,
    in_unit_ball: bool,  # noqa: FBT001  (numba has no keyword arguments)
) -> None:
    """Take step `now` for `rows`, all of which have taken step `now - 1`.

    The gradients of a row that occurs more than once are added up in the place of its first
    occurrence. `slots` is scratch memory with one number per row of the table.
    """
    # Only the slots of these rows are reset: clearing all would cost as much as the step.
    for place in range(rows.size):
        slots[rows[place]] = -1
    for place in range(rows.size):
        row = rows[place]
        if slots[row] < 0:
            slots[row] = place
        else:
            target = gradients[slots[row]]
            source = gradients[place]
            for column in range(source.size):
                target[column] += source[column]
    size = (sizes[now, 0], sizes[now, 1])
    for place in range(rows.size):
        row = rows[place]
        # A later occurrence has been added to the first, which has taken the step.
        if last_step[row] < now:
            gradient = gradients[place]
            _step_row(table[row], first[row], second[row], gradient, size, decay, in_unit_ball)
            last_step[row] = now


@njit(cache=_CACHE, nogil=True, fastmath=_FASTMATH)
def _add_row_product(
    starts: Ints, columns: Columns, values: Matrix, row: int, table: Matrix, target: Matrix
) -> None:
    """Add one row of the sparse matrix times the table to the target."""
    for place in range(starts[row], starts[row + 1]):
        source = table[columns[place]]
        value = values[place]
        for column in range(source.size):
            target[column] += value * source[column]


@njit(cache=_CACHE, nogil=True)
def add_product(
    base: Matrix | None,
    starts: Ints,
    columns: Columns,
    values: Matrix,
    table: Matrix,
    result: Matrix,
) -> None:
    """Write base (or 0) + matrix @ table to the result."""
    for row in range(len(table)):
        target = result[row]
        if base is None:
            target[:] = 0
        else:
            target[:] = base[row]
        _add_row_product(starts, columns, values, row, table, target)


@njit(cache=_CACHE, nogil=True)
def add_product_rows(
    base: Matrix,
    starts: Ints,
    columns: Columns,
    values: Matrix,
    rows: Ints,
    table: Matrix,
    factor: np.float32,
) -> Matrix:
    """The given rows of (base + matrix @ table) * factor."""
    result = np.empty((rows.size, table.shape[1]), dtype=np.float32)
    for place in range(rows.size):
        target = result[place]
        target[:] = base[rows[place]]
        _add_row_product(starts, columns, values, rows[place], table, target)
        target *= factor
    return result


@njit(cache=_CACHE, nogil=True, fastmath=_FASTMATH)
def scatter_product(
    starts: Ints, columns: Columns, values: Matrix, rows: Ints, some: Matrix, result: Matrix
) -> None:
    """Write x + matrix @ x, where x is zero except for the distinct `rows`, which are in `some`.

    The matrix is symmetric, so each of these rows can be added to its neighbours.
    """
    # A batch has few rows, so this visits far fewer edges than a full product.
    result[:] = 0
    for place in range(rows.size):
        result[rows[place]] += some[place]
        source = some[place]
        for edge in range(starts[rows[place]], starts[rows[place] + 1]):
            target = result[columns[edge]]
            value = values[edge]
            for column in range(source.size):
                target[column] += value * source[column]


@njit(cache=_CACHE, nogil=True)
def step_all_rows(
    table: Matrix,
    first: Matrix,
    second: Matrix,
    slots: Ints,
    some: Matrix,
    starts: Ints,
    columns: Columns,
    values: Matrix,
    propagated: Matrix,
    factor: np.float32,
    now: int,
    sizes: Matrix,
    decay: np.float32,
) -> None:
    """Take step `now` for every row, with gradient (x + matrix @ propagated) * factor.

    Row r of x is `some[slots[r]]`, or zero where `slots[r]` is negative.
    """
    size = (sizes[now, 0], sizes[now, 1])
    gradient = np.empty(table.shape[1], dtype=np.float32)
    for row in range(len(table)):
        if slots[row] < 0:
            gradient[:] = 0
        else:
            gradient[:] = some[slots[row]]
        _add_row_product(starts, columns, values, row, propagated, gradient)
        gradient *= factor
        # Graph models are not confined to the unit ball.
        unit_ball = False
        _step_row(table[row], first[row], second[row], gradient, size, decay, unit_ball)
