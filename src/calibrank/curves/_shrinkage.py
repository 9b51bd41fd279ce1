"""Empirical Bayes changes of log odds per segment: an intercept and a slope, shrunk towards 0.

The log odds of segment g are offset + a + c * x, with a ~ N(0, tau^2) and c ~ N(0, kappa^2). For
each pair (tau, kappa) of a grid, Newton's method finds the mode of every segment and Laplace's
approximation the marginal likelihood. The result is the average over the grid, weighted by the
marginal likelihood: how much segments differ is estimated, and with few segments it stays
uncertain rather than being fixed at its most likely value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from calibrank._internal import native
from calibrank._internal.logit import expit
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices, add_up

INTERCEPT_SDS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.5)
"""Standard deviations of the intercept between segments that are tried."""
SLOPE_SDS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Standard deviations of the slope, relative to the global slope, that are tried."""

# The grid is weighted by at most this many segments, evenly chosen: more change nothing.
_MOST_SEGMENTS = 2048
# Points of the grid with less than this weight are left out.
_SMALLEST_WEIGHT = 0.01
# Fewer segments than this are not worth a thread.
_SEGMENTS_PER_THREAD = 256
_MAX_STEPS = 50
_TOLERANCE = 1e-8


class Changes(NamedTuple):
    """Posterior means of each segment's intercept and slope, and its standard error."""

    intercepts: Floats
    slopes: Floats
    errors: Floats
    """Of the log odds at x = 0."""
    intercept_sd: float
    """Estimated standard deviation of the intercepts between segments."""


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

    def loss(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Log loss of each segment, divided by its dispersion (quasi-likelihood)."""
        z = self._log_odds(intercepts, slopes)
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        return self._sums(self.total * softplus - self.positive * z)

    def derivatives(self, intercepts: Floats, slopes: Floats) -> tuple[Floats, ...]:
        """Gradient (2 arrays) and Hessian (3 arrays) of each segment's loss."""
        p = expit(self._log_odds(intercepts, slopes))
        residuals = self.total * p - self.positive
        weights = self.total * p * (1 - p)
        terms = (residuals, residuals * self.x, weights, weights * self.x, weights * self.x**2)
        return tuple([self._sums(term) for term in terms])

    def _sums(self, terms: Floats) -> Floats:
        return add_up(self.segment, terms, len(self)) / self.dispersion

    def _log_odds(self, intercepts: Floats, slopes: Floats) -> Floats:
        segment = self.segment
        return self.offset + intercepts[segment] + slopes[segment] * self.x


class Mode(NamedTuple):
    """Posterior modes of each segment's intercept and slope."""

    intercepts: Floats
    slopes: Floats
    variances: Floats
    """Posterior variance of the intercept."""
    log_marginal: Floats
    """Log marginal likelihood of each segment, relative to no change; empty if not asked for."""


def shrunk_changes(problem: SegmentProblem, *, with_slopes: bool) -> Changes:
    """Posterior mean changes, averaged over the grid of standard deviations."""
    count = len(problem)
    step = max(1, -(-count // _MOST_SEGMENTS))
    sample = problem.take(np.arange(0, count, step))
    slope_sds = SLOPE_SDS if with_slopes else (0.0,)
    grid = [(tau, kappa) for tau in INTERCEPT_SDS for kappa in slope_sds]
    scores = []
    for tau, kappa in grid:
        log_marginal = posterior_mode(sample, tau, kappa, marginal=True).log_marginal
        scores.append(step * float(log_marginal.sum()))
    weights = np.exp(np.array(scores) - max(scores))
    weights = np.where(weights >= _SMALLEST_WEIGHT * weights.sum(), weights, 0.0)
    weights = weights / weights.sum()
    return _averaged(problem, grid, weights)


def _averaged(problem: SegmentProblem, grid: list[tuple[float, float]], weights: Floats) -> Changes:
    count = len(problem)
    intercepts = np.zeros(count)
    slopes = np.zeros(count)
    squares = np.zeros(count)
    variance = 0.0
    for (tau, kappa), weight in zip(grid, weights.tolist(), strict=True):
        if not weight:
            continue
        mode = posterior_mode(problem, tau, kappa, marginal=False)
        intercepts += weight * mode.intercepts
        slopes += weight * mode.slopes
        squares += weight * (mode.intercepts**2 + mode.variances)
        variance += weight * tau**2
    # The variance of a mixture: the mean of the squares, minus the square of the mean.
    errors = np.sqrt(np.maximum(squares - intercepts**2, 0))
    return Changes(intercepts, slopes, errors, float(np.sqrt(variance)))


def posterior_mode(problem: SegmentProblem, tau: float, kappa: float, *, marginal: bool) -> Mode:
    """The posterior mode of every segment, in C if it was compiled."""
    if native.READY:
        return _mode_in_c(problem, tau, kappa, marginal=marginal)
    return mode_with_numpy(problem, tau, kappa)


def _mode_in_c(problem: SegmentProblem, tau: float, kappa: float, *, marginal: bool) -> Mode:
    count = len(problem)
    result = np.zeros((4, count))

    def run(segments: slice) -> None:
        part = problem.part(segments)
        columns = (part.positive, part.total, part.offset, part.x, part.starts, part.dispersion)
        written: list[int | None] = [row[segments].ctypes.data for row in result]
        if not marginal:
            written[3] = None
        cast("ctypes.CDLL", native.library).segment_modes(
            *[column.ctypes.data for column in columns],
            len(part),
            tau,
            kappa,
            _MAX_STEPS,
            _TOLERANCE,
            *written,
        )

    in_threads(run, row_slices(count) if count > _SEGMENTS_PER_THREAD else [slice(0, count)])
    intercepts, slopes, variances, log_marginal = result
    return Mode(intercepts, slopes, variances, log_marginal if marginal else np.empty(0))


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
    variances = tau**2 * cc / determinant
    return Mode(at[0], at[1], variances, start - value - np.log(determinant) / 2)


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
