"""Single steps of the solvers: directions, line searches, and when they end."""

import numpy as np

from calibrank.calibrators._monotone import _free_direction
from calibrank.calibrators.solver import Problem, _line_search


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


def test_newton_directions_leave_unknowns_at_their_bounds() -> None:
    hessian = np.array([[2.0, 1.0, 5.0], [1.0, 3.0, 5.0], [5.0, 5.0, 9.0]])
    free = np.array([True, True, False])
    # 2 x + y = 4 and x + 3 y = 7.
    direction = _free_direction(hessian, np.array([4.0, 7.0, 1.0]), free)
    np.testing.assert_allclose(direction, [1.0, 2.0, 0.0], rtol=1e-11)
