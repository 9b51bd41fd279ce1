"""Truth known by construction: the synthetic world, and the paper's two propositions in it."""

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.calibrators import Calibrator
from calibrank.data.score_world import GammaScores, GaussianScores, MixedScores, Scores, make_world
from calibrank.propensity import Popularity

SHAPES = [GaussianScores(), GammaScores(), MixedScores()]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: type(s).__name__)
def test_the_worlds_formula_is_its_frequency(shape: Scores) -> None:
    world = make_world(400_000, shape, seed=5)
    assert cr.ECE()(world.probability(world.scores), world.preferences) < 0.003
    assert (world.labels == world.exposures * world.preferences).all()
    assert world.exposures.mean() == pytest.approx(world.propensity.mean(), abs=0.005)
    assert world.preferences.mean() == pytest.approx(world.base_rate, abs=0.005)


def test_worlds_are_the_same_per_seed_and_of_any_size() -> None:
    first, second = make_world(5_000, seed=1), make_world(5_000, seed=1)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert not np.array_equal(first.scores, make_world(5_000, seed=2).scores)
    assert not np.array_equal(first.scores, first.redraw(7).scores)
    for pairs in (1_000, 12_345):
        assert len(make_world(pairs)) == pairs


@pytest.mark.parametrize(
    ("member", "shape"),
    list(zip([cr.Gaussian(), cr.Gamma(), cr.Gaussian()], SHAPES, strict=True)),
    ids=["Gaussian", "Gamma", "Mixed"],
)
def test_uerm_finds_the_truth_and_naive_does_not(member: Calibrator, shape: Scores) -> None:
    world = make_world(300_000, shape, seed=6)
    asked = np.quantile(world.scores, np.linspace(0.01, 0.99, 99))
    truth = world.probability(asked)
    unbiased = member.fit(world.scores, cr.ips(world.labels, world.propensity))
    biased = member.fit(world.scores, world.labels)
    assert np.abs(unbiased.predict(asked) - truth).mean() < 0.015
    assert np.abs(biased.predict(asked) - truth).mean() > 0.04


@pytest.mark.parametrize(
    ("member", "shape"),
    [(cr.Gaussian(), GaussianScores()), (cr.Gamma(margin=0.001), GammaScores())],
    ids=["Gaussian", "Gamma"],
)
def test_each_family_recovers_its_own_world(member: Calibrator, shape: Scores) -> None:
    world = make_world(400_000, shape, seed=7)
    fitted = member.fit(world.scores, world.preferences)
    asked = np.quantile(world.scores, np.linspace(0.01, 0.99, 99))
    assert np.abs(fitted.predict(asked) - world.probability(asked)).max() < 0.01


def test_gammas_margin_hardly_matters() -> None:
    world = make_world(200_000, GammaScores(), seed=1)
    fits = [
        cr.Gamma(margin).fit(world.scores, world.preferences).record.loss
        for margin in (0.0001, 0.01, 0.03)
    ]
    assert max(fits) - min(fits) < 2e-4


def losses(z: np.ndarray, target: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, z) - target * z


def test_proposition_1_uerm_is_unbiased() -> None:
    """The mean UERM risk over many logs of the same pairs is the ideal risk."""
    world = make_world(2_000, seed=8)
    z = world.scores - 2
    ideal = losses(z, world.affinity).mean()
    draws = np.array([_risk(world.redraw(seed), world.propensity, z) for seed in range(400)])
    assert abs(draws.mean() - ideal) < 3 * draws.std() / 20


def test_proposition_2_bias_has_the_proofs_sign() -> None:
    world = make_world(2_000, seed=9)
    z = world.scores - 2
    wrong = np.clip(world.propensity * 1.5, 0, 1)
    # log((1 - g) / g) is -z: the statement in the paper has it upside down, its proof is right.
    bias = (world.affinity * (world.propensity / wrong - 1) * -z).mean()
    draws = np.array([_risk(world.redraw(seed), wrong, z) for seed in range(400)])
    error = 3 * draws.std() / 20
    assert abs(draws.mean() - losses(z, world.affinity).mean() - bias) < error
    assert abs(bias) > 3 * error


