"""Spline calibration: optimality, smoothness, defining properties."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.curves._monotone import SMALLEST_INCREMENT, minimize
from calibrank.curves.spline import _dispersion, _Frame, _log_marginal_likelihood, _peak
from calibrank.data import make_world


def log_loss(fitted: cr.CalibrationMap, scores: np.ndarray, rates: np.ndarray) -> float:
    return cr.LogLoss()(fitted.predict(scores), cr.Evidence(rates, np.ones_like(rates)))


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 1e3])
def test_no_feasible_change_lowers_the_penalized_loss(penalty: float) -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=400)
    labels = (rng.random(400) < 1 / (1 + np.exp(1 - np.sin(3 * scores)))).astype(float)
    summary = cr.Summary.of(scores, labels)
    frame = _Frame.of(summary, 20)
    problem = frame.penalized(
        frame.problem(summary.scores, summary.positive, summary.total), penalty
    )
    optimum = minimize(problem)
    assert optimum.residual < 1e-9
    best = problem.loss(optimum.unknowns)
    for _ in range(300):
        step = rng.normal(size=len(optimum.unknowns)) * 10.0 ** rng.uniform(-6, 0)
        other = optimum.unknowns + step
        other[1:] = np.maximum(other[1:], SMALLEST_INCREMENT)
        assert problem.loss(other) >= best - 1e-9 * abs(best)


def test_normal_scores_with_a_linear_truth_give_a_line() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    labels = rng.random(20_000) < 1 / (1 + np.exp(2 - scores))
    spline = cr.Spline().fit(scores, labels)
    line = cr.Platt().fit(scores, labels)
    inner = np.linspace(-2.5, 2.5, 51)
    assert np.abs(spline.log_odds(inner) - line.log_odds(inner)).max() < 0.15


@pytest.mark.parametrize("transform", [np.exp, np.arctan, lambda x: x**3, lambda x: x + 1e6])
def test_a_monotone_transform_of_the_scores_changes_little(transform: object) -> None:
    """Knots and roughness depend on ranks; only interpolation between knots sees the scale."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=5_000)
    labels = rng.random(5_000) < 1 / (1 + np.exp(1 - 2 * np.tanh(scores)))
    plain = cr.Spline().fit(scores, labels).predict(scores)
    moved = cr.Spline().fit(transform(scores), labels).predict(transform(scores))
    assert np.abs(plain - moved).mean() < 0.004


def test_scores_that_pile_up_are_followed_where_a_quadratic_cannot() -> None:
    rng = np.random.default_rng(2)
    ranks = rng.random(30_000)
    scores = np.where(ranks < 0.9, 1e-3 * ranks, ranks**8)
    rates = 0.02 + 0.5 * ranks**2
    labels = (rng.random(30_000) < rates).astype(float)
    spline = cr.Spline().fit(scores, labels)
    quadratic = cr.Gaussian().fit(scores, labels)
    best = log_loss(cr.Isotonic().fit(scores, rates.round()), scores, rates)
    assert log_loss(spline, scores, rates) < log_loss(quadratic, scores, rates) - 0.005
    assert np.abs(spline.predict(scores) - rates).mean() < 0.02
    assert np.isfinite(best)


def test_inverse_propensity_evidence_is_smoothed_more_than_labels() -> None:
    world = make_world(60_000, seed=4)
    fitted = cr.Spline().fit(world.scores, cr.ips(world.labels, world.propensity))
    error = np.abs(fitted.predict(world.scores) - world.probability(world.scores)).mean()
    assert error < 0.01
    assert fitted.record.residual < 1e-9


def test_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(5)
    grid = np.linspace(-1.5, 1.5, 21)
    covered = []
    for _ in range(30):
        scores = rng.normal(size=2_000)
        labels = rng.random(2_000) < 1 / (1 + np.exp(2 - 2 * np.tanh(scores)))
        low, high = cr.Spline().fit(scores, labels).sampling_interval(grid)
        truth = 1 / (1 + np.exp(2 - 2 * np.tanh(grid)))
        covered.append(((low <= truth) & (truth <= high)).mean())
    assert 0.88 < np.mean(covered) <= 1


def test_knots_must_be_a_usable_number() -> None:
    with pytest.raises(cr.DataError, match="knots must be a whole number, 3 to 500, got 2"):
        cr.Spline(knots=2)


