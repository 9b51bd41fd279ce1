"""Calibration by segment: a global map, and changes per segment that shrink where rows are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrank._arguments import instance, shown, text
from calibrank._segment_keys import Key, encode_columns
from calibrank._validation import Floats, Indices, Numbers, score_column
from calibrank.calibrators._shrinkage import Changes, SegmentProblem, shrunk_changes
from calibrank.calibrators.calibrator import Calibrator
from calibrank.calibrators.parametric import Gaussian
from calibrank.errors import DataError
from calibrank.evidence import Labels, as_evidence
from calibrank.maps import CalibrationMap, GroupedMap, Segment
from calibrank.maps.targets.numpy import NumpyTarget
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
        array = score_column(scores)[0]
        evidence = as_evidence(labels, len(array))
        summary = Summary.of(array, evidence)
        sums = SegmentSums(bin_edges(summary))
        sums.add(array, evidence, encode_columns(self.by, segments, len(array)))
        return self.fit_sums(summary, sums)

    def fit_sums(self, summary: Summary, sums: SegmentSums) -> GroupedMap:
        """Fit on a summary of all rows and their sums by segment."""
        return change_by_segment(self.base.fit_summary(summary), sums, self.by, slopes=self.slopes)


def column_names(by: str | Sequence[str]) -> tuple[str, ...]:
    """One or more different names of segment columns."""
    if not isinstance(by, str | tuple | list):
        raise DataError(f"by must be one or more column names, got {shown(by)}. E.g. 'country'.")
    names = (by,) if isinstance(by, str) else tuple(by)
    for name in names:
        text("by", name, "It names a segment column.")
    if not names or len(set(names)) < len(names):
        raise DataError(f"by must be one or more different column names, got {names}.")
    return names


def change_by_segment(
    fitted: CalibrationMap,
    sums: SegmentSums,
    columns: tuple[str, ...],
    *,
    slopes: bool = True,
) -> GroupedMap:
    """A map with its log odds changed by segment, one level of columns after the other."""
    totals = sums.totals.sum()
    if not totals:
        raise DataError(f"segment column {columns[0]!r} must have values, got only missing ones.")
    center = _mean_log_odds(fitted, sums)
    found: dict[Key, Segment] = {}
    spreads = []
    for depth in range(1, len(columns) + 1):
        level = _Level.of(sums, depth)
        if not level.keys:
            spreads.append(0.0)
            continue
        changes = _changes_of_level(fitted, level, found, center, with_slopes=slopes)
        spreads.append(changes.intercept_sd)
        found |= _segments(level, changes, found, center)
    segments = [found[key] for key in sorted(found, key=lambda key: (len(key), key))]
    grouped = GroupedMap(
        method=f"{fitted.method} by {' > '.join(columns)}",
        base=fitted,
        columns=columns,
        segments=tuple(segments),
        spreads=tuple(spreads),
        record=fitted.record,
    )
    return replace(grouped, record=replace(fitted.record, loss=_loss(grouped, sums)))


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The sums of all segments whose keys have one length."""

    keys: list[Key]
    by_bin: Floats
    by_segment: Floats

    @classmethod
    def of(cls, sums: SegmentSums, depth: int) -> _Level:
        numbers: dict[Key, int] = {}
        rows = []
        places = []
        for row, key in enumerate(sums.keys):
            if len(key) >= depth:
                rows.append(row)
                places.append(numbers.setdefault(key[:depth], len(numbers)))
        by_bin = np.zeros((3, len(numbers), sums.by_bin.shape[2]))
        by_segment = np.zeros((3, len(numbers)))
        for row, place in zip(rows, places, strict=True):
            by_bin[:, place] += sums.by_bin[:, row]
            by_segment[:, place] += sums.by_segment[:, row]
        return cls(list(numbers), by_bin, by_segment)

    @property
    def dispersion(self) -> Floats:
        """By segment, how much the evidence varies relative to labels without weights.

        The sum of squares over the sum: the mean weight of a positive (or of a row) by mass.
        Segments with few positives borrow from the others.
        """
        ratios = []
        for masses, squares in zip(self.by_bin[:2], self.by_segment[:2], strict=True):
            sums = masses.sum(axis=1)
            mean = float(squares.sum() / max(sums.sum(), 1e-300))
            prior = _DISPERSION_PRIOR * mean
            ratios.append((squares + prior * mean) / (sums + max(prior, 1e-300)))
        return np.maximum(np.maximum(ratios[0], ratios[1]), 1e-300)


