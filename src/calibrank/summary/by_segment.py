"""Evidence pooled by segment and by coarse bins of the score, in one pass; sums can be merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrank._segment_keys import Encoded, Key, leaves_of
from calibrank._validation import Floats, Indices, add_up
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.summary.summary import Summary

BINS = 64
"""Score bins per segment: within a bin, only the mean score of a segment counts."""


def bin_edges(summary: Summary, bins: int = BINS) -> Floats:
    """Scores that divide the mass of a summary into about equal bins."""
    cumulative = np.cumsum(summary.total)
    levels = np.arange(1, bins) / bins * cumulative[-1]
    places = np.searchsorted(cumulative, levels).clip(max=len(summary) - 1)
    return np.unique(summary.scores[places])


class SegmentSums:
    """Sums of evidence per segment; `add` batches of rows, `merge` sums with the same edges.

    Memory is 1.5 KB per segment, whatever the number of rows.

    >>> from calibrank._segment_keys import encode
    >>> sums = SegmentSums(np.array([0.5]))
    >>> evidence = Evidence.trusted(np.array([1.0, 0.0]), np.ones(2), "naive")
    >>> sums.add(np.array([0.2, 0.7]), evidence, [encode("country", ["NL", "DE"])])
    >>> sums.keys, sums.totals.tolist()
    ([('NL',), ('DE',)], [[1.0, 0.0], [0.0, 1.0]])
    """

    def __init__(self, edges: Floats) -> None:
        self.edges = edges
        self.keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        bins = len(edges) + 1
        # Positive mass, total mass and total mass times score, by segment and bin.
        self._by_bin = np.zeros((3, 0, bins))
        # Squares of positive and of total mass, and rows, by segment.
        self._by_segment = np.zeros((3, 0))

    def add(self, scores: Floats, evidence: Evidence, columns: Sequence[Encoded]) -> None:
        """Add rows; those without a value in the first segment column are left out."""
        places, keys = leaves_of(columns)
        numbers = self._number(keys)
        segments = numbers[places]
        if (segments < 0).any():
            known = np.flatnonzero(segments >= 0)
            segments, scores, evidence = segments[known], scores[known], evidence.rows(known)
        positive = np.asarray(evidence.positive, dtype=np.float64)
        total = np.asarray(evidence.total, dtype=np.float64)
        bins = len(self.edges) + 1
        cells = segments * bins + np.searchsorted(self.edges, scores, side="right")
        for sums, masses in zip(self._by_bin, (positive, total, total * scores), strict=True):
            _add_at(sums.reshape(-1), cells, masses)
        squares = (positive**2, total**2, np.ones(len(segments)))
        for sums, masses in zip(self._by_segment, squares, strict=True):
            _add_at(sums, segments, masses)

    def merge(self, other: SegmentSums) -> None:
        """Add the rows of other sums, for example of another day or machine."""
        if not np.array_equal(self.edges, other.edges):
            raise DataError(
                "sums by segment must have the same edges to be merged. Build both with the edges "
                "of one summary."
            )
        numbers = self._number(other.keys)
        self._by_bin[:, numbers] += other.by_bin
        self._by_segment[:, numbers] += other.by_segment

    @property
    def by_bin(self) -> Floats:
        """Positive mass, total mass and total mass times score, by segment and bin."""
        return self._by_bin[:, : len(self.keys)]

    @property
    def by_segment(self) -> Floats:
        """Sums of squares of positive and of total mass, and the number of rows, by segment."""
        return self._by_segment[:, : len(self.keys)]

    @property
    def totals(self) -> Floats:
        """Total mass by segment and bin."""
        return self.by_bin[1]

    def _number(self, keys: Sequence[Key]) -> Indices:
        """The row of each key; -1 for the empty key, which stands for a missing value."""
        numbers = np.full(len(keys), -1, dtype=np.intp)
        for place, key in enumerate(keys):
            if not key:
                continue
            number = self._numbers.setdefault(key, len(self.keys))
            if number == len(self.keys):
                self.keys.append(key)
            numbers[place] = number
        self._reserve(len(self.keys))
        return numbers

    def _reserve(self, segments: int) -> None:
        capacity = self._by_segment.shape[1]
        if segments <= capacity:
            return
        more = max(segments, 2 * capacity) - capacity
        self._by_bin = np.pad(self._by_bin, ((0, 0), (0, more), (0, 0)))
        self._by_segment = np.pad(self._by_segment, ((0, 0), (0, more)))


def _add_at(sums: Floats, places: Indices, masses: Floats) -> None:
    """Add masses to a few or to many sums, in the faster way."""
    if len(sums) <= 4 * len(places):
        sums += add_up(places, masses, len(sums))
    else:
        np.add.at(sums, places, masses)
