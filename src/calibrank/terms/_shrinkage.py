"""Empirical Bayes changes of log odds per segment: an intercept and a slope, shrunk towards a mean.

The log odds of segment g are offset + a + c * x, with a ~ N(mean, tau^2) and c ~ N(0, kappa^2). The
mean is that of the segments, each counted once: the offset is that of the rows, most of which may
be of one segment. A few segments may be unlike all others, such as that one: with a small
probability, a has a wide prior. For each pair (tau, kappa) of a grid, Newton's method finds the
mode of every segment, and its marginal likelihood (`_modes.py`). The result is the average over the
grid, weighted by the marginal likelihood: how much segments differ is estimated, and with
few segments it stays uncertain rather than being fixed at its most likely value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, Indices
from calibrank.errors import FitError
from calibrank.terms._feasible import feasible
from calibrank.terms._modes import Prior, SegmentProblem, posterior_modes, sums_of_runs
from calibrank.terms._nested import Family

INTERCEPT_SDS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.5)
"""Standard deviations of the intercept between segments that are tried."""
SLOPE_SDS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7)
"""Standard deviations of the slope, relative to the global slope, that are tried."""

MEAN_SD = 1.0
"""Prior standard deviation of the mean of the segments, relative to the log odds of the rows."""
OUTLIER_SD = 2.5
"""Standard deviation of the intercepts of segments that are unlike the others."""
OUTLIER_PROBABILITY = 0.003
"""How many there are before the labels."""
# Segments that are less probable outliers than this count as none.
_SMALLEST_SHARE = 0.01
_LOG_OUTLIER = float(np.log(OUTLIER_PROBABILITY))
_LOG_ALIKE = float(np.log1p(-OUTLIER_PROBABILITY))

# The grid is weighted by at most this many segments, evenly chosen: more change nothing. Of those
# with many cells fewer are enough, as each tells more.
_MOST_SEGMENTS = 2048
_MOST_CELLS = 2**16
# Points of the grid with less than this weight are left out.
_SMALLEST_WEIGHT = 0.01
# Steps to the mean at each point of the grid, from that of its neighbour.
_MEAN_STEPS = 3
# The common slope is a change of 1. Its standard error of 0.004, if cells have one row each, is
# small beside those of levels; how much levels differ matters less, and takes longer to find.
_SLOPE_STEPS = 4
_SLOPE_TOLERANCE = 1e-4
# Its prior standard deviation, relative to how much levels differ: those that are alike change
# nothing.
_SLOPE_RATIO = 0.5
_SEGMENTS_OF_SLOPE = 256
_CELLS_OF_SLOPE = 2**19
_SLOPE_LIMITS = (-0.9, 4.0)


class Changes(NamedTuple):
    """Posterior means of each segment's intercept and slope, and their standard errors."""

    intercepts: Floats
    slopes: Floats
    errors: Floats
    """Of the log odds at x = 0."""
    slope_errors: Floats
    covariances: Floats
    """Of both."""
    intercept_sd: float
    """Estimated standard deviation of the intercepts between segments."""
    slope_sd: float
    typical: float
    """Estimated mean of the intercepts: what is expected of another segment."""
    parents: Floats | None = None
    """How far the parents are from where they were, and what that adds to their variances."""

    def with_errors_of(self, parents: Floats) -> Changes:
        """With the errors of what the changes are relative to: variances and covariances.

        If that is off, a change corrects it but for the share of the prior in it, V / prior.
        """
        precisions = [1 / sd**2 if sd else 0.0 for sd in (self.intercept_sd, self.slope_sd)]
        share = self.errors**2 * precisions[0] if precisions[0] else np.ones_like(self.errors)
        of_slope = self.slope_errors**2 * precisions[1] if precisions[1] else np.ones_like(share)
        # What an error of one adds to the other.
        turned, lifted = self.covariances * precisions[0], self.covariances * precisions[1]
        level, slope, both = parents
        errors = share**2 * level + 2 * share * lifted * both + lifted**2 * slope
        slope_errors = turned**2 * level + 2 * turned * of_slope * both + of_slope**2 * slope
        covariances = share * turned * level + lifted * of_slope * slope
        covariances += (share * of_slope + lifted * turned) * both
        return self._replace(
            errors=np.sqrt(self.errors**2 + np.maximum(errors, 0)),
            slope_errors=np.sqrt(self.slope_errors**2 + np.maximum(slope_errors, 0)),
            covariances=self.covariances + covariances,
        )


