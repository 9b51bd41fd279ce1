"""Laplace approximations of the posterior of a logistic regression, under many priors at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.logit import expit, softplus
from calibrank._internal.validation import Floats, Indices
from calibrank.errors import FitError

_MAX_STEPS = 100
# Of a Newton step, in prior standard deviations.
_TOLERANCE = 1e-9
# Of one label, relative to that of all labels and the prior: a label alone decides nothing.
_MOST_INFORMATION = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Groups of labels whose log odds share a level, normal around 0 with this deviation."""

    counts: Indices
    """The labels of each group, in whose order the labels are."""
    sd: float

    def sums(self, values: Floats) -> Floats:
        """The sum of each group's labels, along the last axis."""
        found: Floats = np.add.reduceat(values, np.cumsum(self.counts) - self.counts, axis=-1)
        return found

    def of_labels(self, values: Floats) -> Floats:
        """Each group's value for each of its labels, along the last axis."""
        return np.repeat(values, self.counts, axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class LogisticPosteriors:
    """Weighted labels and several Gaussian priors of the same coefficients: one row per prior."""

    design: Floats
    """One row per coefficient, one column per label."""
    total: Floats
    positive: Floats
    prior_means: Floats
    prior_sds: Floats
    offset: Floats | float = 0.0
    """Log odds of each label that no coefficient changes."""
    levels: Levels | None = None
    """Levels of groups: in solutions, their coefficients follow those of the design."""

    def __post_init__(self) -> None:
        if self.levels is not None:
            shape = len(self.prior_means), len(self.levels.counts)
            means = np.hstack([self.prior_means, np.zeros(shape)])
            object.__setattr__(self, "prior_means", means)
            sds = np.hstack([self.prior_sds, np.full(shape, self.levels.sd)])
            object.__setattr__(self, "prior_sds", sds)

    def _log_odds(self, solutions: Floats) -> Floats:
        size = len(self.design)
        z = solutions[:, :size] @ self.design + self.offset
        if self.levels is not None:
            z += self.levels.of_labels(solutions[:, size:])
        return z

    def loss(self, solutions: Floats) -> Floats:
        """The negative log posterior of each prior's solution, without constants."""
        z = self._log_odds(solutions)
        deviations = (solutions - self.prior_means) / self.prior_sds
        log_loss = softplus(z) @ self.total - z @ self.positive
        return log_loss + (deviations**2).sum(axis=1) / 2

    @one_blas_thread()
    def solve(self) -> tuple[Floats, Floats]:
        """The posterior mode under each prior, and its Hessian in units of the prior's scales.

        In these units the prior's own Hessian is the identity, so the inverse Hessian is the
        fraction of the prior covariance that is left. It is that of the design's coefficients, with
        levels integrated out (a Schur complement).
        """
        size = len(self.design)
        # Products of all pairs of design rows: all Hessians become one matrix product. They are
        # symmetric, so each pair is multiplied once.
        rows, columns = np.triu_indices(size)
        products = (self.design[rows] * self.design[columns]).T.copy()
        hessians = np.empty((len(self.prior_means), size, size))
        sds = self.prior_sds[:, :size]
        scales = sds[:, :, None] * sds[:, None]
        solutions = self.prior_means
        losses = self.loss(solutions)
        for _ in range(_MAX_STEPS):
            probabilities = expit(self._log_odds(solutions))
            residuals = self.total * probabilities - self.positive
            gradients = (solutions - self.prior_means) / self.prior_sds
            gradients[:, :size] += (residuals @ self.design.T) * sds
            weights = self.total * probabilities * (1 - probabilities)
            hessians[:, rows, columns] = weights @ products
            hessians[:, columns, rows] = hessians[:, rows, columns]
            scaled = hessians * scales + np.eye(size)
            if self.levels is None:
                steps = np.linalg.solve(scaled, gradients[:, :, None])[:, :, 0]
            else:
                gradients[:, size:] += self.levels.sums(residuals) * self.levels.sd
                diagonal, ratios = self._blocks(self.levels, weights)
                scaled -= ratios @ (ratios * diagonal[:, None]).transpose(0, 2, 1)
                own, of_levels = gradients[:, :size, None], gradients[:, size:, None]
                steps = np.linalg.solve(scaled, own - ratios @ of_levels)
                of_levels = of_levels / diagonal[:, :, None] - ratios.transpose(0, 2, 1) @ steps
                steps = np.hstack([steps, of_levels])[:, :, 0]
            if np.abs(steps).max() < _TOLERANCE:
                return solutions, scaled
            solutions, losses = self._line_search(solutions, losses, steps * self.prior_sds)
        rule = f"lead to a posterior mode within {_MAX_STEPS} steps"
        raise FitError("labels", rule, "none", "Drop outlying scores from them.")

    def _blocks(self, levels: Levels, weights: Floats) -> tuple[Floats, Floats]:
        """The diagonal Hessian of the levels, and that of coefficients and levels over it."""
        diagonal = 1 + levels.sd**2 * levels.sums(weights)
        cross = np.stack([levels.sums(weights * row) for row in self.design], axis=1)
        scales = levels.sd * self.prior_sds[:, : len(self.design), None]
        return diagonal, cross * scales / diagonal[:, None]

    def log_likelihoods(self, modes: Floats, hessians: Floats) -> Floats:
        """The log marginal likelihood of the labels under each prior, of what `solve` finds.

        Laplace: log posterior at the mode - log det(Hessian) / 2. The prior's normalization cancels
        in units of its standard deviations.
        """
        found: Floats = -self.loss(modes) - np.linalg.slogdet(hessians)[1] / 2
        if self.levels is not None:
            p = expit(self._log_odds(modes))
            diagonal = self._blocks(self.levels, self.total * p * (1 - p))[0]
            found -= np.log(diagonal).sum(axis=1) / 2
        return found

    def held_out_scores(self, modes: Floats, covariances: Floats) -> Floats:
        """The log probability of each label given all others, summed: one number per prior.

        Takes what `solve` finds, the inverse Hessians as covariances. A label moves the mode by
        one Newton step: without it, its log odds are `z + (p - y) v / (1 - p (1 - p) v)` for log
        odds `z` of variance `v`. Rows of several labels are left out one label at a time.
        """
        z = self._log_odds(modes)
        p = expit(z)
        # One column per label: its coefficients, less what its group's level takes up.
        units = self.design * self.prior_sds[:, : len(self.design), None]
        of_levels: Floats | float = 0.0
        if self.levels is not None:
            diagonal, ratios = self._blocks(self.levels, self.total * p * (1 - p))
            units -= self.levels.sd * self.levels.of_labels(ratios)
            of_levels = self.levels.of_labels(self.levels.sd**2 / diagonal)
        variances = of_levels + (units * (covariances @ units)).sum(axis=1)
        removed = np.minimum(self.total, 1)
        information = np.minimum(removed * p * (1 - p) * variances, _MOST_INFORMATION)
        variances /= 1 - information
        moderations = moderation(variances)
        if_positive = (z + removed * (p - 1) * variances) / moderations
        if_negative = (z + removed * p * variances) / moderations
        negative = self.total - self.positive
        return -softplus(-if_positive) @ self.positive - softplus(if_negative) @ negative

    def _line_search(
        self, solutions: Floats, before: Floats, steps: Floats
    ) -> tuple[Floats, Floats]:
        """Subtract each step, halved until the loss of its prior does not increase.

        Takes and returns solutions with their losses.
        """
        fractions = np.ones((len(steps), 1))
        for _ in range(_MAX_STEPS):
            following = solutions - fractions * steps
            # Near the mode a decrease drowns in rounding error.
            losses = self.loss(following)
            worse = losses > before + 1e-12 * (1 + np.abs(before))
            if not worse.any():
                break
            fractions[worse] /= 2
        return following, losses


def moderation(variance: Floats) -> Floats:
    """MacKay's factor: E[expit(z)] is about expit(mean / sqrt(1 + pi / 8 * variance))."""
    return np.sqrt(1 + np.pi / 8 * variance)