def _log_odds_by_bin(fitted: CalibrationMap, by_bin: Floats) -> Floats:
    """Log odds of the global map at the mean score of each bin; 0 where a bin is empty."""
    total, moment = by_bin[1], by_bin[2]
    log_odds = np.zeros_like(total)
    occupied = total > 0
    scores = moment[occupied] / total[occupied]
    log_odds[occupied] = fitted.log_odds_on(NumpyTarget(), scores)
    return log_odds


def _mean_log_odds(fitted: CalibrationMap, sums: SegmentSums) -> float:
    """Slopes turn around the mean log odds, where they change the level of a segment least."""
    log_odds = _log_odds_by_bin(fitted, sums.by_bin)
    return float((sums.totals * log_odds).sum() / sums.totals.sum())


def _changes_of_level(
    fitted: CalibrationMap,
    level: _Level,
    found: dict[Key, Segment],
    center: float,
    *,
    with_slopes: bool,
) -> Changes:
    log_odds = _log_odds_by_bin(fitted, level.by_bin)
    parents = [found.get(key[:-1]) for key in level.keys]
    intercepts = np.array([0.0 if parent is None else parent.intercept for parent in parents])
    slopes = np.array([1.0 if parent is None else parent.slope for parent in parents])
    problem = SegmentProblem(
        positive=level.by_bin[0],
        total=level.by_bin[1],
        offset=intercepts[:, None] + slopes[:, None] * log_odds,
        x=log_odds - center,
        dispersion=level.dispersion,
    )
    changes = shrunk_changes(problem, with_slopes=with_slopes)
    lowest = _SMALLEST_SLOPE - slopes
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
    offset = some.offset + slopes[chosen][:, None] * some.x
    refitted = shrunk_changes(replace(some, offset=offset), with_slopes=False)
    intercepts = changes.intercepts.copy()
    intercepts[chosen] = refitted.intercepts
    return changes._replace(intercepts=intercepts, slopes=slopes)


def _segments(
    level: _Level, changes: Changes, found: dict[Key, Segment], center: float
) -> dict[Key, Segment]:
    segments = {}
    for place, key in enumerate(level.keys):
        parent = found.get(key[:-1], Segment(("",), 0.0, 1.0, 0.0, 0))
        change = float(changes.slopes[place])
        # The change c * (z - center) is c * z and a constant.
        intercept = parent.intercept + float(changes.intercepts[place]) - change * center
        error = float(changes.errors[place])
        rows = int(level.by_segment[2, place])
        segments[key] = Segment(key, intercept, parent.slope + change, error, rows)
    return segments


def _loss(grouped: GroupedMap, sums: SegmentSums) -> float:
    """Mean log loss over the sums."""
    by_key = {segment.key: segment for segment in grouped.segments}
    segments = [by_key[key] for key in sums.keys]
    intercepts = np.array([segment.intercept for segment in segments])
    slopes = np.array([segment.slope for segment in segments])
    log_odds = _log_odds_by_bin(grouped.base, sums.by_bin)
    z = intercepts[:, None] + slopes[:, None] * log_odds
    positive, total = sums.by_bin[0], sums.by_bin[1]
    # log(1 + exp(z)) = z - log(p)
    softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
    return float((total * softplus - positive * z).sum() / total.sum())