def shrunk_changes(
    problem: SegmentProblem,
    *,
    with_slopes: bool,
    with_mean: bool = False,
    family: Family | None = None,
) -> Changes:
    """Posterior mean changes, averaged over the grid of standard deviations.

    Without a mean, intercepts shrink towards 0, or towards parents, which move.
    """
    # So many segments does one of the sample stand for.
    step = max(_step(len(problem), _MOST_SEGMENTS), _step(len(problem.x), _MOST_CELLS))
    sample = _sample(problem, step)
    slope_sds = SLOPE_SDS if with_slopes else (0.0,)
    wide = posterior_modes(sample, [Prior(OUTLIER_SD, kappa) for kappa in slope_sds])
    priors = [Prior(tau, 0.0) for tau in INTERCEPT_SDS]
    if with_mean:
        priors = _with_means(sample, wide[0].log_marginal)
    grid = [prior._replace(kappa=kappa) for kappa in slope_sds for prior in priors]
    outliers = [mode.log_marginal for mode in wide for _ in priors]
    scores = []
    for prior, mode, outlier in zip(grid, posterior_modes(sample, grid), outliers, strict=True):
        both = np.logaddexp(mode.log_marginal + _LOG_ALIKE, outlier + _LOG_OUTLIER)
        scores.append(step * (float(both.sum()) - prior.mean**2 / (2 * MEAN_SD**2)))
    if family is not None:
        scores += np.tile(family.log_marginals(problem, INTERCEPT_SDS), len(slope_sds))
    weights = np.exp(np.array(scores) - max(scores))
    weights = np.where(weights >= _SMALLEST_WEIGHT * weights.sum(), weights, 0.0)
    kept = np.flatnonzero(weights)
    if not len(kept):
        rule, remedy = "have a finite likelihood", "Drop outlying scores."
        raise FitError("levels", rule, "none that is finite", remedy)
    chosen = [grid[place] for place in kept]
    if with_mean:
        chosen = [_of_modes(sample, prior, wide[0].log_marginal) for prior in chosen]
    shares = weights[kept] / weights.sum()
    if family is None:
        return _averaged(problem, chosen, shares)
    sd = float(np.sqrt(shares @ np.array(chosen)[:, 0] ** 2))
    shift, variances = family.moved(problem, sd)
    changes = _averaged(family.shifted(problem, shift), chosen, shares)
    intercepts = changes.intercepts + shift[family.parents]
    return changes._replace(intercepts=intercepts, parents=np.array([shift, variances]))


def common_slope(problem: SegmentProblem, center: float, *, with_slopes: bool) -> float:
    """The mean of the segments' slopes around a center, as a change of that of the offset.

    A curve that was fitted without segments is flatter than it is within them, the more these
    differ: its offset is a mean over segments. The mean is searched under the most likely prior of
    a few segments, first among these and then, with the prior that is most likely there, among
    more of them.

    Weighted positives may be above the total. The prior is that of rates of at most 1, as the loss
    has a lower bound then; the mean is that of all mass where it is, as moving it makes it flatter.
    """
    many = _sample(problem, _step(len(problem.x), _CELLS_OF_SLOPE))
    many = replace(many, x=many.x - center)
    few = _sample(many, _step(len(many), _SEGMENTS_OF_SLOPE))
    rates = replace(few, positive=feasible(few.positive, few.total, few.starts))
    slope = 0.0
    for part in (few, many):
        prior = _most_likely(rates.steeper(slope), with_slopes=with_slopes)
        slope = _mean_slope(part, slope, prior)
    return slope


def _mean_slope(problem: SegmentProblem, slope: float, prior: Prior) -> float:
    """Newton's method on the marginal likelihood; its derivatives are as in `_with_means`."""
    if not prior.tau:
        return 0.0
    # The mean is where most levels are, relative to that of the rows.
    kappa, spread = prior.kappa, np.hypot(prior.tau, prior.mean)
    precision = 1 / (_SLOPE_RATIO * spread) ** 2
    for _ in range(_SLOPE_STEPS):
        moved = problem.steeper(slope)
        wide = Prior(OUTLIER_SD, kappa)
        mode, other = posterior_modes(moved, [prior, wide])
        alike = 1 - _outlying(mode.log_marginal, other.log_marginal)
        gradient = float(alike @ mode.slopes) / kappa**2 - slope * precision
        curvature = float(alike @ (1 - mode.slope_variances / kappa**2)) / kappa**2
        change = gradient / (curvature + precision)
        slope = float(np.clip(slope + change, *_SLOPE_LIMITS))
        if abs(change) < _SLOPE_TOLERANCE:
            break
    return slope


def _most_likely(problem: SegmentProblem, *, with_slopes: bool) -> Prior:
    """The prior with the largest marginal likelihood, of those with differing slopes."""
    outliers = posterior_modes(problem, [Prior(OUTLIER_SD, 0.0)])[0].log_marginal
    slope_sds = SLOPE_SDS[1::2] if with_slopes else SLOPE_SDS[1:2]
    priors = _with_means(problem, outliers)
    grid = [prior._replace(kappa=kappa) for kappa in slope_sds for prior in priors]
    totals = []
    for prior, mode in zip(grid, posterior_modes(problem, grid), strict=True):
        both = np.logaddexp(mode.log_marginal + _LOG_ALIKE, outliers + _LOG_OUTLIER)
        totals.append(float(both.sum()) - prior.mean**2 / (2 * MEAN_SD**2))
    return _of_modes(problem, grid[int(np.argmax(totals))], outliers)


