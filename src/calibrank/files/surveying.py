"""A first look at a table, whatever is in it: counts that tell scores from padding and samples from lists."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank.arrays import LARGEST_SCORE, Floats
from calibrank.errors import DataError
from calibrank.files.reading import Batch, Progress, Table, indices_of
from calibrank.files.summing import Columns, wide
from calibrank.summary import Summary, SummaryBuilder
from calibrank.weighting import naive

_PILE = 1_000_000  # ids counted in pieces before they are merged
_LOOKED_AT = 1_000_000  # scores whose ties are counted


@dataclass(slots=True)
class Tally:
    """How often each id occurs; pieces are merged as they pile up."""

    pieces: list[pa.Table] = field(default_factory=list)

    def add(self, ids: pa.Array) -> None:
        """Count some more rows."""
        found = wide(ids).value_counts()
        self.pieces.append(pa.table({"id": found.field(0), "count": found.field(1)}))
        if sum(len(piece) for piece in self.pieces[1:]) > max(len(self.pieces[0]), _PILE):
            self._merge()

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """One number an id."""
        return np.array(self._merge().column("count"))

    def most_frequent(self) -> tuple[object, int]:
        """The id that occurs most, and how often."""
        counts = self.counts
        if not len(counts):
            return None, 0
        best = int(counts.argmax())
        return self.pieces[0].column("id")[best].as_py(), int(counts[best])

    def _merge(self) -> pa.Table:
        if not self.pieces:
            return pa.table({"id": pa.nulls(0), "count": pa.array([], pa.int64())})
        merged = pa.concat_tables(self.pieces).group_by("id").aggregate([("count", "sum")])
        self.pieces = [merged.rename_columns({"id": "id", "count_sum": "count"})]
        return self.pieces[0]


@dataclass(slots=True)
class Survey:
    """What one pass over a table found."""

    rows: int = 0
    bad_scores: Counter[str] = field(default_factory=Counter)
    bad_labels: int = 0
    summary: Summary | None = None
    """Naive evidence of all good rows."""
    sample: Floats = field(default_factory=lambda: np.empty(0))
    """The first good scores, at most a million."""
    per_user: Tally = field(default_factory=Tally)
    per_item: Tally = field(default_factory=Tally)
    neighbours: int = 0
    """Rows that follow one of the same user,"""
    falling: int = 0
    """and how many of them have a score no higher."""


def survey(table: Table, columns: Columns, progress: Progress | None = None) -> Survey:
    """Read a table once; bad scores and labels are counted, not refused."""
    found, builder, samples = Survey(), SummaryBuilder(), list[Floats]()
    for batch in table.batches(columns.read, progress):
        scores, labels = batch.numbers(columns.score), batch.numbers(columns.label)
        good = _good(scores, labels, found)
        found.rows += len(scores)
        scores = scores[good].astype(scores.dtype if scores.dtype.kind == "f" else np.float64)
        if len(scores):
            builder.update(scores, naive(labels[good].astype(np.float64)))
        if sum(map(len, samples)) < _LOOKED_AT:
            samples.append(scores)
        _count_ids(batch, columns, found)
    if found.rows == sum(found.bad_scores.values()) + found.bad_labels or not found.rows:
        raise DataError(f"{table.name} must hold at least one good row, got none in {found.rows:,}.")
    found.summary = builder.summary()
    found.sample = np.concatenate(samples)[:_LOOKED_AT]
    return found


def _good(scores: Floats, labels: Floats, found: Survey) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    missing, endless = np.isnan(scores), np.isinf(scores)
    padded = ~missing & ~endless & (np.abs(scores) > LARGEST_SCORE)
    for name, which in (("missing", missing), ("infinite", endless), ("beyond 1e30", padded)):
        if which.any():
            found.bad_scores[name] += int(which.sum())
    fine = ~(missing | endless | padded)
    odd = fine & ~((labels == 0) | (labels == 1))
    found.bad_labels += int(odd.sum())
    return fine & ~odd


def _count_ids(batch: Batch, columns: Columns, found: Survey) -> None:
    for name, tally in ((columns.user, found.per_user), (columns.item, found.per_item)):
        if name is not None:
            tally.add(batch.ids(name))
    if columns.user is not None:
        scores = batch.numbers(columns.score)
        users = indices_of(batch.ids(columns.user).dictionary_encode(null_encoding="encode"))
        same = users[1:] == users[:-1]
        found.neighbours += int(same.sum())
        found.falling += int((same & (scores[1:] <= scores[:-1])).sum())
