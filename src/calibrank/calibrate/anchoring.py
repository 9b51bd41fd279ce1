"""Doors to the base rate: a few labels of randomly shown pairs, or a rate that is known.

A biased log tells the shape of P(preferred | score) partly and its level hardly. Labels collected under random exposure
tell both without bias, but they are few. `anchor` weighs the two: log odds start from the biased fit's and may move in
level, slope and bend, each with a prior of its own. Which slope to start from and how far the bend may move is not set:
each on a small grid is tried, around the biased shape and around a straight line, and the answers are averaged by how
well each foretells the labels (their marginal likelihood, by Laplace's approximation).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from calibrank.arrays import Floats, Numbers, column, is_binary, require, score_column
from calibrank.basis import Quadratic
from calibrank.calibrate.level import root, shift_for, top_tenth
from calibrank.calibrate.logistic import SMALLEST_RISE
from calibrank.calibrate.newton import Problem, solve
from calibrank.errors import DataError
from calibrank.maps import Anchoring, CalibrationMap, LogisticMap
from calibrank.odds import expit
from calibrank.summary import Summary

LEVEL = 2.0
"""Prior standard deviation of the level in log odds: a biased fit wrong by a factor of ten is no surprise."""
SLOPES = (2.0, 1.0, 0.5, 0.25)
"""Slopes tried to start from, relative to the biased fit's: logs make scores look more telling than they are."""
SLOPE = 0.3
"""Prior standard deviation of the slope about each of them, relative to the biased fit's."""
BENDS = (0.1, 0.3, 1.0, 3.0)
"""Prior standard deviations tried for the bend, in log odds over the population."""
_TAIL = 0.005  # share of the population beyond either end of the range on which a quadratic must rise
_POPULATION = 20_000
_FLAT = 0.5  # log odds that spread less than this are no hint that they ought to


