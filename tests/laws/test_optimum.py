"""`FitError` is raised exactly when no finite optimum exists, according to a linear program."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

import calibrank as cr
from calibrank.curves import Parametric
from calibrank.errors import FlatMapWarning
from calibrank.maps.targets.numpy import NumpyTarget
from tests.members import PARAMETRIC, name

WITH_INTERCEPT = [member for member in PARAMETRIC if not isinstance(member, cr.Temperature)]


def smallest_growth(columns: np.ndarray, positive: np.ndarray, total: np.ndarray) -> float:
    """The smallest asymptotic growth of the loss along any direction.

    Directions have a free intercept and non-negative coefficients that sum to 1. The loss grows
    linearly along them: by the hinge max(z, 0) of each row times its total mass, minus its positive
    mass times z. The unknowns are the hinges, the intercept and the coefficients.
    """
    rows = len(total)
    size = len(columns)
    z = np.hstack([np.ones((rows, 1)), columns.T])
    cost = np.concatenate([total, -positive @ z])
    hinge_above_z = np.hstack([-np.eye(rows), z])
    bounds = [(0, None)] * rows + [(None, None)] + [(0, None)] * size
    sum_of_coefficients = np.concatenate([np.zeros(rows + 1), np.ones(size)])[None]
    result = linprog(
        cost,
        A_ub=hinge_above_z,
        b_ub=np.zeros(rows),
        A_eq=sum_of_coefficients,
        b_eq=[1.0],
        bounds=bounds,
        method="highs",
    )
    unbounded = result.status == 3
    return -np.inf if unbounded else float(result.fun)


def draw_column(data: st.DataObject, values: st.SearchStrategy, rows: int) -> np.ndarray:
    return np.array(data.draw(st.lists(values, min_size=rows, max_size=rows)), dtype=float)


def draw_table(data: st.DataObject, most: int) -> tuple[np.ndarray, np.ndarray]:
    """A few integer scores, with labels of both classes."""
    rows = data.draw(st.integers(3, most))
    scores = draw_column(data, st.integers(-4, 4), rows)
    labels = draw_column(data, st.integers(0, 1), rows)
    assume(len(np.unique(scores)) > 1)
    assume(0 < labels.sum() < rows)
    return scores, labels


@pytest.mark.parametrize("member", WITH_INTERCEPT, ids=name)
@given(data=st.data())
def test_fit_error_exactly_when_the_loss_has_no_minimum(
    member: Parametric, data: st.DataObject
) -> None:
    scores, labels = draw_table(data, most=14)
    inverse = draw_column(data, st.sampled_from([1, 1, 2, 3]), len(scores))
    evidence = cr.ips(labels, 1 / inverse)
    generators = member.basis.generators(scores, scores.min(), scores.max(), NumpyTarget())
    columns = np.array(generators)
    ranges = np.ptp(columns, axis=1, keepdims=True)
    columns = (columns - columns.min(axis=1, keepdims=True)) / ranges
    rate_below_1 = evidence.positive.sum() < len(scores)
    growth = smallest_growth(columns, evidence.positive, evidence.total)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        if rate_below_1 and growth > 1e-7:
            assert member.fit(scores, evidence).record.residual <= 1e-8
        else:
            with pytest.raises(cr.FitError, match="no finite best fit"):
                member.fit(scores, evidence)


@given(data=st.data())
def test_temperature_raises_exactly_when_zero_separates_the_classes(data: st.DataObject) -> None:
    scores, labels = draw_table(data, most=12)
    misplaced = ((scores > 0) & (labels == 0)) | ((scores < 0) & (labels == 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        if misplaced.any():
            cr.Temperature().fit(scores, labels)
        else:
            with pytest.raises(cr.FitError, match="no finite best fit"):
                cr.Temperature().fit(scores, labels)
