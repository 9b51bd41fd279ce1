"""From a summary to a logistic map: standardized design, existence of an optimum, covariance."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats
from calibrank.curves.solver import Problem, Solution
from calibrank.errors import DataError, FitError, FlatMapWarning, Remedy, Setting
from calibrank.maps import LogisticCurve
from calibrank.maps.basis import Basis
from calibrank.maps.logistic import Deviation
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.training import SMALLEST_RISE
from calibrank.summary import Summary

ROUNDING = 1e-12
"""Relative differences below this are rounding error."""

# Of 98% of the distinct scores, in standard deviations. With less, a flat curve seems optimal.
_LEAST_SPREAD = 1e-8
_LEAST_SLOPE = 1e-3
# Without the lowest and the highest, two or more remain.
_FEWEST_SCORES = 4

# Equally probable before the labels: with three quarters on 0, intervals of 1,000 labels hold 88%
# of a truth of another family instead of 94%, and 96% instead of 98% of one of the same. This was
# chosen on eight simulated truths, among them those of `benchmarks/claims.py`.
_SIZES = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
_COSINES = 16
# Normal scores are in bins of a quarter, up to 3 on either side.
_REACH = 3.0
_BINS = 24
_NORMAL_EDGES = np.linspace(-_REACH, _REACH, _BINS + 1)[1:-1].tolist()
_EDGES = np.array([NormalDist().cdf(edge) for edge in _NORMAL_EDGES])


@dataclass(frozen=True, slots=True)
class StandardizedDesign:
    """A basis on the data with mean 0 and variance 1, and the way back to raw coefficients.

    Standard units keep Newton's method well conditioned, whatever the scale of the scores.
    """

    columns: Floats
    """A row of ones, then one row per usable generator; one column per point."""
    positive_sums: Floats
    """The sum of positive mass times `columns`."""
    rises: Floats
    """What each usable generator gains over the range of the scores, in standard units."""
    to_raw: Floats
    """The matrix from standardized coefficients to the coefficients of the basis."""

    @classmethod
    def of(cls, basis: Basis, summary: Summary) -> StandardizedDesign:
        """Raises a `FitError` if the loss of this basis has no finite minimum on the summary."""
        generators = _generators(basis, summary, summary.scores)
        usable = _varies(generators)
        weights = summary.total / summary.total.sum()
        means = generators @ weights
        spreads = np.sqrt((generators - means[:, None]) ** 2 @ weights)[usable]
        means = means[usable]
        require_resolved(basis, summary, generators[usable], spreads)
        require_optimum(summary, generators[usable])

        def standardized(raw: Floats) -> Floats:
            columns = (raw[usable] - means[:, None]) / spreads[:, None]
            return np.vstack([np.ones(raw.shape[1]), columns])

        columns = standardized(generators)
        positive_columns = columns
        if not summary.exact:
            # The positives of a pooled bin have a mean score of their own.
            positive_generators = _generators(basis, summary, summary.positive_scores)
            positive_columns = standardized(positive_generators)
        positive_sums = positive_columns @ summary.positive
        rises = _rises(basis, summary)[usable] / spreads
        # Undo the standardization; the coefficient of an unusable generator is 0.
        to_raw = np.zeros((len(usable) + 1, len(spreads) + 1))
        to_raw[0] = [1, *(-means / spreads)]
        to_raw[1 + np.flatnonzero(usable), 1 + np.arange(len(spreads))] = 1 / spreads
        return cls(columns, positive_sums, rises, to_raw)


def require_resolved(basis: Basis, summary: Summary, generators: Floats, spreads: Floats) -> None:
    """Refuse outliers beside which, in standard units, all other scores are one: a flat fit."""
    count = len(summary)
    if count < _FEWEST_SCORES:
        return
    ends = max(count // 100, 1)
    inner = [ends, count - 1 - ends]
    rises = np.diff(generators[:, inner])[:, 0]
    is_lost = rises < _LEAST_SPREAD * spreads
    # What is saturated at the other scores is not lost there; one function alone may be.
    varies = rises > _LEAST_SLOPE * np.diff(summary.scores[inner])
    if is_lost.all() or (not basis.scale_free and (is_lost & varies).any()):
        rule = "not have outliers beside which all others look equal"
        found = f"{summary.low:g} to {summary.high:g}"
        raise FitError("scores", rule, found, "Drop such rows, or use Isotonic.")


def _generators(basis: Basis, summary: Summary, scores: Floats) -> Floats:
    """One row per generator, one column per score."""
    generators = basis.generators(scores, summary.low, summary.high, NumpyTarget())
    return np.array(generators)


def _rises(basis: Basis, summary: Summary) -> Floats:
    """What each generator gains from the lowest to the highest score."""
    ends = np.array([summary.low, summary.high])
    return np.diff(_generators(basis, summary, ends))[:, 0]


def as_curve(
    name: str, basis: Basis, summary: Summary, problem: Problem, solution: Solution, to_raw: Floats
) -> tuple[LogisticCurve, dict[str, Any]]:
    """The solved problem as a curve with its covariance, and how it was solved."""
    raw = to_raw @ solution.point.solution
    point = solution.point
    free = np.flatnonzero(solution.free)
    hessian = problem.hessian(point)[np.ix_(free, free)] * summary.total.sum()
    bread = np.linalg.pinv(hessian)
    squared_residuals = summary.squared_residuals(point.probabilities)
    columns = problem.design[free]
    covariance = _sandwich(columns, bread, squared_residuals)
    covariance = to_raw[:, free] @ covariance @ to_raw[:, free].T
    bounded = np.isfinite(problem.lower_bounds)
    at_bound = np.flatnonzero(~solution.free & bounded)
    if len(at_bound) == bounded.sum():
        _warn_flat(name)
    smallest = SMALLEST_RISE / np.maximum(_rises(basis, summary), 1e-300)
    at_smallest = np.flatnonzero(raw[1:] <= smallest * 1.01)
    bound_names = [f"coefficient {index}" for index in at_smallest]
    solved = {
        "loss": point.value,
        "residual": solution.residual,
        "iterations": solution.iterations,
        "at_bound": tuple(bound_names),
    }
    rows = tuple(tuple(row) for row in covariance.tolist())
    # Coefficients at a bound count as known in the covariance: what they miss is a deviation.
    squares = float(squared_residuals.sum())
    deviation = _deviation(summary, columns, point.probabilities, bread, squares)
    curve = curve_without_errors(basis, summary, raw)
    return replace(curve, covariance=rows, deviation=deviation), solved


def curve_without_errors(basis: Basis, summary: Summary, raw: Floats) -> LogisticCurve:
    """The curve of these coefficients, the intercept first, as if they were known."""
    # Multiplying by a spread and dividing again may round a positive lower bound to below 0.
    coefficients = tuple(np.maximum(raw[1:], 0).tolist())
    known = ((0.0,) * len(raw),) * len(raw)
    ends = summary.low, summary.high
    return LogisticCurve(basis, *ends, float(raw[0]), coefficients, known)


def _sandwich(columns: Floats, bread: Floats, squared_residuals: Floats) -> Floats:
    """The sandwich covariance of the free standardized coefficients: bread @ meat @ bread.

    It is valid under inverse-propensity weights, unlike the inverse Hessian alone. Coefficients at
    their lower bound are treated as known.
    """
    meat = (columns * squared_residuals) @ columns.T
    return bread @ meat @ bread


def _varies(generators: Floats) -> npt.NDArray[np.bool_]:
    """Which generators differ over the data by more than rounding; a saturated sigmoid does not."""
    size = np.maximum(np.abs(generators).max(axis=1), 1)
    ranges = np.ptp(generators, axis=1)
    varies: npt.NDArray[np.bool_] = ranges > ROUNDING * size
    if not varies.any():
        raise DataError(
            "scores",
            "differ by more than rounding after a sigmoid, which Beta applies to them",
            remedy=("Rescale the scores, or use Gaussian, which does not depend on their scale."),
        )
    return varies


def require_optimum(summary: Summary, generators: Floats) -> None:
    """Raise a `FitError` exactly when the loss has no finite minimum.

    Along an increasing direction, the loss eventually grows at the rate "sum of the direction over
    the positive mass moved to the highest scores" minus "its sum over the positive mass where it
    is". Every direction is a non-negative combination of generators, and the best placement is the
    same for all of them, so each generator can be checked alone.
    """
    positive = summary.positive
    total = summary.total
    mass = positive.sum()
    if mass >= total.sum():
        raise no_optimum(summary, "above the total mass, which would mean a rate above 1")
    mass_above = np.concatenate([np.cumsum(total[::-1])[-2::-1], [0.0]])
    placed = np.clip(mass - mass_above, 0, total)
    moved = placed - positive
    # Heights are measured from the lowest score that the placed mass reaches: the moved mass sums
    # to 0, so the reference changes nothing but the rounding error.
    heights = generators - generators[:, [np.argmax(placed > 0)]]
    growth = heights @ moved
    rounding = ROUNDING * (np.abs(heights) @ np.abs(moved))
    if (growth <= rounding).any():
        where = "as high as possible: scores separate it too well for any finite slope"
        raise no_optimum(summary, where)


def no_optimum(summary: Summary, where: str) -> FitError:
    """The error that no finite optimum exists; `where` says where the positive mass lies."""
    positive = summary.positive.sum()
    total = summary.total.sum()
    remedies: list[Remedy] = ["Calibrate on more rows, with more positives and negatives."]
    if summary.kind != "naive":
        remedies.append("Or raise the propensity clip.")
    if summary.kind not in ("naive", "impressions"):
        declare = ("If every row was shown, declare it: ", Setting("log", "impressions"), ".")
        kept = ("If negatives were sampled, give the share kept: ", Setting("negatives_kept"), ".")
        remedies = [declare, *remedies, kept]
    return FitError(
        "no finite best fit exists",
        got=(
            f"positive mass {positive:.6g} of {total:.6g} in {summary.rows:,} rows, which lies "
            f"{where}"
        ),
        remedy=remedies,
    )


def _warn_flat(name: str) -> None:
    if name == "Temperature":
        remedy = "Even odds at score 0 do not suit these scores: use Platt or Gaussian."
    else:
        remedy = (
            "Higher scores do not go with more positives here: "
            "if lower is better (distances, ranks), negate them."
        )
    # From here: as_curve, Calibrator._fit, fit_fold, fit_summary, fit, and then the caller.
    message = f"the fitted {name} map hardly rises. {remedy}"
    warnings.warn(message, FlatMapWarning, stacklevel=7)


def _deviation(
    summary: Summary, free: Floats, probabilities: Floats, bread: Floats, squares: float
) -> Deviation:
    """How far the true curve may be from the family: what the labels say, averaged over priors.

    The log odds of the truth are those of the fit plus cosines of the normal score of the rank,
    minus what the free coefficients of the family would take up: the rows of `free` have
    coefficients that are not bound. Cosine k has a standard deviation of size / k, with sizes from
    0 (the family is right) on, weighted by their marginal likelihood. `bread` is the inverse of
    the Hessian of the free rows, and `squares` the sum of squared residuals.
    """
    total = summary.total
    middles = np.cumsum(total) - total / 2
    ends = np.searchsorted(middles, _EDGES * total.sum(), side="right")
    starts = np.concatenate([[0], ends])
    # A bin without points starts where the next one does, or beyond the last point.
    occupied = np.flatnonzero(np.append(starts[1:], len(total)) > starts)
    starts = starts[occupied]

    def sums(values: Floats) -> Floats:
        return np.add.reduceat(values, starts, axis=-1)

    weights = total * probabilities * (1 - probabilities)
    by_bin = np.maximum(sums(weights), 1e-300)
    taken_up = sums(free * weights)
    cosines = np.cos(np.pi * np.arange(_COSINES + 1)[:, None] * (occupied + 0.5) / _BINS)
    # Regressed on the free rows: at the optimum these have no residuals.
    share = cosines @ taken_up.T @ bread
    columns = cosines - share @ taken_up / by_bin
    # Labels that are probabilities may leave no residuals at all.
    dispersion = max(squares / max(float(weights.sum()), 1e-300), 1e-9)
    information = (columns * by_bin) @ columns.T / dispersion
    gradient = columns @ sums(summary.positive - total * probabilities) / dispersion
    mean, variance = _posterior(information, gradient, columns)
    return Deviation(
        tuple((sums(total * summary.scores) / sums(total)).tolist()),
        tuple(np.round(mean, 6).tolist()),
        tuple(np.round(np.sqrt(variance), 6).tolist()),
    )


def _posterior(information: Floats, gradient: Floats, columns: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the deviation in each bin, averaged over sizes of the prior."""
    orders = np.maximum(np.arange(len(gradient)), 1)
    sds = np.array(_SIZES)[:, None] / orders
    both = sds[:, :, None] * sds[:, None]
    # Relative to the prior, so that a size of 0 is exact.
    ratio = np.eye(len(orders)) + both * information
    covariance = both * np.linalg.inv(ratio)
    at = covariance @ gradient
    scores = (at @ gradient - np.linalg.slogdet(ratio)[1]) / 2
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    means = at @ columns
    squares = means**2 + ((covariance @ columns) * columns).sum(axis=1)
    mean: Floats = weights @ means
    return mean, np.maximum(weights @ squares - mean**2, 0)
