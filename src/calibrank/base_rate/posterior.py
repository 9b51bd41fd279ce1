"""The posterior mean curve of a few random labels, with priors centred at a biased fit.

A log-odds curve is an intercept, a slope along a base curve, and curvature terms: what polynomials
add to intercept and slope. The base curve is the biased fit or a straight line. The coefficients
have Gaussian priors; several prior slopes, numbers of curvature terms and prior widths are tried.
For each prior the posterior and the marginal likelihood of the labels come from a Laplace
approximation. Bayesian model averaging weights the posteriors by their marginal likelihood.

The result is the mean *probability* over all posterior curves at each score, not the probability
of a mean curve: with few labels it predicts better. The mean over a Gaussian posterior uses
MacKay's moderated probability. Each prior mean is chosen so that without any labels the moderated
probabilities have the base rate of the biased fit, and nearly its shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from calibrank._logit import expit, logit
from calibrank._validation import Floats, starts_of
from calibrank.base_rate._laplace import LogisticPosteriors
from calibrank.base_rate._terms import MAX_DEGREE, Terms, orthonormalize
from calibrank.base_rate.shift import root
from calibrank.maps import LogisticMap
from calibrank.maps.basis import Quadratic

INTERCEPT_SD = 2.0
"""Prior standard deviation of the intercept: odds wrong by a factor of ten are plausible."""
SLOPE_FACTORS = (2.0, 1.0, 0.5, 0.25)
"""Prior means of the slope, relative to the biased fit, which often overstates the slope."""
SLOPE_SD = 0.3
"""Prior standard deviation of the slope around each of them, relative to the biased fit's slope."""
CURVATURE_SDS = (0.1, 0.3, 1.0, 3.0)
"""Prior standard deviations of the first curvature term, in log odds over the population."""
CURVATURE_DECAY = 0.5
"""Each further curvature term has this fraction of the previous term's standard deviation."""

# In log odds: a flatter biased fit than this is no reason to expect a flat curve.
_LEAST_SPREAD = 0.5
# Scores that represent the population.
_GRID_SIZE = 200
# More labels than this are pooled, which bounds the cost of each of the many fits.
_POOL_LABELS_FROM = 2048
_LABEL_POOLS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class RandomLabels:
    """Scores of randomly shown pairs, with the total and the positive mass of each."""

    scores: Floats
    total: Floats
    positive: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorCurve:
    """Mean probabilities over a population's scores, with the covariance of their log odds.

    `intercept`, `slope` and `curvature` are the fractions of prior variance that the labels
    removed: 0 is the prior alone, 1 the labels alone.
    """

    scores: Floats
    probabilities: Floats
    covariance: Floats
    intercept: float
    slope: float
    curvature: float


def posterior_curve(
    biased: LogisticMap,
    labels: RandomLabels,
    population: Floats,
) -> PosteriorCurve:
    """Average the posterior curves of all priors; `population` holds sorted scores."""
    grid = _grid(population)
    quadratic = isinstance(biased.basis, Quadratic)
    degrees = MAX_DEGREE if quadratic else len(biased.basis.parameters) - 1
    biased_family = _CurveFamily.of(biased, labels, grid, linear=False)
    posteriors = list(biased_family.posteriors(1, degrees))
    if quadratic:
        # A line is tried with curvature terms only: alone it would discard the biased fit's shape.
        linear_family = _CurveFamily.of(biased, labels, grid, linear=True)
        posteriors += linear_family.posteriors(2, degrees)
    return _average(grid, posteriors)


def _grid(population: Floats) -> Floats:
    """Quantiles that stand for the population."""
    levels = (np.arange(_GRID_SIZE) + 0.5) / _GRID_SIZE
    grid = np.quantile(population, levels)
    if not grid[0] < grid[-1]:
        # Nearly all scores are tied: use each distinct score once.
        grid = np.quantile(population[starts_of(population)], levels)
    return grid


