"""The posterior mean curve of a few random labels, with priors centred at a biased fit.

A log-odds curve is an intercept, a slope along a base curve, and deviations from the base curve
(`_terms`). The coefficients have Gaussian priors. Many priors are tried: five base curves, five
prior slopes, and deviations of several sizes, on the scale of normal scores of ranks and on that of
scores. For each prior the posterior comes from a Laplace approximation.

Posteriors are averaged by how well each predicts every label from all others (pseudo Bayesian model
averaging, Yao et al. 2018). With few labels these scores are themselves mostly chance, so that they
count in part, which rises to all of them with the information of the labels (`HELD_OUT_PART`). What
is known before the labels, as a range of rates, is a set of priors beside the wide ones: between
sets, marginal likelihoods decide, which punish a wrong range far more. A monotone `Spline` of the
labels alone gets a share that rises with their information too. `_priors` has all numbers, and says
how they were chosen.

The result is the mean *probability* over all posterior curves at each score, not the probability
of a mean curve: with few labels it predicts better. The mean over a Gaussian posterior uses
MacKay's moderated probability. Each prior mean is chosen so that without any labels the moderated
probabilities have the base rate of the biased fit, and nearly its shape. The average need not
increase, so it is projected on the increasing curves (isotonic regression over the population).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.isotonic import isotonic_values
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats
from calibrank.anchoring import _priors as given
from calibrank.anchoring._laplace import LogisticPosteriors, moderation
from calibrank.anchoring._population import Population
from calibrank.anchoring._priors import JUDGED, WIDE, Priors
from calibrank.anchoring._terms import Terms, candidate_terms
from calibrank.anchoring.known_rate import shifts_for
from calibrank.curves import Spline
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary

# Standard deviations to either end of a 95% interval.
_TWO_SIDED_95 = 1.96
# In log odds: a flatter biased fit than this is no reason to expect a flat curve.
_LEAST_SPREAD = 0.5
# Labels are pooled within so many quantiles of their offset.
_OFFSET_BINS = 8
# More labels are pooled, which bounds the cost of each of the many fits.
_POOL_LABELS_FROM = 2048
_LABEL_POOLS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class RandomLabels:
    """Scores of randomly shown pairs, with the total and the positive mass of each."""

    scores: Floats
    total: Floats
    positive: Floats
    offset: Floats
    """What the terms of the biased fit add to the log odds of each pair."""
    has_terms: bool = False

    def ordered(self) -> RandomLabels:
        """The labels in the order in which neighbours may be pooled."""
        # Pairs with unlike offsets are never pooled.
        edges = np.quantile(self.offset, np.linspace(0, 1, _OFFSET_BINS + 1)[1:-1])
        order = np.lexsort((self.scores, np.searchsorted(edges, self.offset)))
        scores, total, positive = self.scores[order], self.total[order], self.positive[order]
        return RandomLabels(scores, total, positive, self.offset[order], self.has_terms)


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorCurve:
    """Mean probabilities over a population's grid, with the covariance of their log odds.

    `intercept`, `slope` and `curvature` are the fractions of prior variance that the labels
    removed: 0 is the prior alone, 1 the labels alone. `term_factor` is the mean factor of the terms
    of the biased fit.
    """

    scores: Floats
    probabilities: Floats
    covariance: Floats
    intercept: float
    slope: float
    curvature: float
    term_factor: float


@one_blas_thread()
def posterior_curve(
    starts: Sequence[CalibrationMap],
    labels: RandomLabels,
    population: Population,
    rate_range: tuple[float, float] | None = None,
    *,
    is_judged: bool = False,
) -> PosteriorCurve:
    """Average the posterior curves of all priors over the grid of a population.

    `starts` are biased fits, each as likely as the others. `rate_range` is a 95% interval of the
    base rate of the first, if it has one. `is_judged` says that biased labels are of a judge.
    """
    ordered = labels.ordered()
    sets: list[_Weighted] = []
    for biased in starts:
        found = _posterior_sets(biased, ordered, population, rate_range, is_judged=is_judged)
        sets += [(probability / len(starts), chosen) for probability, chosen in found]
    information = _information(ordered)
    spline = _spline(ordered, population, information)
    posteriors = [one for _, chosen in sets for one in chosen]
    return _average(population, posteriors, _weights(sets, information), spline)


def _posterior_sets(
    biased: CalibrationMap,
    labels: RandomLabels,
    population: Population,
    rate_range: tuple[float, float] | None,
    *,
    is_judged: bool,
) -> list[_Weighted]:
    """The posteriors around one biased fit, in sets with their probabilities before the labels."""
    probabilities = expit(biased.log_odds(population.grid))
    # The logarithm of the odds must stay finite.
    rate = min(max(population.mean(probabilities), 1e-9), 1 - 1e-9)
    candidates = list(candidate_terms(biased, population, labels.scores))
    factors = given.TERM_FACTORS if labels.has_terms else {0.0: 1.0}

    def found(priors: Priors, base_curves: Sequence[Terms] = candidates) -> list[_Posterior]:
        chosen: list[_Posterior] = []
        for terms in base_curves:
            for factor in factors.items():
                family = _CurveFamily(terms, labels, population, rate, priors, *factor)
                chosen += family.posteriors()
        return chosen

    # The first base curve is the biased fit itself.
    start = candidates[:1]
    if is_judged:
        judged = (given.JUDGED_PROBABILITY, found(JUDGED, start))
        return [judged, (1 - given.JUDGED_PROBABILITY, found(WIDE))]
    if rate_range is None:
        return [(1.0, found(WIDE))]
    width = _intercept_sd(rate_range, probabilities, population)
    if biased.record.base_rate is not None:
        narrow = found(replace(WIDE, intercept_sd=width))
        return [(given.RANGE_PROBABILITY, narrow), (1 - given.RANGE_PROBABILITY, found(WIDE))]
    # A range without a rate is the sampling error of labels, from which the curve comes too. Terms
    # are orthonormal, so that slope and deviations have about the same error as the intercept.
    spread = max(population.spread(start[0].base_curve), _LEAST_SPREAD)
    sizes = {0.0: 1 / 3, width / 3: 1 / 3, width: 1 / 3}
    narrow = found(
        Priors(width, {1.0: 1.0}, width / spread, sizes), [replace(start[0], probability=1.0)]
    )
    return [(given.LABELS_PROBABILITY, narrow), (1 - given.LABELS_PROBABILITY, found(WIDE))]


def _information(labels: RandomLabels) -> float:
    """What the labels say about the rate: k p (1 - p) for k labels of rate p."""
    total = float(labels.total.sum())
    rate = float(np.clip(labels.positive.sum() / total, 0, 1))
    return total * rate * (1 - rate)


def _spline(
    labels: RandomLabels, population: Population, information: float
) -> tuple[float, Floats]:
    """The share of the labels alone, and their probabilities over the population."""
    share = max(information - given.SPLINE_FROM, 0.0) / (information + given.SPLINE_INFORMATION)
    if not share or labels.has_terms:
        return 0.0, np.zeros_like(population.grid)
    evidence = Evidence.trusted(labels.positive, labels.total, "naive")
    # Labels that fall with the score need no warning of their own: the curve is one of several.
    return share, Spline().fit_fold(Summary.of(labels.scores, evidence)).predict(population.grid)


def _weights(sets: list[_Weighted], information: float) -> Floats:
    """The weight of each posterior: of its set by marginal likelihood, in it by held-out labels."""
    known = information / (information + given.HELD_OUT_INFORMATION)
    part = given.HELD_OUT_PART + (1 - given.HELD_OUT_PART) * known
    within = []
    evidence = []
    for probability, chosen in sets:
        log_priors = np.array([one.log_prior for one in chosen])
        held_out = np.array([one.held_out_score for one in chosen])
        likelihoods = np.array([one.log_likelihood for one in chosen])
        within.append(_shares(log_priors + part * held_out))
        evidence.append(np.log(probability) + np.logaddexp.reduce(log_priors + likelihoods))
    shares = _shares(np.array(evidence))
    return np.concatenate([share * own for share, own in zip(shares, within, strict=True)])


def _shares(log_weights: Floats) -> Floats:
    # Subtracting the maximum avoids underflow.
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _intercept_sd(
    rate_range: tuple[float, float], probabilities: Floats, population: Population
) -> float:
    """The standard deviation of the intercept that a 95% interval of the base rate stands for."""
    low, high = logit(np.array(rate_range))
    rate = population.mean(probabilities)
    # The range must not look narrower than it is where the rate is near one of its ends.
    width = max(high - logit(rate), logit(rate) - low) / _TWO_SIDED_95
    # The rate's log odds move by this much per unit of the intercept: by less than one where
    # probabilities differ.
    movement = population.mean(probabilities * (1 - probabilities)) / (rate * (1 - rate))
    return max(float(width) / movement, given.SMALLEST_INTERCEPT_SD)


@dataclass(frozen=True, slots=True, eq=False)
class _Posterior:
    """The Laplace approximation under one prior, in units of the prior's standard deviations."""

    curves: Floats
    """One row per coefficient, in log odds per unit; one column per grid score."""
    mean: Floats
    covariance: Floats
    log_prior: float
    """Log probability of the prior."""
    log_likelihood: float
    """Log marginal likelihood of the labels: each is predicted from those before it."""
    held_out_score: float
    """Sum of the log probabilities of each label given all others."""
    term_factor: float


