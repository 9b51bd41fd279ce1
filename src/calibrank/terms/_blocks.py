"""Blocks of the design of a fit: columns of numbers become smooth functions, levels numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from calibrank._internal.segment_keys import Key, encode_columns, leaves_of
from calibrank._internal.validation import Floats, Indices
from calibrank.errors import DataError
from calibrank.maps.level import require_present
from calibrank.maps.term import number_column
from calibrank.terms._design import SMALL, Codes, Group
from calibrank.terms.spec import Level, Smooth

# Most functions are nearly straight: a deviation's standard deviation of 0.1 is expected before
# the data. With thousands of labels it changes nothing; with 300, a function of the most likely
# standard deviation alone is too often one of noise.
_CURVATURE_RATE = 10.0
# Beyond the outermost knots, in normal scores and rows, a function is constant.
_REACH = 2.3
_TAIL_ROWS = 5


@dataclass(frozen=True, slots=True, eq=False)
class LevelBlock:
    """One column of the design per level of one column, which share a prior."""

    spec: Level
    keys: tuple[Key, ...]
    codes: Codes
    """With values, which are log odds, coefficients are slopes."""

    @classmethod
    def of(cls, spec: Level, columns: Any, rows: int) -> Iterator[LevelBlock]:
        """A block for each of the nested columns."""
        encoded = encode_columns(spec.columns, columns, rows)
        require_present(spec.columns, encoded)
        for depth in range(1, len(encoded) + 1):
            places, keys = leaves_of(encoded[:depth])
            order = sorted(range(len(keys)), key=keys.__getitem__)
            numbers = np.empty(len(keys), dtype=np.intp)
            numbers[order] = np.arange(len(keys))
            codes = Codes(numbers[places], len(keys))
            yield cls(spec, tuple(keys[place] for place in order), codes)

    def slopes(self, log_odds: Floats) -> LevelBlock:
        """The block of slopes of the same levels."""
        return replace(self, codes=replace(self.codes, values=log_odds))

    @property
    def has_slopes(self) -> bool:
        return self.codes.values is not None

    @property
    def width(self) -> int:
        return len(self.keys)

    def groups(self, start: int) -> list[Group]:
        """The groups of the coefficients, of which the first is at `start`."""
        place = slice(start, start + self.width)
        if self.has_slopes:
            return [Group(place, are_slopes=True)]
        return [Group(place, codes=self.codes)]


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


def _levels(knots: int, rows: int) -> Floats:
    """Quantiles of the knots, at equal distances in the normal score of the rank.

    The outermost ones leave a few rows beyond them, at least.
    """
    normal = NormalDist()
    reach = min(_REACH, normal.inv_cdf(1 - min(_TAIL_ROWS / rows, 0.1)))
    return np.array([normal.cdf(score) for score in np.linspace(-reach, reach, knots).tolist()])


Block = NumberBlock | LevelBlock


def blocks_of(
    specs: Sequence[Level | Smooth], columns: Any, total: Floats, log_odds: Floats | None
) -> list[Block]:
    """The blocks of a fit, in the order of the design: numbers first, then the fewest levels.

    With log odds, around which slopes turn, columns of few levels have slopes too.
    """
    numbers = [NumberBlock.of(each, columns, total) for each in specs if isinstance(each, Smooth)]
    levels: list[LevelBlock] = []
    for spec in specs:
        if isinstance(spec, Level):
            levels += LevelBlock.of(spec, columns, len(total))
    for block in levels:
        _require_slopes(block, is_change=log_odds is None)
    if log_odds is not None:
        levels += [
            block.slopes(log_odds)
            for block in levels
            if block.spec.slopes is not False and 1 < block.width <= SMALL
        ]
    levels.sort(key=lambda block: block.width)
    return [*numbers, *levels]


def _require_slopes(block: LevelBlock, *, is_change: bool) -> None:
    """Raise a `DataError` where slopes are asked for that a joint fit does not have."""
    if not block.spec.slopes or (block.width <= SMALL and not is_change):
        return
    rule = f"have at most {SMALL} levels beside other terms"
    if is_change:
        rule = "be the only term that is anchored"
    raise DataError(
        repr(block.spec),
        rule,
        f"{block.width:,} levels",
        "Without slopes=True it has intercepts alone.",
    )


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
