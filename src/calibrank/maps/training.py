"""What every fit records of its summary, and what it requires of it."""

from __future__ import annotations

import numpy as np

from calibrank.errors import DataError, FitError
from calibrank.maps.record import FitRecord
from calibrank.summary import Summary

SMALLEST_RISE = 1e-6
"""Log odds that each part of a curve gains over the fitted range, at least.

A lower bound above 0 keeps maps strictly increasing; this one is too small to be visible.
"""

SMALLEST_RANGE = 1e-100
"""Scores whose range is below this count as constant: their squared differences would underflow."""

# Quantiles of the scores that a map keeps, from which it can be anchored without its log.
_QUANTILES = 201


def record_of(summary: Summary) -> FitRecord:
    """The part of a map's record that describes its training data."""
    return FitRecord(
        evidence=summary.kind,
        rows=summary.rows,
        positive=float(summary.positive.sum()),
        total=float(summary.total.sum()),
        exact=summary.exact,
        score_quantiles=_score_quantiles(summary),
    )


def _score_quantiles(summary: Summary) -> tuple[float, ...]:
    cumulative = np.cumsum(summary.total)
    # A little below each level, so that rounding does not decide on which side of it a bin ends.
    levels = np.linspace(0, 1, _QUANTILES)[1:-1] - 1e-9
    inner = summary.scores[np.searchsorted(cumulative, levels * cumulative[-1])]
    return summary.low, *inner.tolist(), summary.high


def require_both_classes(summary: Summary) -> None:
    """Raise a `FitError` unless the evidence holds positive and negative mass."""
    found, remedy = "", ""
    if summary.positive.sum() == 0:
        found, remedy = "no positive", "Calibrate on a sample that holds interactions too."
    # At probability 1 a row has no residual exactly when its positive mass is its total mass.
    elif not summary.squared_residuals(np.ones(len(summary))).any():
        found, remedy = "only positives", "Add pairs without an interaction (negatives)."
    if found:
        raise FitError("labels", "hold both classes", f"{found} in {summary.rows:,} rows", remedy)


def require_spread(summary: Summary) -> None:
    """Raise a `DataError` if all scores are equal."""
    if summary.high - summary.low < SMALLEST_RANGE:
        raise DataError(
            "scores",
            "differ from row to row",
            f"only {summary.low:.6g}",
            "A constant score carries no information: check the model or the column.",
        )
