"""Logistic regression with a Gaussian prior per group of coefficients, by marginal likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._logit import expit
from calibrank._validation import Floats
from calibrank.errors import FitError

SDS = (0.003, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Prior standard deviations of a group that are tried; the first leaves it practically at 0."""

# The intercept and the slope of the curve are known well enough not to need a prior; this one
# keeps the solution finite.
_WIDE_SD = 30.0
_SMALLEST_SLOPE = 0.01
_MAX_STEPS = 100
# Newton decrement, relative to the number of rows.
_TOLERANCE = 1e-13
_ACCEPTED = 1e-7
_SWEEPS = 3
_ROUNDS = 4


class Solution(NamedTuple):
    """Coefficients, the mean log loss, and how well the optimum was reached."""

    coefficients: Floats
    loss: float
    residual: float
    iterations: int


class Design:
    """A column of ones, the log odds of the curve, and further columns with groups of priors."""

    def __init__(self, columns: Sequence[Floats], groups: Sequence[slice]) -> None:
        ones = np.ones((len(columns[0]), 1))
        self.matrix: Floats = np.column_stack([ones, *columns])
        self.groups = list(groups)

    def precision(self, sds: Sequence[float]) -> Floats:
        """The prior precision of each coefficient."""
        precision: Floats = np.full(self.matrix.shape[1], _WIDE_SD**-2.0)
        for group, sd in zip(self.groups, sds, strict=True):
            precision[group] = sd**-2.0
        return precision


def fit_ridge(design: Design, positive: Floats, total: Floats) -> Solution:
    """The posterior mode under the priors with the highest marginal likelihood.

    Marginal likelihoods are those of the quadratic approximation at the current mode (penalized
    quasi-likelihood), so that only small matrices are needed to compare priors.
    """
    problem = _Problem(design.matrix, positive, total, _dispersion(positive, total))
    sds = [0.3] * len(design.groups)
    start = np.zeros(design.matrix.shape[1])
    # The curve alone, as it was fitted.
    start[1] = 1.0
    coefficients, iterations = problem.minimize(start, design.precision(sds))
    for _ in range(_ROUNDS):
        chosen = _choose_sds(problem, design, coefficients, sds)
        if chosen == sds:
            break
        sds = chosen
        coefficients, more = problem.minimize(coefficients, design.precision(sds))
        iterations += more
    residual = problem.residual(coefficients, design.precision(sds))
    if coefficients[1] < _SMALLEST_SLOPE:
        return _with_smallest_slope(design, positive, total)
    if not residual <= _ACCEPTED:
        raise FitError(
            f"the fit must reach an optimality residual of {_ACCEPTED}, got {residual:.1e}. "
            "Drop outlying features."
        )
    return Solution(coefficients, problem.mean_loss(coefficients), residual, iterations)


def _with_smallest_slope(design: Design, positive: Floats, total: Floats) -> Solution:
    """Scores that the features make useless keep a small slope: their order never reverses."""
    problem = _Problem(design.matrix, positive, total, _dispersion(positive, total))
    precision = design.precision([0.3] * len(design.groups))
    # A prior that is certain of the slope; its mean is not 0, so the problem is shifted.
    precision[1] = 1e12
    start = np.zeros(design.matrix.shape[1])
    problem.offset = _SMALLEST_SLOPE * design.matrix[:, 1]
    coefficients, iterations = problem.minimize(start, precision)
    residual = problem.residual(coefficients, precision)
    loss = problem.mean_loss(coefficients)
    coefficients = coefficients.copy()
    coefficients[1] = _SMALLEST_SLOPE
    return Solution(coefficients, loss, residual, iterations)


def _dispersion(positive: Floats, total: Floats) -> float:
    """How much weighted evidence varies relative to labels: the mean weight by mass."""
    by_positive = float((positive**2).sum() / max(positive.sum(), 1e-300))
    return max(by_positive, float((total**2).sum() / total.sum()))


class _Problem:
    """Log loss divided by the dispersion, plus half of precision times squared coefficients."""

    def __init__(self, matrix: Floats, positive: Floats, total: Floats, dispersion: float) -> None:
        self.matrix = matrix
        self.positive = positive
        self.total = total
        self.dispersion = dispersion
        self.offset: Floats | float = 0.0

    def mean_loss(self, coefficients: Floats) -> float:
        z = self.matrix @ coefficients + self.offset
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        return float((self.total @ softplus - self.positive @ z) / self.total.sum())

    def value(self, coefficients: Floats, precision: Floats) -> float:
        loss = self.mean_loss(coefficients) * float(self.total.sum()) / self.dispersion
        return loss + float(precision @ coefficients**2) / 2

    def gradient(self, coefficients: Floats) -> Floats:
        p = expit(self.matrix @ coefficients + self.offset)
        gradient: Floats = self.matrix.T @ (self.total * p - self.positive) / self.dispersion
        return gradient

    def hessian(self, coefficients: Floats) -> Floats:
        p = expit(self.matrix @ coefficients + self.offset)
        weights = self.total * p * (1 - p) / self.dispersion
        hessian: Floats = self.matrix.T @ (self.matrix * weights[:, None])
        return hessian

    def residual(self, coefficients: Floats, precision: Floats) -> float:
        """The largest derivative, relative to the positive mass and the spread of its column."""
        gradient = self.gradient(coefficients) + precision * coefficients
        scale = np.sqrt((self.matrix**2).mean(axis=0)) * self.positive.sum() / self.dispersion
        return float(np.abs(gradient / np.maximum(scale, 1e-300)).max())

    def minimize(self, start: Floats, precision: Floats) -> tuple[Floats, int]:
        """Newton's method with step halving; the problem is strictly convex."""
        coefficients = start
        value = self.value(coefficients, precision)
        iteration = 0
        while iteration < _MAX_STEPS:
            iteration += 1
            gradient = self.gradient(coefficients) + precision * coefficients
            hessian = self.hessian(coefficients) + np.diag(precision)
            step = np.linalg.solve(hessian, gradient)
            fraction = 1.0
            while fraction > 1e-9:
                following = coefficients - fraction * step
                after = self.value(following, precision)
                if after <= value + 1e-12 * abs(value):
                    break
                fraction /= 2
            coefficients, value = following, after
            if float(gradient @ step) < _TOLERANCE * len(self.total):
                break
        return coefficients, iteration


def _choose_sds(
    problem: _Problem, design: Design, coefficients: Floats, sds: list[float]
) -> list[float]:
    """Raise the marginal likelihood of the quadratic approximation, one group after the other."""
    hessian = problem.hessian(coefficients)
    linear = hessian @ coefficients - problem.gradient(coefficients)
    chosen = list(sds)
    for _ in range(_SWEEPS):
        for group in range(len(chosen)):
            scores = []
            for sd in SDS:
                chosen[group] = sd
                scores.append(_log_marginal(hessian, linear, design.precision(chosen)))
            chosen[group] = SDS[int(np.argmax(scores))]
    return chosen


def _log_marginal(hessian: Floats, linear: Floats, precision: Floats) -> float:
    """The log marginal likelihood of a quadratic log likelihood, without constants."""
    posterior = hessian + np.diag(precision)
    mode = np.linalg.solve(posterior, linear)
    log_determinant = float(np.linalg.slogdet(posterior)[1])
    return (float(linear @ mode) - log_determinant + float(np.log(precision).sum())) / 2
