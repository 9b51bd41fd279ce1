"""The table of column rules."""

import numpy as np
import pytest

from calibrank._internal.rules import COLUMN_RULES, LARGEST_SCORE

NAN, INF = np.nan, np.inf

VALID = {
    "score": [-LARGEST_SCORE, -1.5, 0.0, LARGEST_SCORE],
    "label": [0.0, 1.0, -0.0],
    "propensity": [1e-30, 0.5, 1.0],
    "probability": [0.0, 0.5, 1.0],
    "weight": [0.0, 1e-30, 0.5, 1e30],
    "grade": [-1.7976931348623157e308, -1.0, 0.0, 4.5, 1.7976931348623157e308],
    "clicks": [0.0, 3.0, 1e30],
    "impressions": [0.0, 3.0, 1e30],
    "soft label": [0.0, 0.5, 1.0],
    "rank": [1.0, 2.0, 1e9],
    "feature": [-LARGEST_SCORE, -1.5, 0.0, LARGEST_SCORE],
}
INVALID = {
    "score": [NAN, INF, -INF, 1.1e30, -3.4e38],
    "label": [NAN, INF, -INF, 0.5, 2.0, -1.0],
    "propensity": [NAN, INF, 0.0, -0.5, 1.5, 5e-324, 1e-31],
    "probability": [NAN, INF, -0.1, 1.5],
    "weight": [NAN, INF, -1.0, 1e-35, 1e-31],
    "grade": [NAN, INF, -INF],
    "clicks": [NAN, INF, -1.0],
    "impressions": [NAN, INF, -1.0],
    "soft label": [NAN, INF, -0.1, 1.5],
    "rank": [NAN, INF, 0.0, -1.0, 1.1e9],
    "feature": [NAN, INF, -INF, 1.1e30, -3.4e38],
}


@pytest.mark.parametrize("role", COLUMN_RULES)
def test_a_rule_holds_for_valid_values_only(role: str) -> None:
    rule = COLUMN_RULES[role]
    assert rule.holds(np.array(VALID[role])).all()
    assert not rule.holds(np.array(INVALID[role])).any()


@pytest.mark.parametrize("role", COLUMN_RULES)
def test_a_rule_holds_for_float32_arrays_as_well(role: str) -> None:
    """NumPy compares a float32 array with bounds rounded to float32."""
    rule = COLUMN_RULES[role]
    valid = [value for value in VALID[role] if 1e-30 < abs(value) <= 1e30 or value == 0]
    assert rule.holds(np.array(valid, dtype=np.float32)).all()
    assert not rule.holds(np.array(INVALID[role], dtype=np.float32)).any()


@pytest.mark.parametrize("role", COLUMN_RULES)
def test_a_rule_holds_for_tensors_as_well(role: str) -> None:
    torch = pytest.importorskip("torch")
    rule = COLUMN_RULES[role]
    for dtype in (torch.float32, torch.float64):
        assert not rule.holds(torch.tensor(INVALID[role], dtype=dtype)).any()
    assert rule.holds(torch.tensor(VALID[role], dtype=torch.float64)).all()


@pytest.mark.parametrize("role", COLUMN_RULES)
def test_the_range_is_that_of_the_valid_values(role: str) -> None:
    rule = COLUMN_RULES[role]
    low, high = min(VALID[role]), max(VALID[role])
    assert rule.low == low or (rule.interval[0] == "(" and rule.low < low)
    assert rule.high == high or (rule.interval[-1] == ")" and rule.high > high)
