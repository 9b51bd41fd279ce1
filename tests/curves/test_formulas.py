"""Formulas of calibrators, maps and summaries checked by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln, expit, log_expit
from scipy.stats import beta

import calibrank as cr
from calibrank.curves import Parametric
from calibrank.curves.solver import Problem, _newton
from calibrank.curves.steps import _equal_mass_bins, _QuantileModel
from calibrank.data.score_world import make_world
from calibrank.errors import FlatMapWarning
from calibrank.maps import LogisticCurve
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.summary.grid import CAPACITY, Grid

FAMILIES = [cr.Platt(), cr.Gaussian(), cr.Gamma(), cr.GammaGaussian(), cr.Beta()]


@pytest.fixture
def curve() -> LogisticCurve:
    world = make_world(2_000, seed=1)
    result = cr.Gaussian().fit(world.scores, world.preferences)
    assert isinstance(result.curve, LogisticCurve)
    return result.curve


@pytest.mark.parametrize("member", FAMILIES, ids=repr)
def test_end_slopes_are_the_derivatives_of_the_generators(member: Parametric) -> None:
    low, high, step = -1.5, 2.0, 1e-7

    def generators(score: float) -> np.ndarray:
        return np.array(member.basis.generators(np.array(score), low, high, NumpyTarget()))

    at_low, at_high = member.basis.end_slopes(low, high)
    right_of_low = (generators(low + step) - generators(low)) / step
    left_of_high = (generators(high) - generators(high - step)) / step
    np.testing.assert_allclose(at_low, right_of_low, atol=1e-4)
    np.testing.assert_allclose(at_high, left_of_high, atol=1e-4)


def test_log_odds_continue_with_the_slope_at_each_end(curve: LogisticCurve) -> None:
    scores = np.array([curve.low - 1, curve.low, curve.high, curve.high + 1])
    below, low, high, above = curve.log_odds(scores)
    np.testing.assert_allclose([low - below, above - high], curve.end_slopes)


def test_gradient_is_the_change_of_log_odds_per_coefficient(curve: LogisticCurve) -> None:
    scores = np.array([curve.low - 1, 0.0, curve.high + 1])
    for index in range(2):
        coefficients = list(curve.coefficients)
        coefficients[index] += 1
        increased = replace(curve, coefficients=tuple(coefficients))
        change = increased.log_odds(scores) - curve.log_odds(scores)
        np.testing.assert_allclose(curve.gradient(scores)[1 + index], change)


def test_beta_recovers_its_own_parameters() -> None:
    scores = np.linspace(-3, 3, 200)
    log_odds = 2 * log_expit(scores) - 0.5 * log_expit(-scores) + 1
    fitted = cr.Beta().fit(scores, cr.Evidence(expit(log_odds), np.ones(200)))
    assert fitted.parameters == pytest.approx({"a": 2, "b": 0.5, "c": 1})


def test_the_grid_stays_within_its_capacity() -> None:
    first, last = Grid.spanning(1.0, 2.0).keys(np.array([1.0, 2.0]))
    assert last - first < CAPACITY


def test_as_many_distinct_scores_as_the_capacity_are_kept_exactly() -> None:
    scores = np.arange(float(CAPACITY))
    even = cr.Summary.of(scores[::2], scores[::2] % 2)
    odd = cr.Summary.of(scores[1::2], scores[1::2] % 2)
    assert (even + odd).exact
    assert cr.Summary.of(np.tile(scores, 2), np.tile(scores, 2) % 2).exact


@pytest.mark.parametrize("weights", [None, [1.0, 2, 0.5, 3, 1, 2]])
def test_squared_residuals_of_bins_are_sums_over_rows(weights: list[float] | None) -> None:
    scores, labels = np.array([0.0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 0, 1])
    evidence = cr.ips(labels, [0.5, 0.4, 0.3, 1, 1, 0.2], weights=weights)
    probabilities = np.array([0.2, 0.5, 0.9])
    bins = scores.astype(int)
    residuals = evidence.positive - evidence.total * probabilities[bins]
    summary = cr.Summary.of(scores, evidence)
    expected = np.bincount(bins, residuals**2)
    np.testing.assert_allclose(summary.squared_residuals(probabilities), expected)


def test_a_score_on_an_edge_belongs_to_the_bin_above() -> None:
    histogram = cr.Histogram(bins=2).fit([0.0, 1, 1, 2], [0, 1, 0, 1])
    assert histogram.predict([1.0]) == pytest.approx(2 / 3)


def test_isotonic_edges_lie_halfway_between_scores() -> None:
    assert cr.Isotonic().fit([0.0, 1, 3, 4], [0, 0, 1, 1]).curve.edges == (2.0,)


def test_the_marginal_likelihood_of_bbq_is_beta_binomial() -> None:
    summary = cr.Summary.of(np.arange(-4.0, 4), [0, 0, 0, 1, 0, 0, 1, 1])
    model = _QuantileModel.of(summary, 2)
    ends = expit([-np.inf, -0.5, np.inf])
    prior = (ends[:-1] + ends[1:]) / 2
    positive = np.array([1, 2])
    expected = betaln(positive + prior, 4 - positive + 1 - prior) - betaln(prior, 1 - prior)
    assert model.log_marginal_likelihood == pytest.approx(expected.sum())


def test_equal_mass_bins_keep_ties_together() -> None:
    scores = np.repeat([0.0, 1.0], [3, 5])
    bins = _equal_mass_bins(cr.Summary.of(scores, scores), 2)
    np.testing.assert_array_equal(bins, [0, 1])


def test_unweighted_rows_are_all_effective() -> None:
    fitted = cr.BBQ(bins=(1,)).fit(np.arange(100.0), np.arange(100) % 2)
    assert fitted.curve.effective_rows[0] == pytest.approx(100, rel=0.05)


@pytest.mark.filterwarnings("ignore::calibrank.errors.FlatMapWarning")
def test_weighted_rows_are_effective_by_their_variance() -> None:
    labels = (np.arange(100) < 30).astype(float)
    evidence = cr.ips(labels, np.full(100, 0.5))
    fitted = cr.Histogram(bins=1).fit(np.arange(100.0), evidence)
    # 30 positives of mass 2: rate 0.6, squared residuals 30 * 1.4^2 + 70 * 0.6^2 = 84.
    assert fitted.curve.effective_rows[0] == pytest.approx(0.24 / (84 / 100**2))


@pytest.mark.filterwarnings("ignore::calibrank.errors.FlatMapWarning")
def test_intervals_of_steps_are_jeffreys_intervals() -> None:
    fitted = cr.Histogram(bins=1).fit(np.arange(100.0), np.arange(100) < 30)
    low, high = fitted.sampling_interval([5.0], level=0.9)
    np.testing.assert_allclose([low[0], high[0]], beta.ppf([0.05, 0.95], 30.5, 70.5))


@pytest.mark.parametrize("member", [cr.Platt(), cr.Gaussian(), cr.Temperature()], ids=repr)
def test_a_flat_map_rises_by_a_millionth_of_log_odds(member: Parametric) -> None:
    scores = np.linspace(-1, 2, 31)
    with pytest.warns(FlatMapWarning):
        flat = member.fit(scores, cr.Evidence(expit(-scores - 1), np.ones(31)))
    ends = np.array(member.basis.generators(np.array([-1.0, 2.0]), -1.0, 2.0, NumpyTarget()))
    rises = np.array(flat.curve.coefficients) * np.diff(ends)[:, 0]
    np.testing.assert_allclose(rises, 1e-6)


@pytest.mark.parametrize("member", [cr.Beta(), cr.Gaussian(), cr.Gamma()], ids=repr)
@pytest.mark.parametrize("width", [0.1, 50.0])
def test_coefficients_at_their_bound_are_named_whatever_their_generators_gain(
    member: Parametric, width: float
) -> None:
    scores = np.linspace(0, width, 40)
    with pytest.warns(FlatMapWarning):
        flat = member.fit(scores, np.arange(40) < 20)
    assert flat.record.at_bound == ("coefficient 0", "coefficient 1")
    rising = member.fit(scores, cr.Evidence(expit(4 * scores / width - 2), np.ones(40)))
    assert len(rising.record.at_bound) < 2


def test_the_optimality_residual_is_relative_to_the_rate() -> None:
    scores = np.linspace(-1, 1, 50)
    design = np.vstack([np.ones(50), scores])
    bounds = np.array([-np.inf, 0.0])
    problem = Problem(design, np.ones(50), design @ expit(scores - 1), bounds, rate=1e-6)
    solution = _newton(problem, np.zeros(2), 200)
    largest = np.abs(problem.gradient(solution.point)).max()
    assert largest / problem.rate == pytest.approx(solution.residual)


@pytest.mark.parametrize("rows", [4_000, 5_000, 20_000])
@pytest.mark.parametrize("member", FAMILIES, ids=repr)
def test_a_nearly_separable_table_of_any_size_is_solved(member: Parametric, rows: int) -> None:
    """Large problems start at the optimum of a pooled problem, which here does not exist."""
    scores = np.sort(np.random.default_rng(0).standard_normal(rows))
    labels = np.zeros(rows)
    labels[[-7, -5, -4, -3, -2, -1]] = 1
    assert member.fit(scores, labels).record.residual <= 1e-8


@pytest.mark.parametrize("method", [cr.Platt(), cr.Auto(), cr.Platt() + cr.Level("c")], ids=repr)
def test_a_sample_weight_is_a_number_of_equal_rows(method: Any) -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=400), rng.integers(0, 2, 400)
    weights, columns = rng.integers(1, 4, 400), rng.choice(["a", "b"], 400)
    rows = {"c": columns} if isinstance(method, cr.Model) else None
    weighted = method.fit(scores, labels, rows, weights)
    by_evidence = method.fit(scores, cr.naive(labels, weights=weights), rows)
    assert weighted.to_dict() == by_evidence.to_dict()
    with pytest.raises(cr.DataError, match=r"go with labels, got evidence\. Give weights to the"):
        method.fit(scores, cr.naive(labels), rows, sample_weight=weights)


@pytest.mark.parametrize("outlier", [-1e15, 1e15])
@pytest.mark.parametrize("rows", [400, 2_000, 100_000])
@pytest.mark.parametrize("member", [*FAMILIES, cr.Auto()], ids=repr)
def test_an_outlier_beside_which_scores_look_equal_gives_no_flat_curve(
    member: cr.Calibrator, rows: int, outlier: float
) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=rows)
    labels = rng.random(rows) < 1 / (1 + np.exp(-scores))
    at = [-1.0, 1.0]
    close = member.fit(scores[1:], labels[1:]).predict(at)
    scores[0], labels[0] = outlier, outlier > 0
    if not isinstance(member, cr.Auto):
        with pytest.raises(cr.FitError, match=r"beside which all others|drop outlying|no finite"):
            member.fit(scores, labels)
        return
    found = member.fit(scores, labels)
    assert found.method in {"Spline", "Isotonic"}
    np.testing.assert_allclose(found.predict(at), close, atol=0.15)


@pytest.mark.parametrize("member", FAMILIES, ids=repr)
def test_beside_a_smaller_outlier_the_curve_is_that_of_the_others(member: Parametric) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2_000)
    labels = rng.random(2_000) < 1 / (1 + np.exp(-scores))
    scores[0], labels[0] = -1e4, False
    close = member.fit(scores, labels).predict([-1.0, 1.0])
    np.testing.assert_allclose(close, 1 / (1 + np.exp([1.0, -1.0])), atol=0.05)


def test_a_function_that_is_saturated_at_most_scores_is_no_outlier() -> None:
    rng = np.random.default_rng(0)
    scores = rng.uniform(30, 40, 2_000)
    scores[:5] = rng.uniform(-1, 1, 5)
    labels = rng.random(2_000) < 1 / (1 + np.exp(35 - scores))
    close = cr.Beta().fit(scores, labels).predict([34.0, 36.0])
    np.testing.assert_allclose(close, 1 / (1 + np.exp([1.0, -1.0])), atol=0.05)


@pytest.mark.parametrize("member", [cr.Platt(), cr.Gaussian(), cr.Temperature(), cr.MinMax()])
def test_an_outlier_that_decides_on_the_map_is_named(member: cr.Calibrator) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=30_000)
    labels = rng.random(30_000) < 1 / (1 + np.exp(-2 * scores))
    scores[0], labels[0] = 4e3, False
    with pytest.warns(FlatMapWarning, match="decide on the") as found:
        member.fit(scores, labels)
    assert found[-1].filename == __file__


def test_a_spline_that_padding_decides_on_is_not_told_to_use_a_spline() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    labels = rng.random(20_000) < 1 / (1 + np.exp(2 - 1.2 * scores))
    scores[rng.random(20_000) < 0.2] = -1e9
    with pytest.warns(FlatMapWarning, match=r"Drop outlying scores \(padding is no score\)\."):
        cr.Spline().fit(scores, labels)


def test_few_rows_of_padding_that_nobody_likes_raise_no_alarm() -> None:
    """Without the padding a spline of 500 rows differs, but no more than by chance."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=500)
        labels = rng.random(500) < 1 / (1 + np.exp(2 - 1.2 * scores))
        padded = rng.random(500) < 0.5
        scores[padded], labels[padded] = -1e9, False
        cr.Spline().fit(scores, labels)


def test_temperature_refuses_an_outlier_beside_which_score_0_has_no_place() -> None:
    rng = np.random.default_rng(0)
    scores = np.append(rng.normal(size=30_000), -1e15)
    labels = np.append(rng.random(30_000) < 0.5, False)
    with pytest.raises(cr.FitError, match="outliers beside which all others look equal"):
        cr.Temperature().fit(scores, labels)


def test_a_histogram_of_which_one_bin_has_nearly_all_scores_warns() -> None:
    rng = np.random.default_rng(0)
    scores = np.append(rng.normal(size=400), -1e6)
    labels = np.append(rng.random(400) < 1 / (1 + np.exp(-2 * scores[:400])), False)
    with pytest.warns(FlatMapWarning, match="98% of the distinct scores lie") as found:
        cr.Histogram().fit(scores, labels)
    assert found[0].filename == __file__
