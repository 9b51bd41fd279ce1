"""The laws of propensity estimators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.errors import CalibrankError
from calibrank.propensity import FittedPropensity, Propensity
from calibrank.tables import Interactions
from tests.checks.examples import Log, check_laws, draw_log, ensure

_TOLERANCE = 1e-9

Law = Callable[[Propensity, Log], None]


def check_propensity(
    propensity: Propensity,
    *,
    users: int = 9,
    items: int = 9,
    examples: int = 50,
    seed: int | np.random.Generator = 0,
) -> None:
    """Check a propensity estimator.

    Logs are drawn over users and items that are numbered from 0; an estimator with one row per user
    or item needs their numbers in `users` and `items`.
    """
    rng = np.random.default_rng(seed)
    drawn = [draw_log(rng, users, items) for _ in range(examples)]
    check_laws(propensity, PROPENSITY_LAWS, drawn, seed)


def _all_pairs(log: Log) -> tuple[Floats, Floats]:
    users, items = np.divmod(np.arange(log.n_users * log.n_items), log.n_items)
    return users, items


def _ensure_usable(values: Floats, pairs: int, what: str) -> None:
    shape = np.shape(values)
    ensure(shape == (pairs,), f"{what} must be one per pair, got shape {shape} for {pairs}.")
    # A comparison with NaN is false, so NaN fails as well.
    usable = (values > 0) & (values <= 1)
    if not usable.all():
        first = int(np.argmin(usable))
        raise AssertionError(f"{what} must lie in (0, 1], got {values[first]} for pair {first}.")


def _ensure_equal(first: Floats, second: Floats, what: str) -> None:
    difference = float(np.abs(first - second).max())
    ensure(difference <= _TOLERANCE, f"{what} must agree, got a difference of {difference}.")


def _interface(propensity: Propensity, log: Log) -> None:
    fitted = propensity.fit(log.interactions)
    ensure(
        isinstance(fitted, FittedPropensity), f"fit must return a FittedPropensity, got {fitted!r}."
    )


def _values_in_range(propensity: Propensity, log: Log) -> None:
    users, items = _all_pairs(log)
    values = propensity.fit(log.interactions).predict(users, items)
    _ensure_usable(values, len(users), "propensities")


def _fit_is_repeatable(propensity: Propensity, log: Log) -> None:
    users, items = _all_pairs(log)
    first = propensity.fit(log.interactions)
    second = propensity.fit(log.interactions)
    predicted = first.predict(users, items)
    _ensure_equal(predicted, first.predict(users, items), "two predictions of one fit")
    _ensure_equal(predicted, second.predict(users, items), "two fits on the same log")


def _order_of_log_is_irrelevant(propensity: Propensity, log: Log) -> None:
    users, items = _all_pairs(log)
    order = np.random.default_rng(0).permutation(len(log.interactions))
    shuffled: Interactions = log.interactions.take(order)
    first = propensity.fit(log.interactions).predict(users, items)
    second = propensity.fit(shuffled).predict(users, items)
    _ensure_equal(first, second, "fits on the same log in another order")


def _pairs_do_not_interact(propensity: Propensity, log: Log) -> None:
    users, items = _all_pairs(log)
    fitted = propensity.fit(log.interactions)
    together = fitted.predict(users, items)
    backwards = fitted.predict(users[::-1], items[::-1])[::-1]
    _ensure_equal(together, backwards, "predictions in another order")


def _unseen_items_handled(propensity: Propensity, log: Log) -> None:
    fitted = propensity.fit(log.interactions)
    users = np.array([0, 0])
    # The last item is known but not in the log.
    absent = np.full(2, log.n_items - 1)
    _ensure_usable(fitted.predict(users, absent), 2, "propensities of an item outside the log")
    unknown = np.full(2, log.n_items + 7)
    try:
        values = fitted.predict(users, unknown)
    except CalibrankError:
        return
    _ensure_usable(values, 2, "propensities of an unknown item")


PROPENSITY_LAWS: dict[str, Law] = {
    "fit returns a fitted propensity": _interface,
    "propensities lie in (0, 1]": _values_in_range,
    "fit and predict are deterministic": _fit_is_repeatable,
    "permuting the log changes nothing": _order_of_log_is_irrelevant,
    "the propensity of a pair does not depend on other pairs": _pairs_do_not_interact,
    "an unseen item gets a propensity, or a calibrank error if unknown": _unseen_items_handled,
}
"""Laws of every estimator, by statement: functions of the estimator and a `Log`."""
