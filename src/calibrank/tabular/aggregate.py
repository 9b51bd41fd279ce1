"""From a table on disk to summaries, in one pass and in bounded memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice, pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._threads import in_workers, thread_count
from calibrank._validation import Floats
from calibrank.base_rate import Positives, PropensityModel
from calibrank.errors import DataError, FitError
from calibrank.evidence import (
    Evidence,
    impressions,
    ips,
    naive,
    positive_ips,
    undersampling_weights,
)
from calibrank.propensity import Popularity
from calibrank.summary import Summary, SummaryBuilder
from calibrank.tables import hash_partitions
from calibrank.tabular.read import Batch, Piece, Progress, Table, arrow, indices_of, names_of, take
from calibrank.tabular.rules import Rules

EVIDENCE_BY_LOSS: dict[str, Callable[..., Evidence]] = {
    "naive": naive,
    "ips": ips,
    "positive-ips": positive_ips,
    "impressions": impressions,
}
"""Losses by name."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column plays which role, and how labels become evidence."""

    score: str
    label: str
    loss: str
    propensity: str | None = None
    item: str | None = None
    weight: str | None = None
    user: str | None = None
    negatives_kept: float = 1.0
    """The share of rows without a positive that is in the table."""
    score_is: str = "score"
    """Which rule the score column obeys: that of scores, or of probabilities where these are judged."""
    others: tuple[str, ...] = ()
    """Columns of any kind that come along unchecked."""

    @property
    def checked(self) -> dict[str, str]:
        """Columns with a rule, by role."""
        roles = ("label", "propensity", "weight")
        others = {role: name for role in roles if (name := getattr(self, role)) is not None}
        return {self.score_is: self.score, **others}

    @property
    def read(self) -> list[str]:
        """All columns to read."""
        return list(dict.fromkeys([*self.checked.values(), *self.ids, *self.others]))

    @property
    def ids(self) -> list[str]:
        """Columns of ids."""
        return [name for name in (self.item, self.user) if name is not None]


@dataclass(frozen=True, slots=True)
class Rows:
    """Checked rows of a batch."""

    scores: Floats
    labels: npt.NDArray[Any]
    propensity: Floats | None
    weights: Floats | None
    items: pa.Array | None
    users: pa.Array | None
    others: tuple[pa.Array, ...] = ()

    def take(self, chosen: npt.NDArray[Any]) -> "Rows":
        """Some of the rows, by mask or by number."""
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        return Rows(
            self.scores[chosen],
            self.labels[chosen],
            None if self.propensity is None else self.propensity[chosen],
            None if self.weights is None else self.weights[chosen],
            None if self.items is None else take(self.items, chosen),
            None if self.users is None else take(self.users, chosen),
            tuple(take(column, chosen) for column in self.others),
        )

    @classmethod
    def joined(cls, parts: list["Rows"]) -> "Rows":
        """The numbers of many batches as one; ids stay behind."""

        def join(name: str) -> npt.NDArray[Any] | None:
            columns = [getattr(part, name) for part in parts]
            return None if columns[0] is None else np.concatenate(columns)

        scores, labels = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("scores", "labels")
        )
        return cls(scores, labels, join("propensity"), join("weights"), None, None)


def rows_of(
    table: Table, columns: Columns, rules: Rules, progress: Progress | None
) -> Iterator[Rows]:
    """Every batch's good rows."""
    for batch in table.batches(columns.read, progress):
        rows = _good_rows(batch, columns, rules)
        if len(rows.scores):
            yield rows


def _good_rows(batch: Batch, columns: Columns, rules: Rules) -> Rows:
    good = rules.good_rows(batch, columns.checked, columns.ids)
    rows = _rows(batch, columns)
    return rows if good is None else rows.take(good)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A whole table's summary, and its positives with their exposure where propensities can be varied."""

    summary: Summary
    positives: Positives | None


def summarize(
    table: Table, columns: Columns, rules: Rules, progress: Progress | None = None, parts: int = 1
) -> list[Summary]:
    """Summaries of a table; with `parts`, one for each share of the users (rows, where there are none)."""
    return [builder.summary() for builder in _read(table, columns, rules, progress, parts)]


def aggregate(
    table: Table, columns: Columns, rules: Rules, progress: Progress | None = None
) -> Aggregate:
    """One summary of a table, with the positives behind it."""
    (builder,) = _read(table, columns, rules, progress, 1, keep=True)
    return Aggregate(builder.summary(), builder.positives)


