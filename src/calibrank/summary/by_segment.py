"""Evidence pooled by segment and by coarse bins of the score, in one pass; sums can be merged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from os import PathLike
from statistics import NormalDist
from typing import Self

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.logit import logit
from calibrank._internal.npz import Arrays
from calibrank._internal.segment_keys import Encoded, Key, leaves_of
from calibrank._internal.validation import Floats, Indices, add_up, starts_of
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.summary import _file
from calibrank.summary._cells import BINS, Cells, Codes
from calibrank.summary.grid import look
from calibrank.summary.summary import Summary

# A million segments, all of whose bins are occupied, and their names.
_LARGEST_FILE = 2**31

# Of the variance of scores, so much may be within bins. With good edges it is 0.001.
_LARGEST_SPREAD = 0.0025


def bin_edges(summary: Summary, bins: int = BINS) -> Floats:
    """Scores that divide the mass of a summary into about equal bins."""
    return _quantiles(summary.scores, summary.total, bins)


def _level(fraction: float) -> float:
    """The share of the mass below an edge that has a fraction of all edges below it.

    The spread of scores within bins is smallest if edges are as dense as the cube root of the
    density of scores (Panter and Dite, 1951). That of a normal one is sqrt(3) times as wide.
    """
    normal = NormalDist()
    return normal.cdf(3**0.5 * normal.inv_cdf(fraction))


def _quantiles(scores: Floats, total: Floats, bins: int = BINS) -> Floats:
    """Scores, of those in increasing order, that divide their mass into about equal bins."""
    cumulative = np.cumsum(total)
    levels = np.array([_level(edge / bins) for edge in range(1, bins)])
    places = np.searchsorted(cumulative, levels * cumulative[-1]).clip(max=len(scores) - 1)
    return np.unique(scores[places])


class SegmentSums:
    """Sums of evidence per segment: `add` batches of rows; sums of different rows can be added.

    Bins lie at quantiles of the first batch; a later batch that crowds into a few of them moves
    the edges, and what a segment has in a bin then moves with its mean score. Given edges stay.
    Memory is 1.5 KB per segment, whatever the number of rows. Sums know their columns and the kind
    of their evidence, and only like ones can be added.

    >>> from calibrank._internal.segment_keys import encode
    >>> sums = SegmentSums(np.array([0.5]), ["country"])
    >>> evidence = Evidence.trusted(np.array([1.0, 0.0]), np.ones(2), "naive")
    >>> sums.add(np.array([0.2, 0.7]), evidence, [encode("country", ["NL", "DE"])])
    >>> (sums + sums).keys, (sums + sums).by_bin[1].tolist()
    ([('NL',), ('DE',)], [[2.0, 0.0], [0.0, 2.0]])
    """

    def __init__(
        self, edges: Floats | None = None, names: Sequence[str] = (), kind: str | None = None
    ) -> None:
        self.edges: Floats = np.empty(0) if edges is None else edges
        self.names = tuple(names)
        """The columns; none if they are not known, as in files of older versions."""
        self.kind = kind
        """Of the evidence; by default that of the first rows."""
        self.keys: list[Key] = []
        self._edges_stay = edges is not None
        self._numbers: dict[Key, int] = {}
        self.cells = Cells()
        # Mass, and mass times score, by bin: estimated, because sums over all cells take longer.
        self._seen: Floats = np.zeros((2, BINS))
        # Batches of a table share a growing list of values: each is numbered once.
        self._values: list[str | None] | None = None
        self._numbers_of_values: Codes = np.empty(0, dtype=np.int32)

    @classmethod
    def of_cells(
        cls,
        edges: Floats,
        keys: Sequence[Key],
        places: Indices,
        bins: Indices,
        masses: Sequence[Floats],
        squares: Sequence[Floats] | None,
        names: Sequence[str] = (),
        kind: str | None = None,
    ) -> Self:
        """Sums that another engine made, one row per cell: `places` holds the number of its key.

        The masses are those of `by_bin`, the squares those of `by_segment`; without squares, all
        rows have the weight 1 and labels of 0 and 1. Keys may repeat; cells without one are left
        out.
        """
        sums = cls(edges, names, kind)
        segment = sums._number(keys)[places].astype(np.intp)
        known = np.flatnonzero(segment >= 0)
        segment = segment[known]
        cells = segment * BINS + bins[known]
        count = len(sums.keys)
        by_bin = [add_up(cells, mass[known], count * BINS) for mass in masses]
        by_segment = None
        if squares is not None:
            sums_of = [add_up(segment, square[known], count) for square in squares]
            by_segment = np.array(sums_of).T.copy()
        sums.cells = Cells.of(np.array(by_bin).T.reshape(count, BINS, 3).copy(), by_segment)
        return sums

    def add(self, scores: Floats, evidence: Evidence, columns: Sequence[Encoded]) -> None:
        """Add rows; those without a value in the first segment column are left out."""
        if not len(scores):
            return
        self.kind = self.kind or evidence.kind
        self.place_bins(scores, evidence)
        codes, numbers = self._numbered(columns)
        self.cells.pool(scores, evidence, codes, numbers, self.edges)

    def place_bins(self, scores: Floats, evidence: Evidence) -> None:
        """Choose edges by the first rows, and others if a batch crowds into a few bins.

        `add` does it; it is needed before that where rows are added in parts of unlike scores.
        """
        if self._edges_stay:
            return
        if not len(self.edges):
            if evidence.unit_weights or evidence.total.any():
                summary = Summary.of(scores, evidence)
                self.edges = bin_edges(summary)
                self._seen = _binned(self.edges, summary.scores, summary.total)
            return
        sample = look(scores)
        mass = len(scores) if evidence.unit_weights else float(evidence.total.sum())
        self._cover(sample, np.full(len(sample), mass / len(sample)))

    def merge(self, other: SegmentSums) -> None:
        """Add the rows of other sums, for example of another day or machine.

        Sums with the same edges are added exactly: rows in one bin stay in one. Otherwise what a
        segment of the other has in a bin moves with its mean score to these edges, or both to new
        ones.
        """
        instance("other", other, SegmentSums)
        self.require(other.names, other.kind)
        self.names = self.names or other.names
        self.kind = self.kind or other.kind
        if not other.keys:
            return
        numbers = self._number(other.keys)
        cells = other.cells
        if not len(self.edges):
            self.edges = other.edges
        if np.array_equal(self.edges, other.edges):
            self._seen = self._seen + (other._seen if other._seen.any() else cells.by_score)
        else:
            self._cover(*_means(*cells.by_score))
            cells = cells.with_edges(self.edges)
        self.cells.add(cells, numbers)

    def require(self, names: Sequence[str], kind: str | None = None) -> None:
        """Raise a `DataError` unless these are sums of the columns and of the kind of evidence."""
        for what, own, given in (
            ("columns", self.names, tuple(names)),
            ("kind of evidence", self.kind, kind),
        ):
            if own and given and own != given:
                rule, remedy = f"be of the same {what}", "Make them again from the rows."
                raise DataError("sums by segment", rule, f"{own} and {given}", remedy)

    def __add__(self, other: SegmentSums) -> SegmentSums:
        result = SegmentSums(self.edges)
        result._edges_stay = self._edges_stay
        result.merge(self)
        result.merge(other)
        return result

    def __radd__(self, other: object) -> SegmentSums:
        # The built-in `sum` starts from the number 0. A copy: rows may be added to the result.
        if isinstance(other, int) and other == 0:
            return self + SegmentSums(self.edges)
        return NotImplemented

    def save(self, path: str | PathLike[str]) -> None:
        """Write the sums to a file, atomically, for `SegmentSums.load`."""
        _file.save(path, self.kind, self.to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read sums that `save` wrote, to add rows or to merge them with others."""
        return _file.load(path, _LARGEST_FILE, "sums by segment that were saved", cls.of_arrays)

    def to_arrays(self) -> Arrays:
        """The sums as arrays by name, for files that hold sums among other things."""
        flat = self.cells.flat
        places = np.flatnonzero(flat[:, 1] > 0)
        sums = {"edges": self.edges, "places": places, "by_bin": flat[places]}
        sums["by_segment"] = self.cells.by_segment
        return _file.pack_segments(self.names, self.kind, self.keys, sums)

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        """Rebuild sums; a `ValueError` says what is wrong with other arrays."""
        found = _file.unpack_segments(arrays, BINS)
        sums = cls(found["edges"], found["names"], found["kind"])
        sums._edges_stay = False
        sums._number(found["keys"])
        by_bin = np.zeros((len(sums.keys), BINS, 3))
        by_bin.reshape(-1, 3)[found["places"]] = found["by_bin"]
        sums.cells = Cells.of(by_bin, found["by_segment"])
        sums._seen = sums.cells.by_score
        return sums

    def merged(self, rows: Indices, places: Indices) -> SegmentSums:
        """The sums of some segments, merged where they have the same place; without keys."""
        order = np.argsort(places, kind="stable")
        starts = np.flatnonzero(starts_of(places[order]))
        merged = SegmentSums(self.edges)
        merged.keys = [()] * len(starts)
        merged.cells = self.cells.merged(rows[order], starts)
        return merged

    @property
    def by_bin(self) -> Floats:
        """Positive mass, total mass and total mass times score, by segment and bin."""
        return np.moveaxis(self.cells.by_bin[:, : len(self.edges) + 1], 2, 0)

    @property
    def by_segment(self) -> Floats:
        """Sums of squares of positive and of total mass, and the number of rows, by segment."""
        return self.cells.by_segment.T

    def _numbered(self, columns: Sequence[Encoded]) -> tuple[Codes, Codes]:
        """A code per row, and the row of each code in the sums (-1: left out)."""
        values = columns[0].values
        if len(columns) > 1:
            places, keys = leaves_of(columns)
            return places, self._number(keys)
        known = len(self._numbers_of_values) if values is self._values else 0
        keys = [() if value is None else (value,) for value in values[known:]]
        numbers = np.concatenate([self._numbers_of_values[:known], self._number(keys)])
        self._values, self._numbers_of_values = values, numbers
        return columns[0].codes, numbers

    def _number(self, keys: Sequence[Key]) -> Codes:
        """The row of each key; -1 for the empty key, which stands for a missing value."""
        known = self._numbers
        count = len(known)
        numbers = [known.setdefault(key, len(known)) if key else -1 for key in keys]
        # From the end: a batch has few new keys, and the sums may have many.
        new = list(islice(reversed(known), len(known) - count))
        self.keys.extend(reversed(new))
        self.cells.reserve(len(self.keys))
        return np.array(numbers, dtype=np.int32)

    def _cover(self, scores: Floats, masses: Floats) -> None:
        """Move to other edges if these would crowd the rows so far and others into a few bins."""
        if self._edges_stay:
            return
        past, past_masses = _means(*self._seen)
        points = np.concatenate([past, scores])
        order = np.argsort(points, kind="stable")
        points = points[order]
        masses = np.concatenate([past_masses, masses])[order]
        edges = improved_edges(self.edges, points, masses)
        if edges is not self.edges:
            self.edges = edges
            self.cells = self.cells.with_edges(edges)
        self._seen = _binned(self.edges, points, masses)