@dataclass(frozen=True, slots=True, eq=False)
class _Posterior:
    """The Laplace approximation under one prior, in units of the prior's standard deviations."""

    curves: Floats
    """One row per coefficient, in log odds per unit; one column per score of the population."""
    mean: Floats
    covariance: Floats
    log_marginal_likelihood: float

    @property
    def learned(self) -> Floats:
        """The fraction of each coefficient's prior variance that the labels removed."""
        return 1 - np.diag(self.covariance)


@dataclass(frozen=True, slots=True, eq=False)
class _CurveFamily:
    """Curves with one base curve: orthonormal terms at the population and at the labels."""

    terms: Floats
    """One row per term, one column per score of the population."""
    design: Floats
    """One row per term, one column per (pooled) label."""
    total: Floats
    positive: Floats
    base_curve: Floats
    """Log odds of the base curve over the population."""
    rate: float
    """The mean probability of the biased fit."""

    @classmethod
    def of(
        cls,
        biased: LogisticMap,
        labels: RandomLabels,
        grid: Floats,
        *,
        linear: bool,
    ) -> Self:
        terms = Terms.of(biased, grid, linear=linear)
        label_terms, total, positive = _pooled_labels(terms, labels)
        population_terms = terms.at(grid)
        transform = orthonormalize(population_terms)
        rate = expit(biased.log_odds(grid)).mean()
        return cls(
            terms=transform @ population_terms,
            design=transform @ label_terms,
            total=total,
            positive=positive,
            base_curve=population_terms[1],
            # The logarithm of the odds must stay finite.
            rate=float(rate.clip(1e-300, 1 - 1e-15)),
        )

    def posteriors(self, least: int, most: int) -> Iterator[_Posterior]:
        """Posteriors for each number of terms beside the intercept, all numbers equally likely."""
        slope_sd = SLOPE_SD * max(float(self.base_curve.std()), _LEAST_SPREAD)
        expected_curves = []
        for factor in SLOPE_FACTORS:
            curve = factor * self.base_curve
            shift = self._shift_to_rate(curve, np.ones(len(curve)))
            expected_curves.append(curve + shift)
        for degree in range(least, min(most, len(self.terms) - 1) + 1):
            prior_means = []
            prior_sds = []
            for expected in expected_curves:
                for sds in _prior_sds(degree, slope_sd):
                    prior_means.append(self._prior_mean(expected, sds))
                    prior_sds.append(sds)
            yield from self._posteriors_of(np.array(prior_means), np.array(prior_sds))

    def _prior_mean(self, expected: Floats, prior_sds: Floats) -> Floats:
        """Coefficients whose moderated probabilities follow an expected curve.

        The curve can be met only as far as the terms allow; the base rate is met exactly.
        """
        terms = self.terms[: len(prior_sds)]
        moderation = _moderation(prior_sds**2 @ terms**2)
        # The terms are orthonormal over the population, so projecting is a mean of products.
        mean: Floats = terms @ (expected * moderation) / len(expected)
        mean[0] += self._shift_to_rate(mean @ terms, moderation)
        return mean

    def _shift_to_rate(self, log_odds: Floats, moderation: Floats) -> float:
        """The shift that gives moderated log odds the mean probability of the biased fit."""

        def excess(shift: float) -> float:
            return float(expit((log_odds + shift) / moderation).mean()) - self.rate

        shifts = logit(self.rate) * moderation - log_odds
        low = float(shifts.min()) - 1
        high = float(shifts.max()) + 1
        return root(excess, low, high)

    def _posteriors_of(
        self,
        prior_means: Floats,
        prior_sds: Floats,
    ) -> Iterator[_Posterior]:
        """The posterior of each prior; these priors share one unit of prior probability."""
        design = self.design[: prior_sds.shape[1]]
        problem = LogisticPosteriors(design, self.total, self.positive, prior_means, prior_sds)
        modes, hessians = problem.solve()
        # Laplace: log marginal likelihood = log posterior at the mode - log det(Hessian) / 2. The
        # prior's normalization cancels in units of its standard deviations.
        log_determinants = np.linalg.slogdet(hessians)[1]
        log_likelihoods = -problem.loss(modes) - log_determinants / 2
        log_likelihoods -= np.log(len(prior_sds))
        for mode, hessian, sds, log_likelihood in zip(
            modes, hessians, prior_sds, log_likelihoods, strict=True
        ):
            curves = self.terms[: len(sds)] * sds[:, None]
            covariance = np.linalg.inv(hessian)
            yield _Posterior(curves, mode / sds, covariance, float(log_likelihood))


