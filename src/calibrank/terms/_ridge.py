"""Logistic regression with a Gaussian prior per group of coefficients, by marginal likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import expit, softplus
from calibrank._internal.validation import Floats, add_up
from calibrank.errors import FitError
from calibrank.terms._design import Arrow, Codes, Design, Inverse, Posterior

SDS = (0.0, 0.03, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.2, 3.0)
"""Prior standard deviations of a group that are tried; the first leaves it out."""

# The intercept and the slope of the curve are known well enough not to need a prior; this one
# keeps the solution finite.
_WIDE_SD = 30.0
_SMALLEST_SLOPE = 0.01
_MAX_STEPS = 100
# Newton decrement, relative to the number of rows.
_TOLERANCE = 1e-13
# While priors are still being chosen.
_ROUGH = 1e-6
_ACCEPTED = 1e-7
_SWEEPS = 3
_ROUNDS = 4
# Levels with less information than this about their log odds have a likelihood that is no parabola:
# it is integrated over these log odds, for about so many rows, from this standard deviation on.
_LEAST_INFORMATION = 10.0
_GRID = np.arange(-9, 9.1, 0.25)
_GRID_ROWS = 5_000
_MOST_ROWS_OF_LEVEL = 1_000
_SMALLEST_INTEGRATED = 0.2


class Solution(NamedTuple):
    """Coefficients, the mean log loss, and how well the optimum was reached."""

    coefficients: Floats
    loss: float
    residual: float
    iterations: int
    sds: tuple[float, ...]
    """The chosen prior standard deviation of each group."""
    covariance: Inverse
    """The posterior covariance of the coefficients."""


def fit_ridge(
    design: Design, positive: Floats, total: Floats, offset: Floats | float = 0.0
) -> Solution:
    """The posterior mode under the priors with the highest marginal likelihood.

    Marginal likelihoods are those of the quadratic approximation at the current mode (penalized
    quasi-likelihood), so that only small matrices are needed to compare priors. With an `offset`
    in log odds, the coefficients of the curve are changes of it.
    """
    problem = _Problem(design, positive, total, offset)
    sds = [0.0] * len(design.groups)
    start = np.zeros(design.width)
    has_offset = isinstance(offset, np.ndarray)
    # The curve alone, as it was fitted.
    start[1] = 0.0 if has_offset else 1.0
    coefficients, iterations = problem.minimize(start, _precision(design, sds), _ROUGH)
    for _ in range(_ROUNDS):
        chosen = _choose_sds(problem, design, coefficients, sds)
        if chosen == sds:
            break
        sds = chosen
        coefficients, more = problem.minimize(coefficients, _precision(design, sds), _ROUGH)
        iterations += more
    coefficients, more = problem.minimize(coefficients, _precision(design, sds))
    iterations += more
    while _smallest_slope(design, coefficients) < _SMALLEST_SLOPE:
        # In some combination of levels the order of scores would reverse: slopes must differ less.
        closer = _with_closer_slopes(design, sds)
        if closer == sds:
            break
        sds = closer
        coefficients, more = problem.minimize(coefficients, _precision(design, sds))
        iterations += more
    residual = problem.residual(coefficients, _precision(design, sds))
    slope = coefficients[1] + (1.0 if has_offset else 0.0)
    if slope < _SMALLEST_SLOPE:
        return _with_smallest_slope(problem, sds, offset)
    if not residual <= _ACCEPTED:
        raise FitError(
            "the fit",
            f"reach an optimality residual of {_ACCEPTED}",
            f"{residual:.1e}",
            "Drop outlying features.",
        )
    return problem.solution(coefficients, sds, residual, iterations)


def _smallest_slope(design: Design, coefficients: Floats) -> float:
    """The slope in the combination of levels in which it is smallest; unknown ones change none."""
    slope = float(coefficients[1])
    for group in design.groups:
        if group.are_slopes:
            slope += min(float(coefficients[group.place].min()), 0.0)
    return slope


def _with_closer_slopes(design: Design, sds: Sequence[float]) -> list[float]:
    """Half the standard deviations of slopes; small ones leave them out."""
    closer = []
    for group, sd in zip(design.groups, sds, strict=True):
        smaller = sd / 2 if sd > SDS[1] else 0.0
        closer.append(smaller if group.are_slopes else sd)
    return closer


def _with_smallest_slope(
    problem: _Problem, sds: Sequence[float], offset: Floats | float
) -> Solution:
    """Scores that the features make useless keep a small slope: their order never reverses."""
    design = problem.design
    slope = _SMALLEST_SLOPE - (1.0 if isinstance(offset, np.ndarray) else 0.0)
    precision = _precision(design, sds)
    # A prior that is certain of the slope; its mean is not 0, so the problem is shifted.
    precision[1] = 1e12
    shifted = _Problem(design, problem.positive, problem.total, offset + slope * design.log_odds)
    coefficients, iterations = shifted.minimize(np.zeros(design.width), precision)
    residual = shifted.residual(coefficients, precision)
    found = shifted.solution(coefficients, sds, residual, iterations)
    coefficients = coefficients.copy()
    coefficients[1] = slope
    return found._replace(coefficients=coefficients)


def _precision(design: Design, sds: Sequence[float]) -> Floats:
    """The prior precision of each coefficient."""
    precision: Floats = np.full(design.width, _WIDE_SD**-2.0)
    for group, sd in zip(design.groups, sds, strict=True):
        precision[group.place] = sd**-2.0 if sd else np.inf
    return precision


def _dispersion(positive: Floats, total: Floats) -> float:
    """How much weighted evidence varies relative to labels: the mean weight by mass."""
    by_positive = float((positive**2).sum() / max(positive.sum(), 1e-300))
    return max(by_positive, float((total**2).sum() / total.sum()))


class _Problem:
    """Log loss divided by the dispersion, plus half of precision times squared coefficients."""

    def __init__(
        self, design: Design, positive: Floats, total: Floats, offset: Floats | float
    ) -> None:
        self.design = design
        self.positive = positive
        self.total = total
        self.dispersion = _dispersion(positive, total)
        self._offset = offset

    def log_odds(self, coefficients: Floats) -> Floats:
        return self.design.linear(coefficients) + self._offset

    def mean_loss(self, coefficients: Floats) -> float:
        return self._loss(self.log_odds(coefficients))

    def solution(
        self, coefficients: Floats, sds: Sequence[float], residual: float, iterations: int
    ) -> Solution:
        """The coefficients with their posterior covariance."""
        hessian = self.hessian(self.log_odds(coefficients))
        inverse = hessian.posterior(_precision(self.design, sds)).inverse()
        loss = self.mean_loss(coefficients)
        return Solution(coefficients, loss, residual, iterations, tuple(sds), inverse)

    def _loss(self, z: Floats) -> float:
        return float((self.total @ softplus(z) - self.positive @ z) / self.total.sum())

    def _value(self, z: Floats, coefficients: Floats, precision: Floats) -> float:
        loss = self._loss(z) * float(self.total.sum()) / self.dispersion
        return loss + float(_prior_gradient(precision, coefficients) @ coefficients) / 2

    def gradient(self, z: Floats) -> Floats:
        residuals = self.total * expit(z) - self.positive
        return self.design.transposed(residuals) / self.dispersion

    def hessian(self, z: Floats) -> Arrow:
        p = expit(z)
        return self.design.gram(self.total * p * (1 - p) / self.dispersion)

    def residual(self, coefficients: Floats, precision: Floats) -> float:
        """The largest derivative, relative to the positive mass and the spread of its column.

        Without any positive, it is relative to that of one label.
        """
        gradient = self.gradient(self.log_odds(coefficients))
        gradient += _prior_gradient(precision, coefficients)
        # Nothing is asked of a coefficient that is left out.
        gradient[np.isinf(precision)] = 0.0
        spreads = np.sqrt(self.design.mean_squares())
        scale = spreads * max(float(self.positive.sum()), self.dispersion) / self.dispersion
        return float(np.abs(gradient / np.maximum(scale, 1e-300)).max())

    def minimize(
        self, start: Floats, precision: Floats, tolerance: float = _TOLERANCE
    ) -> tuple[Floats, int]:
        """Newton's method with step halving; the problem is strictly convex."""
        coefficients = np.where(np.isinf(precision), 0.0, start)
        z = self.log_odds(coefficients)
        value = self._value(z, coefficients, precision)
        iteration = 0
        while iteration < _MAX_STEPS:
            iteration += 1
            gradient = self.gradient(z) + _prior_gradient(precision, coefficients)
            step, _ = self.hessian(z).posterior(precision).solve(gradient)
            fraction = 1.0
            while fraction > 1e-9:
                following = coefficients - fraction * step
                z = self.log_odds(following)
                after = self._value(z, following, precision)
                if after <= value + 1e-12 * abs(value):
                    break
                fraction /= 2
            coefficients, value = following, after
            if float(gradient @ step) < tolerance * len(self.total):
                break
        return coefficients, iteration


