"""A first look at a table, whatever is in it: counts that tell scores from padding and samples from lists."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._validation import LARGEST_SCORE, Floats
from calibrank.errors import DataError
from calibrank.evidence import naive
from calibrank.summary import Summary, SummaryBuilder
from calibrank.tabular.aggregate import Columns
from calibrank.tabular.read import Batch, Progress, Table, indices_of, names_of

_PILE = 1_000_000  # ids counted in pieces before they are merged
_LOOKED_AT = 1_000_000  # scores whose ties are counted


@dataclass(slots=True)
class Tally:
    """How often each id occurs; pieces are merged as they pile up."""

    ids: list[pa.Array] = field(default_factory=list)
    pieces: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def add(self, ids: pa.Array) -> None:
        """Count some more rows."""
        found = _comparable(ids).value_counts()
        self.ids.append(found.field(0))
        self.pieces.append(names_of(found.field(1)))
        if sum(len(piece) for piece in self.pieces[1:]) > max(len(self.pieces[0]), _PILE):
            self._merge()

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """One number an id."""
        self._merge()
        return self.pieces[0] if self.pieces else np.empty(0, dtype=np.int64)

    def most_frequent(self) -> tuple[object, int]:
        """The id that occurs most, and how often."""
        counts = self.counts
        if not len(counts):
            return None, 0
        best = int(counts.argmax())
        return self.ids[0][best].as_py(), int(counts[best])

    def _merge(self) -> None:
        if len(self.ids) < 2:
            return
        kinds = {ids.type for ids in self.ids}  # files of a table may write ids in several ways
        one = self.ids[0].type if len(kinds) == 1 else pa.large_string()
        joined = pa.chunked_array([ids.cast(one) for ids in self.ids]).combine_chunks()
        encoded = joined.dictionary_encode(null_encoding="encode")
        counts = np.bincount(indices_of(encoded), np.concatenate(self.pieces)).astype(np.int64)
        self.ids, self.pieces = [encoded.dictionary], [counts]


def _comparable(ids: pa.Array) -> pa.Array:
    """Whole numbers as they are, all else as text."""
    small = pa.types.is_integer(ids.type) and not pa.types.is_uint64(ids.type)
    return ids.cast(pa.int64() if small else pa.large_string())


@dataclass(slots=True)
class Profile:
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


def profile(table: Table, columns: Columns, progress: Progress | None = None) -> Profile:
    """Read a table once; bad scores and labels are counted, not refused."""
    found, builder, samples = Profile(), SummaryBuilder(), list[Floats]()
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
        raise DataError(
            f"{table.name} must hold at least one good row, got none in {found.rows:,}."
        )
    found.summary = builder.summary()
    found.sample = np.concatenate(samples)[:_LOOKED_AT]
    return found


def _good(
    scores: Floats, labels: Floats, found: Profile
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    missing, endless = np.isnan(scores), np.isinf(scores)
    padded = ~missing & ~endless & (np.abs(scores) > LARGEST_SCORE)
    for name, which in (("missing", missing), ("infinite", endless), ("beyond 1e30", padded)):
        if which.any():
            found.bad_scores[name] += int(which.sum())
    fine = ~(missing | endless | padded)
    odd = fine & ~((labels == 0) | (labels == 1))
    found.bad_labels += int(odd.sum())
    return fine & ~odd


def _count_ids(batch: Batch, columns: Columns, found: Profile) -> None:
    for name, tally in ((columns.user, found.per_user), (columns.item, found.per_item)):
        if name is not None:
            tally.add(batch.ids(name))
    if columns.user is not None:
        scores = batch.numbers(columns.score)
        users = indices_of(batch.ids(columns.user).dictionary_encode(null_encoding="encode"))
        same = users[1:] == users[:-1]
        found.neighbours += int(same.sum())
        found.falling += int((same & (scores[1:] <= scores[:-1])).sum())
