"""Posterior modes and marginal likelihoods of each segment's intercept and slope.

Newton's method finds the mode. Laplace's approximation takes the posterior for a normal one: of a
few rows it is not, so that the next term of the expansion, or a quadrature, corrects it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from calibrank._internal import native
from calibrank._internal.logit import expit, softplus
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices, add_up

# Fewer segments than this are not worth a thread.
_SEGMENTS_PER_THREAD = 256
# As in `native_shrinkage.h`.
_MAX_STEPS = 50
_TOLERANCE = 1e-8
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
# A term of the expansion of log marginal likelihoods that is as good as all further ones.
_SMALL_TERM = 1e-3


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
        return self._of(cells, starts, self.dispersion[chosen])

    def steeper(self, slope: float) -> SegmentProblem:
        """With a slope added to that of the offset."""
        return replace(self, offset=self.offset + slope * self.x)

    def part(self, segments: slice) -> SegmentProblem:
        """The problem of consecutive segments, without a copy."""
        starts = self.starts[segments.start : segments.stop + 1]
        cells = slice(int(starts[0]), int(starts[-1]))
        return self._of(cells, starts - starts[0], self.dispersion[segments])

    def _of(self, cells: Indices | slice, starts: Indices, dispersion: Floats) -> SegmentProblem:
        masses = (self.positive[cells], self.total[cells])
        return SegmentProblem(*masses, self.offset[cells], self.x[cells], starts, dispersion)

    @property
    def columns(self) -> tuple[Floats | Indices, ...]:
        """What the C loops read."""
        return (self.positive, self.total, self.offset, self.x, self.starts, self.dispersion)

    def in_parts(self, function: Callable[[SegmentProblem], Floats]) -> list[Floats]:
        """What a function returns of the problems of consecutive segments, one per thread."""
        count = len(self)
        slices = row_slices(count) if count > _SEGMENTS_PER_THREAD else [slice(0, count)]
        return in_threads(lambda segments: function(self.part(segments)), slices)

    def slope_and_curvature(self, intercept: float) -> Floats:
        """First and negative second derivative of each segment's log likelihood."""
        if not native.READY:
            shifted = np.full(len(self), intercept)
            gradient, _, curvature, _, _ = self.derivatives(shifted, np.zeros(len(self)))
            return np.array([-gradient, curvature])

        def find(part: SegmentProblem) -> Floats:
            result = np.empty((2, len(part)))
            native.loops.segment_slopes(*part.columns, intercept, *result)
            return result

        return np.concatenate(self.in_parts(find), axis=1)

    def sums(self, terms: Floats) -> Floats:
        """Sums over the cells of each segment, divided by its dispersion."""
        return sums_of_runs(terms, self.starts) / self.dispersion

    def loss(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Log loss of each segment, divided by its dispersion (quasi-likelihood)."""
        z = self.log_odds(intercepts, slopes)
        return self.sums(self.total * softplus(z) - self.positive * z)

    def derivatives(self, intercepts: Floats, slopes: Floats) -> tuple[Floats, ...]:
        """Gradient (2 arrays) and Hessian (3 arrays) of each segment's loss."""
        p = expit(self.log_odds(intercepts, slopes))
        residuals = self.total * p - self.positive
        weights = self.total * p * (1 - p)
        terms = (residuals, residuals * self.x, weights, weights * self.x, weights * self.x**2)
        return tuple([self.sums(term) for term in terms])

    def log_odds(self, intercepts: Floats, slopes: Floats) -> Floats:
        segment = self.segment
        return self.offset + intercepts[segment] + slopes[segment] * self.x


def sums_of_runs(masses: Floats, starts: Indices) -> Floats:
    """Sums from each start up to the next; the last is the end."""
    sizes = np.diff(starts)
    if sizes.all():
        return np.add.reduceat(masses, starts[:-1])
    return add_up(np.repeat(np.arange(len(sizes)), sizes), masses, len(sizes))


class Prior(NamedTuple):
    """One point of the grid, with the mean that is most likely there."""

    tau: float
    kappa: float
    mean: float = 0.0
    variance: float = 0.0
    """Of the mean."""


class Mode(NamedTuple):
    """Posterior modes of each segment's intercept, relative to the prior's mean, and slope."""

    intercepts: Floats
    slopes: Floats
    variances: Floats
    """Posterior variance of the intercept."""
    slope_variances: Floats
    covariances: Floats
    log_marginal: Floats
    """Log marginal likelihood of each segment, relative to no change."""
    above: Floats
    """How far the posterior mean of the intercept is above its mode: far where labels are few."""

    def moments(self, prior: Prior) -> Floats:
        """The posterior means of intercept and slope, of their squares, and of their product."""
        intercepts = prior.mean + self.intercepts
        # A shift of the prior's mean shifts the posterior's by the share of the prior in it.
        precision = np.sqrt(prior.variance) / prior.tau**2 if prior.tau else 0.0
        shift = precision * self.variances
        slope_shift = precision * self.covariances
        return np.array(
            [
                intercepts,
                self.slopes,
                intercepts**2 + self.variances + shift**2,
                self.slopes**2 + self.slope_variances + slope_shift**2,
                intercepts * self.slopes + self.covariances + shift * slope_shift,
            ]
        )


def posterior_modes(
    problem: SegmentProblem, priors: Sequence[Prior], *, marginal: bool = True
) -> list[Mode]:
    """The posterior mode of every segment under each prior, in C if it was compiled.

    Without `marginal`, the marginal likelihoods mean nothing.
    """
    if not native.READY:
        return [mode_with_numpy(problem, prior) for prior in priors]
    settings = np.array([prior[:3] for prior in priors])

    def find(part: SegmentProblem) -> Floats:
        result = np.empty((len(priors), 7, len(part)))
        native.loops.segment_modes(*part.columns, settings, marginal, result)
        return result

    return [Mode(*modes) for modes in np.concatenate(problem.in_parts(find), axis=2)]


def mode_with_numpy(problem: SegmentProblem, prior: Prior) -> Mode:
    """The posterior mode of every segment by Newton's method with step halving."""
    # In units of the prior's standard deviations, one of 0 needs no case of its own.
    tau, kappa, mean, _ = prior

    def penalized(at: Floats) -> Floats:
        return problem.loss(mean + tau * at[0], kappa * at[1]) + (at**2).sum(axis=0) / 2

    def derivatives(at: Floats) -> tuple[Floats, ...]:
        g_a, g_c, h_aa, h_ac, h_cc = problem.derivatives(mean + tau * at[0], kappa * at[1])
        gradient = (tau * g_a + at[0], kappa * g_c + at[1])
        return (*gradient, 1 + tau**2 * h_aa, tau * kappa * h_ac, 1 + kappa**2 * h_cc)

    at: Floats = np.zeros((2, len(problem)))
    value = penalized(at)
    for _ in range(_MAX_STEPS):
        g_u, g_v, h_uu, h_uv, h_vv = derivatives(at)
        steps = np.array([h_vv * g_u - h_uv * g_v, h_uu * g_v - h_uv * g_u])
        steps /= h_uu * h_vv - h_uv**2
        at, value, moved = _line_search(penalized, at, value, steps)
        if moved < _TOLERANCE:
            break
    _, _, h_uu, h_uv, h_vv = derivatives(at)
    determinant = h_uu * h_vv - h_uv**2
    none = np.zeros(len(problem))
    beyond = _beyond_laplace(problem, prior, at, np.array([h_uu, h_uv, h_vv]))
    return Mode(
        tau * at[0],
        kappa * at[1],
        tau**2 * h_vv / determinant,
        kappa**2 * h_uu / determinant,
        -tau * kappa * h_uv / determinant,
        problem.loss(none, none) - value - np.log(determinant) / 2 + beyond[0],
        *beyond[1:],
    )


def _beyond_laplace(problem: SegmentProblem, prior: Prior, at: Floats, hessian: Floats) -> Floats:
    """What log marginal likelihoods, and the mean intercepts, are above Laplace's approximation.

    By the next term of its expansion, Shun and McCullagh (1995), Eq. 2, in coordinates a and b in
    which the posterior covariance is 1; where that is not small, by a quadrature over a.
    """
    tau, kappa, mean, _ = prior
    h_uu, h_uv, h_vv = hessian
    volume = h_uu * h_vv - h_uv**2
    to_u = np.sqrt(h_vv / volume)
    to_v = -h_uv / (volume * to_u)
    segment = problem.segment
    a = (tau * to_u)[segment] + (kappa * to_v)[segment] * problem.x
    b = (kappa / (to_u * np.sqrt(volume)))[segment] * problem.x
    p = expit(problem.log_odds(mean + tau * at[0], kappa * at[1]))
    weights = problem.total * p * (1 - p)
    tails = weights * (1 - 6 * p * (1 - p))
    fourth, of_a = problem.sums(tails * (a**2 + b**2) ** 2), problem.sums(tails * a**4)
    skew = weights * (1 - 2 * p)
    aaa, aab, abb, bbb = [problem.sums(skew * a ** (3 - power) * b**power) for power in range(4)]
    squares = aaa**2 + 3 * aab**2 + 3 * abb**2 + bbb**2
    beyond = ((aaa + abb) ** 2 + (aab + bbb) ** 2 - fourth) / 8 + squares / 12
    alone = 5 * aaa**2 / 24 - of_a / 8
    is_small = np.maximum(abs(beyond), abs(alone)) < _SMALL_TERM
    changes = []
    for node in _NODES.tolist():
        u, v = at[0] + node * to_u, at[1] + node * to_v
        prior_loss = (u**2 + v**2 - node**2) / 2
        changes.append(problem.loss(mean + tau * u, kappa * v) + prior_loss)
    # The node in the middle is the mode.
    masses = _NODE_WEIGHTS[:, None] * np.exp(changes[len(_NODES) // 2] - np.array(changes))
    total = masses.sum(axis=0)
    beyond += np.where(is_small, 0.0, np.log(total) - alone)
    means = np.where(is_small, -aaa / 2, _NODES @ masses / total) - abb / 2
    return np.array([beyond, tau * to_u * means])


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