def _risk(log: object, propensity: np.ndarray, z: np.ndarray) -> float:
    evidence = cr.ips(log.labels, propensity)  # type: ignore[attr-defined]
    return float(losses(z, evidence.positive).mean())


def test_log_loss_of_evidence_is_the_uerm_risk() -> None:
    world = make_world(2_000, seed=10)
    z = world.scores - 2
    risk = _risk(world, world.propensity, z)
    assert cr.LogLoss()(expit(z), cr.ips(world.labels, world.propensity)) == pytest.approx(risk)


@pytest.mark.parametrize(
    "member", [cr.Platt(), cr.Gaussian(), cr.Gamma(), cr.GammaGaussian()], ids=repr
)
def test_intervals_cover_the_truth_under_inverse_propensities(member: Calibrator) -> None:
    shape = GaussianScores(liked=(1.5, 1.0)) if isinstance(member, cr.Platt) else GaussianScores()
    world = make_world(10_000, shape, seed=11)
    asked = np.quantile(world.scores, [0.2, 0.5, 0.8, 0.95])
    truth = world.probability(asked)
    covered = []
    for seed in range(150):
        log = world.redraw(seed)
        low, high = member.fit(log.scores, cr.ips(log.labels, log.propensity)).interval(asked)
        covered.append((low <= truth) & (truth <= high))
    assert 0.90 <= np.mean(covered) <= 0.98


def test_histogram_intervals_cover_the_bin_means() -> None:
    world = make_world(20_000, seed=12)
    big = make_world(2_000_000, seed=13)
    edges = np.linspace(-3, 4, 8)
    covered = []
    homes = np.digitize(np.clip(big.scores, -3, 4), edges[1:-1])
    shift = world.base_rate / big.base_rate
    truth = np.bincount(homes, big.probability(big.scores)) / np.bincount(homes) * shift
    for seed in range(150):
        log = world.redraw(seed)
        scores = np.clip(log.scores, -3, 4)
        fitted = cr.Histogram(bins=7).fit(scores, cr.ips(log.labels, log.propensity))
        asked = (edges[:-1] + edges[1:]) / 2
        low, high = fitted.interval(asked)
        inner = slice(2, 6)  # bins with rows enough
        covered.append(((low <= truth) & (truth <= high))[inner])
    assert 0.88 <= np.mean(covered) <= 0.99


def test_clustered_intervals_cover_where_row_intervals_do_not() -> None:
    """Users differ in mood, so their rows move together: only resampling users knows it."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(100):
        moods = rng.normal(0, 0.8, 60)
        users = np.repeat(np.arange(60), 40)
        labels = (rng.random(2_400) < expit(moods[users] - 1)).astype(float)
        p = np.full(2_400, 0.3)
        estimate = cr.bootstrap(
            cr.CalibrationInTheLarge(), p, labels, users, resamples=100, seed=rng
        )
        nobody = cr.bootstrap(
            cr.CalibrationInTheLarge(), p, labels, np.arange(2_400), resamples=100, seed=rng
        )
        expected = 0.3 / np.mean(expit(np.random.default_rng(1).normal(0, 0.8, 100_000) - 1))
        covered.append(
            (estimate.low <= expected <= estimate.high, nobody.low <= expected <= nobody.high)
        )
    users_cover, rows_cover = np.mean(covered, axis=0)
    assert users_cover > 0.88
    assert rows_cover < 0.75


def test_popularity_orders_exposure_but_misses_its_level() -> None:
    world = make_world(200_000, seed=14)
    guessed = Popularity().fit(world.interactions()).predict(world.users, world.items)
    assert np.corrcoef(np.log(guessed), np.log(world.propensity))[0, 1] > 0.6
    fitted = cr.Gaussian().fit(world.scores, cr.ips(world.labels, guessed))
    ratio = cr.CalibrationInTheLarge()(fitted.predict(world.scores), world.preferences)
    assert abs(ratio - 1) > 0.05
