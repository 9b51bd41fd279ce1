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
from calibrank.terms.spec import Level

# Rows of the dense part that are kept; the rest of a longer table is computed again each time.
_KEPT_ROWS = 2**18
_CHUNK_ROWS = 2**16
# So many levels are as fast in a dense matrix.
SMALL = 256
_ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """One column per level, which is 0 in rows of others, as the number of each row's level.

    A row whose number is the width has none. With values, which are log odds, a row has its value
    instead of 1, and coefficients are slopes.
    """

    codes: Indices
    width: int
    values: Floats | None = None
    spec: Level | None = None
    keys: tuple[Key, ...] = ()

    @property
    def are_slopes(self) -> bool:
        """Whether coefficients are added to the slope of the curve, for some rows."""
        return self.values is not None

    def groups(self, start: int) -> list[Group]:
        """All coefficients share a prior."""
        return [Group(slice(start, start + self.width), self)]

    def times(self, numbers: Floats, rows: slice = _ALL) -> Floats:
        """Numbers, one per row, multiplied by the row's value."""
        return numbers if self.values is None else numbers * self.values[rows]

    def sums(self, numbers: Floats, rows: slice = _ALL) -> Floats:
        """Sums of numbers by level; rows of none are not."""
        return add_up(self.codes[rows], self.times(numbers, rows), self.width)[: self.width]

    def products(self, weights: Floats, matrix: Floats, rows: slice) -> Floats:
        """Sums by level of the rows of a matrix times weights, one column per level."""
        weights = self.times(weights, rows)
        if not native.READY:
            codes, size = self.codes[rows], self.width + 1
            columns = [add_up(codes, weights * column, size) for column in matrix.T]
            return np.array(columns)[:, : self.width]
        sums: Floats = np.zeros((self.width + 1, matrix.shape[1]))
        native.loops.add_rows(self.codes[rows], weights, matrix, sums)
        return sums[: self.width].T


class Group(NamedTuple):
    """Coefficients that share a prior standard deviation, which is exponential with this rate."""

    place: slice
    block: Any = None
    rate: float = 0.0

    @property
    def are_slopes(self) -> bool:
        """Whether they are slopes of levels."""
        return isinstance(self.block, Levels) and self.block.are_slopes


class Arrow(NamedTuple):
    """A symmetric matrix [[corner, border], [border transposed, diagonal]].

    The diagonal may be of a hundred thousand levels: solving eliminates it first, which takes no
    more than a small matrix and one pass over the border.
    """

    corner: Floats
    border: Floats
    diagonal: Floats

    def __matmul__(self, vector: Floats) -> Floats:
        size = len(self.corner)
        first, rest = vector[:size], vector[size:]
        above = self.corner @ first + self.border @ rest
        below = self.border.T @ first + self.diagonal * rest
        return np.concatenate([above, below])

    def remaining(self, sds: Floats) -> Floats:
        """The inverse of the diagonal plus the precision of a prior; without a width it is 0."""
        variances = sds[len(self.corner) :] ** 2
        return variances / (1 + self.diagonal * variances)

    def eliminated(self, sds: Floats, places: Indices | slice = _ALL) -> Floats:
        """What is left of some places of the corner after the diagonal was eliminated."""
        corner = self.corner[places][:, places]
        if not sds[len(self.corner) :].any():
            return corner
        part = self.border[places] * np.sqrt(self.remaining(sds))
        return corner - part @ part.T


class Posterior:
    """The inverse of an `Arrow` plus the precision of priors with these standard deviations.

    A coefficient whose standard deviation is 0 is left out: it is 0, and known. What is left of
    the whole corner after elimination is given where it is known.
    """

    def __init__(self, arrow: Arrow, sds: Floats, eliminated: Floats | None = None) -> None:
        self.sds = sds
        self.used = np.flatnonzero(sds[: len(arrow.corner)])
        if eliminated is None:
            inner = arrow.eliminated(sds, self.used)
        else:
            inner = eliminated[np.ix_(self.used, self.used)]
        self.inner = inner + np.diag(sds[self.used] ** -2.0)
        self.diagonal = arrow.remaining(sds)
        self.border = arrow.border
        self._of_diagonal = arrow.diagonal

    @cached_property
    def covariance(self) -> Floats:
        """Of the places of the corner that are used."""
        return np.linalg.inv(self.inner)

    @cached_property
    def corner(self) -> Floats:
        """The covariance of all of the corner."""
        corner = np.zeros((len(self.border),) * 2)
        corner[np.ix_(self.used, self.used)] = self.covariance
        return corner

    def right(self, vector: Floats) -> Floats:
        """The corner of a vector after the diagonal was eliminated."""
        size = len(self.border)
        return vector[:size] - self.border @ (self.diagonal * vector[size:])

    def solve(self, vector: Floats) -> Floats:
        """The solution for the right-hand side."""
        size = len(self.border)
        first = np.zeros(size)
        first[self.used] = self.covariance @ self.right(vector)[self.used]
        rest = self.diagonal * (vector[size:] - self.border.T @ first)
        return np.concatenate([first, rest])

    def log_marginal(self, linear: Floats) -> float:
        """Log marginal likelihood of a quadratic log likelihood, relative to all left out."""
        size = len(self.border)
        rest = linear[size:]
        right = self.right(linear)[self.used]
        squares = right @ np.linalg.solve(self.inner, right) + self.diagonal @ rest**2
        log_determinant = np.linalg.slogdet(self.inner)[1]
        log_determinant += 2 * np.log(self.sds[self.used]).sum()
        log_determinant += np.log1p(self._of_diagonal * self.sds[size:] ** 2).sum()
        return float(squares - log_determinant) / 2

    def contrasts(self, place: slice, other: slice, weights: Floats) -> Floats:
        """Covariances of two blocks' coefficients, each minus its mean by weights that sum to 1."""
        products = self._products(other)
        shared = self._across(place, products @ weights)
        own = self._own(place, products)
        if place == other and place.start >= len(self.border):
            own = own + self.diagonal
            shared = shared + self.diagonal * weights
        mean = float(weights @ shared)
        if place == other:
            shared = 2 * shared
        else:
            shared = shared + self._across(other, self._products(place) @ weights)
        result: Floats = own - shared + mean
        return np.maximum(result, 0) if place == other else result

    # A coefficient of the diagonal is a sum of those of the corner, plus an error of its own.
    def _products(self, place: slice) -> Floats:
        """The covariances of the corner with a block."""
        if place.start < len(self.border):
            return self.corner[:, place]
        used = self.border[self.used] * self.diagonal
        return -self.corner[:, self.used] @ used

    def _across(self, place: slice, vector: Floats) -> Floats:
        """What a vector of the corner is in a block."""
        if place.start < len(self.border):
            return vector[place]
        return -self.diagonal * (self.border.T @ vector)

    def _own(self, place: slice, products: Floats) -> Floats:
        """From the products of another block: the covariance of both coefficients of a level."""
        if place.start < len(self.border):
            return np.diag(products[place])
        return -self.diagonal * (self.border * products).sum(axis=0)


