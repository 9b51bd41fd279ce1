"""Fit levels from sums: changes of a curve per level that shrink where rows are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.segment_keys import Encoded, Key
from calibrank._internal.validation import Floats, Indices
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, LevelTerm
from calibrank.maps.level import SlopeErrors, require_present
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums, bin_edges
from calibrank.terms._segment_cells import SegmentCells
from calibrank.terms._shrinkage import Changes, SegmentProblem, shrunk_changes
from calibrank.terms.spec import Level

# The slope of a segment is at least this fraction of the global one: higher scores stay better.
_SMALLEST_SLOPE = 0.05
# Positive mass, in units of the mean weight, with which the dispersion of a segment is shrunk.
_DISPERSION_PRIOR = 10.0


def sums_by_level(
    spec: Level, scores: Floats, evidence: Evidence, encoded: Sequence[Encoded], summary: Summary
) -> SegmentSums:
    """Sums of rows by level, in bins at quantiles of a summary."""
    require_present(spec.columns, encoded)
    sums = SegmentSums(bin_edges(summary), spec.columns)
    sums.add(scores, evidence, encoded)
    return sums


class Start(NamedTuple):
    """Levels that are expected before the labels: those of a term, times a factor."""

    term: LevelTerm
    factor: float

    def change(self, key: Key) -> tuple[float, float]:
        """The expected intercept and slope of a level, as far as it is known."""
        node = self.term.node(key)
        if not node:
            return self.factor * self.term.typical, 1.0
        slope = 1 + self.factor * (self.term.slopes[node - 1] - 1)
        return self.factor * self.term.intercepts[node - 1], slope


def fit_levels(
    fitted: CalibrationMap, sums: SegmentSums, spec: Level, start: Start | None = None
) -> CalibrationMap:
    """A map with its log odds changed by level, one column after the other.

    With a `start`, levels shrink towards what it expects of them, and those that have no rows in
    the sums are as expected.
    """
    columns = spec.columns
    slopes = spec.slopes is not False
    leaves = SegmentCells.of(fitted, sums)
    if not len(leaves.total):
        raise DataError(f"column {columns[0]!r}", "have values", "only missing ones")
    # Slopes turn around the mean log odds, where they change the level of a segment least.
    center = float(leaves.total @ leaves.log_odds / leaves.total.sum())
    found: dict[Key, _Change] = {}
    spreads = []
    slope_spreads = []
    typical = 0.0
    for depth in range(1, len(columns) + 1):
        level = _Level.of(fitted, sums, leaves, depth)
        if not level.keys:
            spreads.append(0.0)
            slope_spreads.append(0.0)
            continue
        parents = _Parents.of(found, level.keys, start)
        # Levels with a parent are expected to be like it.
        changes = _changes_of_level(
            level, parents, center, with_slopes=slopes, with_mean=depth == 1
        )
        typical += changes.typical
        spreads.append(changes.intercept_sd)
        slope_spreads.append(changes.slope_sd)
        found |= _changes_by_key(level, changes, parents, center)
    loss = leaves.loss(*_numbers([found[key] for key in sums.keys]))
    if start is not None:
        _add_expected(found, start, typical, center)
        typical += start.factor * start.term.typical
        # A level that neither has seen differs as the start's do, and deviates from that as well.
        spreads = np.hypot(start.factor * np.array(start.term.spreads), spreads).tolist()
        if start.term.slope_errors is not None:
            before = start.factor * np.array(start.term.slope_errors.spreads)
            slope_spreads = np.hypot(before, slope_spreads).tolist()
    columns_found = zip(*found.values(), strict=True)
    intercepts, slopes_found, errors, rows, slope_errors, covariances = columns_found
    of_slopes = SlopeErrors(center, slope_errors, covariances, tuple(slope_spreads))
    term = LevelTerm(
        columns,
        tuple(found),
        intercepts,
        slopes_found,
        errors,
        rows,
        tuple(spreads),
        typical,
        of_slopes if any(slope_errors) or any(slope_spreads) else None,
    )
    record = replace(fitted.record, loss=loss)
    return replace(fitted, record=record, terms=(*fitted.terms, term))


def _add_expected(found: dict[Key, _Change], start: Start, typical: float, center: float) -> None:
    """Add the levels of a start that have no labels: they change as their parent does.

    Those without a parent change as the others do on average.
    """
    term = start.term
    for place, key in enumerate(term.keys):
        if key not in found:
            intercepts, slopes = _Parents.of(found, [key], start)
            slope = max(float(slopes[0]), _SMALLEST_SLOPE)
            intercept = float(intercepts[0]) + (typical if len(key) == 1 else 0.0)
            error, *of_slope = _errors_at(term, place, center)
            errors = [start.factor * error, start.factor * of_slope[0]]
            covariance = start.factor**2 * of_slope[1]
            found[key] = _Change(
                intercept, slope, errors[0], term.rows[place], errors[1], covariance
            )


def _errors_at(term: LevelTerm, place: int, center: float) -> tuple[float, float, float]:
    """Errors of a level's log odds at a center and of its slope, and their covariance."""
    error = term.errors[place]
    of = term.slope_errors
    if of is None:
        return error, 0.0, 0.0
    distance = center - of.center
    slope, covariance = of.errors[place], of.covariances[place]
    variance = error**2 + distance * (2 * covariance + distance * slope**2)
    return float(np.sqrt(max(variance, 0.0))), slope, covariance + distance * slope**2


