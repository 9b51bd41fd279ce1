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
from calibrank.maps.targets.target import Target
from calibrank.maps.term import Margins, Term, require_finite, require_names

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
        return SlopeErrors(
            self.center,
            tuple(factor * each for each in self.errors),
            tuple(factor**2 * each for each in self.covariances),
            tuple(factor * each for each in self.spreads),
        )

    def take(self, nodes: Sequence[int]) -> SlopeErrors:
        """Of levels by number, from 1 on; 0 has none of its own."""
        errors = (0.0, *self.errors)
        covariances = (0.0, *self.covariances)
        return replace(
            self,
            errors=tuple(errors[node] for node in nodes),
            covariances=tuple(covariances[node] for node in nodes),
        )

    def moved(self, shift: float, slope: float) -> SlopeErrors:
        """Of the map whose log odds are `shift + slope * log odds`."""
        covariances = tuple(slope * each for each in self.covariances)
        return replace(self, center=shift + slope * self.center, covariances=covariances)


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
        lengths = {len(self.keys), *map(len, (self.intercepts, self.slopes, self.errors))}
        if len(lengths | {len(self.rows)}) > 1:
            raise DataError("a level term", "have one number of each kind per key")
        if not all(slope > 0 for slope in self.slopes):
            raise DataError("the slope of a level", "be positive", min(self.slopes))
        if not all(error >= 0 for error in self.errors):
            raise DataError("the error of a level", "not be negative", min(self.errors))
        if len(self.spreads) != len(self.columns) or not all(each >= 0 for each in self.spreads):
            raise DataError("spreads", "be one number of 0 or more per column", self.spreads)
        numbers = (self.typical, *self.intercepts, *self.slopes, *self.errors, *self.spreads)
        require_finite("the numbers of a level", numbers)
        if self.slope_errors is not None:
            self._require_slope_errors(self.slope_errors)
        self._require_keys()

    def _require_slope_errors(self, of: SlopeErrors) -> None:
        counts = (len(of.errors), len(of.covariances), len(of.spreads))
        if counts != (len(self.keys), len(self.keys), len(self.columns)):
            raise DataError(
                "slope_errors",
                "have an error and a covariance per key and a spread per column",
                counts,
            )
        numbers = (*of.errors, *of.spreads)
        if not min(numbers, default=0.0) >= 0:
            raise DataError("slope_errors", "not be negative", min(numbers))
        require_finite("the numbers of slope_errors", (of.center, *numbers, *of.covariances))

    def _require_keys(self) -> None:
        keys = set(self.keys)
        if len(keys) < len(self.keys):
            raise DataError("levels", "have different keys")
        # There may be a million of one value each, which need no further look.
        depths = set(map(len, keys))
        if depths - set(range(1, len(self.columns) + 1)):
            raise DataError("the key of a level", f"have 1 to {len(self.columns)} values")
        for key in [key for key in keys if len(key) > 1] if depths - {1} else ():
            if key[:-1] not in keys:
                raise DataError(f"level {key}", f"have its parent {key[:-1]} among the levels")

    def __len__(self) -> int:
        return len(self.keys)

    def on(self, target: Target, score: Any, curve: Any, x: Any) -> Any:
        intercepts, slopes, _ = self._arrays
        change = target.by_level(x, self.keys, intercepts)
        if (slopes == 1).all():
            return change
        return curve * target.by_level(x, self.keys, slopes - 1) + change

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
        changes: Floats = self._arrays[1][x] - 1
        return changes

    def margins(self, scores: Floats, curve: Floats, x: Indices, level: float) -> Margins:
        """Of the level, with the spread of the columns in which the row's level is not known."""
        variances = self._arrays[2][x]
        if self.slope_errors is not None:
            distance = curve - self.slope_errors.center
            slopes, covariances = self._slope_arrays
            # A level's own covariance is that of a semidefinite matrix, up to rounding.
            variances = variances + distance * (2 * covariances[x] + distance * slopes[x])
        margin = -NormalDist().inv_cdf((1 - level) / 2) * np.sqrt(np.maximum(variances, 0))
        return margin, margin

    def moved(self, shift: float, slope: float) -> Self:
        intercepts = []
        for intercept, own in zip(self.intercepts, self.slopes, strict=True):
            # A slope of the level multiplies the shift of the curve too.
            intercepts.append(slope * intercept - (own - 1) * shift)
        return replace(
            self,
            intercepts=tuple(intercepts),
            errors=tuple(slope * each for each in self.errors),
            spreads=tuple(slope * each for each in self.spreads),
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
        return (
            np.array((self.typical, *self.intercepts)),
            np.array((1.0, *self.slopes)),
            self._variances(self.errors, self.spreads),
        )

    @cached_property
    def _slope_arrays(self) -> tuple[Floats, Floats]:
        """Variances of slopes, and covariances, by number."""
        of = self.slope_errors
        assert of is not None  # noqa: S101  (the only caller has asked)
        return self._variances(of.errors, of.spreads), np.array((0.0, *of.covariances))

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
        unknown_values = [value for value in first.values if value and value not in known]
        found = unknown_values[:_MOST_EXAMPLES]
        message = (
            f"{unknown:,} of {len(nodes):,} rows have a {self.columns[0]} that the map does not "
            f"know, such as {listed(found)}: they get that of a typical one. Write the values as "
            f"in the fit, such as {listed(sorted(known)[:1])}."
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
            raise DataError(
                f"column {name!r}",
                "not be missing",
                got="no value",
                row=missing[0],
                remedy='Drop such rows, or fill them with a text, such as "missing".',
            )
