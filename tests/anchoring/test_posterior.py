"""The average of posterior curves, against draws from the prior that the labels weigh."""

from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.anchoring import _priors as given
from calibrank.anchoring import posterior
from calibrank.anchoring._laplace import LogisticPosteriors
from calibrank.anchoring._population import Population
from calibrank.anchoring._terms import Terms, candidate_terms
from calibrank.anchoring.posterior import RandomLabels, posterior_curve
from calibrank.maps import CalibrationMap

DRAWS = 1_000
PLACES = np.array([5, 60, 103, 150, 200])


class Prior(NamedTuple):
    """Independent normal coefficients, and the probability of this prior."""

    means: np.ndarray
    sds: np.ndarray
    probability: float


def root(function: object, low: float = -40.0, high: float = 40.0) -> float:
    """Where an increasing function is 0, by bisection."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return middle


def priors_of(
    terms: Terms, population: Population, rate: float, priors: given.Priors = given.WIDE
) -> list[Prior]:
    """The priors of one base curve, as `_priors` describes them."""
    count = len(terms.population) - 2
    if terms.are_cosines:
        sizes = [(size / np.arange(1, count + 1), p) for size, p in priors.cosine_sds.items()]
        sizes = [(sds if sds[0] else sds[:0], terms.probability * p) for sds, p in sizes]
    else:
        each = given.POLYNOMIAL_PROBABILITY / len(given.POLYNOMIAL_SDS) / count
        decay = given.POLYNOMIAL_DECAY ** np.arange(count)
        pairs = product(range(1, count + 1), given.POLYNOMIAL_SDS)
        sizes = [(size * decay[:degree], each) for degree, size in pairs]
    base, mass = terms.base_curve, population.weights
    slope_sd = priors.slope_sd * max(np.sqrt(np.cov(base, aweights=mass, ddof=0)), 0.5)
    found = []
    for (deviations, probability), (slope, p) in product(sizes, priors.slope_factors.items()):
        sds = np.concatenate([[priors.intercept_sd, slope_sd], deviations])
        rows = terms.population[: len(sds)]
        moderation = np.sqrt(1 + np.pi / 8 * ((sds[:, None] * rows) ** 2).sum(axis=0))
        level = root(lambda x, z=slope * base: mass @ expit(z + x) - rate)
        means = rows @ (mass * (level + slope * base) * moderation)
        # Without labels, the moderated probabilities have the rate of the biased fit.
        means[0] += root(lambda x, z=means @ rows, m=moderation: mass @ expit((z + x) / m) - rate)
        found.append(Prior(means, sds, probability * p))
    return found


@dataclass
class Reference:
    """The posterior under every prior by importance sampling, and the average of them."""

    population: Population
    labels: RandomLabels
    rng: np.random.Generator

    def of(self, terms: Terms, prior: Prior) -> tuple[np.ndarray, np.ndarray, float]:
        """Draws of log odds at some places, their weights, and the held-out score."""
        size = len(prior.sds)
        design, y = terms.labels[:size], self.labels.positive
        problem = LogisticPosteriors(
            design, self.labels.total, y, prior.means[None], prior.sds[None]
        )
        modes, hessians = problem.solve()
        # Proposals around the mode, with heavier tails than normal ones.
        factor = np.linalg.cholesky(np.linalg.inv(hessians[0])) * prior.sds[:, None]
        steps = self.rng.standard_normal((DRAWS, size))
        steps /= np.sqrt(self.rng.chisquare(8, (DRAWS, 1)) / 8)
        drawn = modes[0] + steps @ factor.T
        log_proposal = -(8 + size) / 2 * np.log1p((steps**2).sum(axis=1) / 8)
        z = drawn @ design
        log_p = y * z - np.logaddexp(0, z)
        log_prior = -(((drawn - prior.means) / prior.sds) ** 2).sum(axis=1) / 2
        log_weights = log_p.sum(axis=1) + log_prior - log_proposal
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        # P(label | all others) is 1 / E[1 / P(label | curve)] over the posterior of all labels.
        held_out = -np.log(weights @ np.exp(-log_p)).sum()
        return drawn @ terms.population[:size][:, PLACES], weights, float(held_out)

    def curve(self, biased: CalibrationMap) -> tuple[np.ndarray, np.ndarray]:
        """Mean probabilities and the covariance of log odds at some places."""
        rate = float(self.population.weights @ biased.predict(self.population.grid))
        log_weights, means, seconds, probabilities = [], [], [], []
        p = self.labels.positive.mean()
        information = len(self.labels.scores) * p * (1 - p)
        known = information / (information + given.HELD_OUT_INFORMATION)
        part = given.HELD_OUT_PART + (1 - given.HELD_OUT_PART) * known
        for terms in candidate_terms(biased, self.population, self.labels.scores):
            for prior in priors_of(terms, self.population, rate):
                log_odds, weights, held_out = self.of(terms, prior)
                log_weights.append(np.log(prior.probability) + part * held_out)
                means.append(weights @ log_odds)
                seconds.append((weights[:, None] * log_odds).T @ log_odds)
                probabilities.append(weights @ expit(log_odds))
        shares = np.exp(np.array(log_weights) - max(log_weights))
        shares /= shares.sum()
        mean = shares @ np.array(means)
        covariance = np.einsum("p,pij->ij", shares, seconds) - np.outer(mean, mean)
        return shares @ np.array(probabilities), covariance


@pytest.fixture(scope="module")
def biased() -> CalibrationMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    return cr.Platt().fit(scores, rng.random(4_000) < expit(1.5 * scores - 1))


@pytest.fixture(scope="module")
def population() -> Population:
    return Population.of(np.sort(np.random.default_rng(1).normal(size=4_000)))


def labels_of(scores: np.ndarray, labels: np.ndarray) -> RandomLabels:
    labels = labels.astype(float)
    return RandomLabels(scores, np.ones(len(scores)), labels, np.zeros(len(scores)))


def test_the_posterior_is_that_of_draws_from_the_prior(
    biased: CalibrationMap, population: Population
) -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=60)
    labels = labels_of(scores, rng.random(60) < expit(scores - 0.5))
    found = posterior_curve([biased], labels, population)
    probabilities, covariance = Reference(population, labels, rng).curve(biased)
    np.testing.assert_allclose(found.probabilities[PLACES], probabilities, atol=0.012)
    scale = np.sqrt(np.diag(covariance))
    ratio = found.covariance[np.ix_(PLACES, PLACES)] / np.outer(scale, scale)
    np.testing.assert_allclose(ratio, covariance / np.outer(scale, scale), atol=0.06)


NO_LABELS = RandomLabels(np.zeros(1), np.array([1e-9]), np.zeros(1), np.zeros(1))


@pytest.mark.parametrize("is_judged", [False, True])
def test_without_labels_each_posterior_is_its_prior(
    biased: CalibrationMap, population: Population, is_judged: bool
) -> None:
    sets = posterior._posterior_sets(biased, NO_LABELS, population, None, is_judged=is_judged)
    candidates = list(candidate_terms(biased, population, NO_LABELS.scores))
    expected = [(1.0, given.WIDE, candidates)]
    if is_judged:
        wide = (1 - given.JUDGED_PROBABILITY, given.WIDE, candidates)
        expected = [(given.JUDGED_PROBABILITY, given.JUDGED, candidates[:1]), wide]
    assert len(sets) == len(expected)
    rate = float(population.weights @ biased.predict(population.grid))
    for (found, posteriors), (probability, priors, curves) in zip(sets, expected, strict=True):
        assert found == pytest.approx(probability)
        own = [each for terms in curves for each in priors_of(terms, population, rate, priors)]
        for one, prior in zip(posteriors, own, strict=True):
            assert np.exp(one.log_prior) == pytest.approx(prior.probability)
            np.testing.assert_allclose(one.mean * prior.sds, prior.means, atol=1e-6)
            np.testing.assert_allclose(one.covariance, np.eye(len(prior.sds)), atol=1e-6)
            z, variances = one.mean @ one.curves, (one.curves**2).sum(axis=0)
            p = expit(z / np.sqrt(1 + np.pi / 8 * variances))
            assert population.weights @ p == pytest.approx(rate)
    if not is_judged:
        assert sum(np.exp(one.log_prior) for one in sets[0][1]) == pytest.approx(1)


def test_a_range_is_a_prior_of_the_rate_beside_the_wide_ones(
    biased: CalibrationMap, population: Population
) -> None:
    """Of a known rate it says nothing about the slope; that of labels says as much about it."""
    rate = float(population.weights @ biased.predict(population.grid))
    ends = (0.8 * rate, 1.25 * rate)
    known = cr.to_base_rate(biased, rate, population.grid, rate_range=ends)
    for fitted, probability in (
        (known, given.RANGE_PROBABILITY),
        (biased, given.LABELS_PROBABILITY),
    ):
        width = posterior._intercept_sd(ends, fitted.predict(population.grid), population)
        narrow, wide = posterior._posterior_sets(
            fitted, NO_LABELS, population, ends, is_judged=False
        )
        assert [narrow[0], wide[0]] == pytest.approx([probability, 1 - probability])
        sds = {round(float(np.sqrt((one.curves[0] ** 2).mean())), 9) for one in narrow[1]}
        assert sds == {round(width, 9)}
        assert sum(np.exp(one.log_prior) for one in narrow[1]) == pytest.approx(1)
        ((_, without),) = posterior._posterior_sets(
            fitted, NO_LABELS, population, None, is_judged=False
        )
        assert [one.log_prior for one in wide[1]] == [one.log_prior for one in without]
    # One standard deviation of the slope moves the curve as much as one of the intercept, and
    # deviations have a third of that, or all of it.
    for one in narrow[1]:
        assert population.spread(one.curves[1]) == pytest.approx(width)
    sizes = [population.spread(one.curves[2]) for one in narrow[1] if len(one.curves) > 2]
    assert sorted(sizes) == pytest.approx([width / 3, width])


def made_posterior(rng: np.random.Generator, size: int, places: int, **scores: float):
    scores = {"log_prior": 0.0, "log_likelihood": 0.0, "held_out_score": 0.0} | scores
    root_ = rng.normal(size=(size, size)) / 4
    covariance = root_ @ root_.T + 0.1 * np.eye(size)
    curves = np.vstack(
        [np.ones(places), np.linspace(-1, 1, places), *rng.normal(size=(size - 2, places)) / 3]
    )
    mean = np.array([-0.5, 1.5, *np.zeros(size - 2)])
    return posterior._Posterior(curves, mean, covariance, term_factor=rng.random(), **scores)


def test_the_average_has_the_total_covariance_of_the_mixture() -> None:
    rng = np.random.default_rng(5)
    grid = np.arange(7.0)
    population = Population(grid, grid, (grid + 0.5) / 7, rng.dirichlet(np.ones(7)))
    places = len(grid)
    made = [made_posterior(rng, size, places) for size in (2, 3, 4)]
    weights = np.array([0.5, 0.2, 0.3])
    alone = np.linspace(0.1, 0.9, places)
    found = posterior._average(population, made, weights, (0.25, alone))
    z = np.vstack(
        [
            rng.multivariate_normal(one.mean, one.covariance, int(100_000 * share)) @ one.curves
            for one, share in zip(made, weights, strict=True)
        ]
    )
    np.testing.assert_allclose(found.covariance, np.cov(z.T), atol=0.02)
    np.testing.assert_allclose(
        found.probabilities, 0.75 * expit(z).mean(axis=0) + 0.25 * alone, atol=0.006
    )
    assert found.term_factor == pytest.approx(
        sum(w * one.term_factor for w, one in zip(weights, made, strict=True))
    )
    # The fraction of prior variance removed, among the posteriors that have the coefficient.
    left = [one.covariance[0, 0] for one in made]
    assert found.intercept == pytest.approx(1 - weights @ left)
    left = [one.covariance[1, 1] for one in made]
    assert found.slope == pytest.approx(1 - weights @ left)
    left = [made[1].covariance[2, 2], made[2].covariance[2, 2]]
    assert found.curvature == pytest.approx(1 - np.array([0.4, 0.6]) @ left)


def test_an_average_that_falls_is_the_nearest_increasing_curve() -> None:
    population = Population.of(np.array([0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 4.0]))
    falling = np.sin(np.linspace(0, 9, len(population.grid)))
    flat = posterior._Posterior(
        np.vstack([np.ones_like(falling), falling]),
        np.array([0.0, 1.0]),
        np.zeros((2, 2)),
        0,
        0,
        0,
        1,
    )
    none = (0.0, np.zeros_like(falling))
    found = posterior._average(population, [flat], np.ones(1), none)
    expected = isotonic_regression(expit(falling), weights=population.weights).x
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-12)
    # Without deviations, the curvature is what the slope is.
    assert (found.intercept, found.slope, found.curvature) == (1, 1, 1)


def test_marginal_likelihoods_decide_between_sets_and_held_out_labels_within() -> None:
    rng = np.random.default_rng(6)
    priors, likelihoods, held_out = [0.25, 0.75, 1.0], [-3.0, -1.0, -2.0], [-5.0, -2.0, 0.0]
    made = [
        made_posterior(rng, 2, 3, log_prior=np.log(prior), log_likelihood=one, held_out_score=two)
        for prior, one, two in zip(priors, likelihoods, held_out, strict=True)
    ]
    sets = [(0.4, made[:2]), (0.6, made[2:])]
    for information, part in (
        (0.0, given.HELD_OUT_PART),
        (given.HELD_OUT_INFORMATION, (1 + given.HELD_OUT_PART) / 2),
        (1e12, 1.0),
    ):
        own = np.array(priors) * np.exp(part * np.array(held_out))
        joint = np.array(priors) * np.exp(likelihoods)
        first, second = 0.4 * joint[:2].sum(), 0.6 * joint[2]
        share = first / (first + second)
        expected = [*(share * own[:2] / own[:2].sum()), 1 - share]
        found = posterior._weights(sets, information)
        assert found == pytest.approx(expected, abs=1e-9)


def test_the_share_of_the_labels_alone_rises_with_their_information(population: Population) -> None:
    """k labels of rate p have the information k p (1 - p) about it."""
    rng = np.random.default_rng(7)
    scores = rng.normal(size=900)
    labels = labels_of(scores, rng.random(900) < expit(scores - 1)).ordered()
    p = labels.positive.mean()
    information = posterior._information(labels)
    assert information == pytest.approx(900 * p * (1 - p))
    half = given.SPLINE_INFORMATION + 2 * given.SPLINE_FROM
    for given_information, share in ((given.SPLINE_FROM, 0.0), (half, 0.5), (1e12, 1.0)):
        found, alone = posterior._spline(labels, population, given_information)
        assert found == pytest.approx(share, abs=1e-6)
        expected = cr.Spline().fit(labels.scores, labels.positive).predict(population.grid)
        np.testing.assert_allclose(alone, expected if share else 0, atol=1e-9)
    with_terms = RandomLabels(
        labels.scores, labels.total, labels.positive, labels.offset, has_terms=True
    )
    assert posterior._spline(with_terms, population, half)[0] == 0


def test_pools_of_equal_labels_change_nothing(
    biased: CalibrationMap, population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    scores = np.repeat(rng.normal(size=64), 8)
    offset = np.repeat(np.repeat([0.0, 0.5], 32), 8)
    y = (rng.random(512) < expit(scores + offset - 1)).astype(float)
    weights = rng.uniform(0.5, 1.5, 512)
    labels = RandomLabels(scores, weights, weights * y, offset, has_terms=True)
    expected = posterior_curve([biased], labels, population)
    monkeypatch.setattr(posterior, "_POOL_LABELS_FROM", 511)
    monkeypatch.setattr(posterior, "_LABEL_POOLS", 64)
    pooled = posterior_curve([biased], labels, population)
    # Only held-out scores differ: a row of weight w is left out one label at a time.
    np.testing.assert_allclose(pooled.probabilities, expected.probabilities, atol=0.01)
    assert pooled.term_factor == pytest.approx(expected.term_factor, abs=0.05)


def test_labels_of_unlike_offsets_are_no_neighbours() -> None:
    rng = np.random.default_rng(9)
    offset = rng.permutation(np.repeat(np.arange(8.0), 100))
    scores, total = rng.normal(size=800), rng.random(800)
    labels = RandomLabels(scores, total, total / 2, offset, has_terms=True).ordered()
    assert (np.diff(labels.offset) >= 0).all()
    for level in range(8):
        assert (np.diff(labels.scores[labels.offset == level]) >= 0).all()
    np.testing.assert_allclose(labels.positive, labels.total / 2)
    assert labels.has_terms
    # Within equal parts by offset, labels are in the order of their scores.
    several = RandomLabels(scores, total, total / 2, rng.normal(size=800), has_terms=True).ordered()
    assert (np.diff(several.scores) < 0).sum() == posterior._OFFSET_BINS - 1
    parts = np.split(several.offset, posterior._OFFSET_BINS)
    for below, above in pairwise(parts):
        assert below.max() <= above.min()


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0])
def test_labels_say_how_much_of_the_terms_holds(
    biased: CalibrationMap, population: Population, factor: float
) -> None:
    rng = np.random.default_rng(10)
    scores, offset = rng.normal(size=400), rng.normal(0, 3, 400)
    y = (rng.random(400) < expit(1.5 * scores - 1 + factor * offset)).astype(float)
    labels = RandomLabels(scores, np.ones(400), y, offset, has_terms=True)
    found = posterior_curve([biased], labels, population)
    assert found.term_factor == pytest.approx(factor, abs=0.15)
    truth = expit(1.5 * population.grid - 1)
    assert population.mean(np.abs(found.probabilities - truth)) < 0.07


def test_two_starts_are_equally_likely_before_the_labels(
    biased: CalibrationMap, population: Population
) -> None:
    other = biased.moved(-3.0)
    both = posterior_curve([biased, other], NO_LABELS, population)
    alone = [posterior_curve([each], NO_LABELS, population) for each in (biased, other)]
    mean = np.mean([each.probabilities for each in alone], axis=0)
    # Each is made to increase, and so is their average.
    np.testing.assert_allclose(both.probabilities, mean, atol=1e-4)
