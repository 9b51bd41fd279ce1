"""Fit levels from sums: changes of a curve per level that shrink where rows are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal import native
from calibrank._internal.logit import softplus
from calibrank._internal.segment_keys import Encoded, Key
from calibrank._internal.threads import in_threads, row_slices
from calibrank._internal.validation import Floats, Indices
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, LevelTerm
from calibrank.maps.level import SlopeErrors, require_present
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums, bin_edges
from calibrank.terms._feasible import feasible
from calibrank.terms._modes import SegmentProblem, sums_of_runs
from calibrank.terms._nested import Family
from calibrank.terms._shrinkage import Changes, common_slope, shrunk_changes
from calibrank.terms.spec import Level

# The slope of a segment is at least this fraction of the global one: higher scores stay better.
_SMALLEST_SLOPE = 0.05
# Cells computed at a time: temporary arrays of this size stay in the cache.
_BLOCK = 2**14
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
    the sums are as expected. Otherwise the curve was fitted without levels, and gets the slope that
    it has within them.
    """
    columns = spec.columns
    rows = SegmentCells.of(fitted, sums)
    leaves = rows.feasible
    if not len(leaves.total):
        raise DataError(f"column {columns[0]!r}", "have values", "only missing ones")
    # Slopes turn around the mean log odds, where they change the level of a segment least.
    center = float(leaves.total @ leaves.log_odds / leaves.total.sum())
    if start is None:
        _, cells = _cells_of_depth(fitted, sums, rows, 1)
        problem = cells.problem(cells.log_odds)
        slope = common_slope(problem, center, with_slopes=spec.slopes is not False)
        # Around the center, where levels are known best.
        fitted = fitted.with_curve_moved(-slope * center, 1 + slope)
        # In place, as new memory takes longer: the leaves have the same log odds.
        rows.log_odds[:] *= 1 + slope
        rows.log_odds[:] -= slope * center
    found = LevelTable([], np.empty((6, 0)), center)
    spreads = np.zeros((2, len(columns)))
    typical = 0.0
    for depth in range(1, len(columns) + 1):
        keys, cells = _cells_of_depth(fitted, sums, leaves, depth)
        if keys:
            cells = cells.feasible
            parents = found.expected(keys, start)
            # Levels with a parent are expected to be like it.
            family = Family.of(keys, spreads[0, depth - 2]) if depth > 1 else None
            changes = _changes(cells, parents, center, spec, family)
            if family is not None and changes.parents is not None:
                found = found.with_moved(family.keys, *changes.parents)
                changes = changes.with_errors_of(found.variances([key[:-1] for key in keys]))
            typical += changes.typical
            spreads[:, depth - 1] = changes.intercept_sd, changes.slope_sd
            found = found.with_changes(keys, changes, parents, cells.squares[2])
    loss = rows.loss(*found.of(sums.keys))
    found = found.in_order()
    if start is not None:
        found = _with_expected(found, start, typical)
        typical += start.factor * start.term.typical
        # A level that neither has seen differs as the start's do, and deviates from that as well.
        spreads[0] = np.hypot(start.factor * np.array(start.term.spreads), spreads[0])
        if start.term.slope_errors is not None:
            before = start.factor * np.array(start.term.slope_errors.spreads)
            spreads[1] = np.hypot(before, spreads[1])
    term = found.term(columns, spreads, typical)
    record = replace(fitted.record, loss=loss)
    return replace(fitted, record=record, terms=(*fitted.terms, term))


