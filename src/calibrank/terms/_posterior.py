"""The posterior of many coefficients with a quadratic log likelihood, and marginal likelihoods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, Indices

# Halves of fewer rows are not worth a call.
_SMALL_HALF = 32
# Larger than any square, and its root is a number.
_HUGE = 1e300
# Matrices of so many numbers are decomposed at once.
_MOST_AT_ONCE = 2**18


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


def log_marginals(matrix: Floats, linear: Floats, given: Sequence[float]) -> Floats:
    """Log marginal likelihoods of a group's standard deviations, relative to leaving it out.

    Its quadratic log likelihood has this negative second derivative, and this derivative at 0.
    """
    sds = np.array(given)
    at_once = max(_MOST_AT_ONCE // matrix.size, 1)
    parts = []
    for start in range(0, len(sds), at_once):
        some = sds[start : start + at_once, None]
        # Rounding leaves no eigenvalue of the matrix far below 0, and those of the sum are near 1.
        scaled = np.eye(len(linear)) + some[..., None] ** 2 * matrix
        squares, log_determinants = whitened(scaled, some * linear)
        parts.append((squares - log_determinants) / 2)
    return np.concatenate(parts)


def quadratic_marginals(curvature: Floats, slopes: Floats, sds: Sequence[float]) -> Floats:
    """Log marginal likelihoods of independent coefficients with quadratic log likelihoods."""
    variances = np.array(sds)[:, None] ** 2
    ratios = 1 + curvature * variances
    return (slopes**2 * variances / ratios - np.log(ratios)).sum(axis=1) / 2