_Weighted: TypeAlias = tuple[float, list[_Posterior]]
"""Posteriors with the probability of their priors together."""


@dataclass(frozen=True, slots=True, eq=False)
class _CurveFamily:
    """All curves with one base curve and one kind of deviation."""

    terms: Terms
    labels: RandomLabels
    """Sorted by score."""
    population: Population
    rate: float
    """The mean probability of the biased fit."""
    priors: Priors
    term_factor: float
    factor_probability: float

    def posteriors(self) -> Iterator[_Posterior]:
        """The posterior under each prior."""
        design, total, positive, offset = self._pooled_labels()
        # The base curve with each prior slope, shifted to the base rate of the biased fit.
        curves = np.outer(list(self.priors.slope_factors), self.terms.base_curve)
        expected_curves = curves + self._shifts_to_rate(curves, np.ones(curves.shape))[:, None]
        log_prior = np.log(self.terms.probability * self.factor_probability)
        slope_probabilities = list(self.priors.slope_factors.values())
        for group, probabilities in self._prior_sds():
            # Every prior width with every expected curve: one row per prior.
            prior_sds = np.repeat(np.array(group), len(expected_curves), axis=0)
            expected = np.tile(expected_curves, (len(group), 1))
            prior_means = self._prior_means(expected, prior_sds)
            problem = LogisticPosteriors(
                design[: len(group[0])], total, positive, prior_means, prior_sds, offset
            )
            log_priors = np.log(np.outer(probabilities, slope_probabilities)).ravel()
            yield from self._solutions(problem, log_priors + log_prior)

    def _prior_sds(self) -> list[tuple[list[Floats], list[float]]]:
        """Standard deviations of intercept, slope and deviations, grouped by their number.

        With the probability of each before the labels.
        """
        base_curve = self.terms.base_curve
        slope_sd = self.priors.slope_sd * max(self.population.spread(base_curve), _LEAST_SPREAD)
        first: Floats = np.array([self.priors.intercept_sd, slope_sd])
        deviations = len(self.terms.population) - 2
        if self.terms.are_cosines:
            decay = 1 / np.arange(1.0, deviations + 1)
            sizes = dict(self.priors.cosine_sds)
            groups = [([first], [sizes.pop(0.0)])]
            if deviations:
                wide = [np.concatenate([first, size * decay]) for size in sizes]
                groups.append((wide, list(sizes.values())))
            return groups
        each = given.POLYNOMIAL_PROBABILITY / len(given.POLYNOMIAL_SDS) / max(deviations, 1)
        groups = []
        for degree in range(1, deviations + 1):
            powers = given.POLYNOMIAL_DECAY ** np.arange(degree)
            wide = [np.concatenate([first, size * powers]) for size in given.POLYNOMIAL_SDS]
            groups.append((wide, [each] * len(wide)))
        return groups

    def _prior_means(self, expected: Floats, prior_sds: Floats) -> Floats:
        """Coefficients whose moderated probabilities follow expected curves: one row per prior.

        A curve can be met only as far as the terms allow; the base rate is met exactly.
        """
        terms = self.terms.population[: prior_sds.shape[1]]
        moderations = moderation(prior_sds**2 @ terms**2)
        # The terms are orthonormal over the population, so projecting is a mean of products.
        means: Floats = (expected * moderations * self.population.weights) @ terms.T
        means[:, 0] += self._shifts_to_rate(means @ terms, moderations)
        return means

    def _shifts_to_rate(self, log_odds: Floats, moderations: Floats) -> Floats:
        """The shift of each row of moderated log odds to the mean probability of the biased fit."""
        return shifts_for(log_odds, moderations, self.population.weights, self.rate)

    def _solutions(self, problem: LogisticPosteriors, log_priors: Floats) -> Iterator[_Posterior]:
        modes, hessians = problem.solve()
        # Laplace: log marginal likelihood = log posterior at the mode - log det(Hessian) / 2. The
        # prior's normalization cancels in units of its standard deviations.
        log_likelihoods = -problem.loss(modes) - np.linalg.slogdet(hessians)[1] / 2
        covariances = np.linalg.inv(hessians)
        held_out_scores = problem.held_out_scores(modes, covariances)
        for row, sds in enumerate(problem.prior_sds):
            curves = self.terms.population[: len(sds)] * sds[:, None]
            yield _Posterior(
                curves,
                modes[row] / sds,
                covariances[row],
                float(log_priors[row]),
                float(log_likelihoods[row]),
                float(held_out_scores[row]),
                self.term_factor,
            )

    def _pooled_labels(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Mean terms, masses and offset of the labels, or of runs of neighbouring labels."""
        total, positive = self.labels.total, self.labels.positive
        terms, offset = self.terms.labels, self.term_factor * self.labels.offset
        if len(total) <= _POOL_LABELS_FROM:
            return terms, total, positive, offset
        starts = np.linspace(0, len(total), _LABEL_POOLS, endpoint=False).astype(np.intp)
        pooled = np.add.reduceat(total, starts)
        terms = np.add.reduceat(terms * total, starts, axis=1) / pooled
        offset = np.add.reduceat(offset * total, starts) / pooled
        return terms, pooled, np.add.reduceat(positive, starts), offset


def _average(
    population: Population,
    posteriors: list[_Posterior],
    weights: Floats,
    spline: tuple[float, Floats],
) -> PosteriorCurve:
    """The weighted mean of all posteriors, and of the spline's probabilities."""
    size = len(population.grid)
    log_odds = np.empty((len(posteriors), size))
    variances = np.empty((len(posteriors), size))
    kept, weighted = [], []
    for row, posterior in enumerate(posteriors):
        curves = posterior.curves
        covariance_curves = posterior.covariance @ curves
        log_odds[row] = posterior.mean @ curves
        variances[row] = (curves * covariance_curves).sum(axis=0)
        # Most priors have no weight once there are labels.
        if weights[row] > 1e-12:
            kept.append(curves)
            weighted.append(weights[row] * covariance_curves)
    # One large product takes a fraction of the time of many small ones.
    covariance = np.vstack(kept).T @ np.vstack(weighted)
    # Total covariance: the mean of the covariances plus the covariance of the means.
    deviations = log_odds - weights @ log_odds
    covariance += (deviations * weights[:, None]).T @ deviations
    share, alone = spline
    averaged = (1 - share) * weights @ expit(log_odds / moderation(variances)) + share * alone
    probabilities = isotonic_values(averaged, population.weights)
    learned = _learned(posteriors, weights)
    factor = float(weights @ [posterior.term_factor for posterior in posteriors])
    return PosteriorCurve(population.grid, probabilities, covariance, *learned, factor)


def _learned(posteriors: list[_Posterior], weights: Floats) -> tuple[float, float, float]:
    """The average fractions of prior variance removed: of intercept, slope and curvature."""
    means: list[float] = []
    # The first deviation has the widest prior: it is what the labels are first informative about.
    for place in range(3):
        rows = [row for row, each in enumerate(posteriors) if len(each.mean) > place]
        removed = [1 - posteriors[row].covariance[place, place] for row in rows]
        share = max(float(weights[rows].sum()), 1e-300)
        # Without deviations, the slope; rounding may leave a fraction slightly outside [0, 1].
        means.append(float(np.clip(weights[rows] @ removed / share, 0, 1)) if rows else means[-1])
    return means[0], means[1], means[2]
