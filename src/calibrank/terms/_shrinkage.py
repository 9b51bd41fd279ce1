"""Empirical Bayes changes of log odds per segment: an intercept and a slope, shrunk towards a mean.

The log odds of segment g are offset + a + c * x, with a ~ N(mean, tau^2) and c ~ N(0, kappa^2). The
mean is that of the segments, each counted once: the offset is that of the rows, most of which may
be of one segment. A few segments may be unlike all others, such as that one: with a small
probability, a has a wide prior. For each pair (tau, kappa) of a grid, Newton's method finds the
mode of every segment and Laplace's approximation the marginal likelihood. The result is the average
over the grid, weighted by the marginal likelihood: how much segments differ is estimated, and with
few segments it stays uncertain rather than being fixed at its most likely value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from calibrank._internal import native
from calibrank._internal.logit import expit, softplus
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices, add_up

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

# The grid is weighted by at most this many segments, evenly chosen: more change nothing.
_MOST_SEGMENTS = 2048
# Points of the grid with less than this weight are left out.
_SMALLEST_WEIGHT = 0.01
# Fewer segments than this are not worth a thread.
_SEGMENTS_PER_THREAD = 256
_MAX_STEPS = 50
# Steps to the mean at each point of the grid, from that of its neighbour.
_MEAN_STEPS = 3
_TOLERANCE = 1e-8


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


@dataclass(frozen=True, slots=True, eq=False)
class SegmentProblem:
    """Masses of cells (a bin of a segment), with the log odds before the change (`offset`)."""

    positive: Floats
    total: Floats
    offset: Floats
    x: Floats
    starts: Indices
    """The first cell of each segment, and the number of cells."""
    dispersion: Floats
    """By segment: the variance of the evidence relative to that of labels without weights."""

    def __len__(self) -> int:
        return len(self.dispersion)

    @property
    def segment(self) -> Indices:
        """The segment of each cell."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def take(self, chosen: Indices) -> SegmentProblem:
        """The problem of some of the segments."""
        sizes = np.diff(self.starts)[chosen]
        starts = np.append(0, np.cumsum(sizes))
        # The cells of a segment follow each other, from its first one on.
        cells = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], sizes)
        return SegmentProblem(
            self.positive[cells],
            self.total[cells],
            self.offset[cells],
            self.x[cells],
            starts,
            self.dispersion[chosen],
        )

    def part(self, segments: slice) -> SegmentProblem:
        """The problem of consecutive segments, without a copy."""
        starts = self.starts[segments.start : segments.stop + 1]
        cells = slice(int(starts[0]), int(starts[-1]))
        return SegmentProblem(
            self.positive[cells],
            self.total[cells],
            self.offset[cells],
            self.x[cells],
            starts - starts[0],
            self.dispersion[segments],
        )

    def shifted(self, change: float) -> SegmentProblem:
        """The problem with other log odds before the change."""
        return replace(self, offset=self.offset + change) if change else self

    def slope_and_curvature(self, intercept: float) -> tuple[Floats, Floats]:
        """First and negative second derivative of each segment's log likelihood."""
        result = np.zeros((2, len(self)))

        def write(segments: slice) -> None:
            part = self.part(segments)
            p = expit(part.offset + intercept)
            result[0, segments] = part.sums(part.positive - part.total * p)
            result[1, segments] = part.sums(part.total * p * (1 - p))

        in_threads(write, _slices(len(self)))
        return result[0], result[1]

    def sums(self, terms: Floats) -> Floats:
        """Sums over the cells of each segment, divided by its dispersion."""
        if np.diff(self.starts).all():
            return np.add.reduceat(terms, self.starts[:-1]) / self.dispersion
        return add_up(self.segment, terms, len(self)) / self.dispersion

    def loss(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Log loss of each segment, divided by its dispersion (quasi-likelihood)."""
        z = self._log_odds(intercepts, slopes)
        return self.sums(self.total * softplus(z) - self.positive * z)

    def derivatives(self, intercepts: Floats, slopes: Floats) -> tuple[Floats, ...]:
        """Gradient (2 arrays) and Hessian (3 arrays) of each segment's loss."""
        p = expit(self._log_odds(intercepts, slopes))
        residuals = self.total * p - self.positive
        weights = self.total * p * (1 - p)
        terms = (residuals, residuals * self.x, weights, weights * self.x, weights * self.x**2)
        return tuple([self.sums(term) for term in terms])

    def _log_odds(self, intercepts: Floats, slopes: Floats) -> Floats:
        segment = self.segment
        return self.offset + intercepts[segment] + slopes[segment] * self.x


class Mode(NamedTuple):
    """Posterior modes of each segment's intercept and slope."""

    intercepts: Floats
    slopes: Floats
    variances: Floats
    """Posterior variance of the intercept."""
    slope_variances: Floats
    covariances: Floats
    log_marginal: Floats
    """Log marginal likelihood of each segment, relative to no change; empty if not asked for."""


class _Prior(NamedTuple):
    """One point of the grid, with the mean that is most likely there."""

    tau: float
    kappa: float
    mean: float = 0.0
    variance: float = 0.0
    """Of the mean."""
    log_marginal: float = 0.0


_NO_PRIOR = _Prior(0.0, 0.0)


def shrunk_changes(
    problem: SegmentProblem, *, with_slopes: bool, with_mean: bool = False
) -> Changes:
    """Posterior mean changes, averaged over the grid of standard deviations.

    Without a mean, intercepts shrink towards 0.
    """
    count = len(problem)
    step = max(1, -(-count // _MOST_SEGMENTS))
    sample = problem.take(np.arange(0, count, step))
    slope_sds = SLOPE_SDS if with_slopes else (0.0,)
    priors = [_Prior(tau, kappa) for kappa in slope_sds for tau in INTERCEPT_SDS]
    wide = {}
    for kappa in slope_sds:
        wide[kappa] = posterior_mode(sample, OUTLIER_SD, kappa, marginal=True).log_marginal
    shifted = _Shifted(sample)
    grid: list[_Prior] = []
    means: dict[float, _Prior] = {0.0: _NO_PRIOR}
    for prior in priors:
        # The mean hardly depends on slopes; that of the neighbour on the grid is a good start.
        steps = 0 if prior.tau in means or not with_mean else _MEAN_STEPS
        start = means.get(prior.tau, grid[-1] if grid and with_mean else _NO_PRIOR)
        prior = prior._replace(mean=start.mean, variance=start.variance)
        grid.append(_with_mean(shifted, prior, wide[prior.kappa], steps))
        means.setdefault(prior.tau, grid[-1])
    scores = [step * prior.log_marginal for prior in grid]
    weights = np.exp(np.array(scores) - max(scores))
    weights = np.where(weights >= _SMALLEST_WEIGHT * weights.sum(), weights, 0.0)
    weights = weights / weights.sum()
    return _averaged(problem, grid, weights)


def _with_mean(sample: _Shifted, prior: _Prior, outliers: Floats, steps: int) -> _Prior:
    """The prior with its most likely mean and the marginal likelihood of the segments.

    The derivative of a segment's log marginal likelihood by the mean is its deviation over tau^2,
    and the second derivative is what the data leave of the prior's precision.
    """
    tau, kappa, mean, variance, _ = prior
    for _ in range(steps):
        mode, log_marginal = sample.mode(tau, kappa, mean)
        alike = 1 - _outlying(log_marginal, outliers)
        gradient = float(alike @ mode.intercepts) / tau**2 - mean / MEAN_SD**2
        curvature = float(alike @ (1 - mode.variances / tau**2)) / tau**2 + 1 / MEAN_SD**2
        variance = 1 / curvature
        mean += gradient / curvature
    _, log_marginal = sample.mode(tau, kappa, mean)
    both = np.logaddexp(log_marginal + _LOG_ALIKE, outliers + _LOG_OUTLIER)
    penalty = mean**2 / (2 * MEAN_SD**2)
    return _Prior(tau, kappa, mean, variance, float(both.sum()) - penalty)


class _Shifted:
    """Modes under priors with a mean, and marginal likelihoods relative to no change."""

    def __init__(self, problem: SegmentProblem) -> None:
        self._problem = problem
        self._losses: dict[float, Floats] = {}

    def mode(self, tau: float, kappa: float, mean: float) -> tuple[Mode, Floats]:
        """The mode of every segment, and its log marginal likelihood."""
        mode = posterior_mode(self._problem.shifted(mean), tau, kappa, marginal=True)
        if not mean:
            return mode, mode.log_marginal
        return mode, mode.log_marginal + self._loss(0.0) - self._loss(mean)

    def _loss(self, mean: float) -> Floats:
        # Many points of the grid share a mean.
        if mean not in self._losses:
            none = np.zeros(len(self._problem))
            self._losses[mean] = self._problem.shifted(mean).loss(none, none)
        return self._losses[mean]


def _outlying(log_marginal: Floats, outliers: Floats) -> Floats:
    """The probability that each segment is unlike the others."""
    outlying: Floats = expit(outliers - log_marginal + _LOG_OUTLIER - _LOG_ALIKE)
    return outlying


def _averaged(problem: SegmentProblem, grid: list[_Prior], weights: Floats) -> Changes:
    kept = [(prior, weight) for prior, weight in zip(grid, weights.tolist(), strict=True) if weight]
    unlike = _possible_outliers(problem, kept)
    few = problem.take(unlike)
    unlikely = _Shifted(few)
    outliers = {}
    if len(unlike):
        for kappa in {prior.kappa for prior, _ in kept}:
            outliers[kappa] = posterior_mode(few, OUTLIER_SD, kappa, marginal=True)
    found = np.zeros((5, len(problem)))
    variance = 0.0
    slope_variance = 0.0
    typical = 0.0
    for prior, weight in kept:
        mode = posterior_mode(problem.shifted(prior.mean), prior.tau, prior.kappa, marginal=False)
        moments = _moments(mode, prior)
        if len(unlike):
            other = outliers[prior.kappa]
            _, log_marginal = unlikely.mode(prior.tau, prior.kappa, prior.mean)
            share = _outlying(log_marginal, other.log_marginal)
            moments[:, unlike] += share * (_moments(other, _NO_PRIOR) - moments[:, unlike])
        found += weight * moments
        variance += weight * (prior.tau**2 + prior.variance)
        slope_variance += weight * prior.kappa**2
        typical += weight * prior.mean
    intercepts, slopes, squares, slope_squares, products = found
    # The variance of a mixture: the mean of the squares, minus the square of the mean.
    return Changes(
        intercepts,
        slopes,
        np.sqrt(np.maximum(squares - intercepts**2, 0)),
        np.sqrt(np.maximum(slope_squares - slopes**2, 0)),
        products - intercepts * slopes,
        float(np.sqrt(variance)),
        float(np.sqrt(slope_variance)),
        typical,
    )


def _moments(mode: Mode, prior: _Prior) -> Floats:
    """The posterior means of intercept and slope, of their squares, and of their product."""
    intercepts = prior.mean + mode.intercepts
    # A shift of the prior's mean shifts the posterior's by the share of the prior in it.
    precision = np.sqrt(prior.variance) / prior.tau**2 if prior.tau else 0.0
    shift = precision * mode.variances
    slope_shift = precision * mode.covariances
    return np.array(
        [
            intercepts,
            mode.slopes,
            intercepts**2 + mode.variances + shift**2,
            mode.slopes**2 + mode.slope_variances + slope_shift**2,
            intercepts * mode.slopes + mode.covariances + shift * slope_shift,
        ]
    )


def _possible_outliers(problem: SegmentProblem, kept: list[tuple[_Prior, float]]) -> Indices:
    """The segments that are far from the mean, by a quadratic approximation of their likelihood.

    They are few: what an outlier is like is computed for them alone.
    """
    mean = sum(weight * prior.mean for prior, weight in kept)
    gradient, curvature = problem.slope_and_curvature(mean)
    tau = min(prior.tau for prior, _ in kept)

    def log_marginal(sd: float, center: float) -> Floats:
        # Of a normal prior and the quadratic likelihood around `mean`, without constants.
        shift = center - mean
        at_center = gradient - curvature * shift
        ratio = 1 + curvature * sd**2
        gain = gradient * shift - curvature * shift**2 / 2
        result: Floats = gain + at_center**2 * sd**2 / (2 * ratio) - np.log(ratio) / 2
        return result

    share = _outlying(log_marginal(tau, mean), log_marginal(OUTLIER_SD, 0.0))
    return np.flatnonzero(share > _SMALLEST_SHARE)


def posterior_mode(problem: SegmentProblem, tau: float, kappa: float, *, marginal: bool) -> Mode:
    """The posterior mode of every segment, in C if it was compiled."""
    if native.READY:
        return _mode_in_c(problem, tau, kappa, marginal=marginal)
    return mode_with_numpy(problem, tau, kappa)


def _slices(count: int) -> list[slice]:
    """Parts of the segments for threads."""
    return row_slices(count) if count > _SEGMENTS_PER_THREAD else [slice(0, count)]


def _mode_in_c(problem: SegmentProblem, tau: float, kappa: float, *, marginal: bool) -> Mode:
    count = len(problem)
    result = np.zeros((6, count))

    def run(segments: slice) -> None:
        part = problem.part(segments)
        columns = (part.positive, part.total, part.offset, part.x, part.starts, part.dispersion)
        *modes, log_marginal = result[:, segments]
        settings = (tau, kappa, _MAX_STEPS, _TOLERANCE)
        native.loops.segment_modes(*columns, *settings, *modes, log_marginal if marginal else None)

    in_threads(run, _slices(count))
    found = Mode(*result)
    return found if marginal else found._replace(log_marginal=np.empty(0))


def mode_with_numpy(problem: SegmentProblem, tau: float, kappa: float) -> Mode:
    """The posterior mode of every segment by Newton's method with step halving."""
    count = len(problem)
    # A standard deviation of 0 keeps its coefficient at 0.
    intercept_precision = 1 / tau**2 if tau else np.inf
    slope_precision = 1 / kappa**2 if kappa else np.inf
    at: Floats = np.zeros((2, count))

    def penalized(point: Floats) -> Floats:
        loss = problem.loss(point[0], point[1])
        for row, sd in enumerate((tau, kappa)):
            if sd:
                loss = loss + point[row] ** 2 / (2 * sd**2)
        return loss

    start = penalized(at)
    value = start
    for _ in range(_MAX_STEPS):
        steps = _newton_steps(problem, at, intercept_precision, slope_precision)
        at, value, moved = _line_search(penalized, at, value, steps)
        if moved < _TOLERANCE:
            break
    _, _, h_aa, h_ac, h_cc = problem.derivatives(at[0], at[1])
    # Relative to the prior precision, so that both limits of 0 are exact.
    aa = 1 + h_aa * tau**2
    cc = 1 + h_cc * kappa**2
    determinant = aa * cc - (h_ac * tau * kappa) ** 2
    return Mode(
        at[0],
        at[1],
        tau**2 * cc / determinant,
        kappa**2 * aa / determinant,
        -h_ac * (tau * kappa) ** 2 / determinant,
        start - value - np.log(determinant) / 2,
    )


def _newton_steps(
    problem: SegmentProblem, at: Floats, intercept_precision: float, slope_precision: float
) -> Floats:
    g_a, g_c, h_aa, h_ac, h_cc = problem.derivatives(at[0], at[1])
    if np.isinf(intercept_precision) and np.isinf(slope_precision):
        return np.zeros_like(at)
    if np.isinf(slope_precision):
        gradient = g_a + at[0] * intercept_precision
        return np.array([gradient / (h_aa + intercept_precision), np.zeros(len(g_a))])
    if np.isinf(intercept_precision):
        gradient = g_c + at[1] * slope_precision
        return np.array([np.zeros(len(g_c)), gradient / (h_cc + slope_precision)])
    g_a = g_a + at[0] * intercept_precision
    g_c = g_c + at[1] * slope_precision
    h_aa = h_aa + intercept_precision
    h_cc = h_cc + slope_precision
    determinant = h_aa * h_cc - h_ac**2
    return np.array([h_cc * g_a - h_ac * g_c, h_aa * g_c - h_ac * g_a]) / determinant


def _line_search(
    penalized: Callable[[Floats], Floats], at: Floats, value: Floats, steps: Floats
) -> tuple[Floats, Floats, float]:
    """Subtract each segment's step, halved until its loss does not increase."""
    fractions = np.ones(at.shape[1])
    for _ in range(_MAX_STEPS):
        following = at - fractions * steps
        after = penalized(following)
        worse = after > value + 1e-12 * (1 + np.abs(value))
        if not worse.any():
            break
        fractions[worse] /= 2
    moved = float(np.abs(fractions * steps).max(initial=0.0))
    return following, after, moved
