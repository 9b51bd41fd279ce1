"""Subtract pooled evidence that was added before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrank._internal.validation import Indices
from calibrank.errors import DataError
from calibrank.summary.bins import Masses

# A difference this small, relative to the mass of its bin, is the rounding of sums: a bin of it
# is empty. It is far below one row in the largest bins, and far above the error of their sums.
_ROUNDING = 1e-9


def difference(mine: Masses, theirs: Masses) -> tuple[Masses, Indices]:
    """Subtract sums of the same bins; return those that keep mass, and their numbers."""
    masses = mine.minus(theirs)
    smallest = _ROUNDING * mine.total
    lacking = np.flatnonzero((masses.total < -smallest) | (masses.positive < -smallest))
    if len(lacking):
        bins = "a bin" if len(lacking) == 1 else f"{len(lacking):,} bins"
        raise not_contained(f"more mass than it in {bins}")
    left = np.flatnonzero(masses.total > smallest)
    if not len(left):
        raise DataError(
            "a difference of summaries",
            "leave some mass",
            got="none",
            remedy="Add new rows before subtracting old ones.",
        )
    kept = masses.take(left)
    # What remains of a sum of no positives or of equal squares may be a little below zero.
    return replace(
        kept,
        positive=np.maximum(kept.positive, 0),
        positive_squared=np.maximum(kept.positive_squared, 0),
        cross=np.maximum(kept.cross, 0),
        total_squared=np.maximum(kept.total_squared, 0),
    ), left


def not_contained(got: str) -> DataError:
    """The error for a summary that holds what the other does not."""
    return DataError(
        "a summary to subtract",
        "be part of the other",
        got=got,
        remedy="Subtract only what was added before, with the same weights.",
    )