class Design:
    """Columns: ones, the log odds of the curve, dense blocks, and then levels.

    Dense blocks have columns for any range of rows. `groups` are the coefficients that share a
    prior; those of the curve have one where they are changes of a curve.
    """

    def __init__(
        self,
        log_odds: Floats,
        dense: Sequence[Any] = (),
        levels: Sequence[Levels] = (),
        *,
        is_change: bool = False,
    ) -> None:
        self.log_odds = log_odds
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
        widest = levels[-1].width if levels else 0
        self.corner = self.width - (widest if widest > SMALL else 0)
        self._kept: dict[int, Floats] = {}

    def linear(self, coefficients: Floats) -> Floats:
        """The matrix times coefficients."""
        result: Floats = np.empty(len(self.log_odds))
        for rows, matrix in self._chunks():
            result[rows] = matrix @ coefficients[: self._dense_width]
        for block, place in self._levels:
            if coefficients[place].any():
                result += block.times(np.append(coefficients[place], 0.0)[block.codes])
        return result

    def transposed(self, values: Floats) -> Floats:
        """The transposed matrix times one value per row."""
        result = np.zeros(self.width)
        for rows, matrix in self._chunks():
            result[: self._dense_width] += values[rows] @ matrix
        for block, place in self._levels:
            result[place] = block.sums(values)
        return result

    def gram(self, weights: Floats) -> Arrow:
        """The transposed matrix times weights times the matrix."""
        dense = self._dense_width
        above = np.zeros((self.corner, self.width))
        diagonal: Floats = np.zeros(self.width - self.corner)
        for rows, matrix in self._chunks():
            above[:dense, :dense] += matrix.T @ (matrix * weights[rows, None])
            for block, place in self._levels:
                above[:dense, place] += block.products(weights[rows], matrix, rows)
        for number, (block, place) in enumerate(self._levels):
            by_row = block.times(weights)
            sums = block.sums(by_row)
            if place.start >= self.corner:
                diagonal = sums
            else:
                above[place, place] = np.diag(sums)
            for other, before in self._levels[:number]:
                # Sums by pairs of levels; the last of each is for rows without one.
                pairs = other.codes * (block.width + 1) + block.codes
                sums = add_up(pairs, other.times(by_row), (other.width + 1) * (block.width + 1))
                table = sums.reshape(other.width + 1, block.width + 1)[:-1, :-1]
                above[before, place] = table
                if place.start < self.corner:
                    above[place, before] = table.T
        corner = above[:, : self.corner]
        corner[dense:, :dense] = corner[:dense, dense:].T
        return Arrow(corner, above[:, self.corner :], diagonal)

    def mean_squares(self) -> Floats:
        """The mean square of each column."""
        result = np.zeros(self.width)
        for _, matrix in self._chunks():
            result[: self._dense_width] += (matrix**2).sum(axis=0)
        for block, place in self._levels:
            result[place] = block.sums(block.times(np.ones(len(self.log_odds))))
        return result / len(self.log_odds)

    def _chunks(self) -> Iterator[tuple[slice, Floats]]:
        """Ranges of rows, with the dense part of the design."""
        for start in range(0, len(self.log_odds), _CHUNK_ROWS):
            rows = slice(start, min(start + _CHUNK_ROWS, len(self.log_odds)))
            matrix = self._kept.get(start)
            if matrix is None:
                ones = np.ones(rows.stop - rows.start)
                blocks = [block.columns(rows) for block in self._dense]
                matrix = np.vstack([ones, self.log_odds[rows], *blocks]).T.copy()
            if start < _KEPT_ROWS:
                self._kept[start] = matrix
            yield rows, matrix
