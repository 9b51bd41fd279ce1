"""Laplace approximations of the posterior of a logistic regression, under many priors at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.logit import expit, softplus
from calibrank._internal.validation import Floats
from calibrank.errors import FitError

_MAX_STEPS = 100
# Of a Newton step, in prior standard deviations.
_TOLERANCE = 1e-9
# Of one label, relative to that of all labels and the prior: a label alone decides nothing.
_MOST_INFORMATION = 0.95


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

    def loss(self, solutions: Floats) -> Floats:
        """The negative log posterior of each prior's solution, without constants."""
        z = solutions @ self.design + self.offset
        deviations = (solutions - self.prior_means) / self.prior_sds
        log_loss = softplus(z) @ self.total - z @ self.positive
        return log_loss + (deviations**2).sum(axis=1) / 2

    @one_blas_thread()
    def solve(self) -> tuple[Floats, Floats]:
        """The posterior mode under each prior, and its Hessian in units of the prior's scales.

        In these units the prior's own Hessian is the identity, so the inverse Hessian is the
        fraction of the prior covariance that is left.
        """
        size = len(self.design)
        # Products of all pairs of design rows: all Hessians become one matrix product. They are
        # symmetric, so each pair is multiplied once.
        rows, columns = np.triu_indices(size)
        products = (self.design[rows] * self.design[columns]).T.copy()
        hessians = np.empty((len(self.prior_means), size, size))
        scales = self.prior_sds[:, :, None] * self.prior_sds[:, None]
        solutions = self.prior_means
        losses = self.loss(solutions)
        for _ in range(_MAX_STEPS):
            probabilities = expit(solutions @ self.design + self.offset)
            residuals = self.total * probabilities - self.positive
            gradients = (residuals @ self.design.T) * self.prior_sds
            gradients += (solutions - self.prior_means) / self.prior_sds
            weights = self.total * probabilities * (1 - probabilities)
            hessians[:, rows, columns] = weights @ products
            hessians[:, columns, rows] = hessians[:, rows, columns]
            scaled = hessians * scales + np.eye(size)
            steps = np.linalg.solve(scaled, gradients[:, :, None])[:, :, 0]
            if np.abs(steps).max() < _TOLERANCE:
                return solutions, scaled
            solutions, losses = self._line_search(solutions, losses, steps * self.prior_sds)
        rule = f"lead to a posterior mode within {_MAX_STEPS} steps"
        raise FitError("labels", rule, "none", "Drop outlying scores from them.")

    def held_out_scores(self, modes: Floats, covariances: Floats) -> Floats:
        """The log probability of each label given all others, summed: one number per prior.

        Takes what `solve` finds, the inverse Hessians as covariances. A label moves the mode by
        one Newton step: without it, its log odds are `z + (p - y) v / (1 - p (1 - p) v)` for log
        odds `z` of variance `v`. Rows of several labels are left out one label at a time.
        """
        rows, columns = np.triu_indices(len(self.design))
        products = self.design[rows] * self.design[columns]
        scales = self.prior_sds[:, rows] * self.prior_sds[:, columns]
        # Pairs off the diagonal count twice.
        coefficients = covariances[:, rows, columns] * scales * np.where(rows == columns, 1, 2)
        variances = np.maximum(coefficients @ products, 0)
        z = modes @ self.design + self.offset
        p = expit(z)
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