class LevelTable(NamedTuple):
    """Levels with one column of numbers each, which are those of a term."""

    keys: list[Key]
    table: Floats
    """Intercepts, slopes, errors of the log odds at the center, rows, errors of the slopes and
    covariances of both errors; there may be a million of each."""
    center: float

    def of(self, keys: Sequence[Key]) -> Floats:
        """Intercepts and slopes of some of the levels."""
        if keys is self.keys:
            return self.table[:2]
        numbers = {key: number for number, key in enumerate(self.keys)}
        return np.take(self.table[:2], [numbers[key] for key in keys], axis=1)

    def variances(self, keys: Sequence[Key]) -> Floats:
        """Variances of intercepts and slopes of some of the levels, and their covariances."""
        numbers = {key: number for number, key in enumerate(self.keys)}
        errors, _, slope_errors, covariances = self.table[2:, [numbers[key] for key in keys]]
        return np.array([errors**2, slope_errors**2, covariances])

    def expected(self, keys: Sequence[Key], start: Start | None = None) -> Floats:
        """Intercepts and slopes of levels of one depth before their own rows.

        Those of the parents (0 and 1 for the curve), and what a start expects from parent to child.
        """
        has_parents = len(keys[0]) > 1
        if has_parents:
            result = self.of([key[:-1] for key in keys])
        else:
            result = np.tile([[0.0], [1.0]], len(keys))
        if start is None:
            return result
        children = np.array([start.change(key) for key in keys])
        before = np.array([start.change(key[:-1]) if has_parents else (0.0, 1.0) for key in keys])
        return result + (children - before).T

    def with_changes(
        self, keys: list[Key], changes: Changes, parents: Floats, rows: Floats
    ) -> LevelTable:
        """With the levels of one more column."""
        # The change c * (z - center) is c * z and a constant.
        intercepts = parents[0] + changes.intercepts - changes.slopes * self.center
        slopes = parents[1] + changes.slopes
        errors = (changes.errors, rows, changes.slope_errors, changes.covariances)
        return self.followed_by(keys, np.array([intercepts, slopes, *errors]))

    def with_moved(self, keys: Sequence[Key], shifts: Floats, variances: Floats) -> LevelTable:
        """With some of the levels moved at the center, where their variances increase."""
        numbers = {key: number for number, key in enumerate(self.keys)}
        places = [numbers[key] for key in keys]
        table = self.table.copy()
        table[0, places] += shifts
        table[2, places] = np.sqrt(table[2, places] ** 2 + variances)
        return self._replace(table=table)

    def followed_by(self, keys: list[Key], table: Floats) -> LevelTable:
        """These levels and then others."""
        if self.keys:
            keys, table = [*self.keys, *keys], np.hstack([self.table, table])
        return self._replace(keys=keys, table=table)

    def in_order(self) -> LevelTable:
        """By depth and key; texts are sorted in half of the time of tuples."""
        values: list[Any] = [key[0] for key in self.keys]
        if len(self.keys[-1]) > 1:
            values = [(len(key), key) for key in self.keys]
        order = sorted(range(len(values)), key=values.__getitem__)
        return self._replace(
            keys=[self.keys[place] for place in order], table=np.take(self.table, order, axis=1)
        )

    def term(self, columns: tuple[str, ...], spreads: Floats, typical: float = 0.0) -> LevelTerm:
        """The term of these levels; spreads are those of intercepts and of slopes, by column."""
        own, of_slopes = [tuple(each) for each in spreads.tolist()]
        rows = tuple(self.table[3].astype(int).tolist())
        intercepts, slopes, errors, _, slope_errors, covariances = map(tuple, self.table.tolist())
        of = None
        if any(slope_errors) or any(of_slopes):
            of = SlopeErrors(self.center, slope_errors, covariances, of_slopes)
        changes = (intercepts, slopes)
        return LevelTerm(columns, tuple(self.keys), *changes, errors, rows, own, typical, of)


def _with_expected(found: LevelTable, start: Start, typical: float) -> LevelTable:
    """With the levels of a start that have no labels: they change as their parent does.

    Those without a parent change as the others do on average.
    """
    term = start.term
    known = set(found.keys)
    for depth in range(1, len(term.columns) + 1):
        places = [
            place for place, key in enumerate(term.keys) if len(key) == depth and key not in known
        ]
        if places:
            keys = [term.keys[place] for place in places]
            intercepts, slopes = found.expected(keys, start)
            slopes = np.maximum(slopes, _SMALLEST_SLOPE)
            errors, slope_errors, covariances = _errors_at(term, found.center)[:, places]
            rows = np.array(term.rows)[places]
            of_slopes = (start.factor * slope_errors, start.factor**2 * covariances)
            if depth == 1:
                intercepts = intercepts + typical
            table = np.array([intercepts, slopes, start.factor * errors, rows, *of_slopes])
            found = found.followed_by(keys, table)
    return found


def _errors_at(term: LevelTerm, center: float) -> Floats:
    """Errors of levels' log odds at a center and of their slopes, and their covariances."""
    errors = np.array(term.errors)
    of = term.slope_errors
    if of is None:
        return np.array([errors, np.zeros(len(term)), np.zeros(len(term))])
    distance = center - of.center
    slopes, covariances = np.array(of.errors), np.array(of.covariances)
    variances = errors**2 + distance * (2 * covariances + distance * slopes**2)
    errors = np.sqrt(np.maximum(variances, 0.0))
    return np.array([errors, slopes, covariances + distance * slopes**2])


def _cells_of_depth(
    fitted: CalibrationMap, sums: SegmentSums, leaves: SegmentCells, depth: int
) -> tuple[list[Key], SegmentCells]:
    """The keys of one length, and the cells of all rows below each."""
    if set(map(len, sums.keys)) == {depth}:
        return sums.keys, leaves
    numbers: dict[Key, int] = {}
    rows = []
    places = []
    for row, key in enumerate(sums.keys):
        if len(key) >= depth:
            rows.append(row)
            places.append(numbers.setdefault(key[:depth], len(numbers)))
    if not numbers:
        return [], leaves
    merged = sums.merged(np.array(rows), np.array(places))
    return list(numbers), SegmentCells.of(fitted, merged)


