"""`FitError` exactly when no finite optimum exists, against a linear programme that knows nothing of our argument."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

import calibrank as cr
from calibrank.calibrators import Parametric
from calibrank.maps.basis import NumpyOps
from tests.members import PARAMETRIC, name


def growth(columns: np.ndarray, positive: np.ndarray, total: np.ndarray) -> float:
    """The least growth of the loss along any direction: free intercept, coefficients that add up to 1."""
    rows, size = len(total), len(columns)
    # unknowns: hinge of each row, the intercept, the coefficients
    z = np.hstack([np.ones((rows, 1)), columns.T])
    cost = np.concatenate([total, -positive @ z])
    above = np.hstack([-np.eye(rows), z])
    bounds = [(0, None)] * rows + [(None, None)] + [(0, None)] * size
    unit = np.concatenate([np.zeros(rows + 1), np.ones(size)])[None]
    answer = linprog(
        cost, A_ub=above, b_ub=np.zeros(rows), A_eq=unit, b_eq=[1.0], bounds=bounds, method="highs"
    )
    return -np.inf if answer.status == 3 else float(answer.fun)


@pytest.mark.parametrize(
    "member", [m for m in PARAMETRIC if not isinstance(m, cr.Temperature)], ids=name
)
@given(data=st.data())
def test_fit_error_exactly_when_no_optimum(member: Parametric, data: st.DataObject) -> None:
    rows = data.draw(st.integers(3, 14))
    scores = np.array(
        data.draw(st.lists(st.integers(-4, 4), min_size=rows, max_size=rows)), dtype=float
    )
    labels = np.array(
        data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)), dtype=float
    )
    inverse = np.array(
        data.draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=rows, max_size=rows)),
        dtype=float,
    )
    assume(len(np.unique(scores)) > 1 and 0 < labels.sum() < rows)
    evidence = cr.ips(labels, 1 / inverse)
    columns = np.array(member.basis.generators(scores, scores.min(), scores.max(), NumpyOps()))
    columns = (columns - columns.min(axis=1, keepdims=True)) / np.ptp(
        columns, axis=1, keepdims=True
    )
    exists = (
        evidence.positive.sum() < rows and growth(columns, evidence.positive, evidence.total) > 1e-7
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        if exists:
            assert member.fit(scores, evidence).record.residual <= 1e-8
        else:
            with pytest.raises(cr.FitError, match="no finite best fit"):
                member.fit(scores, evidence)


@given(data=st.data())
def test_temperature_fails_exactly_when_no_sharpness_is_enough(data: st.DataObject) -> None:
    rows = data.draw(st.integers(3, 12))
    scores = np.array(
        data.draw(st.lists(st.integers(-4, 4), min_size=rows, max_size=rows)), dtype=float
    )
    labels = np.array(
        data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)), dtype=float
    )
    assume(len(np.unique(scores)) > 1 and 0 < labels.sum() < rows)
    wrong = ((scores > 0) & (labels == 0)) | ((scores < 0) & (labels == 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        if wrong.any():
            cr.Temperature().fit(scores, labels)
        else:
            with pytest.raises(cr.FitError, match="no finite best fit"):
                cr.Temperature().fit(scores, labels)
