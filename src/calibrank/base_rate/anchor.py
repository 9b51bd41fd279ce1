"""Doors to the base rate: a few labels of randomly shown pairs, or a rate that is known.

A biased log tells the shape of P(preferred | score) partly and its level hardly. Labels collected under random exposure
tell both without bias, but they are few. `anchor` weighs the two (`curves`) and takes the map of the fit's own family
that is nearest to the outcome over the population. A quadratic may stop bending where it likes: what rises and then
levels off, as preference often does, is a quadratic up to its top and a line from there on.
"""

from dataclasses import replace

import numpy as np

from calibrank._logit import expit, logit
from calibrank._validation import (
    Floats,
    Numbers,
    column,
    is_binary,
    require,
    score_column,
    starts_of,
)
from calibrank.base_rate.posterior import TAIL, Curve, Labels, curve
from calibrank.base_rate.shift import root, shift_for, top_tenth
from calibrank.calibrators.parametric import SMALLEST_RISE
from calibrank.calibrators.solver import Problem, solve
from calibrank.errors import DataError
from calibrank.maps import Anchoring, CalibrationMap, LogisticMap
from calibrank.maps.basis import Quadratic
from calibrank.summary import Summary

_POPULATION = 20_000
_ENDS = (0.015, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Shares of the population beyond which a quadratic may go on as a straight line, at either end."""


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
    where.sort()
    least = len(start.basis.parameters)
    if np.count_nonzero(starts_of(where)) < least:
        raise DataError(
            f"population must hold {least} scores or more that differ, got fewer. Pass more of them."
        )
    found = curve(start, Labels(array.astype(np.float64), weights, weights * labels), where)
    share = Anchoring(
        len(array), float(weights.sum()), found.intercept, found.slope, found.curvature
    )
    record = replace(
        start.record,
        base_rate_source="random labels",
        anchoring=share,
        base_rate=None,
        sensitivity=None,
    )
    return replace(_nearest(start, found), record=record)


def to_base_rate(
    fitted: CalibrationMap,
    rate: float,
    population: Numbers | Summary,
    top_rate: float | None = None,
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
    solution = (
        slope * np.array([start.intercept, *start.coefficients])
        + shift * np.eye(len(start.covariance))[0]
    )
    held = [mass] if top_rate is None else [mass, top_tenth(z, mass)]
    covariance = slope**2 * _held(start, where, slope * z + shift, held)
    return replace(
        start,
        intercept=float(solution[0]),
        coefficients=tuple(solution[1:].tolist()),
        covariance=tuple(tuple(row) for row in covariance.tolist()),
        record=replace(
            start.record,
            base_rate_source="known rate",
            anchoring=None,
            base_rate=rate,
            sensitivity=None,
        ),
    )


def undo_undersampling(fitted: CalibrationMap, kept: float) -> LogisticMap:
    """A map fitted on a table that kept only a share of its negatives, moved to where all of them would put it.

    The odds of such a table are 1/kept times too high: the log odds move by log(kept), exactly. This is for maps by
    `naive` evidence; others are fitted with `weights=undersampling_weights(labels, kept)`.

    >>> from calibrank import Platt
    >>> sampled = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> round(float(sampled.log_odds(0.5) - undo_undersampling(sampled, kept=0.1).log_odds(0.5)), 6)
    2.302585
    """
    start = _logistic(fitted, "moved for sampled negatives")
    if not 0 < kept <= 1:
        raise DataError(
            f"kept must lie in (0, 1], got {kept}. It is the share of negatives that was kept."
        )
    if start.record.evidence != "naive":
        raise DataError(
            f"the map to be moved must be fitted by naive evidence, got {start.record.evidence}: positives weigh more "
            "than one there, and no shift is right. Fit again with weights=undersampling_weights(labels, kept)."
        )
    if start.record.base_rate_source != "assumed":
        raise DataError(
            f"the map to be moved must come straight from a fit, got one whose base rate comes from "
            f"{start.record.base_rate_source} already. Undo the sampling first."
        )
    return replace(
        start,
        intercept=start.intercept + float(np.log(kept)),
        record=replace(start.record, sensitivity=None),
    )


def _held(start: LogisticMap, where: Floats, z: Floats, masses: list[Floats]) -> Floats:
    """The covariance that is left when mean probabilities over each mass are known: level, and slope, give way."""
    design = start.gradient(where)
    known = np.array([design @ (mass * expit(z) * expit(-z)) for mass in masses])
    free = np.array([np.eye(len(design))[0], [start.intercept, *start.coefficients]])[: len(masses)]
    change = np.eye(len(design)) - free.T @ np.linalg.solve(known @ free.T, known)
    return change @ np.array(start.covariance) @ change.T


def _nearest(start: LogisticMap, found: Curve) -> LogisticMap:
    """The map of the same family whose probabilities foretell the curve's best, over the population."""
    maps = (_on_range(start, found, low, high) for low, high in _ranges(start, found.scores))
    return min(maps, key=lambda outcome: outcome[0])[1]


def _ranges(start: LogisticMap, scores: Floats) -> list[tuple[float, float]]:
    """Ranges to bend on: the family's own or, for a quadratic, some that end earlier."""
    if not isinstance(start.basis, Quadratic):
        return [(start.low, start.high)]
    low, high = np.quantile(scores, [TAIL, 1 - TAIL]).tolist()
    later, earlier = (
        np.quantile(scores, _ENDS).tolist(),
        np.quantile(scores, 1 - np.array(_ENDS)).tolist(),
    )
    ranges = [(low, high), *((end, high) for end in later), *((low, end) for end in earlier)]
    return [(first, last) for first, last in ranges if first < last] or [(start.low, start.high)]


def _on_range(
    start: LogisticMap, found: Curve, low: float, high: float
) -> tuple[float, LogisticMap]:
    """How far the nearest map that bends on this range is from the curve, and that map."""
    flat = replace(start, low=low, high=high, coefficients=(1.0,) * len(start.coefficients))
    design, mass = flat.gradient(found.scores), np.ones(len(found.scores))
    rises = np.diff(flat.gradient(np.array([low, high])))[1:, 0]
    floors = np.concatenate([[-np.inf], SMALLEST_RISE / np.maximum(rises, 1e-300)])
    rate = float(found.probabilities.mean())
    problem = Problem(design, mass, design @ found.probabilities, floors, rate)
    point = solve(problem, np.concatenate([[logit(rate)], floors[1:]])).point
    weighed = design * (found.probabilities * (1 - found.probabilities))
    change = np.linalg.pinv(weighed @ design.T, hermitian=True) @ weighed
    nearest = replace(
        flat,
        intercept=float(point.solution[0]),
        coefficients=tuple(point.solution[1:].tolist()),
        covariance=tuple(tuple(row) for row in (change @ found.covariance @ change.T).tolist()),
    )
    return point.value, nearest


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
    require(
        lambda p: (p > 0) & (p <= 1),
        "propensity",
        "lie in (0, 1]",
        chance,
        "Log the policy's probabilities.",
    )
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
        raise DataError(
            f"top_rate must lie between {least:.4f} and {most:.4f} at this base rate, got {top_rate}."
        )
    return float(np.exp(root(beyond, flattest, steepest)) / z.std())
