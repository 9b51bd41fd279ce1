"""Formulas by hand: each of these fails when one line of the mathematics is changed."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import betaln, expit, log_expit
from scipy.stats import beta
from sklearn.linear_model import LogisticRegression

import calibrank as cr
from calibrank.calibrators import Parametric
from calibrank.calibrators.binning import _equal_mass, _QuantileModel
from calibrank.calibrators.solver import Problem, _newton
from calibrank.data.score_world import make_world
from calibrank.maps import LogisticMap
from calibrank.maps.basis import NumpyOps
from calibrank.metrics import EqualMass, Metric, resample
from calibrank.propensity import Logistic, NaiveBayes, Random
from calibrank.summary.grid import CAPACITY, Grid

FAMILIES = [cr.Platt(), cr.Gaussian(), cr.Gamma(), cr.GammaGaussian(), cr.Beta()]


@pytest.fixture
def fitted() -> LogisticMap:
    world = make_world(2_000, seed=1)
    result = cr.Gaussian().fit(world.scores, world.preferences)
    assert isinstance(result, LogisticMap)
    return result


@pytest.mark.parametrize("member", FAMILIES, ids=repr)
def test_end_slopes_are_derivatives(member: Parametric) -> None:
    low, high, step = -1.5, 2.0, 1e-7

    def at(score: float) -> np.ndarray:
        return np.array(member.basis.generators(np.array(score), low, high, NumpyOps()))

    at_low, at_high = member.basis.end_slopes(low, high)
    np.testing.assert_allclose(at_low, (at(low + step) - at(low)) / step, atol=1e-4)
    np.testing.assert_allclose(at_high, (at(high) - at(high - step)) / step, atol=1e-4)


def test_log_odds_go_on_with_the_slope_of_each_end(fitted: LogisticMap) -> None:
    below, low, high, above = fitted.log_odds(
        np.array([fitted.low - 1, fitted.low, fitted.high, fitted.high + 1])
    )
    np.testing.assert_allclose([low - below, above - high], fitted.end_slopes)


def test_interval_uses_the_gradient_of_the_log_odds(fitted: LogisticMap) -> None:
    asked = np.array([fitted.low - 1, 0.0, fitted.high + 1])
    for index in range(2):
        coefficients = list(fitted.coefficients)
        coefficients[index] += 1
        more = replace(fitted, coefficients=tuple(coefficients))
        rise = more.log_odds(asked) - fitted.log_odds(asked)
        np.testing.assert_allclose(fitted.gradient(asked)[1 + index], rise)


def test_betas_parameters_are_its_own() -> None:
    scores = np.linspace(-3, 3, 200)
    log_odds = 2 * log_expit(scores) - 0.5 * log_expit(-scores) + 1
    found = cr.Beta().fit(scores, cr.Evidence(expit(log_odds), np.ones(200)))
    assert found.parameters == pytest.approx({"a": 2, "b": 0.5, "c": 1})


def test_capacity_is_kept_and_used_to_the_last_bin() -> None:
    first, last = Grid.spanning(1.0, 2.0).keys(np.array([1.0, 2.0]))
    assert last - first < CAPACITY
    scores = np.arange(float(CAPACITY))
    assert (
        cr.Summary.of(scores[::2], scores[::2] % 2) + cr.Summary.of(scores[1::2], scores[1::2] % 2)
    ).exact
    assert cr.Summary.of(np.tile(scores, 2), np.tile(scores, 2) % 2).exact


@pytest.mark.parametrize("weights", [None, [1.0, 2, 0.5, 3, 1, 2]])
def test_squared_residuals_are_the_rows(weights: list[float] | None) -> None:
    scores, labels = np.array([0.0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 0, 1])
    evidence = cr.ips(labels, [0.5, 0.4, 0.3, 1, 1, 0.2], weights=weights)
    p, homes = np.array([0.2, 0.5, 0.9]), scores.astype(int)
    expected = np.bincount(homes, (evidence.positive - evidence.total * p[homes]) ** 2)
    np.testing.assert_allclose(cr.Summary.of(scores, evidence).squared_residuals(p), expected)


def test_a_score_on_an_edge_belongs_to_the_bin_above() -> None:
    assert cr.Histogram(bins=2).fit([0.0, 1, 1, 2], [0, 1, 0, 1]).predict([1.0]) == pytest.approx(
        2 / 3
    )
    assert cr.Isotonic().fit([0.0, 1, 3, 4], [0, 0, 1, 1]).edges == (2.0,)


def test_bbqs_evidence_is_the_beta_binomials() -> None:
    model = _QuantileModel.of(cr.Summary.of(np.arange(-4.0, 4), [0, 0, 0, 1, 0, 0, 1, 1]), 2)
    ends = expit([-np.inf, -0.5, np.inf])
    prior, liked = (ends[:-1] + ends[1:]) / 2, np.array([1, 2])
    expected = betaln(liked + prior, 4 - liked + 1 - prior) - betaln(prior, 1 - prior)
    assert model.log_evidence == pytest.approx(expected.sum())


def test_equal_mass_does_not_part_ties() -> None:
    scores = np.repeat([0.0, 1.0], [3, 5])
    np.testing.assert_array_equal(_equal_mass(cr.Summary.of(scores, scores), 2), [0, 1])
    cells = EqualMass(2).bin_indices(np.repeat([0.1, 0.2], [3, 5]), cr.naive(np.zeros(8)))
    np.testing.assert_array_equal(cells, np.repeat([0, 1], [3, 5]))


def test_effective_rows_are_rows_where_nothing_is_weighted_and_fewer_where_something_is() -> None:
    labels = (np.arange(100) < 30).astype(float)
    assert cr.BBQ(bins=(1,)).fit(np.arange(100.0), np.arange(100) % 2).effective_rows[
        0
    ] == pytest.approx(100, rel=0.05)
    weighted = cr.Histogram(bins=1).fit(np.arange(100.0), cr.ips(labels, np.full(100, 0.5)))
    assert weighted.effective_rows[0] == pytest.approx(0.24 / (84 / 100**2))


def test_step_intervals_are_jeffreys() -> None:
    low, high = cr.Histogram(bins=1).fit(np.arange(100.0), np.arange(100) < 30).interval([5.0], 0.9)
    np.testing.assert_allclose([low[0], high[0]], beta.ppf([0.05, 0.95], 30.5, 70.5))


@pytest.mark.parametrize("member", [cr.Platt(), cr.Gaussian(), cr.Temperature()], ids=repr)
def test_a_flat_map_rises_by_a_millionth(member: Parametric) -> None:
    scores = np.linspace(-1, 2, 31)
    with pytest.warns(cr.FlatMapWarning):
        flat = member.fit(scores, cr.Evidence(expit(-scores - 1), np.ones(31)))
    ends = np.array(member.basis.generators(np.array([-1.0, 2.0]), -1.0, 2.0, NumpyOps()))
    np.testing.assert_allclose(np.array(flat.coefficients) * np.diff(ends)[:, 0], 1e-6)


def test_the_certificate_is_relative_to_the_rate() -> None:
    scores = np.linspace(-1, 1, 50)
    design = np.vstack([np.ones(50), scores])
    problem = Problem(
        design, np.ones(50), design @ expit(scores - 1), np.array([-np.inf, 0.0]), 1e-6
    )
    solution = _newton(problem, np.zeros(2), 200)
    assert np.abs(problem.gradient(solution.point)).max() / problem.rate == pytest.approx(
        solution.residual
    )


def test_metrics_at_their_boundaries() -> None:
    assert cr.ECE(bins=2)([1.0, 0.6], [0, 1]) == pytest.approx(0.3)
    assert cr.ReleasedECE(bins=1)([0.5, 0.9], [1, 0]) == pytest.approx(0.2)
    assert cr.CalibrationInTheLarge()([0.8, 0.8], [0, 1]) == pytest.approx(1.6)
    assert cr.corp([0.2, 0.2, 0.2, 0.8], [0, 0, 1, 1]).uncertainty == pytest.approx(0.25)
    p, labels = np.r_[np.full(2_000, 0.1), 0.95], np.r_[np.arange(2_000) % 10 == 0, 0].astype(float)
    assert cr.ReleasedMCE()(p, labels) == pytest.approx(0.95)


@pytest.mark.parametrize("metric", [cr.NDCG(1), cr.Recall(1)], ids=repr)
def test_a_row_of_no_weight_is_not_in_the_list(metric: Metric) -> None:
    evidence = cr.naive([1, 0, 0], weights=[1, 1, 0])
    assert metric([0.9, 0.1, 0.95], evidence, users=[1, 1, 1]) == 1


def test_bootstrap_reflects_the_quantiles_and_stops_at_zero() -> None:
    rng = np.random.default_rng(0)
    p, users = rng.random(60) ** 2, np.arange(60) // 3
    labels = (rng.random(60) < p).astype(float)
    draws = resample._draws(20, 100, np.random.default_rng(0))
    low, high = np.quantile(
        list(resample._replicates(cr.Brier(), p, cr.naive(labels), users, draws)), [0.05, 0.95]
    )
    value = cr.Brier()(p, labels)
    expected = (value, 2 * value - high, 2 * value - low)
    assert cr.bootstrap(cr.Brier(), p, labels, users, resamples=100, level=0.9) == pytest.approx(
        expected
    )
    even = (np.arange(60) % 10 < 3).astype(float)
    assert cr.bootstrap(cr.ECE(), np.full(60, 0.3), even, np.arange(60), resamples=50).low == 0


@pytest.mark.parametrize("metric", [cr.NDCG(3), cr.Recall(2)], ids=repr)
def test_resampling_lists_is_weighing_users(metric: Metric) -> None:
    rng = np.random.default_rng(0)
    p, users = rng.random(60), np.arange(60) // 6
    evidence, counts = cr.naive(rng.integers(0, 2, 60).astype(float)), rng.integers(1, 4, 10)
    fast = list(resample._user_mean(metric, p, evidence, users, iter([counts])))
    assert fast == pytest.approx(
        list(resample._reweighted(metric, p, evidence, users, iter([counts])))
    )


def test_propensities_of_unusual_logs() -> None:
    assert Random(clip=0.2).fit(cr.Interactions([1], ["a"])).predict([1], ["new"]) == pytest.approx(
        0.6
    )
    log = cr.Interactions([1, 2], [1, 1], [1, 0], n_users=4, n_items=5)
    assert NaiveBayes([1, 0, 0, 0, 0]).fit(log).predict([1], [1]) == pytest.approx(0.25)
    log = cr.Interactions([0, 1, 2], [0, 1, 2], n_users=3, n_items=4)
    assert Logistic(np.zeros((3, 1)), np.zeros((4, 1)), ridge=10.0).fit(log).predict(
        [0], [0]
    ) == pytest.approx(0.25)
    features, asked = np.random.default_rng(0).normal(size=(5, 1)), np.arange(5)
    once, twice = cr.Interactions([0, 1, 3], [0, 2, 4]), cr.Interactions([0, 0, 1, 3], [0, 0, 2, 4])
    first, second = (
        Logistic(features, features).fit(log).predict(asked, asked) for log in (once, twice)
    )
    np.testing.assert_allclose(first, second)


def test_logistic_propensity_is_sklearns() -> None:
    rng = np.random.default_rng(0)
    people, things = rng.normal(size=(8, 2)), rng.normal(size=(6, 1))
    seen = rng.random((8, 6)) < 0.3
    grid = np.hstack([np.repeat(people, 6, axis=0), np.tile(things, (8, 1))])
    theirs = (
        LogisticRegression(C=1 / 5, tol=1e-10).fit(grid, seen.ravel()).predict_proba(grid)[:, 1]
    )
    log = cr.Interactions(*np.nonzero(seen))
    ours = Logistic(people, things, ridge=5.0).fit(log).predict(*np.divmod(np.arange(48), 6))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_what_is_liked_is_shown_more() -> None:
    world = make_world(5_000)
    assert np.corrcoef(world.propensity, world.affinity)[0, 1] > 0.3


@pytest.mark.parametrize("rows", [4_000, 5_000, 20_000])
@pytest.mark.parametrize("member", FAMILIES, ids=repr)
def test_a_nearly_separable_table_of_any_size_is_solved(member: Parametric, rows: int) -> None:
    """Large problems start from a coarser likeness, which here has no optimum."""
    scores = np.sort(np.random.default_rng(0).standard_normal(rows))
    labels = np.zeros(rows)
    labels[[-7, -5, -4, -3, -2, -1]] = 1
    assert member.fit(scores, labels).record.residual <= 1e-8


def test_rows_of_no_weight_take_no_place_in_a_top_list() -> None:
    evidence, p, users = (
        cr.Evidence([0.0, 1, 1, 0], [0.0, 1, 1, 1]),
        [0.9, 0.2, 0.8, 0.1],
        [1, 1, 2, 2],
    )
    metric = cr.TopN(cr.Brier(), 1)
    assert metric(p, evidence, users) == pytest.approx((0.64 + 0.04) / 2)
    assert cr.bootstrap(metric, p, evidence, users, resamples=10).value == pytest.approx(
        (0.64 + 0.04) / 2
    )


def test_an_interval_stays_within_what_is_possible() -> None:
    estimate = cr.bootstrap(
        cr.NDCG(1), [0.9, 0.1] * 3 + [0.1, 0.9], [1, 0] * 4, users=[1, 1, 2, 2, 3, 3, 4, 4]
    )
    assert (estimate.value, estimate.high) == (0.75, 1.0)
