"""Checks of the propensities themselves: balance of columns, and calibration where it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from calibrank._internal.validation import Floats, column, require_role
from calibrank.diagnosis.finding import Finding, note, ok, warning
from calibrank.errors import DataError
from calibrank.metrics import calibration_test

# Standardized differences of means from which on columns are called unbalanced (Austin, 2011).
_UNBALANCED = 0.1
# Standard errors that a difference must exceed, and p-values that contradict calibration.
_ERRORS = 2.5
_SIGNIFICANT = 0.01
_GROUPS = 5


def check_balance(
    propensity: Floats, columns: Mapping[str, Floats], exposed: Floats | None = None
) -> Iterator[Finding]:
    """Means of columns with and without weights of 1 / propensity, and calibration if it is known.

    `exposed` is 1 where a pair was shown, 0 where it was not, and NaN where this is not known; the
    weighted mean of shown pairs must then be that of all pairs with known exposure. Without it,
    all rows were shown, and the mean of all pairs is not in the table.

    >>> found = check_balance(np.array([0.5, 0.25]), {"price": np.array([1.0, 4.0])})
    >>> print(next(found).message)
    price has a mean of 2.5 in shown rows, and 3 with weights: compare with the mean of all pairs.
    """
    propensity = column("propensity", propensity).astype(np.float64)
    require_role("propensity", "propensity", propensity)
    shown = np.ones(len(propensity), dtype=np.bool_)
    known = shown
    if exposed is not None:
        known = ~np.isnan(exposed)
        shown = exposed == 1
        if not np.isin(exposed[known], (0, 1)).all() or not shown.any() or shown[known].all():
            raise DataError("exposed", "be 0 or 1 with both among the rows, or missing")
        yield _calibration(propensity[known], exposed[known])
    weights = 1 / propensity[shown]
    for name, given in columns.items():
        values = column(name, given, len(propensity)).astype(np.float64)
        require_role("feature", f"column {name!r}", values)
        plain = float(values[shown].mean())
        weighted = float(np.average(values[shown], weights=weights))
        text = f"{name} has a mean of {plain:.4g} in shown rows, and {weighted:.4g} with weights"
        if exposed is None:
            yield note("balance", f"{text}: compare with the mean of all pairs.")
            continue
        target = float(values[known].mean())
        # Of the weighted mean; that of the target is much smaller where few pairs are shown.
        error = np.sqrt((weights**2 * (values[shown] - weighted) ** 2).sum()) / weights.sum()
        gap = abs(weighted - target)
        text += f"; that of all pairs with known exposure is {target:.4g}"
        if gap > _UNBALANCED * values[known].std() and gap > _ERRORS * error:
            yield warning("balance", f"{text}. The propensities do not account for it.")
        else:
            yield ok("balance", f"{text}.")


def _calibration(propensity: Floats, exposed: Floats) -> Finding:
    """Whether pairs were shown as often as propensities say, overall and by their size."""
    p_value = calibration_test(propensity, exposed).p_value
    order = np.argsort(propensity, kind="stable")
    groups = [
        f"{propensity[rows].mean():.2%} said, {exposed[rows].mean():.2%} shown"
        for rows in np.array_split(order, min(_GROUPS, len(order)))
    ]
    message = (
        f"Of {len(exposed):,} pairs with known exposure {exposed.mean():.2%} were shown, and the "
        f"propensities say {propensity.mean():.2%} (p = {p_value:.3f}). By fifths of propensity: "
        f"{'; '.join(groups)}."
    )
    is_right = p_value >= _SIGNIFICANT
    return ok("exposure", message) if is_right else warning("exposure", message)