def _read(
    table: Table,
    columns: Columns,
    rules: Rules,
    progress: Progress | None,
    parts: int,
    *,
    keep: bool = False,
) -> list["_Builder"]:
    lanes = [[_Builder(columns, keep=keep) for _ in range(parts)] for _ in range(thread_count())]

    def add(lane: int, piece: Piece) -> None:
        for batch in piece():
            rows = _good_rows(batch, columns, rules)
            homes = None if parts == 1 else buckets_of(rows, batch.before, parts)
            for part, builder in enumerate(lanes[lane]):
                share = rows if homes is None else rows.take(homes == part)
                if len(share.scores):
                    builder.add(share)

    in_workers(add, table.pieces(columns.read, progress), len(lanes))
    builders = [reduce(_Builder.merge, same) for same in zip(*lanes, strict=True)]
    seen = sum(builder.rows for builder in builders)
    if not seen:
        raise DataError(f"{table.name} must hold at least one good row, got none.")
    if not all(builder.rows for builder in builders):
        raise DataError(
            f"{table.name} must have users enough for {parts} folds, got one without any. Ask for fewer."
        )
    if columns.loss != "naive" and all(builder.only_positives for builder in builders):
        raise FitError(
            f"labels must hold both classes, got only positives in {seen:,} rows of {table.name}. "
            "Add pairs without an interaction (negatives)."
        )
    guessed = columns.item is not None and columns.propensity is None and columns.loss != "naive"
    if guessed:
        _guess(builders)
    for builder in builders:
        builder.finish()
    return builders


def buckets_of(rows: Rows, first: int, buckets: int) -> npt.NDArray[np.intp]:
    """A bucket for each row: by its user, the same in any batch, file or run; without users, by its number."""
    if rows.users is None:
        return (first + np.arange(len(rows.scores))) % buckets
    encoded = rows.users.dictionary_encode()
    return hash_partitions(encoded.dictionary.to_pylist(), buckets)[indices_of(encoded)]


_KEPT = 400_000  # positives whose propensities are varied: more of them would tell the same
_FEW = 2**16  # rows that are not worth a part of their own
_NEAR = 10_000_000  # ids that lie within so many are numbers already; to number others takes long to load


