"""The exact convex solver: weighted logistic loss with lower bounds on coefficients.

Problems have at most four unknowns, so each Newton step solves its bounded quadratic exactly by trying every set of
active bounds. The answer comes with its Karush-Kuhn-Tucker residual as a certificate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats
from calibrank.errors import FitError

_GOAL = 1e-14
_WANDERING = 1e-11
_ENOUGH = 1e-8
_STEPS, _FEW_STEPS = 200, 30
_MANY, _RUN = 4096, 32


@dataclass(frozen=True, slots=True)
class Problem:
    """Minimise the mean of total * softplus(z) - positive * z over z = solution @ design, solution >= floors.

    The second term is linear in the solution: `pull` is its slope, the sum of positive * design.
    """

    design: Floats
    total: Floats
    pull: Floats
    floors: Floats
    rate: float
    """Positive mass over total: residuals are judged against it."""

    def at(self, solution: Floats) -> "Point":
        """The loss and the fitted probabilities at a solution."""
        z = solution @ self.design
        shrunk = np.exp(-np.abs(z))
        softplus = np.maximum(z, 0) + np.log1p(shrunk)
        probabilities = np.where(z >= 0, 1, shrunk) / (1 + shrunk)
        value = self.total @ softplus - self.pull @ solution
        return Point(solution, float(value / self.total.sum()), probabilities)

    def gradient(self, point: "Point") -> Floats:
        """Derivative of the mean loss."""
        gradient: Floats = self.design @ (self.total * point.probabilities) - self.pull
        return gradient / self.total.sum()

    def curvature(self, point: "Point") -> Floats:
        """Second derivative of the mean loss."""
        weights = self.total * point.probabilities * (1 - point.probabilities) / self.total.sum()
        curvature: Floats = (self.design * weights) @ self.design.T
        return curvature

    def coarser(self) -> "Problem":
        """A cheap likeness: runs of points pooled at their mean."""
        starts = np.arange(0, len(self.total), _RUN)
        total = np.add.reduceat(self.total, starts)
        design = np.add.reduceat(self.design * self.total, starts, axis=1) / total
        return Problem(design, total, self.pull, self.floors, self.rate)


class Point(NamedTuple):
    """A trial solution and what the problem makes of it."""

    solution: Floats
    value: float
    probabilities: Floats


class Solution(NamedTuple):
    """A certified optimum; `free` says which coefficients are off their floor."""

    point: Point
    free: npt.NDArray[np.bool_]
    residual: float
    iterations: int


def solve(problem: Problem, start: Floats) -> Solution:
    """The certified optimum; large problems start from that of a coarser likeness."""
    solution = _newton(problem, _warm(problem, start), _STEPS)
    if solution.residual <= _ENOUGH:
        return solution
    raise FitError(
        f"the fit must reach an optimality residual of {_ENOUGH}, got {solution.residual:.1e} after {_STEPS} steps. "
        "The optimum is too far out for the precision of numbers: drop outlying scores, or use Isotonic."
    )


def _warm(problem: Problem, start: Floats) -> Floats:
    """A better start for a large problem; the likeness may have no optimum of its own, so it must prove itself."""
    if len(problem.total) <= _MANY:
        return start
    likeness = _newton(problem.coarser(), start, _FEW_STEPS)
    better = (
        likeness.residual <= _ENOUGH
        and problem.at(likeness.point.solution).value < problem.at(start).value
    )
    return likeness.point.solution if better else start


def _newton(problem: Problem, start: Floats, steps: int) -> Solution:
    """Newton steps with backtracking until the optimality conditions hold to rounding, or patience ends."""
    point, best, iteration = problem.at(start), np.inf, 0
    while True:
        iteration += 1
        gradient = problem.gradient(point)
        residual = _residual(gradient, point.solution - problem.floors) / problem.rate
        # At the limit of rounding the residual only wanders: stop when it is small and no longer falls.
        settled = residual <= _GOAL or (residual <= _WANDERING and residual > best / 2)
        best = min(best, residual)
        step = _bounded_step(gradient, problem.curvature(point), problem.floors - point.solution)
        following = None if settled else _descend(problem, point, step, float(gradient @ step))
        if following is None or iteration == steps:
            return Solution(point, point.solution > problem.floors, float(residual), iteration)
        point = following


def _residual(gradient: Floats, slack: Floats) -> float:
    """How far the optimality conditions are from holding: no slope, save upwards at a floor."""
    return float(
        np.abs(np.maximum(gradient, 0) * np.minimum(slack, 1) + np.minimum(gradient, 0)).max()
    )


def _bounded_step(gradient: Floats, curvature: Floats, floors: Floats) -> Floats:
    """The exact minimiser of gradient @ d + d @ curvature @ d / 2 with d >= floors."""
    steadied = curvature + np.diag(np.diag(curvature) * 1e-14 + 1e-300)
    best: Floats = np.zeros(len(gradient))
    best_value = 0.0
    for active in _subsets(np.flatnonzero(np.isfinite(floors))):
        step = _step_with(active, gradient, steadied, floors)
        value = float(gradient @ step + step @ steadied @ step / 2)
        if (step >= floors).all() and value < best_value:
            best, best_value = step, value
            if not active:
                break  # the free minimiser is allowed, so nothing beats it
    return best


def _step_with(
    active: tuple[int, ...], gradient: Floats, curvature: Floats, floors: Floats
) -> Floats:
    """The minimiser with some bounds held exactly."""
    step = np.zeros(len(gradient))
    step[list(active)] = floors[list(active)]
    free = [index for index in range(len(gradient)) if index not in active]
    right, left = -(gradient + curvature @ step)[free], curvature[free][:, free]
    try:
        step[free] = np.linalg.solve(left, right)
    except (
        np.linalg.LinAlgError
    ):  # flat to the last bit in some direction: stay where we are along it
        step[free] = np.linalg.lstsq(left, right, rcond=1e-15)[0]
    return step


def _subsets(indices: npt.NDArray[np.intp]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(
        combinations(indices.tolist(), size) for size in range(len(indices) + 1)
    )


def _descend(problem: Problem, point: Point, step: Floats, slope: float) -> Point | None:
    """Halve the step until the loss falls as it should, if it does; near the optimum rounding may hide the fall."""
    share = 1.0
    while share > 1e-18:
        trial = problem.at(np.maximum(point.solution + step * share, problem.floors))
        if trial.value <= point.value + 1e-4 * share * slope + 1e-15 * abs(point.value):
            return trial
        share /= 2
    return None
