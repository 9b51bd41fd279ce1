"""The laws of metrics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence, ips, naive
from calibrank.metrics import Metric
from tests.checks.examples import Example, check_laws, draw_example, ensure

_TOLERANCE = 1e-9
# Shifts of the log odds that no calibration metric can mistake for an improvement.
_SHIFTS = (-2.0, 2.0)

Law = Callable[[Metric, Example], None]


def check_metric(
    metric: Metric, *, examples: int = 50, seed: int | np.random.Generator = 0
) -> None:
    """Check a metric."""
    rng = np.random.default_rng(seed)
    drawn = [draw_example(rng) for _ in range(examples)]
    laws = METRIC_LAWS
    if not metric.weight_is_repetition:
        laws = {name: law for name, law in laws.items() if law is not _user_weight_is_repetition}
    elif not needs_users(metric):
        laws = METRIC_LAWS | ROW_METRIC_LAWS
    check_laws(metric, laws, drawn, seed, DataError)


def needs_users(metric: Metric) -> bool:
    """Whether the metric is computed over each user's list, and so asks for users."""
    try:
        metric([0.25, 0.75], [0, 1])
    except DataError:
        return True
    return False


def example_probabilities(example: Example) -> Floats:
    """Plausible probabilities for the rows of an example, with ties."""
    standardized = (example.scores - example.scores.mean()) / example.scores.std()
    return np.round(expit(standardized), 2)


def _value(metric: Metric, example: Example, probabilities: Floats) -> float:
    evidence = ips(example.labels, example.propensity)
    return metric(probabilities, evidence, example.users)


def _ensure_equal(first: float, second: float, what: str) -> None:
    # Infinite values are equal although their difference is not a number.
    equal = first == second or abs(first - second) <= _TOLERANCE
    ensure(equal, f"{what} must give the same value, got {first} and {second}.")


def _value_is_float(metric: Metric, example: Example) -> None:
    value = _value(metric, example, example_probabilities(example))
    ensure(isinstance(value, float), f"the value must be a float, got {value!r}.")
    ensure(not np.isnan(value), "the value must be a number, got NaN.")


def _order_is_irrelevant(metric: Metric, example: Example) -> None:
    probabilities = example_probabilities(example)
    order = np.random.default_rng(1).permutation(len(probabilities))
    first = _value(metric, example, probabilities)
    second = _value(metric, example.take(order), probabilities[order])
    _ensure_equal(first, second, "rows in either order")


def _user_weight_is_repetition(metric: Metric, example: Example) -> None:
    copies = 3
    probabilities = example_probabilities(example)
    chosen = example.users == example.users[0]
    weights = np.where(chosen, copies, 1)
    weighted = metric(probabilities, naive(example.labels, weights=weights), example.users)
    rows = [np.arange(len(chosen))]
    users = [example.users]
    for copy in range(1, copies):
        rows.append(np.flatnonzero(chosen))
        users.append(np.full(chosen.sum(), example.users.max() + copy))
    again = np.concatenate(rows)
    repeated = metric(probabilities[again], example.labels[again], np.concatenate(users))
    _ensure_equal(weighted, repeated, f"a user of weight {copies} and {copies} such users")


def _row_weight_is_repetition(metric: Metric, example: Example) -> None:
    probabilities = example_probabilities(example)
    weights = 1 + np.arange(len(probabilities)) % 3
    evidence = ips(example.labels, example.propensity, weights=weights)
    rows = np.repeat(np.arange(len(weights)), weights)
    repeated = ips(example.labels[rows], example.propensity[rows])
    first = metric(probabilities, evidence)
    second = metric(probabilities[rows], repeated)
    _ensure_equal(first, second, "weighted and repeated rows")


def _calibrated_beats_shifted(metric: Metric, example: Example) -> None:
    """With the true probabilities as evidence, a shift of the log odds is never better."""
    truth = np.clip(example_probabilities(example), 0.05, 0.95)
    evidence = Evidence(truth, np.ones_like(truth))
    calibrated = metric(truth, evidence, example.users)
    for shift in _SHIFTS:
        shifted = metric(expit(logit(truth) + shift), evidence, example.users)
        detail = (
            f"calibrated probabilities give {calibrated}, "
            f"log odds shifted by {shift} give {shifted}, but {metric.better.value}."
        )
        ensure(_not_worse(metric, calibrated, shifted), detail)


def _perfect_beats_inverted(metric: Metric, example: Example) -> None:
    perfect = metric(example.labels, example.labels, example.users)
    inverted = metric(1 - example.labels, example.labels, example.users)
    detail = (
        f"perfect predictions give {perfect}, inverted ones give {inverted}, "
        f"but {metric.better.value}."
    )
    ensure(_not_worse(metric, perfect, inverted), detail)


def _not_worse(metric: Metric, value: float, other: float) -> bool:
    return metric.better.loss(value) <= metric.better.loss(other) + _TOLERANCE


METRIC_LAWS: dict[str, Law] = {
    "the value is a float": _value_is_float,
    "permuting rows changes nothing": _order_is_irrelevant,
    "a user of weight k equals k such users": _user_weight_is_repetition,
    "calibrated probabilities are not worse than shifted ones": _calibrated_beats_shifted,
    "perfect predictions are not worse than inverted ones": _perfect_beats_inverted,
}
"""Laws of every metric, by statement: functions of the metric and an `Example`."""

ROW_METRIC_LAWS: dict[str, Law] = {"weight k equals k repeated rows": _row_weight_is_repetition}
"""Laws of metrics over rows; repeating a row would lengthen a user's list."""
