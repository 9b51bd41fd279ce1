"""The laws of calibrators, maps, metrics and propensity estimators, as functions.

Each `check_` function draws random examples, checks every law on each of them, and raises an
AssertionError that names the law and the example.
"""

from tests.checks.examples import Example, Log, draw_example, draw_log
from tests.checks.fits import (
    CALIBRATOR_LAWS,
    INCREASING_LAWS,
    MAP_LAWS,
    Rows,
    check_calibrator,
    check_map,
)
from tests.checks.metrics import METRIC_LAWS, ROW_METRIC_LAWS, check_metric, needs_users
from tests.checks.propensities import PROPENSITY_LAWS, check_propensity

__all__ = [
    "CALIBRATOR_LAWS",
    "INCREASING_LAWS",
    "MAP_LAWS",
    "METRIC_LAWS",
    "PROPENSITY_LAWS",
    "ROW_METRIC_LAWS",
    "Example",
    "Log",
    "Rows",
    "check_calibrator",
    "check_map",
    "check_metric",
    "check_propensity",
    "draw_example",
    "draw_log",
    "needs_users",
]
