"""Exact minimization of a penalized log loss over nondecreasing log odds at knots.

The unknowns are the first value and the increments between knots, which must not be negative.
Bertsekas' projected Newton method solves the bounded convex problem: Newton steps in the free
unknowns, projected on the bounds. Where such steps jam against the bounds, each further step solves
its bounded quadratic problem exactly. The result comes with its optimality residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import expit, logit, softplus
from calibrank._internal.validation import Floats, Indices, Mask, add_up
from calibrank.errors import FitError

SMALLEST_INCREMENT = 1e-9
"""Log odds gained between two knots at least: different scores stay different."""

_MAX_STEPS = 200
# Projected steps that have not arrived by now are jammed: most problems take 5 to 30.
_PROJECTED_STEPS = 60
# What rounding leaves of an unknown that was set to its bound.
_ROUNDING = 1e-6 * SMALLEST_INCREMENT
# Residuals relative to the positive mass: at the first the solution is exact to rounding, at the
# second it is so if it no longer falls, at the third it is good enough where no step succeeds.
_GOAL = 1e-12
_WANDERING = 1e-9
_ACCEPTED = 1e-7


class Optimum(NamedTuple):
    """The first value and the increments; `free` marks those that are not at their bound."""

    unknowns: Floats
    free: Mask
    residual: float
    iterations: int

    @property
    def log_odds(self) -> Floats:
        """The log odds at the knots."""
        return np.cumsum(self.unknowns)


@dataclass(frozen=True, slots=True, eq=False)
class MonotoneProblem:
    """Sum of total * softplus(z) - positive * z plus a quadratic penalty of the values at knots.

    Point i lies in segment `segment[i]`, the fraction `position[i]` of the way to its upper knot.
    """

    segment: Indices
    position: Floats
    positive: Floats
    total: Floats
    penalty_root: Floats
    """A matrix R in the unknowns: the penalty is half the squared length of R @ unknowns.

    Second differences are taken of the increments themselves: from the values they would be lost
    to rounding where the penalty is large.
    """

    def at_points(self, unknowns: Floats) -> Floats:
        """The log odds of each point, interpolated between the knots."""
        log_odds = np.cumsum(unknowns)
        lower = log_odds[self.segment]
        return lower + self.position * unknowns[self.segment + 1]

    def probabilities(self, unknowns: Floats) -> Floats:
        """The fitted probability of each point."""
        return expit(self.at_points(unknowns))

    def mean_loss(self, unknowns: Floats) -> float:
        """The mean log loss, without the penalty."""
        z = self.at_points(unknowns)
        return float((self.total @ softplus(z) - self.positive @ z) / self.total.sum())

    def loss(self, unknowns: Floats) -> float:
        """The penalized sum that is minimized."""
        roughness = self.penalty_root @ unknowns
        return self.mean_loss(unknowns) * float(self.total.sum()) + float(roughness @ roughness) / 2

    def gradient(self, unknowns: Floats, probabilities: Floats | None = None) -> Floats:
        """The derivative of the loss; the probabilities can be given if they are known."""
        p = self.probabilities(unknowns) if probabilities is None else probabilities
        residuals = self.total * p - self.positive
        size = len(unknowns)
        by_knot = add_up(self.segment, residuals * (1 - self.position), size)
        by_knot = by_knot + add_up(self.segment + 1, residuals * self.position, size)
        # An increment raises its own knot and all above: reversed cumulative sums.
        gradient: Floats = np.cumsum(by_knot[::-1])[::-1]
        return gradient + self.penalty_root.T @ (self.penalty_root @ unknowns)

    def hessian(self, unknowns: Floats, probabilities: Floats | None = None) -> Floats:
        """The second derivative of the loss."""
        p = self.probabilities(unknowns) if probabilities is None else probabilities
        weights = self.total * p * (1 - p)
        size = len(unknowns)
        lower = 1 - self.position
        upper = self.position
        diagonal = add_up(self.segment, weights * lower**2, size)
        diagonal = diagonal + add_up(self.segment + 1, weights * upper**2, size)
        beside = add_up(self.segment, weights * lower * upper, size)[:-1]
        by_knot = np.zeros((size, size))
        # The diagonal and its neighbours, as places in the flat matrix.
        by_knot.flat[:: size + 1] = diagonal
        by_knot.flat[1 :: size + 1] = beside
        by_knot.flat[size :: size + 1] = beside
        rows = np.cumsum(by_knot[::-1], axis=0)[::-1]
        both: Floats = np.cumsum(rows[:, ::-1], axis=1)[:, ::-1]
        return both + self.penalty_root.T @ self.penalty_root

    def covariance(self, optimum: Optimum) -> Floats:
        """The inverse Hessian of the log odds; unknowns at their bound count as known."""
        size = len(optimum.unknowns)
        free = np.flatnonzero(optimum.free)
        hessian = self.hessian(optimum.unknowns)[np.ix_(free, free)]
        increments = np.zeros((size, size))
        increments[np.ix_(free, free)] = np.linalg.pinv(hessian)
        # Values are cumulative sums of the increments.
        return np.cumsum(np.cumsum(increments, axis=0), axis=1)


def minimize(problem: MonotoneProblem, start: Floats | None = None) -> Optimum:
    """The optimum, from unknowns close to it or from a nearly constant curve."""
    size = problem.penalty_root.shape[1]
    bounds = np.full(size, SMALLEST_INCREMENT)
    bounds[0] = -np.inf
    unknowns = _constant_start(problem, size) if start is None else start
    scale = max(float(problem.positive.sum()), 1e-300)
    loss = problem.loss(unknowns)
    residual = np.inf
    iteration = 0
    is_jammed = False
    while iteration < _MAX_STEPS:
        iteration += 1
        probabilities = problem.probabilities(unknowns)
        gradient = problem.gradient(unknowns, probabilities)
        # An unknown close to its bound that would fall below counts as at the bound (Bertsekas).
        closeness = _ROUNDING if is_jammed else min(residual, 1e-6)
        near = (unknowns <= bounds + closeness) & (gradient > 0)
        if (unknowns[near] > bounds[near]).any():
            # The residual must be that of the point which is returned.
            unknowns = np.where(near, bounds, unknowns)
            loss = problem.loss(unknowns)
            probabilities = problem.probabilities(unknowns)
            gradient = problem.gradient(unknowns, probabilities)
        at_bound = (unknowns <= bounds) & (gradient > 0)
        last = residual
        residual = float(np.abs(np.where(at_bound, 0.0, gradient)).max()) / scale
        # At the limit of rounding the residual only wanders.
        settled = residual <= _GOAL or (residual <= _WANDERING and residual > last / 2)
        following = None
        if not settled:
            is_jammed = is_jammed or iteration > _PROJECTED_STEPS
            hessian = problem.hessian(unknowns, probabilities)
            if is_jammed:
                direction = _bounded_direction(hessian, gradient, unknowns - bounds)
            else:
                direction = _free_direction(hessian, gradient, ~at_bound)
            following = _step(problem, unknowns, loss, bounds, gradient, direction)
        if following is not None:
            unknowns, loss = following
        elif is_jammed or residual <= _ACCEPTED:
            break
        else:
            is_jammed = True
    if residual <= _ACCEPTED:
        return Optimum(unknowns, ~at_bound, residual, iteration)
    raise FitError(
        "the fit",
        f"reach an optimality residual of {_ACCEPTED}",
        f"{residual:.1e} after {iteration} steps",
        "Drop outlying scores, or use Isotonic.",
    )


def _constant_start(problem: MonotoneProblem, size: int) -> Floats:
    rate = float(problem.positive.sum() / problem.total.sum())
    # A little slope, so that no unknown starts at its bound.
    unknowns = np.full(size, 1.0 / size)
    unknowns[0] = logit(min(max(rate, 1e-9), 1 - 1e-9)) - 0.5
    return unknowns


def _free_direction(hessian: Floats, gradient: Floats, free: Mask) -> Floats:
    """The Newton direction in the free unknowns; the others stay."""
    inner = hessian[np.ix_(free, free)]
    # A tiny ridge keeps directions without data solvable.
    ridge = np.diag(np.diag(inner) * 1e-13 + 1e-300)
    direction = np.zeros(len(gradient))
    direction[free] = np.linalg.solve(inner + ridge, gradient[free])
    return direction


def _bounded_direction(hessian: Floats, gradient: Floats, slack: Floats) -> Floats:
    """The direction to the minimum of the quadratic model within the bounds.

    With H = L L', the model is half the squared length of L' d - L^-1 g, and d is at most `slack`.
    """
    from scipy.optimize import lsq_linear  # noqa: PLC0415  (slow to load, and rarely needed)

    # Where all probabilities are 0 or 1, rounding leaves no curvature.
    curvature = np.diag(hessian)
    scale = 1 / np.sqrt(np.maximum(curvature, 1e-12 * curvature.max() + 1e-300))
    ridge = np.diag(np.full(len(gradient), 1e-13))
    root = np.linalg.cholesky(hessian * np.outer(scale, scale) + ridge)
    target = np.linalg.solve(root, gradient * scale)
    result = lsq_linear(root.T, target, (-np.inf, slack / scale), method="bvls", tol=1e-14)
    return result.x * scale


def _step(
    problem: MonotoneProblem,
    unknowns: Floats,
    before: float,
    bounds: Floats,
    gradient: Floats,
    direction: Floats,
) -> tuple[Floats, float] | None:
    """A projected step with a sufficient decrease, and its loss; None if rounding hides any."""
    fraction = 1.0
    while fraction > 1e-12:
        following = np.maximum(unknowns - fraction * direction, bounds)
        expected = float(gradient @ (unknowns - following))
        after = problem.loss(following)
        if after <= before - 1e-4 * expected + 1e-14 * abs(before):
            return (following, after) if (following != unknowns).any() else None
        fraction /= 2
    return None
