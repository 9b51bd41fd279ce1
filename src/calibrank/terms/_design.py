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
# Halves of fewer rows are not worth a call.
_SMALL_HALF = 32
# Larger than any square, and its root is a number.
_HUGE = 1e300


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

    @property
    def squares(self) -> Floats:
        """The diagonal of the whole matrix."""
        return np.concatenate([np.diag(self.corner), self.diagonal])

    def remaining(self, sds: Floats) -> Floats:
        """The inverse of the diagonal plus the precision of a prior; without a width it is 0."""
        variances = sds[len(sds) - len(self.diagonal) :] ** 2
        return variances / (1 + self.diagonal * variances)

    def take(self, places: Indices) -> Arrow:
        """Some places of the corner, and all of the diagonal."""
        return Arrow(self.corner[places][:, places], self.border[places], self.diagonal)

    def eliminated(self, remaining: Floats) -> Floats:
        """What is left of the corner after the diagonal was eliminated."""
        if not remaining.any():
            return self.corner
        part = self.border * np.sqrt(remaining)
        return self.corner - part @ part.T

    def right(self, vector: Floats, remaining: Floats) -> Floats:
        """The corner of a vector after the diagonal was eliminated."""
        rest = len(vector) - len(remaining)
        return vector[:rest] - self.border @ (remaining * vector[rest:])


class Posterior:
    """The inverse of an `Arrow` plus the precision of priors with these standard deviations.

    A coefficient whose standard deviation is 0 is left out: it is 0, and known.
    """

    def __init__(self, arrow: Arrow, sds: Floats) -> None:
        self.sds = sds
        self.used = np.flatnonzero(sds[: len(arrow.corner)])
        self.diagonal = arrow.remaining(sds)
        self.border = arrow.border
        self._of_used = arrow.take(self.used)

    @cached_property
    def _inner(self) -> Floats:
        """What is left of the places of the corner that are used."""
        return self._of_used.eliminated(self.diagonal) + np.diag(self.sds[self.used] ** -2.0)

    @cached_property
    def covariance(self) -> Floats:
        """Of the places of the corner that are used."""
        return _inverse(self._inner)

    @cached_property
    def corner(self) -> Floats:
        """The covariance of all of the corner."""
        corner = np.zeros((len(self.border),) * 2)
        corner[np.ix_(self.used, self.used)] = self.covariance
        return corner

    def _right(self, vector: Floats) -> Floats:
        """The used places of a vector after the diagonal was eliminated."""
        places = np.append(self.used, np.arange(len(self.border), len(vector)))
        return self._of_used.right(vector[places], self.diagonal)

    def solve(self, vector: Floats) -> Floats:
        """The solution for the right-hand side."""
        size = len(self.border)
        first = self.covariance @ self._right(vector)
        result = np.zeros(len(vector))
        result[self.used] = first
        result[size:] = self.diagonal * (vector[size:] - self._of_used.border.T @ first)
        return result

    def log_marginal(self, linear: Floats) -> float:
        """Log marginal likelihood of a quadratic log likelihood, relative to all left out."""
        size = len(self.border)
        squares, log_determinant = whitened(self._inner, self._right(linear))
        squares = squares + self.diagonal @ linear[size:] ** 2
        log_determinant = log_determinant + 2 * np.log(self.sds[self.used]).sum()
        log_determinant += np.log1p(self._of_used.diagonal * self.sds[size:] ** 2).sum()
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
        products = np.zeros(self.border.shape)
        products[self.used] = -self.covariance @ (self._of_used.border * self.diagonal)
        return products

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


def whitened(matrices: Floats, vectors: Floats) -> tuple[Floats, Floats]:
    """The squared length of each vector in the inverse of its matrix, and log determinants.

    One decomposition has both: the diagonal of the root has the determinant, and a last row that
    belongs to the vector has its product with the root's inverse.
    """
    shape = matrices.shape
    bordered = np.full((*shape[:-2], shape[-1] + 1, shape[-1] + 1), _HUGE)
    bordered[..., :-1, :-1] = matrices
    bordered[..., -1, :-1] = vectors
    roots = np.linalg.cholesky(bordered)
    diagonals = np.diagonal(roots, axis1=-2, axis2=-1)[..., :-1]
    return (roots[..., -1, :-1] ** 2).sum(axis=-1), 2 * np.log(diagonals).sum(axis=-1)


