"""Summaries: evidence pooled over score bins, small and mergeable, from which everything can be fitted.

Rows with equal scores can be summed without changing any answer. Up to `CAPACITY` distinct scores a summary is
therefore exact; beyond that, scores sharing the leading bits of a `Grid` are pooled at their mean score.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from calibrank.arrays import Floats, Numbers, add_up, score_column
from calibrank.errors import DataError
from calibrank.grid import CAPACITY, Grid, Keys
from calibrank.weighting import Evidence, Labels, as_evidence

_BLOCK = 2**19


@dataclass(frozen=True, slots=True, eq=False)
class Masses:
    """Sums over rows, one column a bin; the squares are what sampling errors need.

    The moments (mass times score) keep both the mean score of a bin and that of its positives: with them, the loss
    of a pooled bin is right to second order in its width.
    """

    positive: Floats
    total: Floats
    positive_moment: Floats
    moment: Floats
    positive_squared: Floats
    cross: Floats
    total_squared: Floats

    def __add__(self, other: "Masses") -> "Masses":
        return Masses(*(mine + theirs for mine, theirs in zip(self.columns, other.columns, strict=True)))

    @property
    def columns(self) -> tuple[Floats, ...]:
        """The sums, in field order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def take(self, chosen: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> "Masses":
        """Only the chosen bins."""
        return Masses(*(column[chosen] for column in self.columns))

    def gather(self, bins: npt.NDArray[np.integer], size: int) -> "Masses":
        """Add up bins that land in the same one of `size` new bins."""
        return Masses(*(add_up(bins, column, size) for column in self.columns))


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Evidence pooled by score; `+` merges two, in any order, to the same answer.

    >>> first = Summary.of([0.1, 0.5, 0.5], [0, 0, 1])
    >>> first + Summary.of([0.5, 0.9], [1, 1])
    Summary(5 rows in 3 bins over [0.1, 0.9], positive=3, total=5, kind='naive')
    """

    scores: Floats
    masses: Masses
    rows: int
    low: float
    high: float
    kind: str
    grid: Grid | None
    keys: Keys

    @classmethod
    def of(cls, scores: Numbers, labels: Labels) -> Self:
        """Pool one table; rows of no weight are left out."""
        scores = score_column(scores)
        evidence = as_evidence(labels, len(scores))
        total = evidence.total
        if total.strides != (0,) and not total.all():
            kept = total > 0
            if not kept.any():
                raise DataError(f"weights must not all be zero, got {len(total):,} rows that count for nothing.")
            scores, positive, total = scores[kept], evidence.positive[kept], total[kept]
            evidence = Evidence.trusted(positive, total, evidence.kind)
        if _distinct_at_most(scores, CAPACITY):
            return cls._exact(scores, evidence)
        return cls._pooled(scores, evidence)

    @classmethod
    def _exact(cls, scores: Floats, evidence: Evidence) -> Self:
        distinct, bins = np.unique(scores.astype(np.float64) + 0.0, return_inverse=True)
        masses = _masses(distinct[bins], evidence.positive, evidence.total, bins, len(distinct))
        return cls._made(distinct, masses, len(scores), evidence.kind)

    @classmethod
    def _pooled(cls, scores: Floats, evidence: Evidence) -> Self:
        low, high = float(scores.min()), float(scores.max())
        grid = Grid.spanning(low, high)
        first, last = grid.keys(np.array([low, high]))
        size = int(last - first) + 1
        sums = Masses(*np.zeros((7, size)))
        memory = np.empty(min(_BLOCK, len(scores)), dtype=np.int64)
        for rows in _blocks(len(scores)):
            bins = memory[: rows.stop - rows.start]
            grid.write_keys(scores[rows], int(first), bins)
            sums = sums + _masses(scores[rows], evidence.positive[rows], evidence.total[rows], bins, size)
        return cls._on_grid(grid, np.arange(first, last + 1), sums, low, high, len(scores), evidence.kind)

    @classmethod
    def _on_grid(cls, grid: Grid, keys: Keys, sums: Masses, low: float, high: float, rows: int, kind: str) -> Self:
        occupied = sums.total > 0
        masses = sums.take(occupied)
        means = np.clip(masses.moment / masses.total, low, high)
        return cls(means, masses, rows, low, high, kind, grid, keys[occupied])

    @classmethod
    def _made(cls, scores: Floats, masses: Masses, rows: int, kind: str) -> Self:
        low, high = (float(scores[0]), float(scores[-1])) if len(scores) else (np.nan, np.nan)
        return cls(scores, masses, rows, low, high, kind, None, np.empty(0, dtype=np.int64))

    def __add__(self, other: "Summary") -> "Summary":
        kind = self.kind if self.kind == other.kind else "mixed"
        rows = self.rows + other.rows
        if self.grid is None and other.grid is None:
            merged, bins = np.unique(np.concatenate([self.scores, other.scores]), return_inverse=True)
            if len(merged) <= CAPACITY:
                return Summary._made(merged, _joined(self, other).gather(bins, len(merged)), rows, kind)
        low, high = min(self.low, other.low), max(self.high, other.high)
        grid = Grid.spanning(low, high)
        keys, bins = np.unique(np.concatenate([s.keys_on(grid) for s in (self, other)]), return_inverse=True)
        return Summary._on_grid(grid, keys, _joined(self, other).gather(bins, len(keys)), low, high, rows, kind)

    def keys_on(self, grid: Grid) -> Keys:
        """Each bin's bin on a grid at least as coarse."""
        if self.grid is None:
            return grid.keys(self.scores)
        return self.keys if self.grid == grid else grid.keys(self.grid.inner_edges(self.keys))

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        size = f"{self.rows:,} rows in {len(self):,} bins over [{self.low:.6g}, {self.high:.6g}]"
        masses = f"positive={self.positive.sum():.6g}, total={self.total.sum():.6g}"
        return f"Summary({size}, {masses}, kind={self.kind!r})"

    @property
    def positive(self) -> Floats:
        """Positive mass of each bin."""
        return self.masses.positive

    @property
    def total(self) -> Floats:
        """Total mass of each bin."""
        return self.masses.total

    @property
    def positive_scores(self) -> Floats:
        """Mean score of the positive mass of each bin (the bin's mean where it has none)."""
        if self.exact:
            return self.scores
        means = np.divide(self.masses.positive_moment, self.positive, out=self.scores.copy(), where=self.positive > 0)
        return np.clip(means, self.low, self.high)

    @property
    def exact(self) -> bool:
        """Whether each bin is one distinct score."""
        return self.grid is None

    def squared_residuals(self, probabilities: Floats) -> Floats:
        """Each bin's sum over rows of (positive - total * probability)^2, the meat of a sandwich."""
        masses = self.masses
        squares = masses.positive_squared - 2 * probabilities * masses.cross
        return np.maximum(squares + probabilities**2 * masses.total_squared, 0)


def _joined(first: Summary, second: Summary) -> Masses:
    pairs = zip(first.masses.columns, second.masses.columns, strict=True)
    return Masses(*(np.concatenate(pair) for pair in pairs))


def _distinct_at_most(scores: Floats, limit: int) -> bool:
    """Whether few enough scores differ; continuous scores are told apart by a first look at some of them."""
    if len(scores) <= limit:
        return True
    seen = np.unique(scores[: limit + limit // 8])
    for rows in _blocks(len(scores), 2**20):
        if len(seen) > limit:
            return False
        seen = np.union1d(seen, scores[rows])
    return len(seen) <= limit


def _blocks(rows: int, size: int = _BLOCK) -> Iterator[slice]:
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _masses(scores: Floats, positive: Floats, total: Floats, bins: npt.NDArray[np.integer], size: int) -> Masses:
    liked = np.flatnonzero(positive != 0)  # few rows are, so sums of positive mass cost next to nothing
    liked_bins, liked_mass = bins[liked], positive[liked]
    positives = add_up(liked_bins, liked_mass, size)
    positive_moment = add_up(liked_bins, liked_mass * scores[liked], size)
    squares = add_up(liked_bins, np.square(liked_mass), size)
    if total.strides == (0,) and total.size and total[0] == 1:  # made by `naive` or `ips`: every row counts once
        count = add_up(bins, None, size)
        return Masses(positives, count, positive_moment, add_up(bins, scores, size), squares, positives, count)
    cross = add_up(liked_bins, liked_mass * total[liked], size)
    moment, total_squared = add_up(bins, total * scores, size), add_up(bins, np.square(total), size)
    return Masses(positives, add_up(bins, total, size), positive_moment, moment, squares, cross, total_squared)
