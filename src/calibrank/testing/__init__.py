"""Check your own calibrators, maps, metrics and propensity estimators against calibrank's laws.

Each function draws random examples, checks every law on each of them, and raises an AssertionError
that names the law and the example. Neither pytest nor Hypothesis is needed.

>>> from calibrank import Brier, Platt
>>> check_calibrator(Platt(), examples=5)
>>> check_metric(Brier(), examples=5)

The laws themselves are public, to be run on examples of your own: see `CALIBRATOR_LAWS`,
`MAP_LAWS`, `METRIC_LAWS` and `PROPENSITY_LAWS`.
"""

from calibrank.testing.examples import Example, Log, draw_example, draw_log
from calibrank.testing.fits import (
    CALIBRATOR_LAWS,
    INCREASING_LAWS,
    MAP_LAWS,
    Rows,
    check_calibrator,
    check_map,
)
from calibrank.testing.metrics import METRIC_LAWS, ROW_METRIC_LAWS, check_metric, needs_users
from calibrank.testing.propensities import PROPENSITY_LAWS, check_propensity

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
