"""The labels of a day by segment, from which a map by segment can be fitted again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calibrank._internal.npz import Arrays
from calibrank._internal.segment_keys import encode_columns
from calibrank._internal.validation import Floats
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, GroupedMap
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums
from calibrank.summary.small import coarsened, from_arrays, to_arrays

BINS = 4096
"""The most bins of a summary of a day: 4,096 bins of nine numbers are 300 kB."""

MOST_SEGMENTS = 20_000
"""With more segments, of at most 2 kB each, a day would no longer be small, and keeps none."""

_SUMMARY = "by_score_"
_SUMS = "by_segment_"


@dataclass(frozen=True, slots=True, eq=False)
class SegmentEvidence:
    """Labelled rows pooled by score, and by segment; both add up over days."""

    summary: Summary
    sums: SegmentSums

    @classmethod
    def of(
        cls, fitted: CalibrationMap, scores: Floats, evidence: Evidence, columns: Any
    ) -> SegmentEvidence | None:
        """What a refit of a map by segment needs; None for other maps and very many segments."""
        if not isinstance(fitted, GroupedMap) or fitted.base.feature_columns:
            return None
        sums = SegmentSums()
        sums.add(scores, evidence, encode_columns(fitted.columns, columns, len(scores)))
        if len(sums.keys) > MOST_SEGMENTS:
            return None
        return cls(coarsened(Summary.of(scores, evidence), BINS), sums)

    def __add__(self, other: SegmentEvidence) -> SegmentEvidence | None:
        sums = self.sums + other.sums
        if len(sums.keys) > MOST_SEGMENTS:
            return None
        return SegmentEvidence(coarsened(self.summary + other.summary, BINS), sums)

    def __rmul__(self, factor: float) -> SegmentEvidence:
        return SegmentEvidence(factor * self.summary, factor * self.sums)

    def to_arrays(self) -> Arrays:
        """The arrays of a file by name."""
        summary = {_SUMMARY + name: values for name, values in to_arrays(self.summary).items()}
        sums = {_SUMS + name: values for name, values in self.sums.to_arrays().items()}
        return summary | sums

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> SegmentEvidence | None:
        """What `to_arrays` gave, if it is among the arrays of a file."""
        summary = with_prefix(arrays, _SUMMARY)
        if not summary:
            return None
        sums = SegmentSums.of_arrays(with_prefix(arrays, _SUMS))
        return cls(from_arrays(summary), sums)


def with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names have a prefix, without it."""
    found = {name: values for name, values in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): values for name, values in found.items()}


def merged_evidence(
    first: SegmentEvidence | None, second: SegmentEvidence | None
) -> SegmentEvidence | None:
    """The evidence of two days; one without labels has none."""
    if first is None or second is None:
        return first or second
    return first + second
