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
_SMALL = 256


class Block(Protocol):
    """Some dense columns, computed for any range of rows."""

    @property
    def width(self) -> int:
        """The number of columns."""

    def columns(self, rows: slice) -> Floats:
        """The columns of some rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """One column of 0 and 1 per category, as the number of each row's category.

    A row whose number is the width has none.
    """

    codes: Indices
    width: int


class Arrow(NamedTuple):
    """A symmetric matrix [[corner, border], [border transposed, diagonal]].

    The diagonal may be of a hundred thousand levels: solving eliminates it first, which takes no
    more than a small matrix and one pass over the border.
    """

    corner: Floats
    border: Floats
    diagonal: Floats

    def __add__(self, precision: Floats) -> Arrow:  # type: ignore[override]  # of a vector
        """The matrix with numbers added to its diagonal."""
        size = len(self.corner)
        corner = self.corner + np.diag(precision[:size])
        return Arrow(corner, self.border, self.diagonal + precision[size:])

    def __matmul__(self, vector: Floats) -> Floats:
        size = len(self.corner)
        first, rest = vector[:size], vector[size:]
        above = self.corner @ first + self.border @ rest
        below = self.border.T @ first + self.diagonal * rest
        return np.concatenate([above, below])

    def __truediv__(self, number: float) -> Arrow:
        return Arrow(self.corner / number, self.border / number, self.diagonal / number)

    def _reduced(self) -> Floats:
        """The Schur complement of the diagonal."""
        reduced: Floats = self.corner - (self.border / self.diagonal) @ self.border.T
        return reduced

    def solve(self, vector: Floats) -> tuple[Floats, float]:
        """The solution, and the log determinant of the matrix."""
        size = len(self.corner)
        reduced = self._reduced()
        scaled = vector[size:] / self.diagonal
        first = np.linalg.solve(reduced, vector[:size] - self.border @ scaled)
        rest = scaled - (self.border.T @ first) / self.diagonal
        log_determinant = float(np.linalg.slogdet(reduced)[1] + np.log(self.diagonal).sum())
        return np.concatenate([first, rest]), log_determinant

    def inverse(self) -> Inverse:
        """The inverse, without computing all of it."""
        return Inverse(
            np.linalg.inv(self._reduced()), self.border / self.diagonal, 1 / self.diagonal
        )


class Inverse(NamedTuple):
    """The inverse of an `Arrow`: its corner, and what the rest is computed from."""

    corner: Floats
    through: Floats
    diagonal: Floats

    def contrasts(self, place: slice, weights: Floats) -> Floats:
        """Variances of coefficients minus their weighted mean, where weights sum to 1."""
        if place.start < len(self.corner):
            block = self.corner[place, place]
            shared = block @ weights
            variances: Floats = np.diag(block) - 2 * shared + weights @ shared
            return np.maximum(variances, 0)
        mean = self.through @ weights
        shared = self.diagonal * weights + self.through.T @ (self.corner @ mean)
        own = self.diagonal + ((self.corner @ self.through) * self.through).sum(axis=0)
        return np.maximum(own - 2 * shared + weights @ shared, 0)


class Group(NamedTuple):
    """Coefficients that share a prior standard deviation, which is exponential with this rate."""

    place: slice
    rate: float = 0.0


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
        self.corner = self.width - (widest if widest > _SMALL else 0)
        self._kept: dict[int, Floats] = {}

    def linear(self, coefficients: Floats) -> Floats:
        """The matrix times coefficients."""
        result: Floats = np.empty(len(self.log_odds))
        for rows, matrix in self._chunks():
            result[rows] = matrix @ coefficients[: self._dense_width]
        for codes, place in self._places():
            result += np.append(coefficients[place], 0.0)[codes]
        return result

    def transposed(self, values: Floats) -> Floats:
        """The transposed matrix times one value per row."""
        result = np.zeros(self.width)
        for rows, matrix in self._chunks():
            result[: self._dense_width] += matrix.T @ values[rows]
        for codes, place in self._places():
            result[place] = _by_category(codes, place, values)
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
                for column in range(dense):
                    into[column] += _by_category(codes[rows], place, weighted[:, column])
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
            result[place] = _by_category(codes, place) / rows
        return result

    def _add_categories(self, corner: Floats, border: Floats, weights: Floats) -> Floats:
        """The products of categories: sums of weights by pairs of them; returns the diagonal."""
        diagonal: Floats = np.zeros(self.width - self.corner)
        places = list(self._places())
        for number, (codes, place) in enumerate(places):
            sums = _by_category(codes, place, weights)
            if place.start >= self.corner:
                diagonal = sums
            else:
                corner[place, place] = np.diag(sums)
            width = place.stop - place.start
            for others, other in places[:number]:
                columns = other.stop - other.start
                size = (width + 1) * (columns + 1)
                sums = add_up(codes * (columns + 1) + others, weights, size)
                block = sums.reshape(width + 1, columns + 1)[:width, :columns]
                if place.start >= self.corner:
                    border[other] = block.T
                else:
                    corner[place, other] = block
                    corner[other, place] = block.T
        return diagonal

    def _places(self) -> Iterator[tuple[Indices, slice]]:
        start = self._dense_width
        for block in self._categories:
            yield block.codes, slice(start, start + block.width)
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


def _by_category(codes: Indices, place: slice, values: Floats | None = None) -> Floats:
    """Sums of values, or the number of rows, for each category of a place; rows of none are not."""
    width = place.stop - place.start
    return add_up(codes, values, width)[:width]
