"""Pooling rows into a grid of bins, in C or, where that was not built, in cache-sized blocks of numpy."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrank import _native
from calibrank._threads import in_threads, shares
from calibrank._validation import Floats, add_up, on_gpu
from calibrank.evidence import Evidence
from calibrank.summary import _pool_native
from calibrank.summary.grid import CAPACITY, DOUBLE, Grid

if TYPE_CHECKING:
    from calibrank.summary._tensors import Sums

_BLOCK = 2**19
_THREADS_FROM = 3_000_000  # below, adding up the threads' tables would take as long


@dataclass(frozen=True, slots=True, eq=False)
class Masses:
    """Sums over rows, one column a bin; the squares are what sampling errors need.

    The moments (mass times score) keep both the mean score of a bin and that of its positives: with them, the loss
    of a pooled bin is right to second order in its width.
    """

    positive: Floats
    total: Floats
    positive_moment: Floats
    moment: Floats
    positive_squared: Floats
    cross: Floats
    total_squared: Floats

    @property
    def columns(self) -> tuple[Floats, ...]:
        """The sums, in field order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def take(self, chosen: npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_]) -> "Masses":
        """Only the chosen bins."""
        return Masses(*(column[chosen] for column in self.columns))

    def gather(self, bins: npt.NDArray[np.integer[Any]], size: int) -> "Masses":
        """Add up bins that land in the same one of `size` new bins."""
        return Masses(*(add_up(bins, column, size) for column in self.columns))


class Table:
    """Bins being filled: neighbouring bins of a grid, from bin `first` on."""

    def __init__(self, grid: Grid, first: int, size: int) -> None:
        self.grid, self.first = grid, first
        self.every = np.zeros(
            (size, 2)
        )  # total, moment: apart from the rest, since every row touches them
        self.liked = np.zeros((size, 4))  # positive, its moment, its square, times total
        self.squares = np.zeros(size)  # total squared

    @classmethod
    def spanning(
        cls, low: float, high: float, capacity: int = CAPACITY, bits: int = DOUBLE.mantissa
    ) -> "Table":
        """Empty bins for scores from low to high, of no more bits than told."""
        grid = Grid.spanning(low, high, capacity)
        grid = replace(grid, bits=min(grid.bits, bits))
        first, last = grid.keys(np.array([low or -0.0, high + 0.0])).tolist()
        return cls(grid, first, last - first + 1)

    def masses(self) -> Masses:
        """The sums so far."""
        total, moment = self.every.T.copy()
        positive, positive_moment, positive_squared, cross = self.liked.T.copy()
        return Masses(
            positive, total, positive_moment, moment, positive_squared, cross, self.squares.copy()
        )

    def add(self, masses: Masses, bins: npt.NDArray[np.integer[Any]] | slice) -> None:
        """Add sums to bins of the table, each named once."""
        self.every[bins] += np.array([masses.total, masses.moment]).T
        liked = [masses.positive, masses.positive_moment, masses.positive_squared, masses.cross]
        self.liked[bins] += np.array(liked).T
        self.squares[bins] += masses.total_squared

    def merge(self, other: "Table | Sums") -> None:
        """Add the sums of a table of the same bins."""
        self.every += other.every
        self.liked += other.liked
        self.squares += other.squares

    def pool(self, scores: Floats, evidence: Evidence) -> None:
        """Add rows, all within the table's range."""
        if on_gpu(scores):
            self._pool_tensors(scores, evidence)
        elif _native.READY:
            self._pool_compiled(scores, evidence)
        else:
            self.pool_blocks(scores, evidence)

    def pool_blocks(self, scores: Floats, evidence: Evidence) -> None:
        """As `pool`, with nothing but numpy."""
        memory = np.empty(min(_BLOCK, len(scores)), dtype=np.int64)
        for start in range(0, len(scores), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(scores)))
            bins = memory[: rows.stop - rows.start]
            self.grid.write_keys(scores[rows], self.first, bins)
            self._add_block(pool_bins(scores[rows], evidence.rows(rows), bins, len(self.squares)))

    def change(self, parts: Iterable[tuple[Floats, Evidence, Evidence]]) -> None:
        """Replace the evidence of rows: scores, the new evidence, and what was pooled for them."""
        new, old = (Table(self.grid, self.first, len(self.squares)) for _ in range(2))
        for scores, evidence, counted in parts:
            new.pool(scores, evidence)
            old.pool(scores, counted)
        self.every += new.every - old.every
        self.liked += new.liked - old.liked
        self.squares += new.squares - old.squares

    def _add_block(self, masses: Masses) -> None:
        self.every[:, 0] += masses.total
        self.every[:, 1] += masses.moment
        self.squares += masses.total_squared
        if masses.positive.any():
            for column, sums in enumerate(
                (masses.positive, masses.positive_moment, masses.positive_squared, masses.cross)
            ):
                self.liked[:, column] += sums

    def _pool_tensors(self, scores: Any, evidence: Evidence) -> None:
        from calibrank.summary import _tensors  # noqa: PLC0415  (needs torch)

        total = None if counts_once(evidence.total) else evidence.total
        place = self.grid, self.first, len(self.squares)
        sums = _tensors.pool(
            *place, scores, evidence.positive, total, binary=evidence.kind == "naive"
        )
        self.merge(sums)

    def _pool_compiled(self, scores: Floats, evidence: Evidence) -> None:
        positive = None if nobody_liked(evidence.positive) else evidence.positive
        total = None if counts_once(evidence.total) else evidence.total

        def pool(table: Table, rows: slice) -> Table:
            liked, heavy = (
                None if column is None else column[rows] for column in (positive, total)
            )
            before = table.every[:, 0].copy() if heavy is None else None
            _pool_native.pool(
                self.grid,
                self.first,
                scores[rows],
                liked,
                heavy,
                table.every,
                table.liked,
                table.squares,
            )
            if before is not None:
                table.squares += table.every[:, 0] - before
            return table

        if len(scores) < _THREADS_FROM:
            pool(self, slice(None))
            return
        empty = partial(Table, self.grid, self.first, len(self.squares))
        for table in in_threads(lambda rows: pool(empty(), rows), shares(len(scores))):
            self.merge(table)


