"""Single steps of the solvers: directions, line searches, and when they end."""

import numpy as np
import pytest
from scipy.special import expit, logit

import calibrank as cr
from calibrank.curves import _monotone, solver
from calibrank.curves._monotone import (
    MonotoneProblem,
    _bounded_direction,
    _constant_start,
    _free_direction,
    _step,
)
from calibrank.curves.solver import (
    Problem,
    _bounded_step,
    _has_converged,
    _line_search,
    _newton,
    _residual,
    _step_with_active,
    _warm_start,
    solve,
)
from calibrank.terms import _modes

# 2 x + y = 4 and x + 3 y = 7 have the solution x = 1, y = 2.
HESSIAN = np.array([[2.0, 1.0], [1.0, 3.0]])
RIGHT = np.array([4.0, 7.0])
NONE = np.inf


def even_odds() -> Problem:
    """One unknown, the log odds of one row of label 1/2: the loss is even in it."""
    return Problem(np.ones((1, 1)), np.ones(1), np.full(1, 0.5), np.full(1, -np.inf), 0.5)


def test_a_step_must_lower_the_loss_in_proportion_to_its_slope() -> None:
    made = even_odds()
    point = made.at(np.ones(1))
    step = np.array([-2.0])
    slope = float(made.gradient(point) @ step)
    # The full step leads to the mirror image, which is no better.
    found = _line_search(made, point, step, slope)
    assert found is not None
    assert found.solution == 0.0


def test_a_step_whose_gain_is_lost_to_rounding_is_taken() -> None:
    made = even_odds()
    point = made.at(np.full(1, 1e-9))
    found = _line_search(made, point, np.array([-1e-9]), float(made.gradient(point)[0]) * -1e-9)
    assert found is not None
    assert found.solution == 0.0


@pytest.mark.parametrize("unit", [1.0, 1e-20])
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([-NONE, -NONE], [1.0, 2.0]),
        ([0.5, 1.5], [1.0, 2.0]),
        ([2.0, -NONE], [2.0, 5 / 3]),
        ([-NONE, 3.0], [0.5, 3.0]),
        ([2.0, 3.0], [2.0, 3.0]),
    ],
)
def test_a_newton_step_is_exact_within_its_bounds(
    bounds: list[float], expected: list[float], unit: float
) -> None:
    found = _bounded_step(-unit * RIGHT, unit * HESSIAN, np.array(bounds))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_flat_direction_is_not_followed() -> None:
    found = _step_with_active((), np.array([-1.0, -1.0]), np.ones((2, 2)), np.full(2, -np.inf))
    np.testing.assert_allclose(found, [0.5, 0.5])


def test_the_residual_is_of_gradients_that_could_be_followed() -> None:
    # Downwards always; upwards by the slack, up to 1.
    assert _residual(np.array([1.0, -2.0, 3.0]), np.array([NONE, 1.0, 0.0])) == 2
    assert _residual(np.array([4.0, -0.5]), np.array([0.25, 0.0])) == 1
    assert _residual(np.array([4.0]), np.array([9.0])) == 4


@pytest.mark.parametrize(
    ("residual", "best", "converged"),
    [
        (1e-14, np.inf, True),
        (2e-14, np.inf, False),
        (6e-12, 1e-11, True),
        (5e-12, 1e-11, False),
        (1e-11, 1e-12, True),
        (2e-11, 1e-12, False),
    ],
)
def test_a_small_residual_that_no_longer_halves_is_rounding(
    residual: float, best: float, converged: bool
) -> None:
    assert _has_converged(residual, best) is converged


def test_runs_of_points_are_pooled_at_their_mean() -> None:
    total = np.append(np.arange(1.0, 33.0), 5.0)
    x = np.append(np.linspace(0, 1, 32), 7.0)
    sums = np.array([3.0, 2.0])
    made = Problem(np.vstack([np.ones(33), x]), total, sums, np.full(2, -np.inf), 0.1)
    pooled = made.pooled()
    assert pooled.total.tolist() == [528.0, 5.0]
    np.testing.assert_allclose(pooled.design, [[1, 1], [np.average(x[:32], weights=total[:32]), 7]])
    assert pooled.positive_sums is sums


def test_newton_directions_leave_unknowns_at_their_bounds() -> None:
    hessian = np.full((3, 3), 9.0)
    hessian[:2, :2] = HESSIAN
    free = np.array([True, True, False])
    for unit in (1.0, 1e-20):
        direction = _free_direction(unit * hessian, unit * np.append(RIGHT, 1.0), free)
        np.testing.assert_allclose(direction, [1.0, 2.0, 0.0], rtol=1e-11)