def _step(size: int, most: int) -> int:
    """One of how many to take so that at most so many remain."""
    return max(1, -(-size // most))


def _sample(problem: SegmentProblem, step: int) -> SegmentProblem:
    """One of so many segments, chosen by a number of their own, not by the order of rows."""
    if step == 1:
        return problem
    numbers = problem.in_parts(lambda part: sums_of_runs(part.total * part.offset, part.starts))
    order = np.argsort(np.concatenate(numbers))
    return problem.take(np.sort(order[::step]))


def _with_means(sample: SegmentProblem, outliers: Floats) -> list[Prior]:
    """Priors of the intercept with the most likely mean of each.

    The mean hardly depends on slopes; that of another standard deviation is a good start.
    """
    prior = Prior(INTERCEPT_SDS[-1], 0.0)
    priors = []
    # From the widest one down: in a narrow one around 0, most segments could seem to be outliers.
    for tau in reversed(INTERCEPT_SDS[1:]):
        prior = _with_mean(sample, prior._replace(tau=tau), outliers)
        priors.append(prior)
    return [Prior(0.0, 0.0), *reversed(priors)]


def _of_modes(sample: SegmentProblem, prior: Prior, outliers: Floats) -> Prior:
    """With the mean of posterior modes, with which the rates of all segments are right on average.

    Where labels are few, modes are above posterior means as the log odds of mean rates are.
    """
    return _with_mean(sample, prior, outliers, of_modes=True) if prior.tau else prior


def _with_mean(
    sample: SegmentProblem, prior: Prior, outliers: Floats, *, of_modes: bool = False
) -> Prior:
    """With the most likely mean, by Newton's method.

    The derivative of a segment's log marginal likelihood by the mean is the posterior mean of its
    deviation over tau^2, and the second derivative is what the data leave of the prior's precision.
    """
    tau = prior.tau
    for _ in range(_MEAN_STEPS):
        mode = posterior_modes(sample, [prior])[0]
        alike = 1 - _outlying(mode.log_marginal, outliers)
        deviations = mode.intercepts if of_modes else mode.intercepts + mode.above
        gradient = float(alike @ deviations) / tau**2 - prior.mean / MEAN_SD**2
        curvature = float(alike @ (1 - mode.variances / tau**2)) / tau**2 + 1 / MEAN_SD**2
        prior = prior._replace(mean=prior.mean + gradient / curvature, variance=1 / curvature)
    return prior


def _outlying(log_marginal: Floats, outliers: Floats) -> Floats:
    """The probability that each segment is unlike the others."""
    return expit(outliers - log_marginal + _LOG_OUTLIER - _LOG_ALIKE)


def _averaged(problem: SegmentProblem, priors: Sequence[Prior], weights: Floats) -> Changes:
    """Posterior means and errors under a mixture of priors, with outliers."""
    of = np.array(priors)
    typical = float(weights @ of[:, 2])
    unlike = _possible_outliers(problem, typical, priors)
    few = problem.take(unlike)
    found = np.zeros((5, len(problem)))
    for prior, weight in zip(priors, weights.tolist(), strict=True):
        moments = posterior_modes(problem, [prior], marginal=False)[0].moments(prior)
        if len(unlike):
            wide = Prior(OUTLIER_SD, prior.kappa)
            alike, other = posterior_modes(few, [prior, wide])
            share = _outlying(alike.log_marginal, other.log_marginal)
            moments[:, unlike] += share * (other.moments(wide) - moments[:, unlike])
        found += weight * moments
    intercepts, slopes, squares, slope_squares, products = found
    # The variance of a mixture: the mean of the squares, minus the square of the mean.
    return Changes(
        intercepts,
        slopes,
        np.sqrt(np.maximum(squares - intercepts**2, 0)),
        np.sqrt(np.maximum(slope_squares - slopes**2, 0)),
        products - intercepts * slopes,
        float(np.sqrt(weights @ (of[:, 0] ** 2 + of[:, 3]))),
        float(np.sqrt(weights @ of[:, 1] ** 2)),
        typical,
    )


def _possible_outliers(problem: SegmentProblem, mean: float, priors: Sequence[Prior]) -> Indices:
    """The segments that are far from the mean, by a quadratic approximation of their likelihood.

    They are few: what an outlier is like is computed for them alone.
    """
    gradient, curvature = problem.slope_and_curvature(mean)
    tau = min(prior.tau for prior in priors)

    def log_marginal(sd: float, center: float) -> Floats:
        # Of a normal prior and the quadratic likelihood around `mean`, without constants.
        shift = center - mean
        at_center = gradient - curvature * shift
        ratio = 1 + curvature * sd**2
        gain = gradient * shift - curvature * shift**2 / 2
        return gain + at_center**2 * sd**2 / (2 * ratio) - np.log(ratio) / 2

    share = _outlying(log_marginal(tau, mean), log_marginal(OUTLIER_SD, 0.0))
    return np.flatnonzero(share > _SMALLEST_SHARE)
