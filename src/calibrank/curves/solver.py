"""Exact convex solver: weighted logistic loss with lower bounds on the coefficients.

Problems have at most four unknowns, so each Newton step solves its bounded quadratic problem
exactly by trying every set of active bounds. The solution carries its Karush-Kuhn-Tucker residual
as a certificate of optimality.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats
from calibrank.errors import FitError

# About what float64 can reach.
_TARGET_RESIDUAL = 1e-14
# Below this, a residual that stops falling is rounding error.
_ROUNDING_RESIDUAL = 1e-11
# A solution with a larger residual is not certified.
_REQUIRED_RESIDUAL = 1e-8
_MAX_STEPS = 200
# Smaller problems than this many points are solved faster than they are pooled.
_WARM_START_FROM = 4096
_WARM_START_STEPS = 30
# Neighbouring points pooled into one for the warm start.
_POOLED_RUN = 32


@dataclass(frozen=True, slots=True)
class Problem:
    """Minimize the mean of total * softplus(z) - positive * z over z = solution @ design.

    The second term is linear in the solution: all that is needed of the positive mass is
    `positive_sums`, the sum of positive * design over the points.
    """

    design: Floats
    """One row per coefficient, one column per point."""
    total: Floats
    positive_sums: Floats
    lower_bounds: Floats
    """One per coefficient; -inf where a coefficient is unbounded."""
    rate: float
    """Positive mass over total mass: residuals are measured relative to it."""

    def at(self, solution: Floats) -> Point:
        """The loss and the fitted probabilities at a solution."""
        z = solution @ self.design
        # exp(-|z|) cannot overflow; softplus(z) = max(z, 0) + log(1 + exp(-|z|)).
        decay = np.exp(-np.abs(z))
        softplus = np.maximum(z, 0) + np.log1p(decay)
        probabilities = np.where(z >= 0, 1, decay) / (1 + decay)
        value = self.total @ softplus - self.positive_sums @ solution
        return Point(solution, float(value / self.total.sum()), probabilities)

    def gradient(self, point: Point) -> Floats:
        """The gradient of the mean loss."""
        fitted_sums = self.design @ (self.total * point.probabilities)
        gradient: Floats = fitted_sums - self.positive_sums
        return gradient / self.total.sum()

    def hessian(self, point: Point) -> Floats:
        """The matrix of second derivatives of the mean loss."""
        p = point.probabilities
        weights = self.total * p * (1 - p)
        matrix: Floats = (self.design * weights) @ self.design.T
        return matrix / self.total.sum()

    def pooled(self) -> Problem:
        """A smaller approximate problem: runs of neighbouring points pooled at their mean."""
        starts = np.arange(0, len(self.total), _POOLED_RUN)
        total = np.add.reduceat(self.total, starts)
        design = np.add.reduceat(self.design * self.total, starts, axis=1) / total
        return Problem(design, total, self.positive_sums, self.lower_bounds, self.rate)


class Point(NamedTuple):
    """A trial solution with its loss and its fitted probabilities."""

    solution: Floats
    value: float
    probabilities: Floats


class Solution(NamedTuple):
    """An optimum and its certificate; `free` marks the coefficients above their lower bound."""

    point: Point
    free: npt.NDArray[np.bool_]
    residual: float
    iterations: int


def solve(problem: Problem, start: Floats, *, is_near: bool = False) -> Solution:
    """Find the certified optimum, or raise a `FitError` if float64 cannot reach it.

    A start that is near, such as the optimum of other folds, needs no approximate problem first.
    """
    start = start if is_near else _warm_start(problem, start)
    solution = _newton(problem, start, _MAX_STEPS)
    if solution.residual <= _REQUIRED_RESIDUAL:
        return solution
    raise FitError(
        "the fit",
        f"reach an optimality residual of {_REQUIRED_RESIDUAL}",
        f"{solution.residual:.1e} after {_MAX_STEPS} steps",
        (
            "The optimum is too far away for double precision: drop outlying scores, or "
            "use Isotonic."
        ),
    )


def _warm_start(problem: Problem, start: Floats) -> Floats:
    """The optimum of the pooled problem, if it has one and it improves on the given start."""
    if len(problem.total) <= _WARM_START_FROM:
        return start
    pooled = _newton(problem.pooled(), start, _WARM_START_STEPS)
    if pooled.residual > _REQUIRED_RESIDUAL:
        return start
    better = problem.at(pooled.point.solution).value < problem.at(start).value
    return pooled.point.solution if better else start


def _newton(problem: Problem, start: Floats, max_steps: int) -> Solution:
    """Newton's method with backtracking, until the optimality conditions hold to rounding."""
    point = problem.at(start)
    best_residual = np.inf
    iteration = 0
    while True:
        iteration += 1
        gradient = problem.gradient(point)
        slack = point.solution - problem.lower_bounds
        residual = _residual(gradient, slack) / problem.rate
        following = None
        if iteration < max_steps and not _has_converged(residual, best_residual):
            following = _newton_step(problem, point, gradient)
        if following is None:
            free = point.solution > problem.lower_bounds
            return Solution(point, free, float(residual), iteration)
        best_residual = min(best_residual, residual)
        point = following


