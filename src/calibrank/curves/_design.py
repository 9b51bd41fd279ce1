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

    def gram(self, weights: Floats) -> Floats:
        """The transposed matrix times weights times the matrix."""
        result = np.zeros((self.width, self.width))
        dense = slice(0, self._dense_width)
        for rows, matrix in self._chunks():
            weighted = matrix * weights[rows, None]
            result[dense, dense] += matrix.T @ weighted
            for codes, place in self._places():
                for column in range(self._dense_width):
                    sums = _by_category(codes[rows], place, weighted[:, column])
                    result[place, column] += sums
        self._add_categories(result, weights)
        result[dense, self._dense_width :] = result[self._dense_width :, dense].T
        return result

    def mean_squares(self) -> Floats:
        """The mean square of each column."""
        result = np.zeros(self.width)
        rows = len(self.log_odds)
        for _, matrix in self._chunks():
            result[: self._dense_width] += (matrix**2).sum(axis=0) / rows
        for codes, place in self._places():
            result[place] = _by_category(codes, place) / rows
        return result

    def _add_categories(self, result: Floats, weights: Floats) -> None:
        """The products of categories: sums of weights by pairs of them."""
        places = list(self._places())
        for number, (codes, place) in enumerate(places):
            result[place, place] = np.diag(_by_category(codes, place, weights))
            width = place.stop - place.start
            for others, other in places[:number]:
                columns = other.stop - other.start
                size = (width + 1) * (columns + 1)
                sums = np.bincount(codes * (columns + 1) + others, weights, size)
                result[place, other] = sums.reshape(width + 1, columns + 1)[:width, :columns]
                result[other, place] = result[place, other].T

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