def _prior_gradient(precision: Floats, coefficients: Floats) -> Floats:
    """Precision times coefficients; those that are left out are 0."""
    gradient: Floats = np.where(np.isinf(precision), 0.0, precision) * coefficients
    return gradient


def _choose_sds(
    problem: _Problem, design: Design, coefficients: Floats, sds: list[float]
) -> list[float]:
    """Raise the marginal likelihood, one group after the other.

    It is that of the quadratic approximation, corrected for levels of few rows.
    """
    z = problem.log_odds(coefficients)
    hessian = problem.hessian(z)
    linear = hessian @ coefficients - problem.gradient(z)
    corrections = [
        _correction(problem, z, coefficients[group.place], group.codes) - group.rate * np.array(SDS)
        for group in design.groups
    ]
    chosen = list(sds)
    corner = _Corner.of(hessian, linear, _precision(design, chosen))
    # A group is looked at again as long as others have changed since.
    count = len(design.groups)
    unchanged = 0
    for number in list(range(count)) * _SWEEPS:
        if unchanged == count:
            break
        group = design.groups[number]
        before = chosen[number]
        if group.place.start < len(hessian.corner):
            scores: Floats = corner.log_marginals(group.place) + corrections[number]
        else:
            precision = _precision(design, chosen)
            start = SDS.index(before) if before else len(SDS) // 2
            scores = _log_marginals_of_widest(
                hessian, precision, linear, group.place, corrections[number], start
            )
        chosen[number] = SDS[int(np.argmax(scores))]
        unchanged = unchanged + 1 if chosen[number] == before else 1
        if chosen[number] != before:
            earlier = None if group.place.start >= len(hessian.corner) else corner.posterior
            corner = _Corner.of(hessian, linear, _precision(design, chosen), earlier)
    return chosen