def _pooled_labels(terms: Terms, labels: RandomLabels) -> tuple[Floats, Floats, Floats]:
    """Mean terms, total and positive mass of the labels, or of runs of neighbouring labels."""
    weighted_terms = terms.at(labels.scores) * labels.total
    total = labels.total
    positive = labels.positive
    if len(total) > _POOL_LABELS_FROM:
        order = np.argsort(labels.scores)
        places = np.linspace(0, len(order), _LABEL_POOLS, endpoint=False)
        starts = places.astype(np.intp)
        weighted_terms = np.add.reduceat(weighted_terms[:, order], starts, axis=1)
        total = np.add.reduceat(total[order], starts)
        positive = np.add.reduceat(positive[order], starts)
    return weighted_terms / total, total, positive


def _prior_sds(degree: int, slope_sd: float) -> list[Floats]:
    """Prior standard deviations of the intercept, the slope and `degree - 1` curvature terms."""
    first_terms = CURVATURE_SDS if degree > 1 else CURVATURE_SDS[:1]
    decay = CURVATURE_DECAY ** np.arange(degree - 1)
    curvature_sds = [first * decay for first in first_terms]
    return [np.array([INTERCEPT_SD, slope_sd, *sds]) for sds in curvature_sds]


def _average(grid: Floats, posteriors: list[_Posterior]) -> PosteriorCurve:
    """Bayesian model averaging: posteriors weighted by their marginal likelihood."""
    log_likelihoods = [posterior.log_marginal_likelihood for posterior in posteriors]
    # Subtracting the maximum avoids underflow.
    weights = np.exp(np.array(log_likelihoods) - max(log_likelihoods))
    weights /= weights.sum()
    log_odds = np.empty((len(posteriors), len(grid)))
    variances = np.empty((len(posteriors), len(grid)))
    covariance = np.zeros((len(grid), len(grid)))
    for row, posterior in enumerate(posteriors):
        curves = posterior.curves
        covariance_curves = posterior.covariance @ curves
        log_odds[row] = posterior.mean @ curves
        variances[row] = (curves * covariance_curves).sum(axis=0)
        covariance += weights[row] * (curves.T @ covariance_curves)
    # Total covariance: the mean of the covariances plus the covariance of the means.
    deviations = log_odds - weights @ log_odds
    covariance += (deviations * weights[:, None]).T @ deviations
    probabilities = weights @ expit(log_odds / _moderation(variances))
    learned = _learned(posteriors, weights)
    return PosteriorCurve(grid, probabilities, covariance, *learned)


def _learned(posteriors: list[_Posterior], weights: Floats) -> tuple[float, float, float]:
    """The average fractions of prior variance removed: of intercept, slope and curvature."""
    learned = [posterior.learned for posterior in posteriors]
    intercept = float(weights @ [fractions[0] for fractions in learned])
    slope = float(weights @ [fractions[1] for fractions in learned])
    curved = []
    for weight, fractions in zip(weights, learned, strict=True):
        if len(fractions) > 2:
            curved.append((weight, fractions[2:].mean()))
    curvature = slope  # of a family without curvature terms
    if curved:
        curved_weights, curved_learned = np.array(curved).T
        mass = sum(curved_weights.tolist())
        curvature = float(np.dot(curved_weights, curved_learned) / mass)
    # Rounding may leave a fraction slightly outside [0, 1].
    fractions = np.clip([intercept, slope, curvature], 0, 1)
    intercept, slope, curvature = fractions.tolist()
    return intercept, slope, curvature


def _moderation(variance: Floats) -> Floats:
    """MacKay's factor: E[expit(z)] is about expit(mean / sqrt(1 + pi / 8 * variance))."""
    return np.sqrt(1 + np.pi / 8 * variance)
