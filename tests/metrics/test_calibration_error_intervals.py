"""Intervals of calibration errors with few users, where the truth is known."""

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr
from scipy.stats import norm

import calibrank as cr
from calibrank.metrics import DebiasedECE, EqualMassECE, Metric
from calibrank.metrics.binned import _mean_absolute
from calibrank.metrics.clustered_bootstrap import few_clusters_factor, inverted_interval


def draw(rng: np.random.Generator, slope: float, users: int) -> tuple[np.ndarray, ...]:
    """20 rows per user, labels correlated within users, log odds off by a slope."""
    user = np.repeat(np.arange(users), 20)
    p = expit(-1 + rng.normal(size=len(user)))
    latent = 0.4 * rng.normal(size=users)[user] + np.sqrt(0.84) * rng.normal(size=len(user))
    return p, (ndtr(latent) < expit(slope * logit(p))).astype(float), user


@pytest.mark.parametrize("metric", [cr.ECE(), EqualMassECE(), DebiasedECE()], ids=str)
@pytest.mark.parametrize("slope", [1.0, 0.6])
def test_intervals_over_30_users_hold_the_truth(metric: Metric, slope: float) -> None:
    """The basic interval holds it in 33% to 88% of these tables."""
    rng = np.random.default_rng(1)
    p = expit(-1 + rng.normal(size=200_000))
    truth = metric(p, cr.Evidence(expit(slope * logit(p)), np.ones_like(p)))
    held = 0
    for _ in range(60):
        p, labels, user = draw(rng, slope, 30)
        found = cr.bootstrap(metric, p, labels, user, resamples=100)
        held += found.low <= truth + 1e-3 and truth <= found.high
    assert held >= 52


def test_without_noise_the_interval_is_the_value() -> None:
    totals = np.array([[3.0, 5.0], [10.0, 10.0], [2.0, 7.0]])
    found = inverted_interval(cr.ECE(bins=2), totals, np.repeat(totals[None], 20, axis=0))
    assert found == pytest.approx((0.15, 0.15, 0.15), rel=1e-3)


def test_an_error_that_noise_explains_may_be_zero() -> None:
    rng = np.random.default_rng(0)
    totals = np.array([[3.0, 5.0], [10.0, 10.0], [2.9, 5.1]])
    blocks = np.repeat(totals[None], 200, axis=0)
    blocks[:, 0] += rng.normal(size=(200, 2))
    assert inverted_interval(cr.ECE(bins=2), totals, blocks).low == 0


def test_few_clusters_widen_the_interval() -> None:
    factors = [few_clusters_factor(clusters) for clusters in (2, 30, 2048, np.inf)]
    assert factors == sorted(factors, reverse=True)
    assert factors[1:] == pytest.approx([1.0613, 1.0009, 1.0], abs=3e-4)


def test_the_mean_of_absolute_normals() -> None:
    means, deviations = np.array([0.0, 0.5, 3.0, 2.0]), np.array([1.0, 2.0, 0.5, 0.0])
    drawn = norm.rvs(size=(400_000, 1), random_state=0) * deviations + means
    expected = np.abs(drawn).mean(axis=0)
    np.testing.assert_allclose(_mean_absolute(means, deviations), expected, atol=0.005)


@pytest.mark.parametrize(("slope", "share"), [(1.0, 0.0), (0.7, 1.0)])
def test_the_debiased_error_is_near_the_truth_on_average(slope: float, share: float) -> None:
    """1,000 independent rows: the plain ECE is 0.036 too high if calibrated."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(80):
        p = expit(-1 + rng.normal(size=1_000))
        labels = (rng.random(1_000) < expit(slope * logit(p))).astype(float)
        found.append(DebiasedECE()(p, labels))
    assert np.mean(found) == pytest.approx(0.0542 * share, abs=0.006)


def test_a_table_without_any_gap_is_below_zero_by_chance() -> None:
    assert DebiasedECE()([0.5, 0.5], [0, 1]) < 0
    assert DebiasedECE()([0.0, 1.0], [0, 1]) == 0
