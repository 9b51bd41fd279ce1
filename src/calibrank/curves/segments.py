"""Calibration by segment: a global map, and changes per segment that shrink where rows are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, shown, text
from calibrank._internal.segment_keys import Key, encode_columns
from calibrank._internal.threads import meanwhile
from calibrank._internal.validation import Floats, Indices, Numbers, column, score_column
from calibrank.curves._segment_cells import SegmentCells
from calibrank.curves._shrinkage import Changes, SegmentProblem, shrunk_changes
from calibrank.curves.calibrator import Calibrator
from calibrank.curves.parametric import Gaussian
from calibrank.errors import DataError
from calibrank.evidence import Labels, as_evidence
from calibrank.maps import CalibrationMap, GroupedMap, Segment
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums, bin_edges

# The slope of a segment is at least this fraction of the global one: higher scores stay better.
_SMALLEST_SLOPE = 0.05
# Positive mass, in units of the mean weight, with which the dispersion of a segment is shrunk.
_DISPERSION_PRIOR = 10.0


@dataclass(frozen=True, slots=True)
class Segments:
    """Partial pooling by segment: an intercept, and a slope if `slopes`, change the global map.

    `by` names the segment columns. With several, such as ("country", "city"), each is nested in the
    one before: cities shrink towards their country, countries towards the global map of `base`.
    How much segments differ is estimated from the data (empirical Bayes), so small segments
    borrow from their parent, and unknown ones get its map. Within a segment, probabilities increase
    with the score.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=4000)
    >>> country = np.where(rng.random(4000) < 0.5, "NL", "DE")
    >>> labels = rng.random(4000) < 1 / (1 + np.exp(1 - scores - (country == "NL")))
    >>> fitted = Segments("country").fit(scores, labels, {"country": country})
    >>> fitted.predict([0.0, 0.0, 0.0], {"country": ["NL", "DE", "FR"]}).round(1).tolist()
    [0.5, 0.3, 0.4]
    """

    by: tuple[str, ...]
    base: Calibrator = field(default_factory=Gaussian)
    slopes: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", column_names(self.by))
        instance("base", self.base, Calibrator, "E.g. Gaussian().")
        instance("slopes", self.slopes, bool)

    def fit(self, scores: Numbers, labels: Labels, segments: Any) -> GroupedMap:
        """Fit on scores, labels or evidence, and a mapping (or dataframe) of segment columns."""
        array = column("scores", scores)
        encode = partial(encode_columns, self.by, segments, len(array))
        with meanwhile(encode) as encoded:
            evidence = as_evidence(labels, len(array))
            summary = Summary.of(array, evidence)
            sums = SegmentSums(bin_edges(summary))
            sums.add(array, evidence, encoded())
        return self.fit_sums(summary, sums)

    def sums(self, scores: Numbers, labels: Labels, segments: Any) -> SegmentSums:
        """Sums by segment of some rows: they can be added, saved and loaded; see `fit_sums`.

        >>> rows = {"country": ["NL", "DE"] * 3}
        >>> scores, labels = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0, 1, 0, 1, 0, 1]
        >>> monday = Segments("country").sums(scores, labels, rows)
        >>> tuesday = Segments("country").sums(scores, labels, rows)
        >>> summary = Summary.of(scores, labels)
        >>> fitted = Segments("country").fit_sums(summary + summary, monday + tuesday)
        >>> [segment.rows for segment in fitted.segments]
        [6, 6]
        """
        array = score_column(scores)[0]
        sums = SegmentSums()
        columns = encode_columns(self.by, segments, len(array))
        sums.add(array, as_evidence(labels, len(array)), columns)
        return sums

    def fit_sums(self, summary: Summary, sums: SegmentSums) -> GroupedMap:
        """Fit on a summary of all rows and their sums by segment."""
        return change_by_segment(self.base.fit_summary(summary), sums, self.by, slopes=self.slopes)


def column_names(given: str | Sequence[str], argument: str = "by") -> tuple[str, ...]:
    """One or more different names of columns; errors name the argument."""
    if not isinstance(given, str | tuple | list):
        raise DataError(
            f"{argument} must be one or more column names, got {shown(given)}. E.g. 'country'."
        )
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        text(argument, name, "It names a column.")
    if not names or len(set(names)) < len(names):
        raise DataError(
            f"{argument} must be one or more different column names, got {names}. Name each once."
        )
    return names


def change_by_segment(
    fitted: CalibrationMap,
    sums: SegmentSums,
    columns: tuple[str, ...],
    *,
    slopes: bool = True,
) -> GroupedMap:
    """A map with its log odds changed by segment, one level of columns after the other."""
    leaves = SegmentCells.of(fitted, sums)
    if not len(leaves.total):
        raise DataError(f"segment column {columns[0]!r} must have values, got only missing ones.")
    # Slopes turn around the mean log odds, where they change the level of a segment least.
    center = float(leaves.total @ leaves.log_odds / leaves.total.sum())
    found: dict[Key, Segment] = {}
    spreads = []
    for depth in range(1, len(columns) + 1):
        level = _Level.of(fitted, sums, leaves, depth)
        if not level.keys:
            spreads.append(0.0)
            continue
        parents = _Parents.of(found, level.keys)
        changes = _changes_of_level(level, parents, center, with_slopes=slopes)
        spreads.append(changes.intercept_sd)
        found |= _segments(level, changes, parents, center)
    return GroupedMap(
        method=f"{fitted.method} by {' > '.join(columns)}",
        base=fitted,
        columns=columns,
        segments=tuple(found.values()),
        spreads=tuple(spreads),
        record=replace(fitted.record, loss=_loss(leaves, [found[key] for key in sums.keys])),
    )


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
    """Intercept and slope of each segment's parent; 0 and 1 for the global map."""

    intercepts: Floats
    slopes: Floats

    @classmethod
    def of(cls, found: dict[Key, Segment], keys: Sequence[Key]) -> _Parents:
        if not found:
            return cls(np.zeros(len(keys)), np.ones(len(keys)))
        return cls(*_numbers([found[key[:-1]] for key in keys]))

    def log_odds_of(self, cells: SegmentCells) -> Floats:
        """The log odds of each cell by the map of the parent."""
        if (self.slopes == 1).all() and not self.intercepts.any():
            return cells.log_odds
        return cells.spread(self.intercepts) + cells.spread(self.slopes) * cells.log_odds


