"""The design matrix of a joint fit, in blocks of rows and without columns of zeros."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal import native
from calibrank._internal.segment_keys import Key
from calibrank._internal.validation import Floats, Indices, add_up
from calibrank.terms._posterior import Arrow
from calibrank.terms.spec import Level

# Rows of the dense part that are kept; the rest of a longer table is computed again each time.
_KEPT_ROWS = 2**18
_CHUNK_ROWS = 2**16
# So many levels are as fast in a dense matrix.
SMALL = 256


@dataclass(frozen=True, eq=False)
class Levels:
    """One column per level, which is 1 in its rows, as the number of each row's level.

    With slopes there is a second column per level, of the log odds around the middle.
    """

    codes: Indices
    count: int
    has_slopes: bool = False
    spec: Level | None = None
    keys: tuple[Key, ...] = ()

    @property
    def depth(self) -> int:
        """The number of columns per level."""
        return 2 if self.has_slopes else 1

    @property
    def width(self) -> int:
        return self.count * self.depth

    def groups(self, start: int) -> list[Group]:
        """Intercepts share a prior, and slopes do."""
        places = self.parts(slice(start, start + self.width))
        return [Group(place, self, 0.0, place.start > start) for place in places]

    @cached_property
    def rows(self) -> Floats:
        """The number of rows of each level."""
        return add_up(self.codes, None, self.count)

    def parts(self, place: slice) -> list[slice]:
        """The places of the intercepts, and of the slopes."""
        starts = range(place.start, place.stop, self.count)
        return [slice(start, start + self.count) for start in starts]


class Group(NamedTuple):
    """Coefficients that share a prior standard deviation, which is exponential with this rate."""

    place: slice
    block: Any = None
    rate: float = 0.0
    are_slopes: bool = False


class Design:
    """Columns: ones, the log odds of the curve, dense blocks, and then levels.

    Dense blocks have columns for any range of rows. `groups` are the coefficients that share a
    prior; those of the curve have one where they are changes of a curve. Slopes of levels turn
    around the middle.
    """

    def __init__(
        self,
        log_odds: Floats,
        dense: Sequence[Any] = (),
        levels: Sequence[Levels] = (),
        *,
        middle: float = 0.0,
        is_change: bool = False,
    ) -> None:
        self.log_odds = log_odds
        self._turned = log_odds - middle
        self.groups = [Group(slice(0, 1)), Group(slice(1, 2))] if is_change else []
        self._dense = dense
        self._levels: list[tuple[Levels, slice]] = []
        self.width = 2
        for block in dense:
            self.groups += block.groups(self.width)
            self.width += block.width
        self._dense_width = self.width
        for block in levels:
            self.groups += block.groups(self.width)
            self._levels.append((block, slice(self.width, self.width + block.width)))
            self.width += block.width
        # The last block of levels is the widest: its products are a diagonal matrix.
        widest = levels[-1].count if levels else 0
        self.corner = self.width - (widest if widest > SMALL else 0)
        self._kept: dict[tuple[int, int], Floats] = {}

    def linear(self, coefficients: Floats) -> Floats:
        """The matrix times coefficients."""
        result: Floats = np.empty(len(self.log_odds))
        for rows, matrix in self._chunks():
            result[rows] = matrix @ coefficients[: self._dense_width]
        for block, place in self._levels:
            own = coefficients[place].reshape(block.depth, -1)
            if own[0].any():
                result += own[0][block.codes]
            if own[1:].any():
                result += own[1][block.codes] * self._turned
        return result

    def transposed(self, values: Floats, sds: Floats | None = None) -> Floats:
        """The transposed matrix times one value per row; 0 for levels that are left out."""
        result = np.zeros(self.width)
        for rows, matrix in self._chunks():
            result[: self._dense_width] += values[rows] @ matrix
        by_column = (values, values * self._turned)
        for block, place in self._levels:
            for part, column in zip(block.parts(place), by_column, strict=False):
                if sds is None or sds[part.start]:
                    result[part] = add_up(block.codes, column, block.count)
        return result

    def gram(self, weights: Floats) -> Arrow:
        """The transposed matrix times weights times the matrix."""
        dense = self._dense_width
        above = np.zeros((self.corner, self.width))
        diagonal: Floats = np.zeros(self.width - self.corner)
        by_column = (weights, weights * self._turned)
        for rows, matrix in self._chunks():
            above[:dense, :dense] += matrix.T @ (matrix * weights[rows, None])
            for block, place in self._levels:
                for part, column in zip(block.parts(place), by_column, strict=False):
                    sums = np.zeros((block.count, dense))
                    add_rows(block.codes[rows], column[rows], matrix, sums)
                    above[:dense, part] += sums.T
        for number, (block, place) in enumerate(self._levels):
            own = self._sums(block.codes, block.count, weights, 2 * block.depth - 1)
            if place.start < self.corner:
                numbers = np.arange(place.start, place.stop).reshape(block.depth, -1)
                for row, column in np.ndindex(block.depth, block.depth):
                    above[numbers[row], numbers[column]] = own[:, row + column]
            else:
                diagonal = own[:, 0]
            for other, before in self._levels[:number]:
                self._fill(above, (other, before), (block, place), weights)
        corner = above[:, : self.corner]
        corner[dense:, :dense] = corner[:dense, dense:].T
        return Arrow(corner, above[:, self.corner :], diagonal)

    def _fill(
        self, above: Floats, one: tuple[Levels, slice], two: tuple[Levels, slice], weights: Floats
    ) -> None:
        """The products of two blocks of levels: sums by pairs of levels."""
        (first, before), (second, place) = one, two
        pairs = first.codes * second.count + second.codes
        powers = first.depth + second.depth - 1
        sums = self._sums(pairs, first.count * second.count, weights, powers)
        table = sums.reshape(first.count, second.count, powers)
        for row, above_it in enumerate(first.parts(before)):
            for column, part in enumerate(second.parts(place)):
                above[above_it, part] = table[:, :, row + column]
                if part.stop <= self.corner:
                    above[part, above_it] = table[:, :, row + column].T

    def _sums(self, codes: Indices, count: int, weights: Floats, powers: int) -> Floats:
        """Sums by code of weights times powers of the log odds around the middle."""
        sums: Floats = np.zeros((count, powers))
        for rows, matrix in self._chunks(powers):
            add_rows(codes[rows], weights[rows], matrix, sums)
        return sums

    def mean_squares(self) -> Floats:
        """The mean square of each column."""
        result = np.zeros(self.width)
        for _, matrix in self._chunks():
            result[: self._dense_width] += (matrix**2).sum(axis=0)
        by_column = (np.ones(len(self.log_odds)), self._turned**2)
        for block, place in self._levels:
            for part, column in zip(block.parts(place), by_column, strict=False):
                result[part] = add_up(block.codes, column, block.count)
        return result / len(self.log_odds)

    def _chunks(self, powers: int = 0) -> Iterator[tuple[slice, Floats]]:
        """Ranges of rows, with the dense part of the design, or with powers of the log odds."""
        for start in range(0, len(self.log_odds), _CHUNK_ROWS):
            rows = slice(start, min(start + _CHUNK_ROWS, len(self.log_odds)))
            matrix = self._kept.get((start, powers))
            if matrix is None:
                if powers:
                    columns = [self._turned[rows] ** power for power in range(powers)]
                else:
                    blocks = [block.columns(rows) for block in self._dense]
                    columns = [np.ones(rows.stop - rows.start), self.log_odds[rows], *blocks]
                matrix = np.column_stack(columns)
            if start < _KEPT_ROWS:
                self._kept[start, powers] = matrix
            yield rows, matrix


def add_rows(codes: Indices, weights: Floats, matrix: Floats, sums: Floats) -> None:
    """Add the rows of a matrix, times a weight each, to the sums of their codes."""
    if native.READY:
        native.loops.add_rows(codes, weights, matrix, sums)
        return
    for number, column in enumerate(matrix.T):
        sums[:, number] += add_up(codes, weights * column, len(sums))