def anchor(
    fitted: CalibrationMap,
    scores: Numbers,
    labels: Numbers,
    propensity: Numbers | None = None,
    population: Numbers | None = None,
) -> LogisticMap:
    """The best estimate from a biased fit and labels of pairs shown at random, together.

    `propensity` is the exploration policy's chance of showing each pair, where it was not the same for all.
    `population` are scores of the pairs that probabilities are wanted for; by default those shown. The result says in
    `record.anchoring` how much of level, slope and bend came from the labels.

    >>> from calibrank import Gaussian
    >>> biased = Gaussian().fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> anchored = anchor(biased, scores=[-1.0, 0.5, 2.0, 2.5], labels=[0, 0, 0, 1])
    >>> bool(anchored.predict(2.0) < biased.predict(2.0))
    True
    """
    start = _logistic(fitted, "anchored")
    array = score_column(scores)[0]
    labels = column("labels", labels, len(array))
    require(is_binary, "labels", "be 0 or 1", labels, "Turn ratings into likes first.")
    weights = _weights(propensity, len(array))
    if population is None:
        # Two or three pairs span no curve: the biased fit's own range stands beside them.
        where = np.concatenate([array, np.linspace(start.low, start.high, 20)])
    else:
        where = score_column(population)[0]
    where = where[:: max(1, len(where) // _POPULATION)].astype(np.float64)
    start = _on_range(start, where)
    problem = _Labels.of(start, array.astype(np.float64), labels, weights)
    trials = [trial for prior in _priors(start, where) for trial in problem.trials(prior)]
    return _average(start, trials, len(array), float(weights.sum()))


def to_base_rate(
    fitted: CalibrationMap, rate: float, population: Numbers | Summary, top_rate: float | None = None
) -> LogisticMap:
    """The same shape, moved so that the mean probability over a population of scores is the known rate.

    With `top_rate`, the share liked among the population's tenth of highest scores, the slope is set too. Nothing else
    is learned: if the biased shape is wrong, it stays wrong.

    >>> from calibrank import Gaussian
    >>> scores = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    >>> moved = to_base_rate(Gaussian().fit(scores, [0, 0, 1, 0, 1, 1]), 0.1, scores)
    >>> round(float(moved.predict(scores).mean()), 6)
    0.1
    """
    start = _logistic(fitted, "moved to a base rate")
    if not 0 < rate < 1:
        raise DataError(f"the base rate must lie between 0 and 1, got {rate}.")
    where, mass = _population(population)
    z = start.log_odds(where)
    slope = 1.0 if top_rate is None else _slope_for(z, mass, rate, top_rate)
    shift = shift_for(slope * z, mass, rate)
    solution = slope * np.array([start.intercept, *start.coefficients]) + shift * np.eye(len(start.covariance))[0]
    held = [mass] if top_rate is None else [mass, top_tenth(z, mass)]
    covariance = slope**2 * _held(start, where, slope * z + shift, held)
    return replace(
        start,
        intercept=float(solution[0]),
        coefficients=tuple(solution[1:].tolist()),
        covariance=tuple(tuple(row) for row in covariance.tolist()),
        record=replace(start.record, door="base rate", anchoring=None, base_rate=rate, sensitivity=None),
    )


def undo_undersampling(fitted: CalibrationMap, kept: float) -> LogisticMap:
    """A map fitted on a table that kept only a share of its negatives, moved to where all of them would put it.

    The odds of such a table are 1/kept times too high: the log odds move by log(kept), exactly. This is for maps by
    `naive` evidence; others are fitted with `weights=undersampled(labels, kept)`.

    >>> from calibrank import Platt
    >>> sampled = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> round(float(sampled.log_odds(0.5) - undo_undersampling(sampled, kept=0.1).log_odds(0.5)), 6)
    2.302585
    """
    start = _logistic(fitted, "moved for sampled negatives")
    if not 0 < kept <= 1:
        raise DataError(f"kept must lie in (0, 1], got {kept}. It is the share of negatives that was kept.")
    if start.record.evidence != "naive":
        raise DataError(
            f"the map to be moved must be fitted by naive evidence, got {start.record.evidence}: positives weigh more "
            "than one there, and no shift is right. Fit again with weights=undersampled(labels, kept)."
        )
    if start.record.door != "none":
        raise DataError(
            f"the map to be moved must come straight from a fit, got one through the door of {start.record.door}, "
            "which knows its level already. Undo the sampling first."
        )
    return replace(
        start, intercept=start.intercept + float(np.log(kept)), record=replace(start.record, sensitivity=None)
    )


def _held(start: LogisticMap, where: Floats, z: Floats, masses: list[Floats]) -> Floats:
    """The covariance that is left when mean probabilities over each mass are known: level, and slope, give way."""
    design = start.gradient(where)
    known = np.array([design @ (mass * expit(z) * expit(-z)) for mass in masses])
    free = np.array([np.eye(len(design))[0], [start.intercept, *start.coefficients]])[: len(masses)]
    change = np.eye(len(design)) - free.T @ np.linalg.solve(known @ free.T, known)
    return change @ np.array(start.covariance) @ change.T


@dataclass(frozen=True, slots=True, eq=False)
class _Prior:
    """Where coefficients start from, and directions to move in: level, slope, bends; as columns of unit spread."""

    centre: Floats
    directions: Floats
    steep: float
    """The spread of the biased log odds: slopes are relative to it."""

    def precision(self, bend: float) -> Floats:
        widths = np.array([LEVEL, SLOPE * self.steep, *([bend] * (len(self.centre) - 2))])
        back = np.linalg.inv(self.directions)
        return back.T @ np.diag(1 / widths**2) @ back

    def shares(self, covariance: Floats, precision: Floats) -> Floats:
        """How much of each direction's prior doubt the labels took away."""
        back = np.linalg.inv(self.directions)
        now, before = (np.diag(back @ doubt @ back.T) for doubt in (covariance, np.linalg.inv(precision)))
        return 1 - now / before


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """One prior's answer and how well it foretold the labels."""

    solution: Floats
    covariance: Floats
    evidence: float
    shares: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Labels:
    """The labels as a fitting problem."""

    design: Floats
    weights: Floats
    pull: Floats
    floors: Floats

    @classmethod
    def of(cls, start: LogisticMap, scores: Floats, labels: Floats, weights: Floats) -> "_Labels":
        design = start.gradient(scores)
        rises = np.diff(start.gradient(np.array([start.low, start.high])))[1:, 0]
        floors = np.concatenate([[-np.inf], SMALLEST_RISE / np.maximum(rises, 1e-300)])
        return cls(design, weights, design @ (weights * labels), floors)

    def trials(self, prior: _Prior) -> Iterator[_Trial]:
        bends = BENDS if len(prior.centre) > 2 else BENDS[:1]
        for bend in bends:
            yield self._solve(prior, prior.precision(bend))

    def _solve(self, prior: _Prior, precision: Floats) -> _Trial:
        mass = float(self.weights.sum())
        rate = max(float(self.pull[0]), 0.5) / mass
        problem = Problem(self.design, self.weights, self.pull, self.floors, rate, prior.centre, precision)
        point = solve(problem, np.maximum(prior.centre, self.floors)).point
        curvature = problem.curvature(point) * mass
        evidence = -point.value * mass + (_log_size(precision) - _log_size(curvature)) / 2
        covariance = np.linalg.inv(curvature)
        return _Trial(point.solution, covariance, evidence, prior.shares(covariance, precision))


def _priors(start: LogisticMap, where: Floats) -> Iterator[_Prior]:
    """Around the biased shape and, for quadratics, around the straight line nearest to it; each at every slope."""
    own = np.array([start.intercept, *start.coefficients])
    design = start.gradient(where)
    shapes = [own]
    if isinstance(start.basis, Quadratic):
        slope, level = np.polyfit(where, own @ design, 1)
        line = np.array([0.0, max(slope, 1e-6 / (start.high - start.low)), level])
        shapes.append(np.linalg.solve(start.basis.natural(start.low, start.high), line))
    for shape in shapes:
        steep = max(float((shape @ design).std()), _FLAT)
        for slope in SLOPES:
            level = (1 - slope) * float((shape @ design).mean())
            yield _prior(slope * shape + level * np.eye(len(shape))[0], design, steep)


def _prior(centre: Floats, design: Floats, steep: float) -> _Prior:
    """Directions that do not overlap over the population: bends are what level and slope leave, in unit spread."""
    level = np.eye(len(centre))[0]
    directions = [level]
    for axis in (centre, *np.eye(len(centre))[1:]):
        if len(directions) == len(centre):
            break
        known = np.array([direction @ design for direction in directions])
        share = np.linalg.lstsq(known.T, axis @ design, rcond=None)[0]
        rest = axis - share @ np.array(directions)
        size = (rest @ design).std()
        if size > 1e-6 * max((axis @ design).std(), _FLAT):
            directions.append(rest / size)
    if len(directions) < len(centre):
        raise DataError(f"population must hold {len(centre)} scores or more that differ, got fewer. Pass more of them.")
    return _Prior(centre, np.array(directions).T, steep)


def _average(start: LogisticMap, trials: list[_Trial], rows: int, heard: float) -> LogisticMap:
    evidence = np.array([trial.evidence for trial in trials])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    solutions = np.array([trial.solution for trial in trials])
    mean = weights @ solutions
    apart = solutions - mean
    spread = np.einsum("t,tij->ij", weights, np.array([trial.covariance for trial in trials]))
    covariance = spread + (apart * weights[:, None]).T @ apart
    level, slope, *bends = (weights @ np.array([trial.shares for trial in trials])).clip(0, 1).tolist()
    anchoring = Anchoring(rows, heard, level, slope, float(np.mean(bends)) if bends else slope)
    return replace(
        start,
        intercept=float(mean[0]),
        coefficients=tuple(mean[1:].tolist()),
        covariance=tuple(tuple(row) for row in covariance.tolist()),
        record=replace(start.record, door="random labels", anchoring=anchoring, base_rate=None, sensitivity=None),
    )


def _on_range(start: LogisticMap, where: Floats) -> LogisticMap:
    """A quadratic that must rise where the population is, not as far as its furthest score; the same function."""
    low, high = np.quantile(where, [_TAIL, 1 - _TAIL]).tolist()
    low, high = max(low, start.low), min(high, start.high)
    if not isinstance(start.basis, Quadratic) or not low < high:
        return start
    natural = start.basis.natural(start.low, start.high) @ np.array([start.intercept, *start.coefficients])
    change = np.linalg.solve(start.basis.natural(low, high), start.basis.natural(start.low, start.high))
    intercept, *coefficients = np.linalg.solve(start.basis.natural(low, high), natural).tolist()
    covariance = change @ np.array(start.covariance) @ change.T
    return replace(
        start,
        low=low,
        high=high,
        intercept=intercept,
        coefficients=tuple(max(value, 1e-12) for value in coefficients),
        covariance=tuple(tuple(row) for row in covariance.tolist()),
    )


def _logistic(fitted: CalibrationMap, what: str) -> LogisticMap:
    if not isinstance(fitted, LogisticMap):
        words = "must be a parametric one (Platt, Beta, Gaussian, Gamma, GammaGaussian)"
        raise DataError(f"the map to be {what} {words}, got {fitted.method}.")
    return fitted


def _weights(propensity: Numbers | None, rows: int) -> Floats:
    """Inverse propensities of the exploration policy, scaled to as many labels as they are worth."""
    if propensity is None:
        return np.ones(rows)
    chance = column("propensity", propensity, rows)
    require(lambda p: (p > 0) & (p <= 1), "propensity", "lie in (0, 1]", chance, "Log the policy's probabilities.")
    inverse = 1 / chance
    return inverse * inverse.sum() / (inverse**2).sum()


def _population(population: Numbers | Summary) -> tuple[Floats, Floats]:
    if isinstance(population, Summary):
        return population.scores, population.total / population.total.sum()
    scores = score_column(population)[0].astype(np.float64)
    return scores, np.full(len(scores), 1 / len(scores))


def _slope_for(z: Floats, mass: Floats, rate: float, top_rate: float) -> float:
    """The slope at which, with the mean at the rate, the top tenth has its rate."""
    if z.min() == z.max():
        raise DataError("population must hold scores that differ to set a slope, got only one.")
    top = top_tenth(z, mass)

    def beyond(log_slope: float) -> float:
        steeper = np.exp(log_slope) * z / z.std()
        return float(top @ expit(steeper + shift_for(steeper, mass, rate))) - top_rate

    flattest, steepest = -10.0, 7.0
    least, most = beyond(flattest) + top_rate, beyond(steepest) + top_rate
    if not least < top_rate < most:
        raise DataError(f"top_rate must lie between {least:.4f} and {most:.4f} at this base rate, got {top_rate}.")
    return float(np.exp(root(beyond, flattest, steepest)) / z.std())


def _log_size(matrix: Floats) -> float:
    return float(np.linalg.slogdet(matrix)[1])