class _Builder:
    """A summary being built; positives wait where their propensity needs the whole table's popularity."""

    def __init__(self, columns: Columns, *, keep: bool) -> None:
        self.columns = columns
        self.keep = keep
        self.builder = SummaryBuilder()
        self.waiting: list[Rows] = []
        self.positives: Positives | None = None
        self.rows = 0
        self.only_positives = True

    def add(self, rows: Rows) -> None:
        self.rows += len(rows.scores)
        self.only_positives = self.only_positives and bool(rows.labels.all())
        if self.columns.loss == "naive":
            total = (
                np.broadcast_to(np.float64(1), len(rows.scores))
                if rows.weights is None
                else rows.weights
            )
            positive = rows.labels if rows.weights is None else rows.labels * rows.weights
            unit = rows.weights is None
            evidence = Evidence.trusted(positive, total, "naive", unit_weights=unit)
            self.builder.update(rows.scores, evidence)
            return
        guessed = rows.propensity is None
        if guessed or (self.keep and self.columns.loss != "impressions"):
            self._wait(rows.take(np.flatnonzero(rows.labels != 0)))
        if guessed:
            total = (
                np.broadcast_to(np.float64(1), len(rows.scores))
                if rows.weights is None
                else rows.weights
            )
            nothing = np.broadcast_to(np.float64(0), len(rows.scores))
            kind = self.columns.loss.replace("-", "_")
            unit = rows.weights is None
            evidence = Evidence.trusted(
                nothing, total, kind, unit_weights=unit, no_positives=True
            )
            self.builder.update(rows.scores, evidence)
        else:
            self.builder.update(rows.scores, self._evidence(rows, rows.propensity))

    def merge(self, other: "_Builder") -> "_Builder":
        """With all that another builder of the same table has seen."""
        self.builder.merge(other.builder)
        self.waiting += other.waiting
        self.rows += other.rows
        self.only_positives = self.only_positives and other.only_positives
        return self

    def _wait(self, liked: Rows) -> None:
        """Keep positives for later: all where their evidence is still to come, some where it only may be varied."""
        if not len(liked.scores):
            return
        # Small whole numbers would overflow where a row comes to stand for several.
        weights = (
            np.ones(len(liked.scores))
            if liked.weights is None
            else liked.weights.astype(np.float64)
        )
        items = None if liked.items is None or liked.propensity is not None else _wide(liked.items)
        self.waiting.append(
            Rows(liked.scores, liked.labels, liked.propensity, weights, items, None)
        )
        if (
            liked.propensity is not None
            and sum(len(part.scores) for part in self.waiting) > _KEPT // thread_count()
        ):
            rows = Rows.joined(self.waiting).take(
                np.arange(0, sum(len(part.scores) for part in self.waiting), 2)
            )
            self.waiting = [replace(rows, weights=2 * cast("Floats", rows.weights))]

    def guess(self, exposures: Iterable[Floats]) -> None:
        """With the exposure of each positive that waited for it known, weigh them."""
        known = (
            replace(rows, propensity=each)
            for rows, each in zip(self.waiting, exposures, strict=True)
        )
        heard = (rows.take(cast("Floats", rows.weights) > 0) for rows in _bunched(known))
        self.waiting = [rows for rows in heard if len(rows.scores)]
        self.builder.correct(map(self._corrected, self.waiting))

    def _corrected(self, rows: Rows) -> tuple[Floats, Evidence, Evidence]:
        evidence = self._evidence(rows, POPULARITY.of_exposure(cast("Floats", rows.propensity)))
        return rows.scores, evidence, naive(np.zeros(len(rows.scores)), weights=rows.weights)

    def finish(self) -> None:
        """With all propensities known, keep the positives whose propensities may be varied."""
        if self.keep and self.waiting:
            before = np.cumsum([0, *(len(part.scores) for part in self.waiting)])
            step = -(-int(before[-1]) // _KEPT)
            every = [
                np.arange(-start % step, stop - start, step) for start, stop in pairwise(before)
            ]
            rows = Rows.joined(
                [part.take(some) for part, some in zip(self.waiting, every, strict=True)]
            )
            if rows.propensity is not None and rows.weights is not None:
                self.positives = Positives(rows.scores, rows.propensity, step * rows.weights)

    def summary(self) -> Summary:
        return self.builder.summary()

    def _evidence(self, rows: Rows, propensity: Floats | None) -> Evidence:
        return EVIDENCE_BY_LOSS[self.columns.loss](rows.labels, propensity, weights=rows.weights)


POPULARITY = Popularity()
"""How items' exposures become propensities, where no column tells them."""


def propensity_model_for(columns: Columns) -> tuple[PropensityModel, bool]:
    """How propensities were made, and whether their scale is known: a column is taken at its word."""
    given = columns.propensity is not None
    return (
        PropensityModel(power=1, clip=0)
        if given
        else PropensityModel(POPULARITY.power, POPULARITY.clip)
    ), given


def _guess(builders: list[_Builder]) -> None:
    """Tell each builder its positives' exposure: how often the item is liked in the whole table, at most 1."""
    waiting = [rows for builder in builders for rows in builder.waiting]
    numbers = _numbered([rows.items for rows in waiting]) if waiting else []
    counts = np.zeros(max((int(each.max()) + 1 for each in numbers), default=0))
    for each, rows in zip(numbers, waiting, strict=True):
        np.add.at(counts, each, cast("Floats", rows.weights))
    if not counts.any():
        raise DataError(
            "labels must hold a positive that weighs something to tell popularity, got none."
        )
    share = counts / counts.max()
    exposures = (share[each] for each in numbers)
    for builder in builders:
        builder.guess(islice(exposures, len(builder.waiting)))


def _bunched(parts: Iterable[Rows]) -> Iterator[Rows]:
    """The same rows in fewer parts, where they are small; ids stay behind."""
    bunch: list[Rows] = []
    for part in parts:
        bunch.append(part)
        if sum(len(each.scores) for each in bunch) >= _FEW:
            yield Rows.joined(bunch)
            bunch = []
    if bunch:
        yield Rows.joined(bunch)


def _numbered(columns: list[pa.Array]) -> list[npt.NDArray[np.integer[Any]]]:
    """A number from 0 on for each id, the same in all columns."""
    if all(pa.types.is_integer(ids.type) for ids in columns):
        plain = [names_of(ids) for ids in columns]
        low, high = min(int(ids.min()) for ids in plain), max(int(ids.max()) for ids in plain)
        if high - low < min(_NEAR, 100 * sum(map(len, plain))):
            return [ids - low for ids in plain]
    if len({ids.type for ids in columns}) > 1:  # numbers in one file, texts in another
        columns = [ids.cast(pa.large_string()) for ids in columns]
    encoded = pa.chunked_array(columns).dictionary_encode()  # one dictionary for all
    return [indices_of(chunk) for chunk in encoded.chunks]


def _wide(ids: pa.Array) -> pa.Array:
    """Ids in the one type that files of a table may write in several ways, and that holds any amount of text."""
    if pa.types.is_integer(ids.type):
        numbers = names_of(ids)
        fits = numbers.dtype != np.uint64 or not len(numbers) or int(numbers.max()) < 2**63
        return arrow(numbers.astype(np.int64)) if fits else ids.cast(pa.large_string())
    return ids.cast(pa.large_string()) if pa.types.is_string(ids.type) else ids


def _rows(batch: Batch, columns: Columns) -> Rows:
    def numbers(name: str | None) -> Floats | None:
        return None if name is None else batch.numbers(name)

    def ids(name: str | None) -> pa.Array | None:
        return None if name is None else batch.ids(name)

    scores, labels = batch.numbers(columns.score), batch.numbers(columns.label)
    scores = scores if scores.dtype.kind == "f" else scores.astype(np.float64)
    weights, propensity = numbers(columns.weight), numbers(columns.propensity)
    others = tuple(batch.ids(name) for name in columns.others)
    rows = Rows(scores, labels, propensity, weights, ids(columns.item), ids(columns.user), others)
    return rows if columns.negatives_kept == 1 else _standing_for_all(rows, columns.negatives_kept)


def _standing_for_all(rows: Rows, kept: float) -> Rows:
    """Rows with the negatives weighing as many as they were drawn from; bad labels are dealt with later."""
    more = undersampling_weights(rows.labels == 1, kept)
    return replace(rows, weights=more if rows.weights is None else rows.weights * more)