class _Corner(NamedTuple):
    """The posterior of the coefficients of the corner, in the quadratic approximation."""

    posterior: Posterior
    right: Floats
    """What the data say of the whole corner, after the widest block was eliminated."""
    covariance: Floats
    mode: Floats
    """Both on the places that are not left out."""

    @classmethod
    def of(
        cls, hessian: Arrow, linear: Floats, precision: Floats, earlier: Posterior | None = None
    ) -> _Corner:
        whole = hessian.whole_corner(precision) if earlier is None else earlier
        posterior = hessian.posterior(precision, whole)
        places = posterior.places[: posterior.size]
        right = posterior.eliminated(linear)
        covariance = np.linalg.inv(posterior.inner(places))
        return cls(posterior, right, covariance, covariance @ right[places])

    def log_marginals(self, place: slice) -> Floats:
        """Log marginal likelihoods of a group's standard deviations, relative to leaving it out.

        Given the others, the log likelihood of a group is quadratic, with the Schur complement of
        its block. In the basis of its eigenvectors, coefficients are independent.
        """
        places = self.posterior.places[: self.posterior.size]
        own = np.flatnonzero((places >= place.start) & (places < place.stop))
        if len(own):
            # What a posterior has beyond its prior is the likelihood.
            complement = np.linalg.inv(self.covariance[np.ix_(own, own)])
            linear = complement @ self.mode[own]
            complement -= np.diag(self.posterior.precision[place])
        else:
            across = self.posterior.reduced[place][:, places]
            complement = self.posterior.reduced[place, place] - across @ self.covariance @ across.T
            linear = self.right[place] - across @ self.mode
        curvature, basis = np.linalg.eigh(complement)
        slopes = basis.T @ linear
        return _quadratic_marginals(np.maximum(curvature, 0), slopes)