def _numbers(segments: Sequence[Segment]) -> tuple[Floats, Floats]:
    """Intercepts and slopes as arrays."""
    intercepts = np.array([segment.intercept for segment in segments])
    return intercepts, np.array([segment.slope for segment in segments])


def _changes_of_level(
    level: _Level, parents: _Parents, center: float, *, with_slopes: bool
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
    changes = shrunk_changes(problem, with_slopes=with_slopes)
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


def _segments(
    level: _Level, changes: Changes, parents: _Parents, center: float
) -> dict[Key, Segment]:
    """The segments of a level by key, in the order of keys."""
    # The change c * (z - center) is c * z and a constant.
    intercepts = parents.intercepts + changes.intercepts - changes.slopes * center
    order = _order(level.keys)
    keys = [level.keys[number] for number in order]
    columns = (
        intercepts,
        parents.slopes + changes.slopes,
        changes.errors,
        level.cells.squares[2].astype(np.int64),
    )
    segments = Segment.trusted(keys, *[values[order].tolist() for values in columns])
    return dict(zip(keys, segments, strict=True))


def _order(keys: Sequence[Key]) -> list[int]:
    """The order of keys of one length; texts are sorted in half of the time of tuples."""
    values: Sequence[Any] = [key[0] for key in keys] if len(keys[0]) == 1 else keys
    return sorted(range(len(keys)), key=values.__getitem__)


def _loss(leaves: SegmentCells, segments: Sequence[Segment]) -> float:
    """Mean log loss over the sums."""
    return leaves.loss(*_numbers(segments))
