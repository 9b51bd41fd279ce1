"""Numbers against independent implementations, where the definitions agree."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from scipy.special import expit, log_expit, logit

import calibrank as cr
from calibrank.data.score_world import GammaScores, GaussianScores, MixedScores, Scores, make_world


def sample(rows: int = 3_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    world = make_world(rows, seed=seed)
    return world.scores, world.preferences, world.propensity


def test_platt_is_sklearns_unpenalised_logistic_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    scores, labels, weights = sample()
    theirs = linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    theirs.fit(scores[:, None], labels, sample_weight=weights)
    ours = cr.Platt().fit(scores, cr.naive(labels, weights=weights))
    assert ours.parameters["b"] == pytest.approx(theirs.coef_[0, 0], rel=1e-6)
    assert ours.parameters["c"] == pytest.approx(theirs.intercept_[0], rel=1e-6)


def test_isotonic_is_sklearns_on_the_data() -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    scores, labels, weights = sample()
    theirs = isotonic.IsotonicRegression().fit(scores, labels, sample_weight=weights)
    ours = cr.Isotonic().fit(scores, cr.naive(labels, weights=weights))
    np.testing.assert_allclose(ours.predict(scores), theirs.predict(scores), atol=1e-12)


def test_proper_scores_are_sklearns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels, weights = sample()
    p = expit(scores - 2)
    evidence = cr.naive(labels, weights=weights)
    assert cr.LogLoss()(p, evidence) == pytest.approx(
        metrics.log_loss(labels, p, sample_weight=weights)
    )
    assert cr.Brier()(p, evidence) == pytest.approx(
        metrics.brier_score_loss(labels, p, sample_weight=weights)
    )


def test_ndcg_is_sklearns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    labels, p = rng.integers(0, 2, (30, 12)), np.round(rng.random((30, 12)), 1)  # with ties
    labels[:, 0] = 1
    users = np.repeat(np.arange(30), 12)
    for k in (1, 3, 20):
        theirs = metrics.ndcg_score(labels, p, k=k)
        assert cr.NDCG(k)(p.ravel(), labels.ravel(), users) == pytest.approx(theirs)


def test_beta_is_betacal() -> None:
    betacal = pytest.importorskip("betacal")
    scores, labels, _ = sample(5_000)
    p = expit(scores)
    theirs = betacal.BetaCalibration("abm").fit(p[:, None], labels).predict(p[:, None])
    ours = cr.Beta().fit(logit(p), labels).predict(logit(p))
    np.testing.assert_allclose(ours, theirs, atol=0.01)  # theirs stops early, at a loose tolerance
    assert cr.LogLoss()(ours, labels) <= cr.LogLoss()(theirs, labels)


def test_ece_and_histogram_are_netcals() -> None:
    metrics = pytest.importorskip(
        "netcal.metrics", reason="netcal is heavy to install; .ci/run does"
    )
    scores, labels, _ = sample(5_000)
    p = expit(scores - 2)
    assert cr.ECE(bins=15)(p, labels) == pytest.approx(
        metrics.ECE(15).measure(p, labels.astype(int)), abs=1e-9
    )
    assert cr.MCE(bins=15)(p, labels) == pytest.approx(
        metrics.MCE(15).measure(p, labels.astype(int)), abs=1e-9
    )


FAMILIES = {
    "Gaussian": (
        cr.Gaussian(),
        lambda s, _: [s**2, s, np.ones_like(s)],
        lambda e, _: [2 * e, np.ones(2), np.zeros(2)],
    ),
    "Gamma": (
        cr.Gamma(),
        lambda s, m: [np.log(s - m), s - m, np.ones_like(s)],
        lambda e, m: [1 / (e - m), np.ones(2), np.zeros(2)],
    ),
    "GammaGaussian": (
        cr.GammaGaussian(),
        lambda s, m: [(s - m) ** 2, s - m, np.log(s - m), np.ones_like(s)],
        lambda e, m: [2 * (e - m), np.ones(2), 1 / (e - m), np.zeros(2)],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "world", [GaussianScores(), GammaScores(), MixedScores(), GaussianScores(liked=(0.5, 0.4))]
)
def test_constrained_fits_are_scipys_on_the_papers_formulas(family: str, world: Scores) -> None:
    """The paper's own parameters and slope constraints, through scipy's general optimiser."""
    member, columns, slopes = FAMILIES[family]
    log = make_world(4_000, world, seed=1)
    scores, evidence = log.scores, cr.ips(log.labels, log.propensity)
    ends = np.array([scores.min(), scores.max()])
    start = ends[0] - getattr(member, "margin", 0) * np.ptp(ends)
    design = np.column_stack(columns(scores, start))
    size = np.abs(design).max(axis=0)

    def loss(theta: np.ndarray) -> float:
        z = design / size @ theta
        return float(
            np.sum(-evidence.positive * log_expit(z) - (1 - evidence.positive) * log_expit(-z))
            / len(z)
        )

    def slope(theta: np.ndarray) -> np.ndarray:
        return (
            design.T
            / size[:, None]
            @ (expit(design / size @ theta) - evidence.positive)
            / len(scores)
        )

    rows = np.column_stack(slopes(ends, start)) / size
    constraints = [LinearConstraint(rows, 0, np.inf)]
    if family == "GammaGaussian":
        constraints.append(LinearConstraint([[1, 0, 0, 0]], -np.inf, 0))
    theirs = minimize(
        loss,
        np.zeros(design.shape[1]),
        jac=slope,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 5000, "ftol": 1e-14},
    )
    ours = member.fit(scores, evidence)
    assert ours.record.loss == pytest.approx(theirs.fun, abs=2e-6)
    assert (
        ours.record.loss <= theirs.fun + 1e-6
    )  # ours is the optimum, save for the tiny rise both ends must have
    np.testing.assert_allclose(ours.predict(scores), expit(design / size @ theirs.x), atol=5e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_reported_parameters_give_the_same_probabilities(family: str) -> None:
    member, columns, _ = FAMILIES[family]
    scores, labels, _ = sample(2_000, 2)
    fitted = member.fit(scores, labels)
    start = scores.min() - getattr(member, "margin", 0) * np.ptp(scores)
    theta = np.array(list(fitted.parameters.values()))
    np.testing.assert_allclose(
        fitted.log_odds(scores), np.column_stack(columns(scores, start)) @ theta, atol=1e-8
    )


def test_exponential_scores_are_platt_and_gaussian_exponential_is_gaussian() -> None:
    """Appendix B, with exact evidence: the posterior of each pair of distributions is recovered to rounding."""
    scores = np.linspace(0.01, 4, 500)
    rise = 0.7 * scores - 2  # two exponentials with rates 1.5 and 0.8
    fitted = cr.Platt().fit(scores, cr.Evidence(expit(rise), np.ones(500)))
    np.testing.assert_allclose(fitted.log_odds(scores), rise, atol=1e-9)
    bend = (
        -(scores**2) / (2 * 2.0**2) + (0.5 + 5 / 2.0**2) * scores - 4
    )  # rate 0.5; mean 5, deviation 2
    fitted = cr.Gaussian().fit(scores, cr.Evidence(expit(bend), np.ones(500)))
    np.testing.assert_allclose(fitted.log_odds(scores), bend, atol=1e-8)
    assert fitted.parameters["a"] == pytest.approx(-1 / 8)
    assert min(fitted.end_slopes) > 0


def test_sandwich_errors_are_the_bootstraps() -> None:
    log = make_world(10_000, seed=3)
    scores, labels, propensity = log.scores, log.labels, log.propensity
    evidence = cr.ips(labels, propensity)
    fitted = cr.Gaussian().fit(scores, evidence)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(200):
        rows = rng.integers(0, len(scores), len(scores))
        again = cr.Gaussian().fit(scores[rows], cr.ips(labels[rows], propensity[rows]))
        draws.append(again.log_odds(np.array([0.0, 1.5, 2.5])))
    asked = np.array([0.0, 1.5, 2.5])
    low, high = fitted.interval(asked)
    ours = (logit(high) - logit(low)) / 2 / 1.96
    np.testing.assert_allclose(ours, np.std(draws, axis=0), rtol=0.2)
