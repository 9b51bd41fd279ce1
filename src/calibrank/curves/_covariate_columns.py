"""Columns of features in a fit: numbers become smooth functions, text one number per category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrank._internal.segment_keys import Encoded, column_of, encode
from calibrank._internal.validation import Floats, Indices
from calibrank.curves._design import Codes, Group
from calibrank.errors import DataError
from calibrank.maps import CategoryTerm, Term
from calibrank.maps.terms import feature, require_rows

MOST_CATEGORIES = 1_000
"""Categories of a column: the fit solves systems of as many equations."""

# Most functions are nearly straight: a deviation's standard deviation of 0.1 is expected before
# the data. With thousands of labels it changes nothing; with 300, a function of the most likely
# standard deviation alone is too often one of noise.
_CURVATURE_RATE = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class NumberColumn:
    """A feature of numbers."""

    name: str
    values: Floats

    def codes(self) -> Indices:
        """Rows with equal values have equal codes."""
        return np.unique(self.values, return_inverse=True)[1]


@dataclass(frozen=True, slots=True, eq=False)
class CategoryColumn:
    """A feature of categories."""

    name: str
    encoded: Encoded

    def codes(self) -> Indices:
        """Rows with equal values have equal codes."""
        return self.encoded.codes.astype(np.intp, copy=False)

    def block(self) -> CategoryBlock:
        known = [value for value in self.encoded.values if value is not None]
        if not 1 < len(known) <= MOST_CATEGORIES:
            raise DataError(
                f"feature {self.name!r} must have 2 to {MOST_CATEGORIES:,} categories, got "
                f"{len(known):,}. Use a map by segment for more, or leave the column out."
            )
        categories = sorted(set(known))
        places = {category: place for place, category in enumerate(categories)}
        # A missing category is after the last: it has no column.
        numbers = [places.get(value or "", len(places)) for value in self.encoded.values]
        codes = np.array(numbers, dtype=np.intp)[self.encoded.codes]
        return CategoryBlock(self.name, tuple(categories), Codes(codes, len(categories)))


Column = NumberColumn | CategoryColumn


def read_columns(
    names: Sequence[str], categories: Sequence[str], features: Any, rows: int
) -> list[Column]:
    """The named columns: text and the named `categories` are categories, all others numbers."""
    columns: list[Column] = []
    for name in names:
        values = column_of("features", name, features)
        if name in categories or isinstance(values, Encoded) or _is_text(values):
            encoded = encode(name, values)
            require_rows(name, "value", len(encoded.codes), rows)
            columns.append(CategoryColumn(name, encoded))
        else:
            columns.append(NumberColumn(name, feature(name, features, rows)))
    return columns


def _is_text(values: Any) -> bool:
    """Whether a column is of text by its type; in a column of any objects, by theirs."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths, which are refused as numbers
        return False
    if array.dtype.kind == "O":
        return any(isinstance(value, str) for value in array.ravel().tolist())
    return array.dtype.kind in "UST"


@dataclass(frozen=True, slots=True, eq=False)
class CategoryBlock:
    """One column of the design per category, which share a prior."""

    name: str
    categories: tuple[str, ...]
    codes: Codes

    @property
    def width(self) -> int:
        return len(self.categories)

    def groups(self, start: int) -> list[Group]:
        """The groups of the coefficients, of which the first is at `start`."""
        return [Group(slice(start, start + self.width))]

    def term(self, coefficients: Floats) -> CategoryTerm:
        """The fitted term."""
        return CategoryTerm(self.name, self.categories, tuple(coefficients.tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class NumberBlock:
    """The columns of one function: a line, and deviations with independent standard priors."""

    name: str
    values: Floats
    knots: Floats
    to_values: Floats
    """From coefficients to the values at knots."""

    @classmethod
    def of(cls, column: NumberColumn, total: Floats, knots: int, *, smooth: bool) -> NumberBlock:
        """A function with knots at quantiles."""
        x = column.values
        levels = np.linspace(0, 1, knots)
        places = np.unique(np.quantile(x, levels, method="nearest"))
        if len(places) < 2:
            raise DataError(
                f"feature {column.name!r} must differ from row to row, got only {x[0]:.6g}. "
                "Leave it out."
            )
        if not smooth:
            places = places[[0, -1]]
        to_values = places[:, None]
        if len(places) > 2:
            differences = np.diff(np.eye(len(places)), n=2, axis=0)
            to_values = np.hstack([to_values, np.linalg.pinv(differences)])
        means, products = _hat_moments(x, places, total / total.sum())
        # Centred, so that the intercept stays that of the mean row, and of unit spread.
        to_values = to_values - means @ to_values
        spreads = np.sqrt(np.maximum(np.diag(to_values.T @ products @ to_values), 0))
        if len(spreads) > 1:
            spreads[1:] = max(float(spreads[1:].mean()), 1e-12)
        return cls(column.name, x, places, to_values / spreads)

    @property
    def width(self) -> int:
        return self.to_values.shape[1]

    def groups(self, start: int) -> list[Group]:
        """The groups of the coefficients: the line, and the deviations from it."""
        groups = [Group(slice(start, start + 1))]
        if self.width > 1:
            groups.append(Group(slice(start + 1, start + self.width), _CURVATURE_RATE))
        return groups

    def columns(self, rows: slice) -> Floats:
        """The columns of the design for some rows."""
        segment, position = _positions(self.values[rows], self.knots)
        below = self.to_values[segment]
        columns: Floats = below + position[:, None] * (self.to_values[segment + 1] - below)
        return columns

    def term(self, coefficients: Floats) -> Term:
        """The fitted term."""
        values = self.to_values @ coefficients
        return Term(self.name, tuple(self.knots.tolist()), tuple(values.tolist()))


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