def _changes(
    cells: SegmentCells, parents: Floats, center: float, spec: Level, family: Family | None
) -> Changes:
    """Changes of levels from their parents, whose order they keep: slopes are bounded."""
    problem = cells.problem(cells.changed_log_odds(*parents), center)
    changes = shrunk_changes(
        problem, with_slopes=spec.slopes is not False, with_mean=family is None, family=family
    )
    lowest = _SMALLEST_SLOPE - parents[1]
    chosen = np.flatnonzero(changes.slopes < lowest)
    if not len(chosen):
        return changes
    # Raise their slopes to the bound, and fit their intercepts again.
    some = problem.take(chosen)
    offset = some.offset + lowest[chosen][some.segment] * some.x
    refitted = shrunk_changes(replace(some, offset=offset), with_slopes=False)
    changes.slopes[chosen] = lowest[chosen]
    changes.intercepts[chosen] = refitted.intercepts
    return changes


@dataclass(frozen=True, slots=True, eq=False)
class SegmentCells:
    """Cells (a bin of a segment, with rows), the cells of one segment after the other."""

    positive: Floats
    total: Floats
    log_odds: Floats
    """Of the global map, at the mean score of the cell."""
    starts: Indices
    """The first cell of each segment, and the number of cells."""
    squares: Floats
    """Sums of squares of positive and of total mass, and the number of rows, by segment."""
    is_weighted: bool
    """Whether rows have other weights than 1 or other labels than 0 and 1."""

    @classmethod
    def of(cls, fitted: CalibrationMap, sums: SegmentSums) -> SegmentCells:
        """The cells of sums that have rows."""
        positive, total, scores, starts = sums.cells.occupied()
        if sums.cells.is_weighted:
            squares = sums.by_segment
        else:
            rows = sums_of_runs(total, starts)
            squares = np.array([sums_of_runs(positive, starts), rows, rows])
        log_odds = _log_odds(fitted, scores)
        return cls(positive, total, log_odds, starts, squares, sums.cells.is_weighted)

    @property
    def feasible(self) -> SegmentCells:
        """The cells with rates of at most 1."""
        if not self.is_weighted:
            return self
        return replace(self, positive=feasible(self.positive, self.total, self.starts))

    def problem(self, offset: Floats, center: float = 0.0) -> SegmentProblem:
        """The problem of changes from an offset, with slopes that turn around a center."""
        # Without a center nothing is copied.
        x = self.log_odds - center if center else self.log_odds
        columns = (self.positive, self.total, offset, x, self.starts)
        return SegmentProblem(*columns, self.dispersion)

    def loss(self, intercepts: Floats, slopes: Floats) -> float:
        """Mean log loss, if log odds change by an intercept and a slope per segment."""
        if native.READY:
            columns = (self.positive, self.total, self.log_odds, self.starts)
            losses = np.empty(1)
            native.loops.changed_loss(*columns, intercepts, slopes, losses)
        else:
            z = self.changed_log_odds(intercepts, slopes)
            losses = self.total * softplus(z) - self.positive * z
        return float(losses.sum() / self.total.sum())

    def changed_log_odds(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Log odds that are changed by an intercept and a slope per segment."""
        if (slopes == 1).all() and not intercepts.any():
            return self.log_odds
        sizes = np.diff(self.starts)
        return np.repeat(intercepts, sizes) + np.repeat(slopes, sizes) * self.log_odds

    @property
    def dispersion(self) -> Floats:
        """By segment, how much the evidence varies relative to labels without weights.

        The sum of squares over the sum: the mean weight of a positive (or of a row) by mass.
        Segments with few positives borrow from the others.
        """
        ratios = []
        for mass, squares in zip((self.positive, self.total), self.squares[:2], strict=True):
            sums = sums_of_runs(mass, self.starts)
            mean = float(squares.sum() / max(sums.sum(), 1e-300))
            prior = _DISPERSION_PRIOR * mean
            ratios.append((squares + prior * mean) / (sums + max(prior, 1e-300)))
        return np.maximum(np.maximum(ratios[0], ratios[1]), 1e-300)


def _log_odds(fitted: CalibrationMap, scores: Floats) -> Floats:
    """Log odds of the global map, written over the scores: new memory takes time."""

    def write(rows: slice) -> None:
        for start in range(rows.start, rows.stop, _BLOCK):
            block = slice(start, min(start + _BLOCK, rows.stop))
            scores[block] = fitted.curve.log_odds_on(NumpyTarget(), scores[block])

    in_threads(write, row_slices(len(scores)) if len(scores) > _BLOCK else [slice(0, len(scores))])
    return scores
