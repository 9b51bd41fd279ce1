"""Logistic regression with a Gaussian prior per group of coefficients, by marginal likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import expit, softplus
from calibrank._internal.validation import Floats
from calibrank.errors import FitError
from calibrank.terms._design import Arrow, Design, Inverse

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
    sds = [0.3] * len(design.groups)
    start = np.zeros(design.width)
    has_offset = isinstance(offset, np.ndarray)
    # The curve alone, as it was fitted.
    start[1] = 0.0 if has_offset else 1.0
    coefficients, iterations = problem.minimize(start, _precision(design, sds))
    for _ in range(_ROUNDS):
        chosen = _choose_sds(problem, design, coefficients, sds)
        if chosen == sds:
            break
        sds = chosen
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
            got=f"{residual:.1e}",
            remedy="Drop outlying features.",
        )
    return problem.solution(coefficients, sds, residual, iterations)


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
        precision[group.place] = sd**-2.0
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
        hessian = self.hessian(self.log_odds(coefficients)) + _precision(self.design, sds)
        loss = self.mean_loss(coefficients)
        return Solution(coefficients, loss, residual, iterations, tuple(sds), hessian.inverse())

    def _loss(self, z: Floats) -> float:
        return float((self.total @ softplus(z) - self.positive @ z) / self.total.sum())

    def _value(self, z: Floats, coefficients: Floats, precision: Floats) -> float:
        loss = self._loss(z) * float(self.total.sum()) / self.dispersion
        return loss + float(precision @ coefficients**2) / 2

    def gradient(self, z: Floats) -> Floats:
        residuals = self.total * expit(z) - self.positive
        return self.design.transposed(residuals) / self.dispersion

    def hessian(self, z: Floats) -> Arrow:
        p = expit(z)
        return self.design.gram(self.total * p * (1 - p)) / self.dispersion

    def residual(self, coefficients: Floats, precision: Floats) -> float:
        """The largest derivative, relative to the positive mass and the spread of its column.

        Without any positive, it is relative to that of one label.
        """
        gradient = self.gradient(self.log_odds(coefficients)) + precision * coefficients
        spreads = np.sqrt(self.design.mean_squares())
        scale = spreads * max(float(self.positive.sum()), self.dispersion) / self.dispersion
        return float(np.abs(gradient / np.maximum(scale, 1e-300)).max())

    def minimize(self, start: Floats, precision: Floats) -> tuple[Floats, int]:
        """Newton's method with step halving; the problem is strictly convex."""
        coefficients = start
        z = self.log_odds(coefficients)
        value = self._value(z, coefficients, precision)
        iteration = 0
        while iteration < _MAX_STEPS:
            iteration += 1
            gradient = self.gradient(z) + precision * coefficients
            step, _ = (self.hessian(z) + precision).solve(gradient)
            fraction = 1.0
            while fraction > 1e-9:
                following = coefficients - fraction * step
                z = self.log_odds(following)
                after = self._value(z, following, precision)
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
    z = problem.log_odds(coefficients)
    hessian = problem.hessian(z)
    linear = hessian @ coefficients - problem.gradient(z)
    chosen = list(sds)
    for _ in range(_SWEEPS):
        before = list(chosen)
        for group in range(len(chosen)):
            scores = []
            for sd in SDS:
                chosen[group] = sd
                evidence = _log_marginal(hessian, linear, _precision(design, chosen))
                scores.append(evidence - design.groups[group].rate * sd)
            chosen[group] = SDS[int(np.argmax(scores))]
        if chosen == before:
            break
    return chosen


def _log_marginal(hessian: Arrow, linear: Floats, precision: Floats) -> float:
    """The log marginal likelihood of a quadratic log likelihood, without constants."""
    mode, log_determinant = (hessian + precision).solve(linear)
    return (float(linear @ mode) - log_determinant + float(np.log(precision).sum())) / 2
