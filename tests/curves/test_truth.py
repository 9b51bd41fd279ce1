"""Fits against known truth: the synthetic world, and the paper's two propositions in it."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, ndtri

import calibrank as cr
from calibrank.curves import Calibrator
from calibrank.data.score_world import GammaScores, GaussianScores, Scores, World, make_world
from calibrank.metrics import CalibrationInTheLarge
from calibrank.propensity import Popularity
from tests.mixed_scores import MixedScores

SHAPES = [GaussianScores(), GammaScores(), MixedScores()]
LEVELS = np.linspace(0.01, 0.99, 99)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_probabilities_of_the_world_are_its_frequencies(shape: Scores) -> None:
    world = make_world(400_000, shape, seed=5)
    assert cr.ECE()(world.probability(world.scores), world.preferences) < 0.003
    assert (world.labels == world.exposures * world.preferences).all()
    assert world.exposures.mean() == pytest.approx(world.propensity.mean(), abs=0.005)
    assert world.preferences.mean() == pytest.approx(world.base_rate, abs=0.005)


def test_a_seed_determines_the_world() -> None:
    first, second = make_world(5_000, seed=1), make_world(5_000, seed=1)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert not np.array_equal(first.scores, make_world(5_000, seed=2).scores)
    assert not np.array_equal(first.scores, first.redraw(7).scores)


@pytest.mark.parametrize("pairs", [1_000, 12_345])
def test_a_world_has_the_requested_size(pairs: int) -> None:
    assert len(make_world(pairs)) == pairs


def test_preferred_pairs_are_shown_more() -> None:
    world = make_world(5_000)
    assert np.corrcoef(world.propensity, world.affinity)[0, 1] > 0.3


@pytest.mark.parametrize(
    ("member", "shape"),
    [
        (cr.Gaussian(), GaussianScores()),
        (cr.Gamma(), GammaScores()),
        (cr.Gaussian(), MixedScores()),
    ],
    ids=["Gaussian", "Gamma", "Mixed"],
)
def test_ips_finds_the_truth_and_naive_does_not(member: Calibrator, shape: Scores) -> None:
    world = make_world(300_000, shape, seed=6)
    scores = np.quantile(world.scores, LEVELS)
    truth = world.probability(scores)
    unbiased = member.fit(world.scores, cr.ips(world.labels, world.propensity))
    biased = member.fit(world.scores, world.labels)
    assert np.abs(unbiased.predict(scores) - truth).mean() < 0.015
    assert np.abs(biased.predict(scores) - truth).mean() > 0.04


@pytest.mark.parametrize(
    ("member", "shape"),
    [(cr.Gaussian(), GaussianScores()), (cr.Gamma(margin=0.001), GammaScores())],
    ids=["Gaussian", "Gamma"],
)
def test_each_family_recovers_its_own_world(member: Calibrator, shape: Scores) -> None:
    world = make_world(400_000, shape, seed=7)
    fitted = member.fit(world.scores, world.preferences)
    scores = np.quantile(world.scores, LEVELS)
    assert np.abs(fitted.predict(scores) - world.probability(scores)).max() < 0.01


def test_the_margin_of_gamma_hardly_matters() -> None:
    world = make_world(200_000, GammaScores(), seed=1)
    losses = []
    for margin in (0.0001, 0.01, 0.03):
        fitted = cr.Gamma(margin).fit(world.scores, world.preferences)
        losses.append(fitted.record.loss)
    assert max(losses) - min(losses) < 2e-4


def log_losses(log_odds: np.ndarray, target: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, log_odds) - target * log_odds


def uerm_risk(log: World, propensity: np.ndarray, log_odds: np.ndarray) -> float:
    """The risk that unbiased empirical risk minimization (UERM) minimizes."""
    evidence = cr.ips(log.labels, propensity)
    return float(log_losses(log_odds, evidence.positive).mean())


def test_proposition_1_the_uerm_risk_is_unbiased() -> None:
    """The mean UERM risk over many logs of the same pairs is the ideal risk."""
    world = make_world(2_000, seed=8)
    log_odds = world.scores - 2
    ideal = log_losses(log_odds, world.affinity).mean()
    risks = [uerm_risk(world.redraw(seed), world.propensity, log_odds) for seed in range(400)]
    assert abs(np.mean(risks) - ideal) < 3 * np.std(risks) / np.sqrt(len(risks))


def test_proposition_2_the_bias_has_the_sign_of_the_proof() -> None:
    world = make_world(2_000, seed=9)
    log_odds = world.scores - 2
    wrong = np.clip(world.propensity * 1.5, 0, 1)
    # log((1 - g) / g) is minus the log odds: the paper's statement inverts it, its proof is right.
    bias = (world.affinity * (world.propensity / wrong - 1) * -log_odds).mean()
    risks = [uerm_risk(world.redraw(seed), wrong, log_odds) for seed in range(400)]
    ideal = log_losses(log_odds, world.affinity).mean()
    error = 3 * np.std(risks) / np.sqrt(len(risks))
    assert abs(np.mean(risks) - ideal - bias) < error
    assert abs(bias) > 3 * error


def test_the_log_loss_of_ips_evidence_is_the_uerm_risk() -> None:
    world = make_world(2_000, seed=10)
    log_odds = world.scores - 2
    evidence = cr.ips(world.labels, world.propensity)
    risk = uerm_risk(world, world.propensity, log_odds)
    assert cr.LogLoss()(expit(log_odds), evidence) == pytest.approx(risk)


@pytest.mark.parametrize(
    "member", [cr.Platt(), cr.Gaussian(), cr.Gamma(), cr.GammaGaussian()], ids=repr
)
def test_intervals_cover_the_truth_under_inverse_propensities(member: Calibrator) -> None:
    shape = (
        GaussianScores((0.0, 1.0), (1.5, 1.0)) if isinstance(member, cr.Platt) else GaussianScores()
    )
    world = make_world(10_000, shape, seed=11)
    scores = np.quantile(world.scores, [0.2, 0.5, 0.8, 0.95])
    truth = world.probability(scores)
    covered = []
    for seed in range(150):
        log = world.redraw(seed)
        fitted = member.fit(log.scores, cr.ips(log.labels, log.propensity))
        low, high = fitted.sampling_interval(scores)
        covered.append((low <= truth) & (truth <= high))
    # The family is right here, which the intervals do not take as given.
    assert 0.92 <= np.mean(covered) <= 0.995


def test_histogram_intervals_cover_the_means_of_bins() -> None:
    world = make_world(20_000, seed=12)
    large = make_world(2_000_000, seed=13)
    edges = np.linspace(-3, 4, 8)
    bins = np.digitize(np.clip(large.scores, -3, 4), edges[1:-1])
    means = np.bincount(bins, large.probability(large.scores)) / np.bincount(bins)
    truth = means * world.base_rate / large.base_rate
    centres = (edges[:-1] + edges[1:]) / 2
    well_filled = slice(2, 6)
    covered = []
    for seed in range(150):
        log = world.redraw(seed)
        scores = np.clip(log.scores, -3, 4)
        fitted = cr.Histogram(bins=7).fit(scores, cr.ips(log.labels, log.propensity))
        low, high = fitted.sampling_interval(centres)
        covered.append(((low <= truth) & (truth <= high))[well_filled])
    assert 0.88 <= np.mean(covered) <= 0.99


def test_only_intervals_over_users_cover_where_rows_are_dependent() -> None:
    """Users differ in their rates, so their rows are correlated: users must be resampled."""
    rng = np.random.default_rng(0)
    metric = CalibrationInTheLarge()
    rates = expit(np.random.default_rng(1).normal(0, 0.8, 100_000) - 1)
    expected = 0.3 / rates.mean()
    users = np.repeat(np.arange(60), 40)
    probabilities = np.full(2_400, 0.3)
    covered = []
    for _ in range(100):
        effects = rng.normal(0, 0.8, 60)
        labels = (rng.random(2_400) < expit(effects[users] - 1)).astype(float)
        by_user = cr.bootstrap(metric, probabilities, labels, users, resamples=100)
        rows = np.arange(2_400)
        by_row = cr.bootstrap(metric, probabilities, labels, rows, resamples=100)
        covered.append(
            (by_user.low <= expected <= by_user.high, by_row.low <= expected <= by_row.high)
        )
    user_coverage, row_coverage = np.mean(covered, axis=0)
    assert user_coverage > 0.88
    assert row_coverage < 0.75


def test_popularity_orders_exposure_but_misses_the_base_rate() -> None:
    world = make_world(200_000, seed=14)
    estimated = Popularity().fit(world.interactions()).predict(world.users, world.items)
    assert np.corrcoef(np.log(estimated), np.log(world.propensity))[0, 1] > 0.6
    fitted = cr.Gaussian().fit(world.scores, cr.ips(world.labels, estimated))
    ratio = CalibrationInTheLarge()(fitted.predict(world.scores), world.preferences)
    assert abs(ratio - 1) > 0.05


@pytest.mark.parametrize("calibrator", [cr.Platt(), cr.Gaussian()], ids=str)
@pytest.mark.parametrize(
    ("truth", "least"),
    [
        (lambda s: -1 + s, 0.92),
        (lambda s: -1 + 1.5 * np.tanh(1.5 * s), 0.88),
        # Flat at one end: a coefficient of Gaussian is at its bound.
        (lambda s: -1.5 + np.minimum(s, 0.5), 0.88),
    ],
    ids=["of the family", "of another", "at a bound"],
)
def test_intervals_hold_the_truth_of_any_family(calibrator: Any, truth: Any, least: float) -> None:
    rng = np.random.default_rng(0)
    at = np.array([-2.3, -1.6, -1.0, -0.5, 0.0, 0.5, 1.0, 1.6, 2.3])
    expected = expit(truth(at))
    for rows, draws in ((1_000, 30), (10_000, 6)):
        held = []
        for _ in range(draws):
            scores = rng.normal(size=rows)
            labels = (rng.random(rows) < expit(truth(scores))).astype(float)
            low, high = calibrator.fit(scores, labels).sampling_interval(at)
            held.append((low <= expected) & (expected <= high))
        # Without deviations: 0.45 to 0.02 of another family.
        assert np.mean(held) >= least


def test_deviations_are_those_of_a_penalized_fit() -> None:
    """One size of the prior, against a minimizer that knows neither bins nor projections."""
    rng = np.random.default_rng(1)
    scores = np.sort(rng.normal(size=400))
    labels = (rng.random(400) < expit(-1 + 1.5 * np.tanh(1.5 * scores))).astype(float)
    fitted = cr.Platt().fit(scores, labels)
    normal = np.clip(ndtri((np.arange(400) + 0.5) / 400), -3, 3)
    place = np.clip(((normal + 3) * 4).astype(int), 0, 23)
    cosines = np.cos(np.pi * np.arange(17)[:, None] * (place + 0.5) / 24)
    design = np.vstack([np.ones(400), scores, cosines[1:]])
    precision = np.array([1e-9, 1e-9, *(np.arange(1, 17) / 0.8) ** 2])

    def loss(at: np.ndarray) -> float:
        z = at @ design
        return float(np.logaddexp(0, z).sum() - labels @ z + precision @ at**2 / 2)

    found = minimize(loss, np.zeros(18), method="BFGS").x @ design - fitted.log_odds(scores)
    deviation = fitted.curve.deviation
    mean = np.interp(scores, deviation.scores, deviation.means)
    assert np.corrcoef(mean, found)[0, 1] > 0.97
    assert np.abs(mean - found).mean() < 0.15
