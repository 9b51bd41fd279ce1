"""Calibrators and metrics against independent implementations, where the definitions agree."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from scipy.special import expit, log_expit, logit

import calibrank as cr
from calibrank.data.score_world import GammaScores, GaussianScores, Scores, make_world
from calibrank.metrics import MCE, NDCG
from tests.mixed_scores import MixedScores


def sample(rows: int = 3_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, preferences and, to be used as weights, propensities."""
    world = make_world(rows, seed=seed)
    return world.scores, world.preferences, world.propensity


def test_platt_is_the_unpenalized_logistic_regression_of_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    scores, labels, weights = sample()
    theirs = linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    theirs.fit(scores[:, None], labels, sample_weight=weights)
    ours = cr.Platt().fit(scores, cr.naive(labels, weights=weights))
    assert ours.parameters["b"] == pytest.approx(theirs.coef_[0, 0], rel=1e-6)
    assert ours.parameters["c"] == pytest.approx(theirs.intercept_[0], rel=1e-6)


def test_isotonic_equals_scikit_learn_at_the_training_scores() -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    scores, labels, weights = sample()
    theirs = isotonic.IsotonicRegression().fit(scores, labels, sample_weight=weights)
    ours = cr.Isotonic().fit(scores, cr.naive(labels, weights=weights))
    np.testing.assert_allclose(ours.predict(scores), theirs.predict(scores), atol=1e-12)


def test_proper_scores_equal_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels, weights = sample()
    probabilities = expit(scores - 2)
    evidence = cr.naive(labels, weights=weights)
    log_loss = metrics.log_loss(labels, probabilities, sample_weight=weights)
    brier = metrics.brier_score_loss(labels, probabilities, sample_weight=weights)
    assert cr.LogLoss()(probabilities, evidence) == pytest.approx(log_loss)
    assert cr.Brier()(probabilities, evidence) == pytest.approx(brier)


@pytest.mark.parametrize("k", [1, 3, 20])
def test_ndcg_equals_scikit_learn_with_ties(k: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (30, 12))
    probabilities = np.round(rng.random((30, 12)), 1)
    labels[:, 0] = 1
    users = np.repeat(np.arange(30), 12)
    ours = NDCG(k)(probabilities.ravel(), labels.ravel(), users)
    assert ours == pytest.approx(metrics.ndcg_score(labels, probabilities, k=k))


def test_beta_equals_betacal_and_has_a_lower_loss() -> None:
    betacal = pytest.importorskip("betacal")
    scores, labels, _ = sample(5_000)
    inputs = expit(scores)
    theirs = betacal.BetaCalibration("abm").fit(inputs[:, None], labels).predict(inputs[:, None])
    ours = cr.Beta().fit(logit(inputs), labels).predict(logit(inputs))
    # betacal stops early, at a loose tolerance.
    np.testing.assert_allclose(ours, theirs, atol=0.01)
    assert cr.LogLoss()(ours, labels) <= cr.LogLoss()(theirs, labels)


def test_ece_and_mce_equal_netcal() -> None:
    reason = "netcal is large; only .ci/run installs it"
    metrics = pytest.importorskip("netcal.metrics", reason=reason)
    scores, labels, _ = sample(5_000)
    probabilities = expit(scores - 2)
    ece = metrics.ECE(15).measure(probabilities, labels.astype(int))
    mce = metrics.MCE(15).measure(probabilities, labels.astype(int))
    assert cr.ECE(bins=15)(probabilities, labels) == pytest.approx(ece, abs=1e-9)
    assert MCE(bins=15)(probabilities, labels) == pytest.approx(mce, abs=1e-9)


class PaperFamily(NamedTuple):
    """A family in the paper's parameters; functions of the score and of its origin."""

    member: cr.Calibrator
    columns: Callable[[np.ndarray, float], list[np.ndarray]]
    slopes: Callable[[np.ndarray, float], list[np.ndarray]]


FAMILIES = {
    "Gaussian": PaperFamily(
        cr.Gaussian(),
        columns=lambda s, _: [s**2, s, np.ones_like(s)],
        slopes=lambda s, _: [2 * s, np.ones(2), np.zeros(2)],
    ),
    "Gamma": PaperFamily(
        cr.Gamma(),
        columns=lambda s, origin: [np.log(s - origin), s - origin, np.ones_like(s)],
        slopes=lambda s, origin: [1 / (s - origin), np.ones(2), np.zeros(2)],
    ),
    "GammaGaussian": PaperFamily(
        cr.GammaGaussian(),
        columns=lambda s, origin: [
            (s - origin) ** 2,
            s - origin,
            np.log(s - origin),
            np.ones_like(s),
        ],
        slopes=lambda s, origin: [2 * (s - origin), np.ones(2), 1 / (s - origin), np.zeros(2)],
    ),
}


