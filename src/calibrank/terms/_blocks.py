"""Blocks of the design of a fit: columns of numbers become smooth functions, levels numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from calibrank._internal.segment_keys import encode_columns, leaves_of
from calibrank._internal.validation import Floats, Indices
from calibrank.errors import DataError
from calibrank.maps.level import require_present
from calibrank.maps.term import number_column
from calibrank.terms._design import SMALL, Group, Levels
from calibrank.terms.spec import Level, Smooth

# Most functions are nearly straight: a deviation's standard deviation of 0.1 is expected before
# the data. With thousands of labels it changes nothing; with 300, a function of the most likely
# standard deviation alone is too often one of noise.
_CURVATURE_RATE = 10.0
# Beyond the outermost knots, in normal scores and rows, a function is constant.
_REACH = 2.3
_TAIL_ROWS = 5


@dataclass(frozen=True, slots=True, eq=False)
class NumberBlock:
    """The columns of one function: a line, and deviations with independent standard priors."""

    spec: Smooth
    values: Floats
    knots: Floats
    to_values: Floats
    """From coefficients to the values at knots."""

    @classmethod
    def of(cls, spec: Smooth, columns: Any, total: Floats) -> NumberBlock:
        """A function with knots at quantiles."""
        x = number_column(spec.column, columns, len(total), "feature")
        # A row without weight is as good as absent.
        used = x[total > 0]
        places = np.unique(np.quantile(used, _levels(spec.knots, len(used)), method="nearest"))
        if len(places) < 2:
            # Nearly all rows have one value.
            places = np.unique([used.min(), used.max()])
        if len(places) < 2:
            raise DataError(
                f"column {spec.column!r}",
                "differ from row to row",
                f"only {x[0]:.6g}",
                "Leave it out.",
            )
        # A line in the number of the knot, so in the normal score of the rank: one in the number
        # itself would follow a long tail, in which there are few rows.
        to_values = np.arange(float(len(places)))[:, None]
        if len(places) > 2:
            differences = np.diff(np.eye(len(places)), n=2, axis=0)
            to_values = np.hstack([to_values, np.linalg.pinv(differences)])
        means, products = _hat_moments(x, places, total / total.sum())
        # Centred, so that the intercept stays that of the mean row, and of unit spread.
        to_values = to_values - means @ to_values
        spreads = np.sqrt(np.maximum(np.diag(to_values.T @ products @ to_values), 0))
        if len(spreads) > 1:
            spreads[1:] = max(float(spreads[1:].mean()), 1e-12)
        return cls(spec, x, places, to_values / spreads)

    @property
    def width(self) -> int:
        return self.to_values.shape[1]

    def groups(self, start: int) -> list[Group]:
        """The groups of the coefficients: the line, and the deviations from it."""
        groups = [Group(slice(start, start + 1), self)]
        if self.width > 1:
            groups.append(Group(slice(start + 1, start + self.width), self, _CURVATURE_RATE))
        return groups

    def columns(self, rows: slice) -> Floats:
        """The columns of the design for some rows, one after the other."""
        segment, position = _positions(self.values[rows], self.knots)
        steps = np.diff(self.to_values.T)
        columns: Floats = self.to_values.T[:, segment] + position * steps[:, segment]
        return columns


def _levels(knots: int, rows: int) -> Floats:
    """Quantiles of the knots, at equal distances in the normal score of the rank.

    The outermost ones leave a few rows beyond them, at least.
    """
    normal = NormalDist()
    reach = min(_REACH, normal.inv_cdf(1 - min(_TAIL_ROWS / rows, 0.1)))
    return np.array([normal.cdf(score) for score in np.linspace(-reach, reach, knots).tolist()])


def levels_of(specs: Sequence[Level], columns: Any, rows: int) -> list[Levels]:
    """The levels of each of the nested columns of each term."""
    found = []
    for spec in specs:
        encoded = encode_columns(spec.columns, columns, rows)
        require_present(spec.columns, encoded)
        for depth in range(1, len(encoded) + 1):
            places, keys = leaves_of(encoded[:depth])
            order = sorted(range(len(keys)), key=keys.__getitem__)
            numbers = np.empty(len(keys), dtype=np.intp)
            numbers[order] = np.arange(len(keys))
            ordered = tuple(keys[place] for place in order)
            found.append(Levels(numbers[places], len(keys), None, spec, ordered))
    return found


def with_slopes(levels: list[Levels], log_odds: Floats | None) -> list[Levels]:
    """Levels, the fewest first; with log odds, around which they turn, few have slopes too."""
    slopes = []
    for each in levels:
        spec = each.spec
        has_slopes = log_odds is not None and each.width <= SMALL
        if spec is not None and spec.slopes and not has_slopes:
            rule = f"have at most {SMALL} levels beside other terms"
            if log_odds is None:
                rule = "be the only term that is anchored"
            remedy = "Without slopes=True it has intercepts alone."
            raise DataError(repr(spec), rule, f"{each.width:,} levels", remedy)
        if spec is not None and has_slopes and spec.slopes is not False and each.width > 1:
            slopes.append(replace(each, values=log_odds))
    return sorted([*levels, *slopes], key=lambda each: each.width)


def _positions(x: Floats, knots: Floats) -> tuple[Indices, Floats]:
    """The knot below each x, and the position between it and the next; constant beyond."""
    last = len(knots) - 2
    segment = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, last)
    position = (x - knots[segment]) / (knots[segment + 1] - knots[segment])
    return segment, np.clip(position, 0, 1)


def _hat_moments(x: Floats, knots: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The mean weight of each knot in linear interpolation, and the mean products of two."""
    segment, above = _positions(x, knots)
    below = 1 - above
    size = len(knots)
    means = np.bincount(segment, weights * below, size)
    means += np.bincount(segment + 1, weights * above, size)
    squares = np.bincount(segment, weights * below**2, size)
    squares += np.bincount(segment + 1, weights * above**2, size)
    neighbors = np.bincount(segment, weights * below * above, size)[:-1]
    products = np.diag(squares) + np.diag(neighbors, 1) + np.diag(neighbors, -1)
    # numpy's types say that counts are whole, which they are not with weights.
    return means.astype(np.float64), products.astype(np.float64)