def improved_edges(edges: Floats, scores: Floats, masses: Floats) -> Floats:
    """Other edges, if these would crowd scores in increasing order into a few bins."""
    spread = _spread_within(edges, scores, masses)
    if spread <= _LARGEST_SPREAD:
        return edges
    others = _quantiles(scores, masses)
    # Scores that are mostly equal are in few bins whatever the edges are.
    return others if _spread_within(others, scores, masses) < 0.7 * spread else edges


def _means(mass: Floats, moment: Floats) -> tuple[Floats, Floats]:
    """The mean score of each bin that has rows, and its mass."""
    occupied = np.flatnonzero(mass > 0)
    return moment[occupied] / mass[occupied], mass[occupied]


def _binned(edges: Floats, scores: Floats, masses: Floats) -> Floats:
    """Masses of scores, and masses times scores, by bin."""
    bins = np.searchsorted(edges, scores, side="right")
    sums = [np.bincount(bins, masses, BINS), np.bincount(bins, masses * scores, BINS)]
    return np.array(sums)


def _spread_within(edges: Floats, scores: Floats, masses: Floats) -> float:
    """The share of the variance of ordered scores that is within bins, on the scale of logit ranks.

    That scale is the same for any increasing function of the scores.
    """
    starts = np.flatnonzero(starts_of(scores))
    mass = np.add.reduceat(masses, starts)
    ranks = (np.cumsum(mass) - mass / 2) / mass.sum()
    x = logit(ranks)
    bins = np.flatnonzero(starts_of(np.searchsorted(edges, scores[starts], side="right")))
    by_bin = np.add.reduceat(mass, bins)
    between = (np.add.reduceat(mass * x, bins) ** 2 / by_bin).sum()
    squares = float((mass * x**2).sum())
    return 0.0 if squares == 0 else 1 - between / squares
