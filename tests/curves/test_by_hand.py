"""Steps of the fits against results that were computed by hand."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.curves import random_intercept
from calibrank.curves._averaged_curves import matching_level
from calibrank.curves._covariate_columns import NumberBlock, NumberColumn, _hat_moments
from calibrank.curves._design import Group
from calibrank.curves._grouped_rows import GroupedRows
from calibrank.curves._mixed_model import fit_mixed_model
from calibrank.curves._monotone import minimize
from calibrank.curves._segment_cells import SegmentCells
from calibrank.curves.calibrator import Calibrator
from calibrank.curves.covariates import _groups
from calibrank.curves.isotonic import _evenly, _without_extremes
from calibrank.curves.segments import _Parents
from calibrank.curves.spline import (
    _as_map,
    _dispersion,
    _end_slope,
    _Frame,
    _pooled,
    _roughness,
)
from calibrank.evidence import soft_evidence
from calibrank.maps import CalibrationMap
from calibrank.maps.grouped import Segment
from calibrank.maps.record import FitRecord
from calibrank.summary import Summary

SCORES = np.linspace(-2, 2, 40)
LABELS = (np.arange(40) * 7 % 40 < np.arange(40)).astype(float)


def test_products_of_neighbouring_knots_lie_beside_the_diagonal() -> None:
    # At 0.25 the first two knots weigh 3/4 and 1/4; at 2 the third weighs all; at 4 (beyond) too.
    x, weights = np.array([0.25, 2.0, 4.0]), np.array([1.0, 2.0, 1.0])
    means, products = _hat_moments(x, np.array([0.0, 1.0, 2.0]), weights)
    assert means.tolist() == [0.75, 0.25, 3.0]
    expected = [[0.5625, 0.1875, 0], [0.1875, 0.0625, 0], [0, 0, 3]]
    assert products.tolist() == expected


def test_columns_of_a_function_are_centred_and_of_unit_spread() -> None:
    x, total = np.arange(9.0) ** 2, np.arange(1.0, 10.0)
    line = NumberBlock.of(NumberColumn("x", x), total, 5, smooth=False)
    assert line.groups(3) == [Group(slice(3, 4))]
    curve = NumberBlock.of(NumberColumn("x", x), total, 5, smooth=True)
    assert curve.knots.tolist() == [0, 4, 16, 36, 64]
    rate = curve.groups(3)[1].rate
    assert curve.groups(3) == [Group(slice(3, 4)), Group(slice(4, 7), rate)]
    for block in (line, curve):
        columns = block.columns(slice(0, 9))
        np.testing.assert_allclose(total @ columns, 0, atol=1e-12)
        spreads = np.sqrt(total @ columns**2 / total.sum())
        assert spreads[0] == pytest.approx(1)
        # The deviations share a scale.
        assert len(spreads) == 1 or spreads[1:].mean() == pytest.approx(1)
    # The first column is a line through the rows, the others have one second difference each.
    share = total / 45
    centred = x - share @ x
    expected = centred / np.sqrt(share @ centred**2)
    np.testing.assert_allclose(line.columns(slice(0, 9))[:, 0], expected)
    seconds = np.diff(curve.to_values[:, 1:], n=2, axis=0)
    np.testing.assert_allclose(seconds, seconds[0, 0] * np.eye(3), atol=1e-12)


def test_level_and_slope_have_priors_of_their_own_where_the_curve_is_shrunk() -> None:
    assert _groups([], shrink_curve=True) == [Group(slice(0, 1)), Group(slice(1, 2))]
    assert _groups([], shrink_curve=False) == []


def test_roughness_is_the_integral_of_the_squared_second_derivative() -> None:
    # The curve 0, 1, 4 at 0, 1, 3: slopes 1 and 3/2, over a length of (1 + 2) / 2.
    root = _roughness(np.array([0.0, 1.0, 3.0]))
    assert root.shape == (1, 3)
    value = float((root @ np.array([0.0, 1.0, 3.0]))[0])
    assert value**2 == pytest.approx(((1.5 - 1.0) / 1.5) ** 2 * 1.5)


def test_runs_of_bins_have_equal_mass_and_their_mean_score(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    record = FitRecord("naive", 3, 1.0, 3.0, exact=True)
    covariance = np.diag([0.04, -1e-18, 0.25])
    knots, log_odds = np.array([0.0, 1.0, 2.0]), np.array([-1.0, 0.0, 2.0])
    fitted = _as_map("Spline", knots, log_odds, covariance, record)
    assert fitted.value_errors == pytest.approx((0.2, 0.0, 0.5))
    assert fitted.end_slopes == (1.0, 2.0)


def test_blocks_of_one_class_get_jeffreys_estimates_in_order() -> None:
    shrunk = _without_extremes(np.array([0.0, 0.5, 1.0]), np.array([4.0, 2.0, 9.0]))
    assert shrunk.tolist() == [0.1, 0.5, 0.95]
    # Neighbours that are closer than the estimate bound it.
    shrunk = _without_extremes(np.array([0.0, 0.1, 0.99, 1.0]), np.array([1.0, 9.0, 9.0, 1.0]))
    assert shrunk.tolist() == [0.05, 0.1, 0.99, 0.995]
    assert _without_extremes(np.array([0.0]), np.array([1.0])).tolist() == [0.25]
    assert _without_extremes(np.array([1.0]), np.array([1.0])).tolist() == [0.75]


def test_knots_are_thinned_evenly_with_both_ends() -> None:
    assert _evenly(3, 3).tolist() == [0, 1, 2]
    assert _evenly(9, 3).tolist() == [0, 4, 8]


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


def test_the_level_reaches_rates_near_one() -> None:
    # All but half a row are positive: the level must be such that the mean probability says so.
    evidence = cr.Evidence(np.r_[np.ones(9), 0.5], np.ones(10), "given")
    rows = GroupedRows(np.zeros(10), evidence, np.arange(10), tuple(range(10)))
    level = matching_level(np.zeros(10), 1e-3, rows)
    assert 1 / (1 + np.exp(-level)) == pytest.approx(0.95, abs=1e-6)


@pytest.mark.parametrize(("far", "bound"), [(60, -50), (-200, 50)])
def test_intercepts_of_the_random_intercept_model_are_bounded(far: float, bound: float) -> None:
    # A curve this far from the labels needs a level that no probability needs.
    model = fit_mixed_model(far + SCORES, LABELS, np.ones(40), np.arange(40) % 8)
    assert model.intercept == bound


def test_candidates_of_a_random_intercept_start_with_the_constant() -> None:
    rows = GroupedRows.of(SCORES, LABELS, np.arange(40) % 10)
    constant = cr.RandomIntercept()._curves(rows)[random_intercept.CONSTANT]
    np.testing.assert_allclose(constant.probabilities(SCORES), LABELS.mean())


def test_segments_start_from_their_parents() -> None:
    top = _Parents.of({}, [("a",), ("b",)])
    assert (top.intercepts.tolist(), top.slopes.tolist()) == ([0, 0], [1, 1])
    keys = [("a",), ("a", "b")]
    segments = Segment.trusted(keys, [0.5, 0.25], [2.0, 3.0], [0.1, 0.1], [7, 8])
    found = dict(zip(keys, segments, strict=True))
    below = _Parents.of(found, [("a", "b", "c"), ("a", "b", "d")])
    assert (below.intercepts.tolist(), below.slopes.tolist()) == ([0.25, 0.25], [3, 3])


@pytest.mark.parametrize(
    ("intercepts", "slopes", "expected"),
    [
        ([0.0, 0.0], [1.0, 1.0], [1, 2, 4]),
        ([0.0, 0.0], [2.0, 3.0], [2, 4, 12]),
        ([0.5, 0.0], [1.0, 1.0], [1.5, 2.5, 4]),
        ([0.5, 1.0], [2.0, 1.0], [2.5, 4.5, 5]),
    ],
)
def test_cells_have_the_log_odds_of_their_parent(
    intercepts: list[float], slopes: list[float], expected: list[float]
) -> None:
    column, log_odds = np.ones(3), np.array([1.0, 2.0, 4.0])
    cells = SegmentCells(column, column, log_odds, np.array([0, 2, 3]), np.ones((3, 2)))
    parents = _Parents(np.array(intercepts), np.array(slopes))
    assert parents.log_odds_of(cells).tolist() == expected


class Failing(cr.Isotonic):
    """Fits once; on coarser bins there is no optimum."""

    def _fit(self, summary: Summary) -> CalibrationMap:
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
    with pytest.warns(cr.PooledScoresWarning, match="may be off by up to 1 on average"):
        fitted = calibrator.fit_summary(summary)
    assert fitted.record.pooling_error == 1


def test_warnings_point_at_the_line_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=70_000)
    falling = (rng.random(70_000) < 1 / (1 + np.exp(scores))).astype(float)
    with pytest.warns(cr.FlatMapWarning) as flat:
        cr.Platt().fit(scores[:500], falling[:500])
    group = np.arange(400) % 20
    with pytest.warns(cr.FlatMapWarning) as constant:
        cr.RandomIntercept((cr.Platt(),), folds=2).fit(scores[:400], falling[:400], group)
    monkeypatch.setattr("calibrank.curves.calibrator.POOLING_TOLERANCE", 0.0)
    with pytest.warns(cr.PooledScoresWarning) as pooled:
        cr.Platt().fit(scores, 1 - falling)
    for caught in (flat, constant, pooled):
        assert [each.filename for each in caught] == [__file__]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], (2, 5)),
        ([(0, 2), (1, 3), (2, 4)], (0, 4)),
        ([(0, 2), (1, 3), (1.5, 4)], (1.5, 2)),
        ([(1, 1), (2, 2), (3, 3)], (1, 3)),
    ],
)
def test_three_groups_reach_the_supported_scores(
    ends: list[tuple[float, float]], expected: tuple[float, float]
) -> None:
    """Where no range is left between the third lowest and the third highest, it is the whole."""
    scores = np.array(ends, dtype=float).ravel()
    rows = GroupedRows.of(scores, np.arange(len(scores)) % 2, np.arange(len(scores)) // 2)
    assert rows.supported_range() == expected