def pool_bins(
    scores: Floats, evidence: Evidence, bins: npt.NDArray[np.integer[Any]], size: int
) -> Masses:
    """The sums of rows over bins that are known already."""
    positive, total = evidence.positive, evidence.total
    # Few rows are liked, so sums of positive mass cost next to nothing.
    liked = np.empty(0, dtype=np.intp) if nobody_liked(positive) else np.flatnonzero(positive != 0)
    liked_bins, liked_mass = bins[liked], positive[liked].astype(np.float64)
    positives = add_up(liked_bins, liked_mass, size)
    positive_moment = add_up(liked_bins, liked_mass * scores[liked], size)
    squares = add_up(liked_bins, np.square(liked_mass), size)
    if counts_once(total):
        count = add_up(bins, None, size)
        return Masses(
            positives, count, positive_moment, add_up(bins, scores, size), squares, positives, count
        )
    total = total.astype(np.float64, copy=False)  # products of float32 would be rounded
    cross = add_up(liked_bins, liked_mass * total[liked], size)
    moment, total_squared = add_up(bins, total * scores, size), add_up(bins, np.square(total), size)
    return Masses(
        positives, add_up(bins, total, size), positive_moment, moment, squares, cross, total_squared
    )


def counts_once(total: Floats) -> bool:
    """Whether every row has total 1 by construction (as `naive` and `ips` make it): one number seen many times."""
    return (
        isinstance(total, np.ndarray)
        and total.strides == (0,)
        and total.size > 0
        and bool(total[0] == 1)
    )


def nobody_liked(positive: Floats) -> bool:
    """Whether no row is liked by construction: one zero seen many times."""
    return positive.strides == (0,) and positive.size > 0 and bool(positive[0] == 0)