def origin_of(member: cr.Calibrator, scores: np.ndarray) -> float:
    """Where the family measures scores from: a margin below the lowest."""
    return scores.min() - getattr(member, "margin", 0) * np.ptp(scores)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "world",
    [GaussianScores(), GammaScores(), MixedScores(), GaussianScores((0.0, 1.0), (0.5, 0.4))],
)
def test_constrained_fits_equal_scipy_on_the_formulas_of_the_paper(
    family: str, world: Scores
) -> None:
    """The paper's parameters and slope constraints, minimized by a general optimizer."""
    member, columns, slopes = FAMILIES[family]
    log = make_world(4_000, world, seed=1)
    scores = log.scores
    evidence = cr.ips(log.labels, log.propensity)
    ends = np.array([scores.min(), scores.max()])
    origin = origin_of(member, scores)
    unscaled = np.column_stack(columns(scores, origin))
    size = np.abs(unscaled).max(axis=0)
    design = unscaled / size

    def loss(theta: np.ndarray) -> float:
        z = design @ theta
        positive = evidence.positive * log_expit(z)
        negative = (1 - evidence.positive) * log_expit(-z)
        return float(-np.mean(positive + negative))

    def gradient(theta: np.ndarray) -> np.ndarray:
        return design.T @ (expit(design @ theta) - evidence.positive) / len(scores)

    slope_rows = np.column_stack(slopes(ends, origin)) / size
    constraints = [LinearConstraint(slope_rows, 0, np.inf)]
    if family == "GammaGaussian":
        constraints.append(LinearConstraint([[1, 0, 0, 0]], -np.inf, 0))
    theirs = minimize(
        loss,
        np.zeros(design.shape[1]),
        jac=gradient,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 5000, "ftol": 1e-14},
    )
    ours = member.fit(scores, evidence)
    assert ours.record.loss == pytest.approx(theirs.fun, abs=2e-6)
    # Ours is the optimum, but for the tiny rise that both ends must have.
    assert ours.record.loss <= theirs.fun + 1e-6
    np.testing.assert_allclose(ours.predict(scores), expit(design @ theirs.x), atol=5e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_reported_parameters_give_the_same_log_odds(family: str) -> None:
    member, columns, _ = FAMILIES[family]
    scores, labels, _ = sample(2_000, 2)
    fitted = member.fit(scores, labels)
    design = np.column_stack(columns(scores, origin_of(member, scores)))
    theta = np.array(list(fitted.parameters.values()))
    np.testing.assert_allclose(fitted.log_odds(scores), design @ theta, atol=1e-8)


def test_two_exponential_distributions_give_platt() -> None:
    """Appendix B with exact evidence: rates 1.5 and 0.8."""
    scores = np.linspace(0.01, 4, 500)
    log_odds = 0.7 * scores - 2
    fitted = cr.Platt().fit(scores, cr.Evidence(expit(log_odds), np.ones(500)))
    np.testing.assert_allclose(fitted.log_odds(scores), log_odds, atol=1e-9)


def test_exponential_negatives_and_gaussian_positives_give_gaussian() -> None:
    """Appendix B with exact evidence: rate 0.5; mean 5 and standard deviation 2."""
    scores = np.linspace(0.01, 4, 500)
    log_odds = -(scores**2) / (2 * 2.0**2) + (0.5 + 5 / 2.0**2) * scores - 4
    fitted = cr.Gaussian().fit(scores, cr.Evidence(expit(log_odds), np.ones(500)))
    np.testing.assert_allclose(fitted.log_odds(scores), log_odds, atol=1e-8)
    assert fitted.parameters["a"] == pytest.approx(-1 / 8)
    assert min(fitted.curve.end_slopes) > 0


def test_sandwich_standard_errors_equal_those_of_the_bootstrap() -> None:
    log = make_world(10_000, seed=3)
    scores, labels, propensity = log.scores, log.labels, log.propensity
    asked = np.array([0.0, 1.5, 2.5])
    fitted = cr.Gaussian().fit(scores, cr.ips(labels, propensity))
    # Without the room for a truth of another family.
    alone = replace(fitted, curve=replace(fitted.curve, deviation=None))
    low, high = alone.sampling_interval(asked)
    standard_errors = (logit(high) - logit(low)) / 2 / 1.96
    rng = np.random.default_rng(0)
    replicates = []
    for _ in range(200):
        rows = rng.integers(0, len(scores), len(scores))
        refit = cr.Gaussian().fit(scores[rows], cr.ips(labels[rows], propensity[rows]))
        replicates.append(refit.log_odds(asked))
    np.testing.assert_allclose(standard_errors, np.std(replicates, axis=0), rtol=0.2)
