"""Level terms: an intercept and a slope per level of one or more nested columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np

from calibrank._internal.arguments import listed
from calibrank._internal.segment_keys import Encoded, Key, encode_columns, find_nodes, number_nodes
from calibrank._internal.validation import Floats, Indices
from calibrank.errors import DataError, ScoreShiftWarning
from calibrank.maps.checks import (
    require,
    require_finite,
    require_names,
    require_none_negative,
    require_sizes,
    scaled,
)
from calibrank.maps.targets.target import Target
from calibrank.maps.term import Margins, Term

LARGEST_UNKNOWN = 0.5
"""A larger fraction of rows with levels that a map does not know is reported."""
_FEWEST_ROWS = 30
_MOST_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class SlopeErrors:
    """How well the slopes of levels are known; `errors` of the term are then those at `center`."""

    center: float
    """Log odds of the curve, about which slopes turn."""
    errors: tuple[float, ...]
    """Standard errors of the slopes."""
    covariances: tuple[float, ...]
    """Of each slope and the log odds at the center."""
    spreads: tuple[float, ...]
    """Standard deviation of the slopes between the levels of each column."""

    def scaled(self, factor: float) -> SlopeErrors:
        """Of slopes that differ by a factor as much."""
        covariances = scaled(self.covariances, factor**2)
        errors, spreads = scaled(self.errors, factor), scaled(self.spreads, factor)
        return SlopeErrors(self.center, errors, covariances, spreads)

    def take(self, nodes: Sequence[int]) -> SlopeErrors:
        """Of levels by number, from 1 on; 0 has none of its own."""
        errors = np.insert(self.errors, 0, 0.0)[list(nodes)]
        covariances = np.insert(self.covariances, 0, 0.0)[list(nodes)]
        return replace(self, errors=tuple(errors.tolist()), covariances=tuple(covariances.tolist()))

    def moved(self, shift: float, slope: float) -> SlopeErrors:
        """Of the map whose log odds are `shift + slope * log odds`."""
        center = shift + slope * self.center
        return replace(self, center=center, covariances=scaled(self.covariances, slope))


@dataclass(frozen=True, slots=True)
class LevelTerm(Term):
    """An intercept and a slope per level: its log odds are `intercept + slope * z`, z the curve's.

    With several columns, such as country and city, a level is a country, or a city in a country. A
    row belongs to the most specific level that is known: an unknown city counts as its country. A
    row of an unknown country gets `typical`, the intercept of a level that was never seen.
    """

    kind: ClassVar[str] = "level"
    role: ClassVar[str] = "level"
    newer: ClassVar[tuple[str, ...]] = ("slope_errors",)

    columns: tuple[str, ...]
    keys: tuple[Key, ...]
    intercepts: tuple[float, ...]
    slopes: tuple[float, ...]
    errors: tuple[float, ...]
    """Standard errors of the log odds of each level, relative to the curve."""
    rows: tuple[int, ...]
    spreads: tuple[float, ...]
    """Standard deviation of the log odds between the levels of each column, as estimated."""
    typical: float = 0.0
    slope_errors: SlopeErrors | None = None
    """None where slopes do not differ, or in maps that older versions saved."""

    def __post_init__(self) -> None:
        require_names(self.columns, "columns")
        count, depth = len(self.keys), len(self.columns)
        numbers = (self.intercepts, self.slopes, self.errors, self.rows)
        require_sizes("the numbers of levels", count, *numbers)
        require_sizes("the spreads of columns", depth, self.spreads)
        least = np.asarray(self.slopes, np.float64).min(initial=1.0)
        require(least > 0, "the slope of a level", "be positive", float(least))
        require_none_negative("errors and spreads of levels", self.errors + self.spreads)
        all_numbers = (self.typical, *self.intercepts, *self.slopes, *self.errors, *self.spreads)
        require_finite("the numbers of a level", all_numbers)
        of = self.slope_errors
        if of is not None:
            require_sizes("slope_errors", count, of.errors, of.covariances)
            require_sizes("the spreads of slope_errors", depth, of.spreads)
            require_none_negative("slope_errors", of.errors + of.spreads)
            all_numbers = (of.center, *of.errors, *of.spreads, *of.covariances)
            require_finite("the numbers of slope_errors", all_numbers)
        self._require_keys()

    def _require_keys(self) -> None:
        keys = set(self.keys)
        require(len(keys) == len(self.keys), "levels", "have different keys")
        # There may be a million of one value each, which need no further look.
        depths = set(map(len, keys))
        rule = f"have 1 to {len(self.columns)} values"
        require(depths <= {*range(1, len(self.columns) + 1)}, "the key of a level", rule)
        for key in keys if depths - {1} else ():
            has_parent = len(key) == 1 or key[:-1] in keys
            require(has_parent, f"level {key}", f"have its parent {key[:-1]} among the levels")

    def __len__(self) -> int:
        return len(self.keys)

    def on(self, target: Target, score: Any, curve: Any, x: Any) -> Any:
        intercepts, slopes, _ = self._arrays
        if (slopes == 1).all():
            return target.by_level(x, self.keys, intercepts)
        return target.scaled_by_level(curve, x, self.keys, intercepts, slopes - 1)

    def read(self, columns: Any, rows: int | None = None) -> Indices:
        """The number of each row's level, from 1 on; 0 is a level that is not known."""
        encoded = encode_columns(self.columns, columns, rows)
        require_present(self.columns, encoded)
        nodes = find_nodes(self._numbers, encoded)
        self._warn_if_unknown(nodes, encoded[0])
        return nodes

    def node(self, key: Key) -> int:
        """The number of the longest known part of a key; 0 if none is known."""
        while key and key not in self._numbers:
            key = key[:-1]
        return self._numbers.get(key, 0)

    def curve_change(self, x: Indices) -> Floats | float:
        return self._arrays[1][x] - 1

    def margins(self, scores: Floats, curve: Floats, x: Indices, level: float) -> Margins:
        """Of the level, with the spread of the columns in which the row's level is not known."""
        variances = self._arrays[2][x]
        if self._slope_arrays is not None:
            center, slopes, covariances = self._slope_arrays
            distance = curve - center
            # A level's own covariance is that of a semidefinite matrix, up to rounding.
            variances = variances + distance * (2 * covariances[x] + distance * slopes[x])
        margin = -NormalDist().inv_cdf((1 - level) / 2) * np.sqrt(np.maximum(variances, 0))
        return margin, margin

    def moved(self, shift: float, slope: float) -> Self:
        # A slope of the level multiplies the shift of the curve too.
        pairs = zip(self.intercepts, self.slopes, strict=True)
        return replace(
            self,
            intercepts=tuple(slope * intercept - (own - 1) * shift for intercept, own in pairs),
            errors=scaled(self.errors, slope),
            spreads=scaled(self.spreads, slope),
            typical=slope * self.typical,
            slope_errors=self.slope_errors and self.slope_errors.moved(shift, slope),
        )

    # There may be a million levels, and few rows: these are made once.
    @cached_property
    def _numbers(self) -> dict[Key, int]:
        return number_nodes(self.keys)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        """Intercepts, slopes and variances by number; the first is of unknown levels."""
        intercepts, slopes = (self.typical, *self.intercepts), (1.0, *self.slopes)
        variances = self._variances(self.errors, self.spreads)
        return np.array(intercepts), np.array(slopes), variances

    @cached_property
    def _slope_arrays(self) -> tuple[float, Floats, Floats] | None:
        """The center, and variances of slopes and covariances by number."""
        of = self.slope_errors
        if of is None:
            return None
        covariances = np.array((0.0, *of.covariances))
        return of.center, self._variances(of.errors, of.spreads), covariances

    def _variances(self, errors: Sequence[float], spreads: Sequence[float]) -> Floats:
        """By number: of the level, and between the levels of columns where it is not known."""
        squares = np.array(spreads) ** 2
        unknown = np.append(squares[::-1].cumsum()[::-1], 0.0)
        depths = np.array([len(key) for key in self.keys], dtype=np.intp)
        return np.insert(np.array(errors) ** 2 + unknown[depths], 0, unknown[0])

    def _warn_if_unknown(self, nodes: Indices, first: Encoded) -> None:
        unknown = np.count_nonzero(nodes == 0)
        if len(nodes) < _FEWEST_ROWS or unknown <= LARGEST_UNKNOWN * len(nodes):
            return
        known = {key[0] for key in self.keys}
        found = [value for value in first.values if value and value not in known]
        message = (
            f"{unknown:,} of {len(nodes):,} rows have a {self.columns[0]} that the map does not "
            f"know, such as {listed(found[:_MOST_EXAMPLES])}: they get that of a typical one. "
            f"Write the values as in the fit, such as {listed(sorted(known)[:1])}."
        )
        # From here: read, the map's method, and then the caller.
        warnings.warn(message, ScoreShiftWarning, stacklevel=5)

    @property
    def description(self) -> str:
        spreads = ", ".join(f"{spread:.2g}" for spread in self.spreads)
        return (
            f"in {len(self):,} levels of {' > '.join(self.columns)}, whose log odds differ by a "
            f"standard deviation of {spreads}"
        )

    @property
    def largest_term(self) -> float:
        return max(map(abs, (self.typical, *self.intercepts)))

    def example(self, place: int) -> dict[str, str | float]:
        keys: Sequence[Key] = (("\N{SNOWMAN} (unknown)",), *self.keys)
        key = keys[place % len(keys)]
        missing = len(self.columns) - len(key)
        return dict(zip(self.columns, (*key, *["(unknown)"] * missing), strict=True))


def require_present(names: Sequence[str], columns: Sequence[Encoded]) -> None:
    """Raise a `DataError` if a level is missing: which one it is is then not known."""
    for name, column in zip(names, columns, strict=True):
        if None not in column.values:
            continue
        missing = np.flatnonzero(column.codes == column.values.index(None))
        if len(missing):
            remedy = 'Drop such rows, or fill them with a text, such as "missing".'
            subject = f"column {name!r}"
            raise DataError(subject, "not be missing", "no value", remedy, missing[0])
