"""The design matrix of a fit with covariates, in blocks of rows and without columns of zeros."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from calibrank._internal.validation import Floats, Indices, add_up

# Rows of the dense part that are kept; the rest of a longer table is computed again each time.
_KEPT_ROWS = 2**18
_CHUNK_ROWS = 2**16
# So many categories are as fast in a dense matrix.
SMALL = 256


class Block(Protocol):
    """Some dense columns, computed for any range of rows."""

    @property
    def width(self) -> int:
        """The number of columns."""

    def columns(self, rows: slice) -> Floats:
        """The columns of some rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """One column per category, which is 0 in rows of others, as the number of each row's category.

    A row whose number is the width has none. In its category a row has its value, by default 1.
    """

    codes: Indices
    width: int
    values: Floats | None = None

    def times(self, numbers: Floats) -> Floats:
        """Numbers, one per row, multiplied by the row's value."""
        return numbers if self.values is None else numbers * self.values

    def sums(self, numbers: Floats) -> Floats:
        """Sums of numbers by category; rows of none are not."""
        return add_up(self.codes, self.times(numbers), self.width)[: self.width]


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

    def posterior(self, precision: Floats, earlier: Posterior | None = None) -> Posterior:
        """With a precision added to the diagonal; an infinite one leaves its coefficient at 0.

        An earlier one of the whole corner spares the elimination, where that was the same.
        """
        size = len(self.corner)
        corner = np.flatnonzero(np.isfinite(precision[:size]))
        rest = np.isfinite(precision[size:])
        places = np.append(corner, size + np.flatnonzero(rest))
        if earlier is not None and np.array_equal(earlier.precision[size:], precision[size:]):
            return earlier._replace(precision=precision, places=places, size=len(corner))
        diagonal = self.diagonal[rest] + precision[size:][rest]
        border = self.border if rest.all() else self.border[:, rest]
        reduced = np.zeros((size, size))
        used = np.ix_(corner, corner)
        part = border[corner] / np.sqrt(diagonal)
        reduced[used] = self.corner[used] - part @ part.T
        return Posterior(precision, reduced, border, diagonal, places, len(corner))

    def whole_corner(self, precision: Floats) -> Posterior:
        """With the diagonal eliminated from all of the corner, whatever its precision."""
        size = len(self.corner)
        finite = np.concatenate([np.zeros(size), precision[size:]])
        return self.posterior(finite)


class Posterior(NamedTuple):
    """An `Arrow` plus a precision, with its diagonal eliminated, on the places that are not 0."""

    precision: Floats
    reduced: Floats
    """The Schur complement of the diagonal, without the precision; of the corner that is used."""
    border: Floats
    diagonal: Floats
    places: Indices
    size: int
    """How many of the places are in the corner."""

    def inner(self, corner: Indices) -> Floats:
        """The Schur complement, of these places of the corner."""
        matrix: Floats = self.reduced[np.ix_(corner, corner)] + np.diag(self.precision[corner])
        return matrix

    def eliminated(self, vector: Floats) -> Floats:
        """The corner of a vector after the diagonal was eliminated."""
        count = len(self.reduced)
        rest = vector[self.places[self.size :]] / self.diagonal
        result: Floats = vector[:count] - self.border @ rest
        return result

    def solve(self, vector: Floats) -> tuple[Floats, float]:
        """The solution, and the log determinant of the matrix."""
        corner = self.places[: self.size]
        inner = self.inner(corner)
        first = np.linalg.solve(inner, self.eliminated(vector)[corner])
        result = np.zeros(len(vector))
        result[corner] = first
        rest = self.places[self.size :]
        result[rest] = (vector[rest] - self.border[corner].T @ first) / self.diagonal
        return result, float(np.linalg.slogdet(inner)[1] + np.log(self.diagonal).sum())

    def inverse(self) -> Inverse:
        """The inverse, without computing all of it; 0 where coefficients are."""
        count = len(self.reduced)
        corner = self.places[: self.size]
        inverse = np.zeros((count, count))
        inverse[np.ix_(corner, corner)] = np.linalg.inv(self.inner(corner))
        through = np.zeros((count, len(self.precision) - count))
        diagonal = np.zeros(len(self.precision) - count)
        rest = self.places[self.size :] - count
        through[:, rest] = self.border / self.diagonal
        diagonal[rest] = 1 / self.diagonal
        return Inverse(inverse, through, diagonal)


class Inverse(NamedTuple):
    """The inverse of an `Arrow`: its corner, and what the rest is computed from."""

    corner: Floats
    through: Floats
    diagonal: Floats

    def contrasts(self, place: slice, other: slice, weights: Floats) -> Floats:
        """Covariances of two blocks' coefficients, each minus its mean by weights that sum to 1."""
        products = self._products(other)
        shared = self._across(place, products @ weights)
        own = self._own(place, products)
        if place == other and place.start >= len(self.corner):
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
        if place.start < len(self.corner):
            return self.corner[:, place]
        return -self.corner @ self.through

    def _across(self, place: slice, vector: Floats) -> Floats:
        """What a vector of the corner is in a block."""
        return vector[place] if place.start < len(self.corner) else -self.through.T @ vector

    def _own(self, place: slice, products: Floats) -> Floats:
        """From the products of another block: the covariance of both coefficients of a level."""
        if place.start < len(self.corner):
            return np.diag(products[place])
        result: Floats = -(self.through * products).sum(axis=0)
        return result