@pytest.mark.parametrize("unit", [1.0, 1e-20])
@pytest.mark.parametrize(
    ("slack", "expected"),
    [
        ([NONE, NONE], [1.0, 2.0]),
        ([0.5, NONE], [0.5, 6.5 / 3]),
        ([NONE, 1.0], [1.5, 1.0]),
        ([0.5, 1.0], [0.5, 1.0]),
    ],
)
def test_directions_are_exact_within_the_slack(
    slack: list[float], expected: list[float], unit: float
) -> None:
    found = _bounded_direction(unit * HESSIAN, unit * RIGHT, np.array(slack))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_directions_of_very_different_curvature_are_exact() -> None:
    curvature = np.array([1.0, 1e-10])
    found = _bounded_direction(np.diag(curvature), np.array([3.0, 2e-10]), np.full(2, np.inf))
    np.testing.assert_allclose(found, [3.0, 2.0], rtol=1e-9)


def one_point(positive: float = 0.5, size: int = 2) -> MonotoneProblem:
    """One row at the first knot: its log odds are the first unknown."""
    place = np.zeros(1, dtype=np.intp)
    columns = (np.zeros(1), np.full(1, positive), np.ones(1))
    return MonotoneProblem(place, *columns, np.zeros((0, size)))


def test_a_projected_step_is_halved_until_it_lowers_the_loss() -> None:
    made = one_point()
    unknowns, bounds = np.array([1.0, 0.5]), np.array([-np.inf, 0.25])
    gradient = made.gradient(unknowns)
    before = made.loss(unknowns)
    # The full step leads to the mirror image; the increment stops at its bound either way.
    found = _step(made, unknowns, before, bounds, gradient, np.array([2.0, 9.0]))
    assert found is not None
    assert found[0].tolist() == [0.0, 0.25]
    assert found[1] == pytest.approx(np.log(2))
    assert _step(made, unknowns, before, bounds, gradient, np.zeros(2)) is None
    assert _step(made, unknowns, before, bounds, gradient, np.array([-2.0, 0.0])) is None


@pytest.mark.parametrize(
    ("positive", "level"), [(0.25, logit(0.25)), (0.0, logit(1e-9)), (2.0, logit(1 - 1e-9))]
)
def test_the_first_curve_is_nearly_constant_at_the_rate(positive: float, level: float) -> None:
    found = _constant_start(one_point(positive, 4), 4)
    np.testing.assert_allclose(found, [level - 0.5, 0.25, 0.25, 0.25])


def test_a_step_that_raises_the_loss_a_little_is_halved_too() -> None:
    def parabola(at: np.ndarray) -> np.ndarray:
        return (at**2).sum(axis=0)

    at = np.array([[1.0], [0.0]])
    following, value, moved = _modes._line_search(parabola, at, parabola(at), 2.2 * at)
    assert (following[0, 0], value[0], moved) == pytest.approx((-0.1, 0.01, 1.1))


def line(points: int) -> Problem:
    """Labels whose log odds are 2 x - 1, exactly."""
    x = np.linspace(-1, 1, points)
    design = np.vstack([np.ones(points), x])
    positive = expit(2 * x - 1)
    bounds = np.array([-np.inf, 1e-6])
    return Problem(design, np.ones(points), design @ positive, bounds, float(positive.mean()))


def test_large_problems_start_at_the_optimum_of_pooled_points() -> None:
    start = np.array([0.0, 1e-6])
    small = line(4_096)
    assert _warm_start(small, start) is start
    large = line(4_097)
    found = _warm_start(large, start)
    np.testing.assert_allclose(found, [-1, 2], atol=1e-3)
    assert not np.allclose(found, [-1, 2], atol=1e-12, rtol=0)
    best = solve(large, start)
    np.testing.assert_allclose(best.point.solution, [-1, 2], atol=1e-9)
    assert best.iterations < solve(small, start).iterations
    # Nothing is gained where the start is better already.
    assert _warm_start(large, best.point.solution) is best.point.solution


def test_a_start_stays_where_the_pooled_problem_has_no_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = np.array([0.0, 1e-6])
    monkeypatch.setattr(solver, "_WARM_START_STEPS", 2)
    assert _warm_start(line(20_000), start) is start


def test_an_optimum_that_is_not_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "_MAX_STEPS", 2)
    with pytest.raises(cr.FitError, match=r"an optimality residual of 1e-08, got .* after 2 steps"):
        solve(line(50), np.array([0.0, 1e-6]))
    monkeypatch.setattr(solver, "_MAX_STEPS", 20)
    solution = solve(line(50), np.array([0.0, 1e-6]))
    assert solution.free.tolist() == [True, True]
    assert solution.residual < 1e-12
    assert 3 <= solution.iterations < 12


def test_iterations_are_counted_one_by_one() -> None:
    made = even_odds()
    assert _newton(made, np.zeros(1), 9).iterations == 1
    for most in (1, 2, 3):
        assert _newton(made, np.full(1, 3.0), most).iterations == most


def test_curves_that_do_not_jam_need_no_exact_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an exact step takes longer, and loads scipy.optimize")

    monkeypatch.setattr(_monotone, "_bounded_direction", refuse)
    x = np.linspace(-2, 2, 200)
    fitted = cr.Spline(6).fit(x, cr.Evidence(expit(x), np.ones(200)))
    assert np.abs(fitted.predict(x) - expit(x)).max() < 0.01
