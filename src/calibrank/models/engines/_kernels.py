"""Compiled loops for training on a CPU: Adam on rows that are put off until needed, and spreading over a graph.

Adam with weight decay moves every row at every step, although a batch has a gradient for few. A row's lonely steps
depend on nothing but the row, so they are made up for, one after the other while it is in cache, when a batch next
needs it. The numbers are the same as if all rows had moved each time.
"""

import numpy as np
import numpy.typing as npt

from calibrank.errors import MissingExtraError
from calibrank.models.engines.base import BETAS, EPSILON

try:
    from numba import njit
except ImportError as error:
    raise MissingExtraError("numba", "torch") from error

Matrix = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]

_KEEP1, _KEEP2 = np.float32(BETAS[0]), np.float32(BETAS[1])
_NEW1, _NEW2 = np.float32(1 - BETAS[0]), np.float32(1 - BETAS[1])
_EPSILON = np.float32(EPSILON)
_FAST = {"contract", "arcp", "reassoc", "nsz", "afn"}


def step_sizes(learning_rate: float, steps: int) -> Matrix:
    """Adam's two bias corrections for steps 0 (unused) to `steps`: the rate, and the factor of the second moment."""
    step = np.arange(steps + 1, dtype=np.float64)
    step[0] = 1
    rate = learning_rate / (1 - BETAS[0] ** step)
    return np.column_stack([rate, 1 / np.sqrt(1 - BETAS[1] ** step)]).astype(np.float32)


@njit(cache=True, nogil=True)
def _shrink(row, square):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Back onto the unit sphere, from a row of this squared length."""
    scale = np.float32(1) / np.sqrt(square)
    for at in range(row.size):
        row[at] *= scale


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _advance(row, first, second, at, slope, size):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """One step of Adam on one number; its square."""
    rate, correction = size
    mean = _KEEP1 * first[at] + _NEW1 * slope
    square = _KEEP2 * second[at] + _NEW2 * slope * slope
    first[at] = mean
    second[at] = square
    row[at] -= rate * mean / (np.sqrt(square) * correction + _EPSILON)
    return row[at] * row[at]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _move(row, first, second, gradient, size, decay, in_ball):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """One step of Adam on one row, then back into the unit ball if it must stay there."""
    length = np.float32(0)
    for at in range(row.size):
        length += _advance(row, first, second, at, gradient[at] + decay * row[at], size)
    if in_ball and length > 1:
        _shrink(row, length)


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _drift(row, first, second, size, decay, in_ball):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """`_move` without a gradient; apart, because looking up zeros would take half as long again."""
    length = np.float32(0)
    for at in range(row.size):
        length += _advance(row, first, second, at, decay * row[at], size)
    if in_ball and length > 1:
        _shrink(row, length)


@njit(cache=True, nogil=True)
def catch_up(
    table: Matrix,
    first: Matrix,
    second: Matrix,
    done: Ints,
    rows: Ints,
    now: int,
    sizes: Matrix,
    decay: np.float32,
    in_ball: bool,  # noqa: FBT001  (numba knows no keywords)
) -> None:
    """Bring the named rows to step `now`; a row may be named more than once."""
    for at in range(rows.size):
        row = rows[at]
        for step in range(done[row] + 1, now + 1):
            size = (sizes[step, 0], sizes[step, 1])
            _drift(table[row], first[row], second[row], size, decay, in_ball)
        done[row] = max(done[row], now)


@njit(cache=True, nogil=True)
def descend(
    table: Matrix,
    first: Matrix,
    second: Matrix,
    done: Ints,
    rows: Ints,
    gradients: Matrix,
    slots: Ints,
    now: int,
    sizes: Matrix,
    decay: np.float32,
    in_ball: bool,  # noqa: FBT001  (numba knows no keywords)
) -> None:
    """Step `now` for the named rows, all of them at step `now - 1`.

    Gradients of a row named twice add up, in the first one's place; `slots` is memory, a number a row of the table.
    """
    for at in range(rows.size):
        slots[rows[at]] = -1
    for at in range(rows.size):
        row = rows[at]
        if slots[row] < 0:
            slots[row] = at
        else:
            target, source = gradients[slots[row]], gradients[at]
            for column in range(source.size):
                target[column] += source[column]
    size = (sizes[now, 0], sizes[now, 1])
    for at in range(rows.size):
        row = rows[at]
        if done[row] < now:
            _move(table[row], first[row], second[row], gradients[at], size, decay, in_ball)
            done[row] = now


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_neighbours(starts, columns, values, row, table, target):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Add row `row` of a sparse matrix (compressed rows) times a table."""
    for at in range(starts[row], starts[row + 1]):
        source, value = table[columns[at]], values[at]
        for column in range(source.size):
            target[column] += value * source[column]


@njit(cache=True, nogil=True)
def add_product(
    base: Matrix | None,
    starts: Ints,
    columns: Places,
    values: Matrix,
    table: Matrix,
    result: Matrix,
) -> None:
    """Write base (or nothing) plus the product of a sparse matrix and a table."""
    for row in range(len(table)):
        target = result[row]
        if base is None:
            target[:] = 0
        else:
            target[:] = base[row]
        _add_neighbours(starts, columns, values, row, table, target)


@njit(cache=True, nogil=True)
def add_product_of_some(
    base: Matrix,
    starts: Ints,
    columns: Places,
    values: Matrix,
    rows: Ints,
    table: Matrix,
    share: np.float32,
) -> Matrix:
    """For the named rows only: (base + product) * share."""
    result = np.empty((rows.size, table.shape[1]), dtype=np.float32)
    for place in range(rows.size):
        target = result[place]
        target[:] = base[rows[place]]
        _add_neighbours(starts, columns, values, rows[place], table, target)
        target *= share
    return result


@njit(cache=True, nogil=True, fastmath=_FAST)
def send(
    starts: Ints, columns: Places, values: Matrix, rows: Ints, some: Matrix, result: Matrix
) -> None:
    """`add_product` of a table with itself, where all but the named rows (each once, given as `some`) is zero.

    The matrix is symmetric, so each named row is sent to its neighbours.
    """
    result[:] = 0
    for place in range(rows.size):
        result[rows[place]] += some[place]
        source = some[place]
        for at in range(starts[rows[place]], starts[rows[place] + 1]):
            target, value = result[columns[at]], values[at]
            for column in range(source.size):
                target[column] += value * source[column]


@njit(cache=True, nogil=True)
def descend_all(
    table: Matrix,
    first: Matrix,
    second: Matrix,
    slots: Ints,
    some: Matrix,
    starts: Ints,
    columns: Places,
    values: Matrix,
    near: Matrix,
    share: np.float32,
    now: int,
    sizes: Matrix,
    decay: np.float32,
) -> None:
    """Step `now` for every row, whose gradient is (its own, in `some` where `slots` says, plus the product) * share."""
    size = (sizes[now, 0], sizes[now, 1])
    gradient = np.empty(table.shape[1], dtype=np.float32)
    for row in range(len(table)):
        if slots[row] < 0:
            gradient[:] = 0
        else:
            gradient[:] = some[slots[row]]
        _add_neighbours(starts, columns, values, row, near, gradient)
        gradient *= share
        _move(table[row], first[row], second[row], gradient, size, decay, False)  # noqa: FBT003  (numba again)
