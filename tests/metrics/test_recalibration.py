"""Calibration slope and intercept against scikit-learn, and the constant that maps must beat."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

import calibrank as cr
from calibrank.metrics import Better, ConstantLogLoss, LogLossGain, recalibration
from calibrank.metrics.clustered_bootstrap import basic_interval
from calibrank.summary import Summary


def overconfident(rows: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of labels whose log odds are 0.6 x - 0.3 where the probabilities say x."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-1, 1.5, rows)
    labels = (rng.random(rows) < expit(0.6 * log_odds - 0.3)).astype(float)
    return expit(log_odds), labels


def test_slope_and_intercept_are_those_of_a_logistic_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    p, labels = overconfident()
    weights = 1 + np.arange(len(p)) % 3
    regression = linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    regression.fit(logit(p)[:, None], labels, sample_weight=weights)
    slope, intercept = recalibration(p, cr.naive(labels, weights=weights))
    assert slope == pytest.approx(regression.coef_[0, 0], abs=2e-5)
    assert intercept == pytest.approx(regression.intercept_[0], abs=2e-5)
    assert (slope, intercept) == pytest.approx((0.6, -0.3), abs=0.05)


def test_weighted_positives_may_exceed_the_mass_of_a_row() -> None:
    p, labels = overconfident(5_000)
    evidence = cr.ips(labels, np.where(np.arange(5_000) % 2 == 0, 0.5, 0.9))

    def loss(at: np.ndarray) -> float:
        log_odds = at[0] * logit(p) + at[1]
        return float(np.mean(np.logaddexp(0, log_odds) - evidence.positive * log_odds))

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-14})
    assert recalibration(p, evidence) == pytest.approx(best.x, abs=1e-4)


def test_pooled_probabilities_have_the_slope_of_the_rows() -> None:
    p, labels = overconfident()
    pooled = Summary.of(np.round(p, 2), labels)
    of_rows = recalibration(np.round(p, 2), labels)
    assert recalibration(pooled.scores, pooled.evidence) == pytest.approx(of_rows, abs=1e-9)


@pytest.mark.parametrize(
    ("probabilities", "labels", "expected"),
    [
        ([0.0, 1.0, 1.0], [0, 1, 1], (1, 0)),
        ([0.25] * 4, [0, 0, 0, 1], (1, 0)),
        ([0.9, 0.9, 0.1], [0, 0, 1], None),
        ([0.1, 0.2], [0, 0], None),
    ],
    ids=["perfect", "constant", "inverted", "no positive"],
)
def test_labels_without_a_finite_optimum_give_finite_numbers(
    probabilities: list[float], labels: list[int], expected: tuple[float, float] | None
) -> None:
    found = recalibration(probabilities, labels)
    assert np.abs(found).max() <= 100
    if expected is not None:
        assert found == pytest.approx(expected, abs=1e-9)
    if labels == [0, 0, 1]:
        assert found.slope < -1


def test_weighted_labels_above_1_everywhere_are_limited() -> None:
    found = recalibration([0.3, 0.6], cr.Evidence([2.0, 2.0], [1.0, 1.0]))
    assert np.abs(found).max() == 100


def test_the_best_constant_is_the_entropy_of_the_weighted_base_rate() -> None:
    evidence = cr.naive([1, 0, 0], weights=[2, 1, 1])
    p = np.array([0.7, 0.2, 0.4])
    assert ConstantLogLoss()(p, evidence) == pytest.approx(np.log(2))
    for rate in (0.4, 0.49, 0.51, 0.6):
        assert ConstantLogLoss()(p, evidence) < cr.LogLoss()(np.full(3, rate), evidence)
    gain = LogLossGain()(p, evidence)
    assert gain == pytest.approx(np.log(2) - cr.LogLoss()(p, evidence))


def test_the_interval_of_a_small_gain_is_not_cut_at_0() -> None:
    replicates = [-0.01, 0.0, 0.01, 0.02]
    found = basic_interval(LogLossGain(), 0.002, replicates)
    assert found.low < 0 < found.high
    assert basic_interval(cr.Brier(), 0.002, replicates).low == 0


def test_inverted_probabilities_are_worse_than_a_constant() -> None:
    p, labels = overconfident(400)
    assert LogLossGain()(1 - p, labels) < 0


def test_directions_of_a_slope_an_intercept_and_a_reference() -> None:
    assert Better.NEAR_ZERO.loss(-0.5) == Better.NEAR_ZERO.loss(0.5) == 0.5
    assert Better.REFERENCE.loss(0.2) == Better.REFERENCE.loss(0.7)
