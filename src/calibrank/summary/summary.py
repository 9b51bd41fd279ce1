"""Summaries: evidence pooled over score bins, small and mergeable, from which everything can be fitted.

Rows with equal scores can be summed without changing any answer. Up to `CAPACITY` distinct scores a summary is
therefore exact; beyond that, scores sharing the leading bits of a `Grid` are pooled at their mean score.
"""

import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from calibrank._atomic import write_atomic
from calibrank._validation import Floats, Numbers, on_gpu, score_column, starts_of
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, as_evidence
from calibrank.summary.bins import Masses, Table, counts_once, pool_bins
from calibrank.summary.grid import CAPACITY, DOUBLE, Grid, Keys

_BLOCK = 2**20
_VERSION = 1


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
        scores, evidence, low, high = _heard(scores, labels)
        if not on_gpu(scores) and _distinct_at_most(scores, CAPACITY):
            return cls._exact(scores, evidence)
        # What follows on the host takes as long as a GPU takes for a billion rows: it gets half as much to do.
        table = Table.spanning(low, high, CAPACITY // 2 if on_gpu(scores) else CAPACITY)
        table.pool(scores, evidence)
        return cls.of_table(table, low, high, len(scores), evidence.kind)

    @classmethod
    def _exact(cls, scores: Floats, evidence: Evidence) -> Self:
        if len(scores) > _BLOCK:
            halves = slice(0, len(scores) // 2), slice(len(scores) // 2, None)
            first, second = (cls._exact(scores[half], evidence.rows(half)) for half in halves)
            return first + second
        distinct, bins = np.unique(scores.astype(np.float64) + 0.0, return_inverse=True)
        masses = pool_bins(distinct[bins], evidence, bins, len(distinct))
        return cls._made(distinct, masses, len(scores), evidence.kind)

    @classmethod
    def of_table(cls, table: Table, low: float, high: float, rows: int, kind: str) -> Self:
        """The filled bins of a table."""
        occupied = np.flatnonzero(table.every[:, 0] > 0)
        masses = table.masses().take(occupied)
        means = np.clip(masses.moment / masses.total, low, high)
        return cls(means, masses, rows, low, high, kind, table.grid, occupied + table.first)

    @classmethod
    def _made(cls, scores: Floats, masses: Masses, rows: int, kind: str) -> Self:
        low, high = (float(scores[0]), float(scores[-1])) if len(scores) else (np.nan, np.nan)
        return cls(scores, masses, rows, low, high, kind, None, np.empty(0, dtype=np.int64))

    def __add__(self, other: Self) -> Self:
        kind = self.kind if self.kind == other.kind else "mixed"
        rows = self.rows + other.rows
        if self.grid is None and other.grid is None:
            merged, bins = np.unique(
                np.concatenate([self.scores, other.scores]), return_inverse=True
            )
            if len(merged) <= CAPACITY:
                return self._made(
                    merged, _joined(self, other).gather(bins, len(merged)), rows, kind
                )
        low, high = min(self.low, other.low), max(self.high, other.high)
        table = Table.spanning(low, high, bits=min(self.bits, other.bits))
        for part in (self, other):
            part.pour(table)
        return self.of_table(table, low, high, rows, kind)

    def update(self, scores: Numbers, labels: Labels) -> Self:
        """The summary with one more batch of rows; for many batches, `SummaryBuilder` is faster."""
        return self + self.of(scores, labels)

    def less(self, other: Self) -> Self:
        """The difference of two summaries of the same scores: not a summary itself, only something to add to one."""
        pairs = zip(self.masses.columns, other.masses.columns, strict=True)
        return replace(self, masses=Masses(*(mine - theirs for mine, theirs in pairs)), rows=0)

    def pour(self, table: Table) -> None:
        """Add all that is here to a table whose grid is at least as coarse."""
        inner = self.scores if self.grid is None else self.grid.inner_edges(self.keys)
        bins = table.grid.keys(inner) - table.first
        starts = starts_of(bins)
        table.add(self.masses.gather(np.cumsum(starts) - 1, int(starts.sum())), bins[starts])

    def save(self, path: str | PathLike[str]) -> None:
        """Write a checkpoint, whole or not at all: arrays only (NumPy's npz), read back by `Summary.load`."""
        grid = [] if self.grid is None else [self.grid.top, self.grid.bits]
        arrays: dict[str, Any] = {
            "scores": self.scores,
            "keys": self.keys,
            "masses": np.array(self.masses.columns),
        }
        arrays |= {
            "rows": self.rows,
            "low": self.low,
            "high": self.high,
            "grid": grid,
            "kind": np.array(self.kind),
        }
        memory = io.BytesIO()
        np.savez(memory, version=np.array(_VERSION), **arrays)
        write_atomic(Path(path), memory.getvalue())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a checkpoint, to go on from or to merge with others.

        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "monday.npz"
        >>> Summary.of([0.1, 0.5], [0, 1]).save(path)
        >>> Summary.load(path) + Summary.of([0.7], [1])
        Summary(3 rows in 3 bins over [0.1, 0.7], positive=2, total=3, kind='naive')
        """
        from zipfile import BadZipFile  # noqa: PLC0415  (slow to load, and seldom needed)

        if not Path(path).is_file():
            raise DataError(f"{path} must be a summary that calibrank saved, got no such file.")
        content = io.BytesIO(Path(path).read_bytes())
        try:
            with np.load(content, allow_pickle=False) as file:
                return cls._read(file)
        except (
            ValueError,
            TypeError,
            KeyError,
            OSError,
            EOFError,
            BadZipFile,
            zlib.error,
        ) as error:
            raise DataError(
                f"{path} must be a summary that calibrank saved: {error}. Make it again."
            ) from None

    @classmethod
    def _read(cls, file: Mapping[str, Any]) -> Self:
        if int(file["version"]) > _VERSION:
            raise ValueError(f"its version is {int(file['version'])}, upgrade calibrank")
        grid = Grid(*file["grid"].astype(int).tolist()) if len(file["grid"]) else None
        masses = Masses(*file["masses"])
        numbers = int(file["rows"]), float(file["low"]), float(file["high"])
        return cls(file["scores"], masses, *numbers, str(file["kind"]), grid, file["keys"])

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
    def evidence(self) -> Evidence:
        """What the bins hold, as evidence: any metric over `map.predict(summary.scores)` is that of all rows."""
        return Evidence.trusted(self.positive, self.total, self.kind)

    @property
    def positive_scores(self) -> Floats:
        """Mean score of the positive mass of each bin (the bin's mean where it has none)."""
        if self.exact:
            return self.scores
        means = np.divide(
            self.masses.positive_moment,
            self.positive,
            out=self.scores.copy(),
            where=self.positive > 0,
        )
        return np.clip(means, self.low, self.high)

    @property
    def bits(self) -> int:
        """How many bits of a score's mantissa are told apart: all, where bins are distinct scores."""
        return DOUBLE.mantissa if self.grid is None else self.grid.bits

    @property
    def exact(self) -> bool:
        """Whether each bin is one distinct score."""
        return self.grid is None

    def squared_residuals(self, probabilities: Floats) -> Floats:
        """Each bin's sum over rows of (positive - total * probability)^2, the meat of a sandwich."""
        masses = self.masses
        squares = masses.positive_squared - 2 * probabilities * masses.cross
        return np.maximum(squares + probabilities**2 * masses.total_squared, 0)


def _heard(scores: Numbers, labels: Labels) -> tuple[Floats, Evidence, float, float]:
    """Checked scores and evidence, without rows of no weight, and the lowest and the highest score."""
    scores, low, high = score_column(scores)
    evidence = as_evidence(labels, len(scores))
    if counts_once(evidence.total) or evidence.total.all():
        return scores, evidence, low, high
    kept = evidence.total > 0
    if not kept.any():
        raise DataError(
            f"weights must not all be zero, got {len(scores):,} rows that count for nothing."
        )
    scores = scores[kept]
    return scores, evidence.rows(kept), float(scores.min()), float(scores.max())


def _joined(first: Summary, second: Summary) -> Masses:
    pairs = zip(first.masses.columns, second.masses.columns, strict=True)
    return Masses(*(np.concatenate(pair) for pair in pairs))


def _distinct_at_most(scores: Floats, limit: int) -> bool:
    """Whether few enough scores differ; continuous scores are told apart by a first look at some of them."""
    if len(scores) <= limit:
        return True
    some = np.sort(scores[: limit + limit // 8])
    seen = some[starts_of(some)]
    for rows in _blocks(len(scores)):
        if len(seen) > limit:
            return False
        seen = np.union1d(seen, scores[rows])
    return len(seen) <= limit


def _blocks(rows: int, size: int = _BLOCK) -> Iterator[slice]:
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))