def _has_converged(residual: float, best_residual: float) -> bool:
    if residual <= _TARGET_RESIDUAL:
        return True
    # At the limit of precision the residual fluctuates: stop once it is small and no longer halves.
    return residual <= _ROUNDING_RESIDUAL and residual > best_residual / 2


def _residual(gradient: Floats, slack: Floats) -> float:
    """The violation of the optimality conditions: zero gradient, or a positive one at a bound."""
    upward = np.maximum(gradient, 0) * np.minimum(slack, 1)
    downward = np.minimum(gradient, 0)
    return float(np.abs(upward + downward).max())


def _newton_step(problem: Problem, point: Point, gradient: Floats) -> Point | None:
    """The next point, or None if no step reduces the loss."""
    bounds = problem.lower_bounds - point.solution
    step = _bounded_step(gradient, problem.hessian(point), bounds)
    return _line_search(problem, point, step, float(gradient @ step))


def _bounded_step(gradient: Floats, hessian: Floats, bounds: Floats) -> Floats:
    """The exact minimizer of gradient @ d + d @ hessian @ d / 2 subject to d >= bounds."""
    # A relative 1e-14 on the diagonal keeps a nearly singular matrix solvable.
    stabilized = hessian + np.diag(np.diag(hessian) * 1e-14 + 1e-300)
    best: Floats = np.zeros(len(gradient))
    best_value = 0.0
    for active in _subsets(np.flatnonzero(np.isfinite(bounds))):
        step = _step_with_active(active, gradient, stabilized, bounds)
        value = float(gradient @ step + step @ stabilized @ step / 2)
        if (step >= bounds).all() and value < best_value:
            best = step
            best_value = value
            # No other set can beat a feasible unconstrained minimizer.
            if not active:
                break
    return best


def _step_with_active(
    active: tuple[int, ...], gradient: Floats, hessian: Floats, bounds: Floats
) -> Floats:
    """The minimizer with the coefficients in `active` held at their bounds."""
    if not active:
        return _unconstrained(hessian, -gradient)
    step = np.zeros(len(gradient))
    step[list(active)] = bounds[list(active)]
    free = [index for index in range(len(gradient)) if index not in active]
    right = -(gradient + hessian @ step)[free]
    step[free] = _unconstrained(hessian[free][:, free], right)
    return step


def _unconstrained(left: Floats, right: Floats) -> Floats:
    try:
        return np.linalg.solve(left, right)
    except np.linalg.LinAlgError:
        # The loss is exactly flat in some direction: least squares does not move along it.
        return np.linalg.lstsq(left, right, rcond=1e-15)[0]


def _subsets(indices: npt.NDArray[np.intp]) -> Iterator[tuple[int, ...]]:
    """All subsets, the empty one first."""
    members = indices.tolist()
    sizes = range(len(members) + 1)
    return chain.from_iterable(combinations(members, size) for size in sizes)


def _line_search(problem: Problem, point: Point, step: Floats, slope: float) -> Point | None:
    """Halve the step until it meets Armijo's condition; None if it never does."""
    fraction = 1.0
    while fraction > 1e-18:
        solution = point.solution + step * fraction
        trial = problem.at(np.maximum(solution, problem.lower_bounds))
        # Near the optimum the decrease is smaller than the rounding error of the loss.
        rounding = 1e-15 * abs(point.value)
        goal = point.value + 1e-4 * fraction * slope + rounding
        if trial.value <= goal:
            return trial
        fraction /= 2
    return None