class _Change(NamedTuple):
    """The change of one level, as the term has it."""

    intercept: float
    slope: float
    error: float
    """Of the log odds at the center."""
    rows: int
    slope_error: float = 0.0
    covariance: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The sums of all segments whose keys have one length."""

    keys: list[Key]
    cells: SegmentCells

    @classmethod
    def of(
        cls, fitted: CalibrationMap, sums: SegmentSums, leaves: SegmentCells, depth: int
    ) -> _Level:
        if set(map(len, sums.keys)) == {depth}:
            return cls(sums.keys, leaves)
        numbers: dict[Key, int] = {}
        rows = []
        places = []
        for row, key in enumerate(sums.keys):
            if len(key) >= depth:
                rows.append(row)
                places.append(numbers.setdefault(key[:depth], len(numbers)))
        if not numbers:
            return cls([], leaves)
        merged = sums.merged(np.array(rows), np.array(places))
        return cls(list(numbers), SegmentCells.of(fitted, merged))

    @property
    def dispersion(self) -> Floats:
        """By segment, how much the evidence varies relative to labels without weights.

        The sum of squares over the sum: the mean weight of a positive (or of a row) by mass.
        Segments with few positives borrow from the others.
        """
        ratios = []
        masses = (self.cells.positive, self.cells.total)
        for mass, squares in zip(masses, self.cells.squares[:2], strict=True):
            sums = self.cells.by_segment(mass)
            mean = float(squares.sum() / max(sums.sum(), 1e-300))
            prior = _DISPERSION_PRIOR * mean
            ratios.append((squares + prior * mean) / (sums + max(prior, 1e-300)))
        return np.maximum(np.maximum(ratios[0], ratios[1]), 1e-300)


class _Parents(NamedTuple):
    """Intercept and slope of each level before its own rows; 0 and 1 for the curve."""

    intercepts: Floats
    slopes: Floats

    @classmethod
    def of(
        cls, found: dict[Key, _Change], keys: Sequence[Key], start: Start | None = None
    ) -> _Parents:
        """The changes of the parents, with those that a start expects from parent to child."""
        own = [found.get(key[:-1], _NO_CHANGE) for key in keys]
        intercepts, slopes = _numbers(own)
        if start is None:
            return cls(intercepts, slopes)
        children = np.array([start.change(key) for key in keys])
        before = np.array([start.change(key[:-1]) if key[:-1] else (0.0, 1.0) for key in keys])
        expected = children - before
        return cls(intercepts + expected[:, 0], slopes + expected[:, 1])

    def log_odds_of(self, cells: SegmentCells) -> Floats:
        """The log odds of each cell by the map of the parent."""
        if (self.slopes == 1).all() and not self.intercepts.any():
            return cells.log_odds
        return cells.spread(self.intercepts) + cells.spread(self.slopes) * cells.log_odds


_NO_CHANGE = _Change(0.0, 1.0, 0.0, 0)


def _numbers(levels: Sequence[_Change]) -> tuple[Floats, Floats]:
    """Intercepts and slopes as arrays."""
    intercepts = np.array([level.intercept for level in levels])
    return intercepts, np.array([level.slope for level in levels])


def _changes_of_level(
    level: _Level, parents: _Parents, center: float, *, with_slopes: bool, with_mean: bool
) -> Changes:
    cells = level.cells
    problem = SegmentProblem(
        positive=cells.positive,
        total=cells.total,
        offset=parents.log_odds_of(cells),
        x=cells.log_odds - center,
        starts=cells.starts,
        dispersion=level.dispersion,
    )
    changes = shrunk_changes(problem, with_slopes=with_slopes, with_mean=with_mean)
    lowest = _SMALLEST_SLOPE - parents.slopes
    reversed_order = np.flatnonzero(changes.slopes < lowest)
    if len(reversed_order):
        changes = _with_bounded_slopes(problem, changes, reversed_order, lowest)
    return changes


def _with_bounded_slopes(
    problem: SegmentProblem, changes: Changes, chosen: Indices, lowest: Floats
) -> Changes:
    """Raise the slopes of some segments to their bound, and fit their intercepts again."""
    some = problem.take(chosen)
    slopes = changes.slopes.copy()
    slopes[chosen] = lowest[chosen]
    offset = some.offset + lowest[chosen][some.segment] * some.x
    refitted = shrunk_changes(replace(some, offset=offset), with_slopes=False)
    intercepts = changes.intercepts.copy()
    intercepts[chosen] = refitted.intercepts
    return changes._replace(intercepts=intercepts, slopes=slopes)


def _changes_by_key(
    level: _Level, changes: Changes, parents: _Parents, center: float
) -> dict[Key, _Change]:
    """The changes of one column's levels by key, in the order of keys."""
    # The change c * (z - center) is c * z and a constant.
    intercepts = parents.intercepts + changes.intercepts - changes.slopes * center
    order = _order(level.keys)
    keys = [level.keys[number] for number in order]
    columns = (
        intercepts,
        parents.slopes + changes.slopes,
        changes.errors,
        level.cells.squares[2].astype(np.int64),
        changes.slope_errors,
        changes.covariances,
    )
    # There may be a million of them: tuples without checks are made fastest.
    rows = zip(*[values[order].tolist() for values in columns], strict=True)
    return dict(zip(keys, map(tuple.__new__, repeat(_Change), rows), strict=True))


def _order(keys: Sequence[Key]) -> list[int]:
    """The order of keys of one length; texts are sorted in half of the time of tuples."""
    values: Sequence[Any] = [key[0] for key in keys] if len(keys[0]) == 1 else keys
    return sorted(range(len(keys)), key=values.__getitem__)