def _inverse(matrix: Floats) -> Floats:
    """The inverse of a positive definite matrix, by halves: twice as fast as without symmetry."""
    half = len(matrix) // 2
    if half < _SMALL_HALF:
        return np.linalg.inv(matrix)
    first = _inverse(matrix[:half, :half])
    across = first @ matrix[:half, half:]
    second = _inverse(matrix[half:, half:] - across.T @ matrix[:half, half:])
    products = -across @ second
    return np.block([[first - products @ across.T, products], [products.T, second]])


class Sweep:
    """The posterior of what is left of a corner, as the prior of one group after the other changes.

    A change of `k` of `m` coefficients takes `k * m^2` operations, and an inverse `m^3`.
    """

    def __init__(self, eliminated: Floats, right: Floats, sds: Floats) -> None:
        self._matrix = eliminated
        self._right = right
        self.used = np.flatnonzero(sds[: len(right)])
        inner = eliminated[np.ix_(self.used, self.used)] + np.diag(sds[self.used] ** -2.0)
        self._covariance = _inverse(inner)
        self._mode = self._covariance @ right[self.used]

    def likelihood(self, place: slice, sd: float) -> tuple[Floats, Floats]:
        """The quadratic log likelihood of a group, which has this prior, given all others.

        That is its negative second derivative, a Schur complement, and its derivative at 0.
        """
        if sd:
            # What a posterior has beyond its prior is the likelihood.
            own = self._own(place)
            inverse = np.linalg.inv(self._covariance[own, own])
            return inverse - np.diag(np.full(len(inverse), sd**-2.0)), inverse @ self._mode[own]
        across = self._matrix[place][:, self.used]
        matrix = self._matrix[place, place] - across @ self._covariance @ across.T
        return matrix, self._right[place] - across @ self._mode

    def change(
        self, place: slice, before: float, sd: float, likelihood: tuple[Floats, Floats]
    ) -> None:
        """Give a group of this likelihood another prior."""
        matrix, linear = likelihood
        one = np.eye(len(linear))
        if before:
            own = self._own(place)
            weights = self._covariance[:, own] @ (matrix + one * before**-2.0)
        else:
            weights = -self._covariance @ self._matrix[self.used, place]
            weights = np.vstack([weights, one])
            self.used = np.append(self.used, np.arange(place.start, place.stop))
            self._covariance = np.pad(self._covariance, (0, len(one)))
            self._mode = np.pad(self._mode, (0, len(one)))
            own = self._own(place)
        # All others follow the group as they do in a regression on it.
        covariance = np.linalg.inv(matrix + one * sd**-2.0) if sd else 0 * one
        more = covariance @ linear - self._mode[own]
        self._covariance += weights @ (covariance - self._covariance[own, own]) @ weights.T
        self._mode += weights @ more
        if not sd:
            self.used, self._mode = np.delete(self.used, own), np.delete(self._mode, own)
            self._covariance = np.delete(np.delete(self._covariance, own, 0), own, 1)

    def posterior(self, arrow: Arrow, sds: Floats) -> Posterior:
        """The posterior of all coefficients."""
        found = Posterior(arrow, sds)
        order = np.argsort(self.used)
        found.covariance = self._covariance[np.ix_(order, order)]
        return found

    def _own(self, place: slice) -> slice:
        start = int(np.flatnonzero(self.used == place.start)[0])
        return slice(start, start + place.stop - place.start)


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
                columns = [self._turned[rows] ** power for power in range(powers)]
                if not powers:
                    blocks = [block.columns(rows) for block in self._dense]
                    columns = [np.ones(rows.stop - rows.start), self.log_odds[rows], *blocks]
                matrix = np.vstack(columns).T.copy()
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