class Group(NamedTuple):
    """Coefficients that share a prior standard deviation, which is exponential with this rate."""

    place: slice
    rate: float = 0.0
    are_slopes: bool = False
    """Whether they are added to the slope of the curve, for some rows."""
    codes: Codes | None = None
    """The levels whose intercepts they are."""


class Design:
    """Columns: ones, the log odds of the curve, dense blocks, and then categories.

    `groups` are the coefficients that share a prior.
    """

    def __init__(
        self,
        log_odds: Floats,
        dense: Sequence[Block],
        categories: Sequence[Codes],
        groups: Sequence[Group],
    ) -> None:
        self.log_odds = log_odds
        self.groups = list(groups)
        self._dense = list(dense)
        self._categories = list(categories)
        self._dense_width = 2 + sum(block.width for block in dense)
        self.width = self._dense_width + sum(codes.width for codes in categories)
        # The last block of categories is the widest: its products are a diagonal matrix.
        widest = categories[-1].width if categories else 0
        self.corner = self.width - (widest if widest > SMALL else 0)
        self._kept: dict[int, Floats] = {}

    def linear(self, coefficients: Floats) -> Floats:
        """The matrix times coefficients."""
        result: Floats = np.empty(len(self.log_odds))
        for rows, matrix in self._chunks():
            result[rows] = matrix @ coefficients[: self._dense_width]
        for codes, place in self._places():
            result += codes.times(np.append(coefficients[place], 0.0)[codes.codes])
        return result

    def transposed(self, values: Floats) -> Floats:
        """The transposed matrix times one value per row."""
        result = np.zeros(self.width)
        for rows, matrix in self._chunks():
            result[: self._dense_width] += matrix.T @ values[rows]
        for codes, place in self._places():
            result[place] = codes.sums(values)
        return result

    def gram(self, weights: Floats) -> Arrow:
        """The transposed matrix times weights times the matrix."""
        dense = self._dense_width
        corner = np.zeros((self.corner, self.corner))
        border = np.zeros((self.corner, self.width - self.corner))
        for rows, matrix in self._chunks():
            weighted = matrix * weights[rows, None]
            corner[:dense, :dense] += matrix.T @ weighted
            for codes, place in self._places():
                into = border[:dense] if place.start >= self.corner else corner[:dense, place]
                part = Codes(codes.codes[rows], codes.width, _part(codes.values, rows))
                for column in range(dense):
                    into[column] += part.sums(weighted[:, column])
        diagonal = self._add_categories(corner, border, weights)
        corner[dense:, :dense] = corner[:dense, dense:].T
        return Arrow(corner, border, diagonal)

    def mean_squares(self) -> Floats:
        """The mean square of each column."""
        result = np.zeros(self.width)
        rows = len(self.log_odds)
        for _, matrix in self._chunks():
            result[: self._dense_width] += (matrix**2).sum(axis=0) / rows
        for codes, place in self._places():
            result[place] = codes.sums(codes.times(np.ones(rows))) / rows
        return result

    def _add_categories(self, corner: Floats, border: Floats, weights: Floats) -> Floats:
        """The products of categories: sums of weights by pairs of them; returns the diagonal."""
        diagonal: Floats = np.zeros(self.width - self.corner)
        places = list(self._places())
        for number, (codes, place) in enumerate(places):
            weighted = codes.times(weights)
            sums = codes.sums(weighted)
            if place.start >= self.corner:
                diagonal = sums
            else:
                corner[place, place] = np.diag(sums)
            width = place.stop - place.start
            for others, other in places[:number]:
                columns = other.stop - other.start
                size = (width + 1) * (columns + 1)
                pairs = codes.codes * (columns + 1) + others.codes
                sums = add_up(pairs, others.times(weighted), size)
                block = sums.reshape(width + 1, columns + 1)[:width, :columns]
                if place.start >= self.corner:
                    border[other] = block.T
                else:
                    corner[place, other] = block
                    corner[other, place] = block.T
        return diagonal

    def _places(self) -> Iterator[tuple[Codes, slice]]:
        start = self._dense_width
        for block in self._categories:
            yield block, slice(start, start + block.width)
            start += block.width

    def _chunks(self) -> Iterator[tuple[slice, Floats]]:
        for start in range(0, len(self.log_odds), _CHUNK_ROWS):
            rows = slice(start, min(start + _CHUNK_ROWS, len(self.log_odds)))
            matrix = self._kept.get(start)
            if matrix is None:
                ones = np.ones(rows.stop - rows.start)
                blocks = [block.columns(rows) for block in self._dense]
                matrix = np.column_stack([ones, self.log_odds[rows], *blocks])
            if start < _KEPT_ROWS:
                self._kept[start] = matrix
            yield rows, matrix


def _part(values: Floats | None, rows: slice) -> Floats | None:
    return None if values is None else values[rows]
