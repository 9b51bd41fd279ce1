"""Curves and terms against other formulas: the paper's, line equations, numeric derivatives."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, norm

import calibrank as cr
from calibrank._internal import native
from calibrank._internal.logit import expit, logit
from calibrank.maps import (
    LevelTerm,
    LogisticCurve,
    PiecewiseCurve,
    PositionTerm,
    RescaleCurve,
    SmoothTerm,
    StepCurve,
    Term,
)
from calibrank.maps.basis import Basis, Linear, Log, LogQuadratic, Quadratic, Softplus
from calibrank.maps.curve import BLOCK
from calibrank.maps.level import SlopeErrors
from calibrank.maps.logistic import Deviation
from tests.maps.samples import level_term, logistic_map, map_of, position_term, smooth_term

RNG = np.random.default_rng(0)
BASES = [Linear(), Quadratic(), Log(0.1), LogQuadratic(0.1), Softplus()]
every_basis = pytest.mark.parametrize("basis", BASES, ids=lambda basis: basis.kind)
Z = float(norm.ppf(0.975))
LINES = PiecewiseCurve((-1.0, 0.0, 2.0), (-3.0, -1.0, 0.5), (1.0, 0.1), (0.1, 0.2, 0.4), (0.5, 0.6))
STEPS = StepCurve((0.0, 1.0, 3.0), (0.0, 0.2, 0.7, 1.0), (5.0, 8.0, 0.0, 2.5))


def with_errors(basis: Basis, low: float = -1.0, high: float = 3.0) -> LogisticCurve:
    """A curve with a covariance of full rank, and a deviation."""
    curve = logistic_map(basis, low, high).curve
    assert isinstance(curve, LogisticCurve)
    size = len(basis.parameters)
    root = RNG.normal(size=(size, size)) / 10
    covariance = tuple(tuple(row) for row in (root @ root.T).tolist())
    deviation = Deviation((-0.5, 2.0), (0.1, -0.2), (0.05, 0.3))
    return replace(curve, covariance=covariance, deviation=deviation)


def formula(curve: LogisticCurve, scores: np.ndarray) -> np.ndarray:
    """That of the paper, by the names of its parameters."""
    of = curve.parameters
    if isinstance(curve.basis, Softplus):
        p = expit(scores)
        return of["a"] * np.log(p) - of["b"] * np.log(1 - p) + of["c"]
    if isinstance(curve.basis, Linear):
        return of["b"] * scores + of["c"]
    if isinstance(curve.basis, Quadratic):
        return of["a"] * scores**2 + of["b"] * scores + of["c"]
    # The logarithm starts a margin below the low end of the range.
    s = scores - (curve.low - curve.basis.margin * (curve.high - curve.low))
    if isinstance(curve.basis, Log):
        return of["a"] * np.log(s) + of["b"] * s + of["c"]
    return of["a"] * s**2 + of["b"] * s + of["b'"] * np.log(s) + of["c"]


@every_basis
def test_parameters_are_those_of_the_formula(basis: Basis) -> None:
    curve = logistic_map(basis, -1.0, 3.0).curve
    scores = np.linspace(-1, 3, 41)
    np.testing.assert_allclose(curve.log_odds(scores), formula(curve, scores), atol=1e-12)


@every_basis
@pytest.mark.parametrize("is_compiled", [True, False])
def test_slopes_go_on_beyond_the_ends(
    basis: Basis, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "READY", native.READY and is_compiled)
    fitted = logistic_map(basis, -1.0, 3.0)
    assert isinstance(fitted.curve, LogisticCurve)
    step = 1e-6
    for end, slope, out in [(-1.0, fitted.curve.end_slopes[0], -1), (3.0, None, 1)]:
        expected = fitted.curve.end_slopes[1] if slope is None else slope
        inside = fitted.log_odds(end) - fitted.log_odds(end - out * step)
        assert out * inside / step == pytest.approx(expected, rel=1e-4)
        beyond = fitted.log_odds(end + 5.0 * out) - fitted.log_odds(end)
        assert out * beyond / 5 == pytest.approx(expected, rel=1e-9)
    scores = np.linspace(-9, 9, 37)
    np.testing.assert_allclose(fitted.predict(scores), expit(fitted.log_odds(scores)), rtol=1e-12)


@every_basis
def test_a_gradient_is_what_a_change_of_a_coefficient_changes(basis: Basis) -> None:
    curve = with_errors(basis)
    scores = np.array([-4.0, -1.0, 0.2, 1.7, 3.0, 8.0])
    gradient = curve.gradient(scores)
    np.testing.assert_array_equal(gradient[0], 1)
    for place in range(len(curve.coefficients)):
        more = list(curve.coefficients)
        more[place] += 1
        change = replace(curve, coefficients=tuple(more)).log_odds(scores) - curve.log_odds(scores)
        np.testing.assert_allclose(gradient[place + 1], change, atol=1e-12)


@every_basis
def test_margins_and_errors_are_those_of_the_covariance(basis: Basis) -> None:
    curve = with_errors(basis)
    scores = np.array([-4.0, -1.0, 0.2, 1.7, 3.0, 8.0])
    covariance, gradient = np.array(curve.covariance), curve.gradient(scores)
    errors = np.array([np.sqrt(each @ covariance @ each) for each in gradient.T])
    alone = replace(curve, deviation=None)
    for margin in alone.margins(scores, 0.9):
        np.testing.assert_allclose(margin, norm.ppf(0.95) * errors)
    mean, error = (
        np.interp(scores, (-0.5, 2), (0.1, -0.2)),
        np.interp(scores, (-0.5, 2), (0.05, 0.3)),
    )
    below, above = curve.margins(scores, 0.95)
    wide = Z * np.sqrt(errors**2 + error**2)
    np.testing.assert_allclose(below, np.maximum(Z * errors, wide - mean))
    np.testing.assert_allclose(above, np.maximum(Z * errors, wide + mean))
    # Parameters are linear in the coefficients: their columns are differences of parameters.
    start = np.array(list(curve.parameters.values()))
    columns = [np.array(list(replace(curve, intercept=0.0).parameters.values())) - start]
    for place in range(len(curve.coefficients)):
        more = list(curve.coefficients)
        more[place] += 1
        changed = replace(curve, coefficients=tuple(more)).parameters
        columns.append(np.array(list(changed.values())) - start)
    matrix = np.array(columns).T
    expected = np.sqrt(np.diag(matrix @ covariance @ matrix.T))
    np.testing.assert_allclose(list(curve.standard_errors.values()), expected, rtol=1e-6)


def test_the_largest_term_is_found_at_an_end() -> None:
    curve = with_errors(Linear())
    assert replace(curve, intercept=-7.0).largest_term == 7.0
    assert replace(curve, intercept=0.5, coefficients=(4.0,)).largest_term == 4.0
    # (1 - 0) / 2 of the concave part at the high end, and u^2 / 2 of the convex one.
    curve = with_errors(Quadratic())
    assert replace(curve, intercept=0.5, coefficients=(3.0, 8.0)).largest_term == 4.0
    assert LINES.largest_term == 3.0
    assert replace(LINES, values=(-3.0, -1.0, 5.0)).largest_term == 5.0
    assert STEPS.largest_term == 1.0
    assert smooth_term().largest_term == 1.0
    assert level_term("a").largest_term == 2.0
    assert level_term("a", typical=-3.0).largest_term == 3.0
    assert position_term().largest_term == 1.0
    assert replace(position_term(), by_rank=None).largest_term == 1.0
    by_rank = SmoothTerm("rank", (1.0, 2.0), (-6.0, 0.0))
    assert replace(position_term(), by_rank=by_rank).largest_term == 6.0
    assert map_of(LINES, smooth_term(), level_term("a", typical=9.0)).largest_term == 9.0
    assert map_of(LINES, smooth_term()).largest_term == 3.0


def test_the_narrowest_distance_is_between_knots() -> None:
    assert LINES.narrowest == 1.0
    assert STEPS.narrowest == np.inf
    assert with_errors(Linear()).narrowest == 4.0
    assert SmoothTerm("x", (0.0, 0.25, 3.0), (0.0, 1.0, 2.0)).narrowest == 0.25
    assert position_term().narrowest == 2.0
    assert level_term("a").narrowest == np.inf
    near = SmoothTerm("x", (0.0, 0.25), (0.0, 1.0))
    assert map_of(LINES, near, level_term("a")).narrowest == 0.25
    assert map_of(LINES, level_term("a")).narrowest == 1.0


def test_spans_show_what_lies_beyond() -> None:
    assert STEPS.span == (pytest.approx(-0.3), pytest.approx(3.3))
    assert replace(STEPS, edges=(), values=(0.2,), effective_rows=(1.0,)).span == (-0.1, 1.1)
    one = replace(STEPS, edges=(4.0,), values=(0.2, 0.3), effective_rows=(1.0, 1.0))
    assert one.span == (3.0, 5.0)
    assert (LINES.span, LINES.breakpoints) == ((-1.0, 2.0), (-1.0, 0.0, 2.0))


def test_steps_have_jeffreys_intervals_that_hold_the_step() -> None:
    scores = np.array([-1.0, -1e-9, 0.0, 0.5, 1.0, 2.9, 3.0, 9.0])
    step = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    values, rows = np.array(STEPS.values)[step], np.array(STEPS.effective_rows)[step]
    np.testing.assert_array_equal(map_of(STEPS).predict(scores), values)
    posterior = beta(values * rows + 0.5, (1 - values) * rows + 0.5)
    low, high = map_of(STEPS).sampling_interval(scores, level=0.9)
    np.testing.assert_allclose(low, np.minimum(posterior.ppf(0.05), values))
    np.testing.assert_allclose(high, np.maximum(posterior.ppf(0.95), values))
    # In log odds, those of 0 and 1 are those of 1e-12 and 1 - 1e-12.
    below, above = STEPS.margins(scores, 0.9)
    bounded = logit(np.clip([low, values, high], 1e-12, 1 - 1e-12))
    np.testing.assert_allclose(below, bounded[1] - bounded[0])
    np.testing.assert_allclose(above, bounded[2] - bounded[1])


def test_a_rescaled_score_is_certain() -> None:
    fitted = map_of(RescaleCurve(1.0, 5.0))
    scores = np.array([-9.0, 1.0, 2.0, 4.0, 5.0, 7.0])
    expected = np.array([0, 0, 0.25, 0.75, 1, 1])
    np.testing.assert_array_equal(fitted.predict(scores), expected)
    np.testing.assert_array_equal(fitted.sampling_interval(scores), [expected] * 2)
    np.testing.assert_allclose(fitted.log_odds(scores), logit(expected))
    with pytest.raises(cr.DataError, match=r"low must be below high, got 5\.0 and 5\.0"):
        RescaleCurve(5.0, 5.0)


def test_errors_of_lines_grow_beyond_the_knots() -> None:
    scores = np.array([-4.0, -1.0, -0.5, 0.0, 1.0, 2.0, 7.0])
    expected = [0.1 + 3 * 0.5, 0.1, 0.15, 0.2, 0.3, 0.4, 0.4 + 5 * 0.6]
    np.testing.assert_allclose(LINES.errors_at(scores), expected)


def test_no_upper_end_is_above_that_of_a_higher_knot() -> None:
    curve = replace(LINES, value_errors=(0.1, 5.0, 0.1))
    below, above = curve.margins(np.array([-0.5, 0.0, 1.0]), 0.95)
    middle = np.array([-2.0, -1.0, -0.25])
    np.testing.assert_allclose(middle + above, 0.5 + 0.1 * Z)
    np.testing.assert_allclose(middle - below, -3.0 - 0.1 * Z)


def sloped() -> LevelTerm:
    of = SlopeErrors(0.5, (0.2, 0.1, 0.3), (-0.005, 0.01, 0.0), (0.2,))
    return replace(level_term("country", typical=-0.3), slope_errors=of)


def three_terms() -> tuple[Term, ...]:
    """New ones: what a term keeps from another test, this one would not compute."""
    return sloped(), smooth_term("x"), position_term("rank", 3)


CURVES = [with_errors(basis) for basis in BASES] + [LINES]
ROWS = {
    "country": ["NL", "?", "7", "NL", "7", "NL"],
    "x": [-5.0, 0.0, 0.7, 1.0, 2.0, 9.0],
    "rank": [1, 3, 4, 2, 99, 5],
}
SCORES = np.array([-3.0, -0.9, 0.1, 1.0, 2.0, 6.0])


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.kind)
@pytest.mark.parametrize("terms", [(), three_terms()], ids=len)
def test_a_moved_map_has_moved_log_odds_and_errors(
    curve: LogisticCurve | PiecewiseCurve, terms: tuple[Term, ...]
) -> None:
    fitted = map_of(curve, *terms)
    moved = fitted.moved(0.4, 1.5)
    rows = ROWS if terms else None
    expected = 0.4 + 1.5 * fitted.log_odds(SCORES, rows)
    np.testing.assert_allclose(moved.log_odds(SCORES, rows), expected, atol=1e-12)
    for before, after in zip(
        fitted.sampling_interval(SCORES, rows), moved.sampling_interval(SCORES, rows), strict=True
    ):
        np.testing.assert_allclose(logit(after), 0.4 + 1.5 * logit(before), rtol=1e-6)


def test_a_step_moves_by_its_log_odds() -> None:
    moved = STEPS.moved(0.4, 1.5)
    np.testing.assert_allclose(moved.values[1:3], expit(0.4 + 1.5 * logit([0.2, 0.7])))
    assert moved.values[0] == pytest.approx(0, abs=1e-12)
    assert moved.values[3] == pytest.approx(1, abs=1e-12)
    assert STEPS.moved(0.4).values[1] == pytest.approx(float(expit(0.4 + logit(0.2))))


def test_an_interval_adds_the_variances_of_what_applies_to_a_row() -> None:
    curve = with_errors(Quadratic())
    terms = three_terms()
    fitted, position = map_of(curve, *terms), terms[2]
    assert isinstance(position, PositionTerm)
    is_top = np.array(ROWS["rank"]) <= 3
    below, above = curve.margins(SCORES, 0.95)
    down, up = position.curve.margins(SCORES, 0.95)
    below, above = np.where(is_top, down, below), np.where(is_top, up, above)
    inside = np.interp(SCORES, (0.0, 2.0), (-1.0, 0.5))
    inside += 0.5 * np.minimum(SCORES, 0) + 0.1 * np.maximum(SCORES - 2, 0)
    inside += np.interp(ROWS["rank"], (1.0, 3.0, 3.5), (0.7, 0.2, -0.3))
    z = np.where(is_top, inside, curve.log_odds(SCORES))
    # Numbers of NL, of an unknown country, and of 7.
    level = [{"NL": 1, "?": 0, "7": 3}[key] for key in ROWS["country"]]
    intercepts, slopes = np.array([-0.3, 0.5, -1, 2])[level], np.array([1, 1.2, 0.7, 1])[level]
    added = np.interp(ROWS["x"], (-1.0, 0.0, 2.0), (0.5, -0.3, 1.0))
    log_odds = intercepts + slopes * z + added
    np.testing.assert_allclose(fitted.log_odds(SCORES, ROWS), log_odds)
    variances, turns = (
        np.array([1, 0.1, 0.1, 0.1])[level] ** 2,
        np.array([0.2, 0.2, 0.1, 0.3])[level],
    )
    crossed = np.array([0, -0.005, 0.01, 0.0])[level]
    variances = variances + 2 * (z - 0.5) * crossed + (z - 0.5) ** 2 * turns**2
    variances += np.interp(ROWS["x"], (-1.0, 0.0, 2.0), (0.1, 0.05, 0.2)) ** 2
    low, high = fitted.sampling_interval(SCORES, ROWS)
    np.testing.assert_allclose(
        logit(low), log_odds - np.sqrt((slopes * below) ** 2 + Z**2 * variances)
    )
    np.testing.assert_allclose(
        logit(high), log_odds + np.sqrt((slopes * above) ** 2 + Z**2 * variances)
    )


@pytest.mark.parametrize("rows", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_blocks_follow_each_other(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "READY", False)
    scores = np.linspace(-3, 4, rows)
    z = np.interp(scores, (-1.0, 0.0, 2.0), (-3.0, -1.0, 0.5))
    z += 1.0 * np.minimum(scores + 1, 0) + 0.1 * np.maximum(scores - 2, 0)
    fitted = map_of(LINES)
    np.testing.assert_allclose(fitted.log_odds(scores), z, atol=1e-12)
    np.testing.assert_allclose(fitted.predict(scores), expit(z), rtol=1e-12)
    x = scores[::-1]
    added = np.interp(x, (-1.0, 0.0, 2.0), (0.5, -0.3, 1.0))
    found = map_of(LINES, smooth_term("x")).log_odds(scores, {"x": x})
    np.testing.assert_allclose(found, z + added, atol=1e-12)


def test_slope_errors_of_levels_by_number() -> None:
    of = SlopeErrors(0.5, (0.2, 0.1), (-0.03, 0.01), (0.4,))
    assert of.take([2, 0, 1]) == SlopeErrors(0.5, (0.1, 0.0, 0.2), (0.01, 0.0, -0.03), (0.4,))
    scaled = of.scaled(3.0)
    assert scaled.center == 0.5
    assert scaled.errors == pytest.approx((0.6, 0.3))
    assert scaled.covariances == pytest.approx((-0.27, 0.09))
    assert scaled.spreads == pytest.approx((1.2,))


def test_the_node_of_a_key_is_that_of_its_longest_known_part() -> None:
    term = level_term("country", "city")
    keys = [("NL", "Delft"), ("NL", "?"), ("?", "Delft"), ("7", "8"), ("7",), ()]
    assert [term.node(key) for key in keys] == [4, 1, 0, 5, 3, 0]
    assert len(term) == 5


def test_examples_of_terms_meet_every_level_rank_and_piece() -> None:
    level = level_term("country", "city")
    found = [tuple(level.example(place).values()) for place in range(6)]
    assert found[0] == ("\N{SNOWMAN} (unknown)", "(unknown)")
    assert found[1:] == [key if len(key) == 2 else (*key, "(unknown)") for key in level.keys]
    assert level.example(6) == level.example(0)
    ranks = [position_term("r", 5).example(place)["r"] for place in range(5)]
    assert ranks == [1, 5, 6, 1000, 1]
    numbers = {float(smooth_term("x").example(place)["x"]) for place in range(10)}
    before = {float(np.nextafter(knot, -np.inf)) for knot in (-1.0, 0.0, 2.0)}
    assert numbers == {-1.0, 0.0, 2.0, -0.5, 1.0, -4.0, 5.0} | before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": (1.0, 0.0)}, "increasing scores, and no negative error"),
        ({"errors": (0.1, -0.1)}, "increasing scores, and no negative error"),
        ({"errors": (0.1,)}, "one mean and one error per score"),
        ({"means": (0.1, 0.2, 0.3)}, "one mean and one error per score"),
        ({"scores": (), "means": (), "errors": ()}, "one mean and one error per score"),
    ],
)
def test_impossible_deviations_are_refused(change: dict[str, object], message: str) -> None:
    start = Deviation((0.0, 1.0), (0.1, 0.2), (0.0, 0.3))
    with pytest.raises(cr.DataError, match=message):
        replace(start, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coefficients": (0.3,)}, r"coefficients must be 2 numbers, none negative"),
        ({"coefficients": (0.3, -0.1)}, r"coefficients must be 2 numbers, none negative"),
        ({"coefficients": (0.0, 0.3)}, "must rise at both ends"),
        ({"coefficients": (0.3, 0.0)}, "must rise at both ends"),
        ({"covariance": ((0.0,) * 3,) * 2}, "covariance must be 3 x 3"),
        ({"covariance": ((0.0,) * 2,) * 3}, "covariance must be 3 x 3"),
        ({"high": -1.0}, "low must be below high"),
    ],
)
def test_impossible_logistic_curves_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        replace(logistic_map(Quadratic(), -1.0, 3.0).curve, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"errors": (0.1, 0.2)}, "slope_errors must have 3 values each, got 2 and 3"),
        ({"covariances": (0.0,) * 4}, "slope_errors must have 3 values each, got 3 and 4"),
        ({"spreads": ()}, "the spreads of slope_errors must have 1 values each"),
        ({"errors": (0.1, 0.2, -0.1)}, "slope_errors must not be negative"),
        ({"spreads": (-0.1,)}, "slope_errors must not be negative"),
        ({"center": 1e10}, r"slope_errors must lie within \+-1e9"),
        ({"covariances": (0.0, 1e10, 0.0)}, r"slope_errors must lie within \+-1e9"),
    ],
)
def test_impossible_slope_errors_are_refused(change: dict[str, object], message: str) -> None:
    of = sloped().slope_errors
    assert of is not None
    with pytest.raises(cr.DataError, match=message):
        replace(sloped(), slope_errors=replace(of, **change))


def test_a_limit_is_still_allowed() -> None:
    knots = tuple(np.arange(1000.0).tolist())
    zeros = (0.0,) * 1000
    assert len(replace(LINES, knots=knots, values=zeros, value_errors=zeros).knots) == 1000
    more = (*zeros, 0.0)
    with pytest.raises(cr.DataError, match="knots must be 1 to 1000, got 1001"):
        replace(LINES, knots=(*knots, 1000.0), values=more, value_errors=more)
    assert SmoothTerm("x", (-1e30, 1e30), (1e9, -1e9)).knots[0] == -1e30
    assert Deviation((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)).errors == (0.0, 0.0)
    level = LevelTerm(("x",), (("a",),), (1e9,), (1e-9,), (0.0,), (0,), (0.0,))
    assert level.slopes == (1e-9,)