def test_no_optimum_is_an_error_as_with_platt() -> None:
    for method in (cr.Spline(), cr.Platt()):
        with pytest.raises(cr.FitError, match="no finite best fit exists"):
            method.fit([0.0, 1, 2, 3], [0, 0, 1, 1])


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_curves_that_lie_at_most_of_their_bounds_are_fitted(seed: int) -> None:
    """Scores that hardly tell anything, with dependent rows: projected Newton steps jam here."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(30), 80)
    scores = np.round(rng.normal(size=30)[group] + rng.normal(size=2400), 4)
    uniform = rng.random(2400)
    level = rng.normal(0, 1, 30)[group]
    labels = uniform < 1 / (1 + np.exp(-(0.02 * scores + level)))
    fitted = cr.Spline().fit(scores, labels)
    assert fitted.record.residual is not None
    assert fitted.record.residual < 1e-7
    assert fitted.predict(scores).mean() == pytest.approx(labels.mean(), abs=1e-6)


def test_the_residual_is_that_of_the_returned_point() -> None:
    rng = np.random.default_rng(2)
    scores = np.sort(rng.normal(size=2000))
    labels = (rng.random(2000) < 0.4).astype(float)
    summary = cr.Summary.of(scores, labels)
    frame = _Frame.of(summary, 50)
    problem = frame.penalized(
        frame.problem(summary.scores, summary.positive, summary.total), 1000.0
    )
    optimum = minimize(problem)
    gradient = problem.gradient(optimum.unknowns)
    gradient[(optimum.unknowns <= SMALLEST_INCREMENT) & (gradient > 0)] = 0
    gradient[0] = problem.gradient(optimum.unknowns)[0]
    assert np.abs(gradient).max() / summary.positive.sum() == pytest.approx(optimum.residual)


def test_few_points_do_not_determine_the_dispersion() -> None:
    scores = np.arange(19.0)
    labels = np.tile([0.0, 1.0], 10)[:19]
    frame = _Frame.of(cr.Summary.of(scores, labels), 5)
    problem = frame.problem(scores, labels, np.ones(19))
    assert _dispersion(problem, minimize(frame.penalized(problem, 1.0))) == 1.0
    more = np.append(scores, 19.0)
    labels = np.append(labels, 1.0)
    problem = frame.problem(more, labels, np.ones(20))
    assert _dispersion(problem, minimize(frame.penalized(problem, 1.0))) != 1.0


def test_the_penalty_lies_at_the_top_of_a_parabola() -> None:
    x = np.array([2.0, 1.5, 1.0, 0.5])
    assert _peak(x, -((x - 1.2) ** 2)) == pytest.approx(1.2)
    assert _peak(x, x) == 2.0
    assert _peak(x, -x) == 0.5
    assert _peak(x, np.array([0.0, 1.0, 1.0, 0.0])) == pytest.approx(1.25)


def test_two_scores_have_two_knots() -> None:
    fitted = cr.Spline().fit([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], [0, 0, 1, 0, 1, 1])
    assert fitted.curve.knots == (0.0, 1.0)
    np.testing.assert_allclose(fitted.predict([0.0, 1.0]), [1 / 3, 2 / 3], atol=1e-6)


def test_a_record_has_the_quantiles_of_the_scores_every_half_percent() -> None:
    scores = np.arange(2_000.0)
    fitted = cr.Spline().fit(scores, (np.arange(2_000) % 3 == 0) | (scores > 1_500))
    found = fitted.record.score_quantiles
    np.testing.assert_array_equal(found, [0, *np.arange(9, 1_990, 10), 1_999])


@pytest.mark.parametrize("penalty", [1e-20, 1.0, 1e6])
def test_the_marginal_likelihood_has_the_volumes_of_prior_and_posterior(penalty: float) -> None:
    """Whatever the unit of the penalty: all but level and slope have a prior."""
    summary = cr.Summary.of(np.arange(30.0), np.arange(30) * 7 % 30 > 14)
    frame = _Frame.of(summary, 4)
    problem = frame.penalized(frame.problem(summary.scores, summary.positive, summary.total), 1.0)
    optimum = minimize(problem)
    scaled = frame.penalized(problem, penalty)
    root = scaled.penalty_root
    volumes = np.linalg.slogdet(root @ root.T / 2)[1] / 2
    volumes -= np.linalg.slogdet(scaled.hessian(optimum.unknowns) / 2)[1] / 2
    expected = volumes - scaled.loss(optimum.unknowns) / 2
    found = _log_marginal_likelihood(frame, scaled, optimum, penalty / 2, 2.0)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("outlier", [-1e15, 1e15, -1e6])
@pytest.mark.parametrize("label", [0, 1])
def test_beside_an_outlier_the_curve_is_that_of_the_others(outlier: float, label: int) -> None:
    """At the ends, too: a line from the outlier to the next knot is constant over those there."""
    rng = np.random.default_rng(4)
    scores = rng.normal(size=50_000)
    labels = (rng.random(50_000) < 1 / (1 + np.exp(-scores))).astype(float)
    alone = cr.Spline().fit(scores, labels)
    beside = cr.Spline().fit(np.append(scores, outlier), np.append(labels, label))
    ends = np.linspace(*np.quantile(scores, [1e-4, 1 - 1e-4]), 41)
    # One contrary label beyond all others may count for as much; log odds were off by 1.6.
    assert np.abs(beside.log_odds(ends) - alone.log_odds(ends)).max() < 0.5
