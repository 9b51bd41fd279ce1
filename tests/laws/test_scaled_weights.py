"""Only ratios of weights matter: tiny weights give the fits and metrics of ordinary ones."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.curves import Calibrator
from calibrank.curves._monotone import minimize
from calibrank.curves.spline import _dispersion, _Frame
from calibrank.metrics import Metric, multicalibration_test
from calibrank.terms._groups import GroupedRows
from calibrank.terms.group import matching_level
from tests.members import CALIBRATORS, METRICS

# A power of two, so that no sum is rounded differently.
TINY = 2.0**-40
RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=300).round(1)
# The last group has two thirds of the rows.
GROUP = np.minimum(np.arange(300) % 40, 13)
PROBABILITIES = 1 / (1 + np.exp(0.5 - SCORES - 0.2 * GROUP / 13))
LABELS = (RNG.random(300) < PROBABILITIES).astype(float)
WEIGHTS = RNG.integers(1, 4, 300).astype(float)
COLUMNS = {"group": GROUP.astype(str), "x": np.cos(GROUP)}
# What these compare with the masses, a prior or half a row, is in units of rows.
COUNTING = (cr.BBQ,)


def evidence(factor: float = 1.0) -> cr.Evidence:
    return cr.naive(LABELS, weights=factor * WEIGHTS)


@pytest.mark.parametrize(
    "member", [each for each in CALIBRATORS if not isinstance(each, COUNTING)], ids=repr
)
def test_a_fit_does_not_depend_on_the_unit_of_weights(member: Calibrator) -> None:
    expected = member.fit(SCORES, evidence())
    found = member.fit(SCORES, evidence(TINY))
    np.testing.assert_allclose(found.predict(SCORES), expected.predict(SCORES), rtol=1e-9)
    assert found.record.iterations == expected.record.iterations
    assert found.record.at_bound == expected.record.at_bound


def test_a_penalized_fit_scales_with_its_masses_and_its_penalty() -> None:
    summary = cr.Summary.of(SCORES, evidence())
    frame = _Frame.of(summary, 8)
    columns = (summary.positive, summary.total)
    problem = frame.problem(summary.scores, *columns)
    scaled = frame.problem(summary.scores, *[TINY * column for column in columns])
    expected = minimize(frame.penalized(problem, 0.5))
    found = minimize(frame.penalized(scaled, 0.5 * TINY))
    np.testing.assert_allclose(found.unknowns, expected.unknowns, rtol=1e-9)
    assert found.iterations == expected.iterations
    assert found.residual == pytest.approx(expected.residual, abs=1e-12)
    dispersion = _dispersion(problem, expected)
    assert _dispersion(scaled, found) == pytest.approx(TINY * dispersion)


@pytest.mark.parametrize("slopes", [False, True])
def test_levels_do_not_depend_on_the_unit_of_weights(slopes: bool) -> None:
    model = cr.Platt() + cr.Level("group", slopes=slopes)
    (expected,) = model.fit(SCORES, evidence(), COLUMNS).terms
    (found,) = model.fit(SCORES, evidence(TINY), COLUMNS).terms
    np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=1e-7)
    np.testing.assert_allclose(found.slopes, expected.slopes, rtol=1e-7)
    assert found.spreads == pytest.approx(expected.spreads)


def test_joint_fits_do_not_depend_on_the_unit_of_weights() -> None:
    model = cr.Platt() + cr.Level("group") + cr.Smooth("x", knots=4)
    expected = model.fit(SCORES, evidence(), COLUMNS)
    found = model.fit(SCORES, evidence(TINY), COLUMNS)
    np.testing.assert_allclose(found.terms[0].intercepts, expected.terms[0].intercepts, atol=1e-7)
    np.testing.assert_allclose(found.terms[1].values, expected.terms[1].values, atol=1e-7)
    np.testing.assert_allclose(
        found.predict(SCORES, COLUMNS), expected.predict(SCORES, COLUMNS), atol=1e-7
    )
    assert found.record.residual == pytest.approx(expected.record.residual, abs=1e-9)


def test_levels_and_caps_of_groups_do_not_depend_on_the_unit_of_weights() -> None:
    expected = GroupedRows.of(SCORES, evidence(), GROUP)
    found = GroupedRows.of(SCORES, evidence(TINY), GROUP)
    level = matching_level(SCORES, 0.5, expected)
    assert matching_level(SCORES, 0.5, found) == pytest.approx(level, abs=1e-8)
    capped = expected.capped().total / expected.total
    assert capped.min() < 0.95
    np.testing.assert_allclose(found.capped().total / found.total, capped, rtol=1e-9)


@pytest.mark.parametrize("metric", METRICS, ids=repr)
def test_a_metric_does_not_depend_on_the_unit_of_weights(metric: Metric) -> None:
    expected = metric(PROBABILITIES, evidence(), users=GROUP)
    assert metric(PROBABILITIES, evidence(TINY), users=GROUP) == pytest.approx(expected, rel=1e-9)


def test_tests_do_not_depend_on_the_unit_of_weights() -> None:
    for factor in (TINY, 1 / TINY):
        found = cr.calibration_test(PROBABILITIES, evidence(factor), users=GROUP)
        assert found == pytest.approx(cr.calibration_test(PROBABILITIES, evidence(), users=GROUP))
    segments = {"group": GROUP, "row": np.arange(300) % 3}
    expected = multicalibration_test(PROBABILITIES, evidence(), segments, users=GROUP)
    found = multicalibration_test(PROBABILITIES, evidence(TINY), segments, users=GROUP)
    assert found.error == pytest.approx(expected.error)
    assert [each.p_value for each in found.segments] == [each.p_value for each in expected.segments]