def _quadratic_marginals(curvature: Floats, slopes: Floats) -> Floats:
    """Log marginal likelihoods of independent coefficients with quadratic log likelihoods."""
    variances = np.array(SDS)[:, None] ** 2
    ratios = 1 + curvature * variances
    result: Floats = (slopes**2 * variances / ratios - np.log(ratios)).sum(axis=1) / 2
    return result


def _log_marginals_of_widest(
    hessian: Arrow, precision: Floats, linear: Floats, place: slice, correction: Floats, start: int
) -> Floats:
    """The same for the block that is eliminated: its Schur complement would be too large.

    Each takes long: from a start on, they are computed as far as they increase.
    """
    found: dict[int, float] = {}

    def score(number: int) -> float:
        if number not in found:
            sd = SDS[number]
            precision[place] = sd**-2.0 if sd else np.inf
            mode, log_determinant = hessian.posterior(precision).solve(linear)
            log_prior = -2 * np.log(sd) * (place.stop - place.start) if sd else 0.0
            value = (float(linear @ mode) - log_determinant + log_prior) / 2
            found[number] = value + float(correction[number])
        return found[number]

    score(0)
    for step in (1, -1):
        number = start
        while 0 <= number + step < len(SDS) and score(number + step) > score(number):
            number += step
    result = np.full(len(SDS), -np.inf)
    result[list(found)] = list(found.values())
    return result - result[0]


def _correction(problem: _Problem, z: Floats, coefficients: Floats, codes: Codes | None) -> Floats:
    """What the marginal likelihoods of levels of few rows are beyond the quadratic ones.

    The quadratic approximation finds too small a standard deviation where a level has a few labels
    (Breslow and Lin, 1995). Given all else, levels are independent: their likelihoods are
    integrated by the trapezoid rule, which is exact to 1e-4 there.
    """
    result: Floats = np.zeros(len(SDS))
    if codes is None:
        return result
    p = expit(z)
    information = codes.sums(problem.total * p * (1 - p)) / problem.dispersion
    counts = np.bincount(codes.codes, minlength=codes.width)[: codes.width]
    is_small = (information <= _LEAST_INFORMATION) & (counts > 0) & (counts <= _MOST_ROWS_OF_LEVEL)
    small = np.flatnonzero(is_small)
    some = small[:: -(-int(counts[small].sum()) // _GRID_ROWS) or 1]
    if not len(some):
        return result
    numbers = np.full(codes.width + 1, -1)
    numbers[some] = np.arange(len(some))
    rows = np.flatnonzero(numbers[codes.codes] >= 0)
    own = numbers[codes.codes[rows]]
    positive = problem.positive[rows] / problem.dispersion
    total = problem.total[rows] / problem.dispersion
    at_zero = z[rows] - coefficients[codes.codes[rows]]
    logs = np.empty((len(some), len(_GRID)))
    for column, change in enumerate(_GRID.tolist()):
        moved = at_zero + change
        gains = positive * change - total * (softplus(moved) - softplus(at_zero))
        logs[:, column] = add_up(own, gains, len(some))
    highest = logs.max(axis=1)
    likelihoods = np.exp(logs - highest[:, None])
    gradient = add_up(own, positive - total * p[rows], len(some))
    curvature = information[some]
    linear = gradient + curvature * coefficients[some]
    quadratic = _quadratic_marginals(curvature, linear)
    for number, sd in enumerate(SDS):
        if sd >= _SMALLEST_INTEGRATED:
            prior = np.exp(-((_GRID / sd) ** 2) / 2)
            exact = np.log(likelihoods @ (prior / prior.sum())) + highest
            result[number] = exact.sum() - quadratic[number]
    return result * (len(small) / len(some))
