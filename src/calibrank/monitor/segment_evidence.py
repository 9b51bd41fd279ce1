"""The labels of a day by level: what changes of segments are found in, and refits need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.npz import Arrays
from calibrank._internal.segment_keys import encode_columns
from calibrank._internal.validation import Floats, Indices
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, LevelTerm
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums

BINS = 4096
"""The most bins of a summary of a day: 4,096 bins of nine numbers are 300 kB."""

MOST_SEGMENTS = 20_000
"""With more segments, of at most 2 kB each, a day would no longer be small, and keeps none."""

_SUMMARY = "by_score_"


class LevelRows(NamedTuple):
    """Sums by level as rows of a table: one per level and bin."""

    scores: Floats
    """The mean score of each; log odds where the map has other terms than the level."""
    evidence: Evidence
    columns: dict[str, npt.NDArray[Any]]
    levels: Indices
    """The place of each row's level among the keys of the sums."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentEvidence:
    """Labelled rows by level; they add up over days.

    Where a level is the only term of the map, rows are pooled by their score and by all columns of
    the level, with the summary of all rows that a refit needs. Otherwise they are pooled by their
    log odds and by the first column.
    """

    sums: SegmentSums
    summary: Summary | None

    def __add__(self, other: SegmentEvidence) -> SegmentEvidence:
        sums = self.sums + other.sums
        summary = merged(self.summary, other.summary)
        return SegmentEvidence(sums, summary).bounded()

    def __rmul__(self, factor: float) -> SegmentEvidence:
        summary = None if self.summary is None else factor * self.summary
        return SegmentEvidence(factor * self.sums, summary)

    def bounded(self) -> SegmentEvidence:
        """Without rows, if there are too many levels."""
        if len(self.sums.keys) <= MOST_SEGMENTS:
            return self
        return SegmentEvidence(SegmentSums(names=self.sums.names, kind=self.sums.kind), None)

    @property
    def rows(self) -> int:
        """The number of labelled rows."""
        return int(self.sums.by_segment[2].sum())

    def to_rows(self) -> LevelRows:
        """The sums as rows of a table, which are much fewer."""
        cells = self.sums.occupied()
        levels = np.repeat(np.arange(len(self.sums.keys)), np.diff(cells.starts))
        columns = {}
        for depth, name in enumerate(self.sums.names):
            values = [key[depth] if depth < len(key) else None for key in self.sums.keys]
            columns[name] = np.array(values, dtype=object)[levels]
        kind = self.sums.kind or "naive"
        evidence = Evidence.trusted(cells.positive, cells.total, kind)
        return LevelRows(cells.scores, evidence, columns, levels)


def level_alone(fitted: CalibrationMap) -> LevelTerm | None:
    """The level that is the only term of a map, if it has one."""
    only = fitted.terms[0] if len(fitted.terms) == 1 else None
    return only if isinstance(only, LevelTerm) else None


def evidence_by_level(
    fitted: CalibrationMap, scores: Floats, log_odds: Floats, evidence: Evidence, columns: Any
) -> tuple[SegmentEvidence, ...]:
    """The evidence of rows by each level of the map."""
    alone = level_alone(fitted)
    if alone is not None:
        sums = _sums(alone.columns, scores, evidence, columns)
        summary = Summary.of(scores, evidence).coarsened(BINS)
        return (SegmentEvidence(sums, summary).bounded(),)
    found = []
    for term in fitted.terms:
        if isinstance(term, LevelTerm):
            sums = _sums(term.columns[:1], log_odds, evidence, columns)
            found.append(SegmentEvidence(sums, None).bounded())
    return tuple(found)


def _sums(names: Sequence[str], scores: Floats, evidence: Evidence, columns: Any) -> SegmentSums:
    sums = SegmentSums(names=names)
    sums.add(scores, evidence, encode_columns(names, columns, len(scores)))
    return sums


def merged(first: Summary | None, second: Summary | None) -> Summary | None:
    """The sum of two summaries, in as many bins as a day has at most."""
    if first is None or second is None:
        return first or second
    return (first + second).coarsened(BINS)


def merged_evidence(
    first: Sequence[SegmentEvidence], second: Sequence[SegmentEvidence]
) -> tuple[SegmentEvidence, ...]:
    """The evidence of two days; one without labels has none."""
    if not first or not second:
        return tuple(first or second)
    return tuple([one + two for one, two in zip(first, second, strict=True)])


def evidence_to_arrays(parts: Sequence[SegmentEvidence]) -> Arrays:
    """The arrays of a file by name."""
    arrays: Arrays = {}
    for place, part in enumerate(parts):
        packed = part.sums.to_arrays()
        arrays |= {_prefix(place) + name: values for name, values in packed.items()}
        if part.summary is not None:
            packed = part.summary.to_arrays()
            arrays |= {_SUMMARY + name: values for name, values in packed.items()}
    return arrays


def evidence_from_arrays(arrays: Arrays) -> tuple[SegmentEvidence, ...]:
    """What `evidence_to_arrays` gave, if it is among the arrays of a file."""
    parts: list[SegmentEvidence] = []
    packed = with_prefix(arrays, _SUMMARY)
    summary = Summary.of_arrays(packed) if packed else None
    while packed := with_prefix(arrays, _prefix(len(parts))):
        parts.append(SegmentEvidence(SegmentSums.of_arrays(packed), summary))
        summary = None
    return tuple(parts)


def _prefix(place: int) -> str:
    return f"by_segment{place or ''}_"


def with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names have a prefix, without it."""
    found = {name: values for name, values in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): values for name, values in found.items()}
