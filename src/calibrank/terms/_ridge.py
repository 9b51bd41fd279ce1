"""Logistic regression with a Gaussian prior per group of coefficients, by marginal likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import expit, softplus
from calibrank._internal.validation import Floats, add_up
from calibrank.errors import FitError
from calibrank.terms._design import Design, Group, Levels, add_rows
from calibrank.terms._posterior import Arrow, Posterior, Sweep, log_marginals, quadratic_marginals

SDS = (0.0, 0.03, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.2, 3.0)
"""Prior standard deviations of a group that are tried; the first leaves it out."""

# The intercept and the slope of the curve are known well enough not to need a prior; this one
# keeps the solution finite.
_WIDE_SD = 30.0
_SMALLEST_SLOPE = 0.01
_MAX_STEPS = 100
# Newton decrement, relative to the number of rows. What is left after a step with the Hessian of an
# earlier point is up to a third of the step, so that steps end later than Newton's would.
_TOLERANCE = 1e-19
# While priors are still being chosen.
_ROUGH = 1e-6
# A Hessian takes as long as so many steps with that of an earlier point.
_STEPS_OF_HESSIAN = 8
_ACCEPTED = 1e-7
_SWEEPS = 2
_ROUNDS = 4
# Of the log marginal likelihood: for less, priors are not looked at again. On 120 simulated small
# tables, fewer rounds were as good as rounds until nothing changes.
_LEAST_GAIN = 0.5
# A few labels that change a map leave its priors open: their mean standard deviation is used, which
# is exponential with this rate before the labels. The most likely one is 0 or large by chance. Of
# rates 0, 0.5, 1 and 2, with 30 to 1,000 labels of seven rankers each on Coat and KuaiRec, 1 lost
# least where terms are useless and kept most of the gain where they are not.
_RATE_OF_CHANGES = 1.0
# Smaller changes of a mean standard deviation are none.
_SETTLED = 0.01
# Levels with less information than this about their log odds have a likelihood that is no parabola:
# it is integrated over these log odds, for about so many rows, from this standard deviation on.
_LEAST_INFORMATION = 10.0
_GRID = np.arange(-9, 9.1, 0.25)
_GRID_ROWS = 5_000
_MOST_ROWS_OF_LEVEL = 1_000
_INTEGRATED = np.array([sd for sd in SDS if sd >= 0.2])
_PRIORS = np.exp(-((_GRID[:, None] / _INTEGRATED) ** 2) / 2)
_PRIORS /= _PRIORS.sum(axis=0)
# exp() of these log odds and those of the grid is finite.
_MOST_LOG_ODDS = 600.0


class Solution(NamedTuple):
    """Coefficients, the mean log loss, and how well the optimum was reached."""

    coefficients: Floats
    loss: float
    residual: float
    iterations: int
    sds: tuple[float, ...]
    """The chosen prior standard deviation of each group."""
    posterior: Posterior
    """Has the covariance of the coefficients."""


class Point(NamedTuple):
    """Coefficients with their log odds, and the Hessian there or near."""

    coefficients: Floats
    z: Floats
    hessian: Arrow


def fit_ridge(
    design: Design, positive: Floats, total: Floats, offset: Floats | float = 0.0
) -> Solution:
    """The posterior mode under the priors with the highest marginal likelihood.

    Marginal likelihoods are those of the quadratic approximation at the current mode (penalized
    quasi-likelihood), so that only small matrices are needed to compare priors. With an `offset`
    in log odds, the coefficients of the curve are changes of it, and standard deviations of priors
    are averages.
    """
    problem = Problem(design, positive, total, offset)
    own_slope = 1.0 if problem.is_change else 0.0
    # The curve alone, as it was fitted.
    start = np.zeros(design.width)
    start[1] = 1.0 - own_slope
    point = problem.at(start)
    sds = [0.0] * len(design.groups)
    iterations = 0
    for number in range(_ROUNDS):
        sds, gain, posterior = _choose_sds(problem, point, sds)
        is_last = gain < _LEAST_GAIN or number == _ROUNDS - 1
        tolerance = _TOLERANCE if is_last else _ROUGH
        point, more = problem.minimize(point, sds, tolerance, posterior)
        iterations += more
        if is_last:
            break
        point = problem.at(point.coefficients)
    while _smallest_slope(design, point.coefficients) + own_slope < _SMALLEST_SLOPE:
        # In some combination of levels the order of scores would reverse: slopes must differ less.
        closer = _with_closer_slopes(design.groups, sds)
        if closer == sds:
            break
        sds = closer
        point, more = problem.minimize(point, sds)
        iterations += more
    if point.coefficients[1] + own_slope < _SMALLEST_SLOPE:
        # Scores that the features make useless keep a small slope: their order never reverses.
        slope = _SMALLEST_SLOPE - own_slope
        problem = Problem(design, positive, total, offset + slope * design.log_odds)
        problem.has_slope = False
        point, more = problem.minimize(problem.at(np.zeros(design.width)), sds)
        iterations += more
    residual = problem.residual(point, sds)
    if not residual <= _ACCEPTED:
        rule = f"reach an optimality residual of {_ACCEPTED}"
        raise FitError("the fit", rule, f"{residual:.1e}", "Drop outlying features.")
    coefficients = point.coefficients.copy()
    if not problem.has_slope:
        coefficients[1] = slope
    posterior = Posterior(problem.hessian(point.z), problem.sds_of(sds))
    loss = problem.mean_loss(point.z)
    return Solution(coefficients, loss, residual, iterations, tuple(sds), posterior)


def _smallest_slope(design: Design, coefficients: Floats) -> float:
    """The slope in the combination of levels in which it is smallest; unknown ones change none."""
    slope = float(coefficients[1])
    for group in design.groups:
        if group.are_slopes:
            slope += min(float(coefficients[group.place].min()), 0.0)
    return slope


def _with_closer_slopes(groups: Sequence[Group], sds: Sequence[float]) -> list[float]:
    """Half the standard deviations of slopes; small ones leave them out."""
    closer = []
    for group, sd in zip(groups, sds, strict=True):
        smaller = sd / 2 if sd > SDS[1] else 0.0
        closer.append(smaller if group.are_slopes else sd)
    return closer


def _dispersion(positive: Floats, total: Floats) -> float:
    """How much weighted evidence varies relative to labels: the mean weight by mass."""
    by_positive = float((positive**2).sum() / max(positive.sum(), 1e-300))
    return max(by_positive, float((total**2).sum() / total.sum()))


class Problem:
    """Log loss divided by the dispersion, plus half the squares of coefficients by their priors."""

    has_slope = True
    """Whether the slope of the curve is fitted."""

    def __init__(
        self, design: Design, positive: Floats, total: Floats, offset: Floats | float
    ) -> None:
        self.design = design
        self.positive = positive
        self.total = total
        self.dispersion = _dispersion(positive, total)
        self._offset = offset
        self.is_change = isinstance(offset, np.ndarray)

    def at(self, coefficients: Floats) -> Point:
        """The point of these coefficients."""
        z = self.log_odds(coefficients)
        return Point(coefficients, z, self.hessian(z))

    def sds_of(self, sds: Sequence[float]) -> Floats:
        """The prior standard deviation of each coefficient."""
        of_all: Floats = np.full(self.design.width, _WIDE_SD)
        for group, sd in zip(self.design.groups, sds, strict=True):
            of_all[group.place] = sd
        if not self.has_slope:
            of_all[1] = 0.0
        return of_all

    def log_odds(self, coefficients: Floats) -> Floats:
        return self.design.linear(coefficients) + self._offset

    def mean_loss(self, z: Floats) -> float:
        return float((self.total @ softplus(z) - self.positive @ z) / self.total.sum())

    def gradient(self, z: Floats, sds: Floats | None = None) -> Floats:
        """The derivative of the loss; 0 for levels that are left out."""
        residuals = self.total * expit(z) - self.positive
        return self.design.transposed(residuals, sds) / self.dispersion

    def hessian(self, z: Floats) -> Arrow:
        p = expit(z)
        return self.design.gram(self.total * p * (1 - p) / self.dispersion)

    def residual(self, point: Point, sds: Sequence[float]) -> float:
        """The largest derivative, relative to the positive mass and the spread of its column.

        Without any positive, it is relative to that of one label.
        """
        of_all = self.sds_of(sds)
        precision = _precision(of_all)
        gradient = self.gradient(point.z) + precision * point.coefficients
        # Nothing is asked of a coefficient that is left out.
        gradient[of_all == 0] = 0.0
        spreads = np.sqrt(self.design.mean_squares())
        scale = spreads * max(float(self.positive.sum()), self.dispersion) / self.dispersion
        return float(np.abs(gradient / np.maximum(scale, 1e-300)).max())

    def minimize(
        self,
        start: Point,
        sds: Sequence[float],
        tolerance: float = _TOLERANCE,
        posterior: Posterior | None = None,
    ) -> tuple[Point, int]:
        """Newton's method with step halving; the problem is strictly convex.

        A Hessian is computed again where steps with that of an earlier point would take longer.
        """
        of_all = self.sds_of(sds)
        precision = _precision(of_all)
        coefficients = np.where(of_all > 0, start.coefficients, 0.0)
        z = start.z if (coefficients == start.coefficients).all() else self.log_odds(coefficients)
        hessian = start.hessian
        posterior = posterior or Posterior(hessian, of_all)

        def value(z: Floats, coefficients: Floats) -> float:
            loss = self.mean_loss(z) * float(self.total.sum()) / self.dispersion
            return loss + float(precision * coefficients @ coefficients) / 2

        before = value(z, coefficients)
        goal = tolerance * len(self.total)
        last = np.inf
        iteration = 0
        while iteration < _MAX_STEPS:
            iteration += 1
            gradient = self.gradient(z, of_all) + precision * coefficients
            step = posterior.solve(gradient)
            decrement = float(gradient @ step)
            if decrement * (decrement / last) ** _STEPS_OF_HESSIAN > goal:
                hessian = self.hessian(z)
                posterior = Posterior(hessian, of_all)
                step = posterior.solve(gradient)
                decrement = float(gradient @ step)
            last = decrement
            fraction = 1.0
            while fraction > 1e-9:
                following = coefficients - fraction * step
                z = self.log_odds(following)
                after = value(z, following)
                if after <= before + 1e-12 * abs(before):
                    break
                fraction /= 2
            coefficients, before = following, after
            if decrement < goal:
                break
        return Point(coefficients, z, hessian), iteration


def _precision(sds: Floats) -> Floats:
    """The precision of priors; of coefficients that are left out, and are 0, it does not matter."""
    return np.where(sds > 0, sds, np.inf) ** -2.0


def _choose_sds(
    problem: Problem, point: Point, sds: Sequence[float]
) -> tuple[list[float], float, Posterior]:
    """Raise the log marginal likelihood, one group after the other; also returns the gain.

    It is that of the quadratic approximation, corrected for levels of few rows. The posterior is
    the one under the chosen priors.
    """
    groups = problem.design.groups
    hessian = point.hessian
    gradient = problem.gradient(point.z)
    linear = hessian @ point.coefficients - gradient
    corrections = []
    for group in groups:
        rate = group.rate or (_RATE_OF_CHANGES if problem.is_change else 0.0)
        corrections.append(_correction(problem, point, gradient, group) - rate * np.array(SDS))
    chosen = list(sds)
    gain = 0.0
    # The one that is eliminated comes first: without the others that takes least.
    count = len(groups) - (problem.design.corner < problem.design.width)
    is_first = problem.is_change or not any(chosen)
    for number in range(count, len(groups)):
        marginals = partial(_eliminated_marginals, problem, hessian, linear, chosen[:number])
        found, scores = _highest(marginals, corrections[number], chosen[number], is_first=is_first)
        gain = float(scores[SDS.index(found)] - scores[SDS.index(chosen[number])])
        chosen[number] = found
    of_all = problem.sds_of(chosen)
    remaining = hessian.remaining(of_all)
    sweep = Sweep(hessian.eliminated(remaining), hessian.right(linear, remaining), of_all)
    # A group is looked at again as long as others have changed since.
    unchanged = 0
    for turn, number in enumerate([*range(count)] * _SWEEPS):
        if unchanged == count:
            break
        place, before = groups[number].place, chosen[number]
        likelihood = sweep.likelihood(place, before)
        marginals = partial(log_marginals, *likelihood)
        is_first = problem.is_change or (is_first and turn < count)
        found, scores = _highest(marginals, corrections[number], before, is_first=is_first)
        if problem.is_change:
            found = _mean_sd(scores)
        if abs(found - before) < _SETTLED:
            unchanged += 1
            continue
        chosen[number] = found
        gain += abs(float(np.diff(np.interp([before, found], SDS, scores))[0]))
        unchanged = 1
        sweep.change(place, before, found, likelihood)
    return chosen, gain, sweep.posterior(hessian, problem.sds_of(chosen))


def _highest(
    marginals: Callable[[Sequence[float]], Floats],
    corrections: Floats,
    start: float,
    *,
    is_first: bool,
) -> tuple[float, Floats]:
    """The standard deviation with the highest score, and all scores that were computed.

    At first all are; later only the next ones, as long as they are higher.
    """
    scores = np.full(len(SDS), -np.inf)
    near = [*range(len(SDS))]
    if not is_first:
        near = near[max(SDS.index(start) - 1, 0) :][:3]
    while near:
        scores[near] = corrections[near] + marginals([SDS[place] for place in near])
        best = int(np.argmax(scores))
        beside = {best - 1, best + 1} & set(range(len(SDS)))
        near = [place for place in sorted(beside) if scores[place] == -np.inf]
    return SDS[best], scores


def _eliminated_marginals(
    problem: Problem, hessian: Arrow, linear: Floats, others: list[float], sds: Sequence[float]
) -> Floats:
    """Log marginal likelihoods of standard deviations of the last group, given all others."""
    tried = [problem.sds_of([*others, sd]) for sd in sds]
    return np.array([Posterior(hessian, each).log_marginal(linear) for each in tried])


def _mean_sd(scores: Floats) -> float:
    """The mean standard deviation, weighted by likelihood; one near 0 leaves the group out."""
    weights = np.exp(scores - scores.max())
    mean = float(weights @ np.array(SDS) / weights.sum())
    return mean if mean > _SETTLED else 0.0


def _correction(problem: Problem, point: Point, gradient: Floats, group: Group) -> Floats:
    """What the marginal likelihoods of levels of few rows are beyond the quadratic ones.

    The quadratic approximation finds too small a standard deviation where a level has a few labels
    (Breslow and Lin, 1995). Given all else, levels are independent: their likelihoods are
    integrated by the trapezoid rule, which is exact to 1e-4 there.
    """
    result: Floats = np.zeros(len(SDS))
    levels = group.block
    if not isinstance(levels, Levels) or group.are_slopes:
        return result
    information = point.hessian.squares[group.place]
    counts = levels.rows
    is_small = (information <= _LEAST_INFORMATION) & (counts > 0) & (counts <= _MOST_ROWS_OF_LEVEL)
    small = np.flatnonzero(is_small)
    some = small[:: -(-int(counts[small].sum()) // _GRID_ROWS) or 1]
    if not len(some):
        return result
    numbers = np.full(levels.count, -1)
    numbers[some] = np.arange(len(some))
    rows = np.flatnonzero(numbers[levels.codes] >= 0)
    own = numbers[levels.codes[rows]]
    coefficients = point.coefficients[group.place]
    at_zero = point.z[rows] - coefficients[levels.codes[rows]]
    odds = np.exp(np.clip(at_zero, -_MOST_LOG_ODDS, _MOST_LOG_ODDS))
    losses = np.outer(odds, np.exp(_GRID))
    np.log1p(losses, out=losses)
    total = problem.total[rows] / problem.dispersion
    logs = np.outer(add_up(own, problem.positive[rows] / problem.dispersion, len(some)), _GRID)
    logs += add_up(own, total * np.log1p(odds), len(some))[:, None]
    add_rows(own, -total, losses, logs)
    highest = logs.max(axis=1)
    likelihoods = np.exp(logs - highest[:, None])
    curvature = information[some]
    linear = curvature * coefficients[some] - gradient[group.place][some]
    quadratic = quadratic_marginals(curvature, linear, SDS)
    exact = np.log(likelihoods @ _PRIORS) + highest[:, None]
    result[-len(_INTEGRATED) :] = exact.sum(axis=0) - quadratic[-len(_INTEGRATED) :]
    return result * (len(small) / len(some))
