"""Steps of the fits against results that were computed by hand."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.curves._monotone import minimize
from calibrank.curves.calibrator import Calibrator
from calibrank.curves.spline import (
    _as_curve,
    _dispersion,
    _end_slope,
    _Frame,
    _peak,
    _pooled,
    _roughness,
)
from calibrank.errors import FlatMapWarning, PooledScoresWarning
from calibrank.evidence import soft_evidence
from calibrank.maps import Curve
from calibrank.summary import Summary

SCORES = np.linspace(-2, 2, 40)
LABELS = (np.arange(40) * 7 % 40 < np.arange(40)).astype(float)


def test_roughness_is_the_integral_of_the_squared_second_derivative() -> None:
    # The curve 0, 1, 4 at 0, 1, 3: slopes 1 and 3/2, over a length of (1 + 2) / 2.
    root = _roughness(np.array([0.0, 1.0, 3.0]))
    assert root.shape == (1, 3)
    value = float((root @ np.array([0.0, 1.0, 3.0]))[0])
    assert value**2 == pytest.approx(((1.5 - 1.0) / 1.5) ** 2 * 1.5)


def test_runs_of_bins_have_equal_mass_and_their_mean_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrank.curves.spline._MOST_POINTS", 2)
    labels, weights = [0, 1, 1, 0], [1.0, 1.0, 1.0, 1.0]
    summary = Summary.of([0.0, 1.0, 4.0, 8.0], cr.naive(labels, weights=weights))
    scores, positive, total = _pooled(summary)
    assert scores.tolist() == [0.5, 6.0]
    assert (positive.tolist(), total.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_dispersion_is_the_mean_squared_standardized_residual() -> None:
    frame = _Frame.of(Summary.of(SCORES, LABELS), 5)
    total = np.full(40, 3.0)
    problem = frame.problem(SCORES, 3 * LABELS, total)
    optimum = minimize(frame.penalized(problem, 1e9))
    p = problem.probabilities(optimum.unknowns)
    expected = ((3 * LABELS - 3 * p) ** 2 / (3 * p * (1 - p))).sum() / 38
    assert _dispersion(problem, optimum) == pytest.approx(expected)


def test_steps_are_counted_one_by_one() -> None:
    frame = _Frame.of(Summary.of(SCORES, LABELS), 5)
    problem = frame.penalized(frame.problem(SCORES, LABELS, np.ones(40)), 1.0)
    optimum = minimize(problem)
    assert minimize(problem, optimum.unknowns).iterations == 1


def test_the_slope_beyond_an_end_is_the_smaller_of_two() -> None:
    knots, covariance = np.array([0.0, 1.0, 3.0]), np.diag([0.04, 1.0, 0.05])
    covariance[0, 2] = covariance[2, 0] = 0.01
    # The outermost segment rises by 2, the whole by 3/2: its error is sqrt(.04 + .05 - .02) / 3.
    slope, error = _end_slope(knots, np.array([0.0, 2.0, 4.5]), covariance, 0, 1, 2)
    assert slope == 1.5
    assert error == pytest.approx(np.sqrt(0.07) / 3)
    slope, _ = _end_slope(knots, np.array([0.0, 1.0, 4.5]), covariance, 0, 1, 2)
    assert slope == 1


def test_errors_of_a_spline_are_the_roots_of_its_variances() -> None:
    covariance = np.diag([0.04, -1e-18, 0.25])
    knots, log_odds = np.array([0.0, 1.0, 2.0]), np.array([-1.0, 0.0, 2.0])
    curve = _as_curve(knots, log_odds, covariance)
    assert curve.value_errors == pytest.approx((0.2, 0.0, 0.5))
    assert curve.end_slopes == (1.0, 2.0)


def test_soft_labels_are_mixtures_of_a_positive_and_a_negative() -> None:
    mixed = soft_evidence(cr.impressions, [0.25, 0.5], [0.5, 0.25], [2.0, 1.0])
    assert mixed.positive.tolist() == [1.0, 2.0]
    assert mixed.total.tolist() == [4.0, 4.0]


def test_rounding_of_evidence_makes_no_optimum() -> None:
    # Scores separate the classes; a mass that is off by rounding does not change that.
    evidence = cr.Evidence(np.array([0.0, 1 - 1e-15]), np.ones(2), "given")
    with pytest.raises(cr.FitError, match="the best T is 0"):
        cr.Temperature().fit([-1e10, 1e10], evidence)
    evidence = cr.Evidence(np.array([0.0, 1 - 1e-6]), np.ones(2), "given")
    assert cr.Temperature().fit([-1e10, 1e10], evidence).predict(1e10) < 1


class Failing(cr.Isotonic):
    """Fits once; on coarser bins there is no optimum."""

    def _fit(self, summary: Summary) -> tuple[Curve, dict[str, object]]:
        if summary.bits < self.finest:
            raise cr.FitError("no optimum")
        return super()._fit(summary)

    finest = 0


def test_an_error_of_pooling_that_cannot_be_estimated_is_not_zero() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=80_000)
    summary = Summary.of(scores, rng.random(80_000) < 0.3)
    assert not summary.exact
    calibrator: Calibrator = Failing()
    Failing.finest = summary.bits
    with pytest.warns(PooledScoresWarning, match="may be off by up to 1 on average"):
        fitted = calibrator.fit_summary(summary)
    assert fitted.record.pooling_error == 1


def test_warnings_point_at_the_line_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=70_000)
    falling = (rng.random(70_000) < 1 / (1 + np.exp(scores))).astype(float)
    with pytest.warns(FlatMapWarning) as flat:
        cr.Platt().fit(scores[:500], falling[:500])
    group = np.arange(400) % 20
    with pytest.warns(FlatMapWarning) as constant:
        (cr.Platt() + cr.Group("q", folds=2)).fit(scores[:400], falling[:400], {"q": group})
    monkeypatch.setattr("calibrank.curves.calibrator.POOLING_TOLERANCE", 0.0)
    with pytest.warns(PooledScoresWarning) as pooled:
        cr.Platt().fit(scores, 1 - falling)
    for caught in (flat, constant, pooled):
        assert [each.filename for each in caught] == [__file__]


def test_a_peak_is_that_of_the_parabola_through_three_points() -> None:
    x = np.arange(4.0, -1, -0.5)
    for peak in (0.3, 1.6, 2.1):
        assert _peak(x, 7 - 3 * (x - peak) ** 2) == pytest.approx(peak)
    # At an end it is the end, and of equal values the first.
    assert (_peak(x, x), _peak(x, -x), _peak(x, 0 * x)) == (4.0, -0.5, 4.0)
