"""Summarize a table on disk in one pass, or read all its rows where terms need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.segment_keys import Encoded
from calibrank._internal.threads import in_workers, thread_count
from calibrank._internal.validation import Floats, Indices
from calibrank.anchoring import Positives
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence, checked_evidence, impressions, naive
from calibrank.summary import Summary, SummaryBuilder
from calibrank.summary.by_segment import SegmentSums
from calibrank.summary.grid import CAPACITY
from calibrank.tables import row_partitions
from calibrank.tabular.arrow import SegmentCodes, join_segments
from calibrank.tabular.columns import Columns
from calibrank.tabular.csv_files import is_number_column
from calibrank.tabular.files import Progress, ReadTask, format_of
from calibrank.tabular.read import Table
from calibrank.tabular.rows import (
    Rows,
    TableExposure,
    buckets_of,
    evidence_of,
    exposure_of,
    rows_of,
    valid_rows,
)
from calibrank.tabular.rules import Rules
from calibrank.terms.rows import MOST_ROWS

# Positives kept for the sensitivity analysis. Its answers no longer change with more of them.
_MOST_POSITIVES = 400_000


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A table's summary, and the positives whose propensities a sensitivity analysis varies."""

    summary: Summary
    positives: Positives | None
    folds: tuple[Summary, ...] = ()
    """One summary per fold that has rows, if folds were asked for."""
    exposure: TableExposure | None = None
    """The counts that propensities come from, where they were estimated."""
    segments: SegmentSums | None = None
    """Sums by segment, if there are segment columns."""


def aggregate(
    table: Table,
    columns: Columns,
    rules: Rules,
    progress: Progress | None = None,
    folds: int = 1,
    distinct: int = CAPACITY,
) -> Aggregate:
    """Summarize a whole table, and each of its folds if there are several; keep its positives.

    Up to `distinct` scores get a bin each. Where `columns` name segments, their sums are taken in
    the same pass.
    """
    # Each worker has sums of its own, so that none waits for a lock.
    workers = []
    for _ in range(thread_count()):
        parts = [_Fold(columns, SummaryBuilder(distinct)) for _ in range(folds)]
        workers.append(_Worker(columns, parts))
    exposure = _read(table, columns, rules, progress, workers)
    by_fold = [reduce(_Fold.merge, each) for each in zip(*[w.folds for w in workers], strict=True)]
    summaries: tuple[Summary, ...] = ()
    if folds > 1:
        summaries = tuple([each.builder.summary() for each in by_fold if not each.builder.empty])
    whole = reduce(_Fold.merge, by_fold)
    whole.require_both_classes(table.name)
    segments = None
    if columns.segments:
        segments = workers[0].segments
        for worker in workers[1:]:
            segments.merge(worker.segments)
    return Aggregate(whole.builder.summary(), whole.positives(), summaries, exposure, segments)


def _read(
    table: Table, columns: Columns, rules: Rules, progress: Progress | None, workers: list[_Worker]
) -> TableExposure | None:
    """Add all rows to the workers; return what exposure was estimated from, if it was."""
    exposure = None
    if columns.needs_exposure:
        # Skipped rows are counted by the pass that sums them.
        batches = rows_of(table, columns, Rules(skip=rules.skip), None)
        exposure = exposure_of(columns, batches, table.name)

    def add(worker: int, task: ReadTask) -> None:
        for batch in task():
            rows = valid_rows(batch, columns, rules)
            if len(rows):
                rows = rows if exposure is None else exposure.fill(rows)
                workers[worker].add(rows, batch.before)

    tasks = table.read_tasks(columns.read, progress, columns.segments)
    if columns.segments:
        _place_bins(workers, tasks, add)
    in_workers(add, tasks, len(workers))
    waiting = [rows for worker in workers for rows, _ in worker.waiting]
    if not waiting:
        return exposure
    popularity = exposure_of(columns, waiting)
    for worker in workers:
        for rows, folds in worker.waiting:
            worker.add_to_folds(rows if popularity is None else popularity.fill(rows), folds)
    return popularity


def _place_bins(
    workers: list[_Worker], tasks: Iterator[ReadTask], add: Callable[[int, ReadTask], None]
) -> None:
    """Read the first rows, which place the bins of sums by segment; all workers share them."""
    first, *others = [worker.segments for worker in workers]
    for task in tasks:
        add(0, task)
        if len(first.edges):
            break
    for sums in others:
        sums.edges = first.edges


@dataclass(slots=True)
class _Fold:
    """One worker's sums of one fold, and its positives where a sensitivity analysis varies them."""

    columns: Columns
    builder: SummaryBuilder
    kept: list[Rows] = field(default_factory=list)
    rows: int = 0
    only_positives: bool = True

    def add(self, rows: Rows, evidence: Evidence) -> None:
        if not len(rows):
            return
        self.rows += len(rows)
        self.only_positives = self.only_positives and bool((rows.labels == 1).all())
        self.builder.update(rows.scores, evidence)
        # Impressions identify the base rate, so there is no sensitivity to analyse.
        if self.columns.evidence not in (naive, impressions):
            self._keep(rows)

    def merge(self, other: _Fold) -> _Fold:
        """Add all rows of another one, and return this one."""
        self.builder.merge(other.builder)
        self.kept += other.kept
        self.rows += other.rows
        self.only_positives = self.only_positives and other.only_positives
        return self

    def require_both_classes(self, name: str) -> None:
        if not self.rows:
            raise DataError(name, "hold at least one valid row", "none", "Check it.")
        if self.builder.empty:
            weight = self.columns.weight or "its weights"
            raise DataError(f"{name}: {weight}", "not be 0 in every row", f"{self.rows:,} rows")
        if self.only_positives and self.columns.evidence is not naive:
            rule, found = "hold both classes", f"only positives in {self.rows:,} rows of {name}"
            raise FitError("labels", rule, found, "Add pairs without an interaction (negatives).")

    def positives(self) -> Positives | None:
        """The kept positives, at most `_MOST_POSITIVES` of them, evenly chosen."""
        if not self.kept:
            return None
        joined = Rows.joined(self.kept)
        step = -(-len(joined) // _MOST_POSITIVES)  # rounded up
        chosen = joined.take(np.arange(0, len(joined), step))
        if chosen.propensity is None or chosen.weights is None:
            return None
        return Positives(chosen.scores, chosen.propensity, step * chosen.weights)

    def _keep(self, rows: Rows) -> None:
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights.astype(np.float64)
        positives = replace(rows.numbers(), weights=weights).take(
            (rows.labels != 0) & (weights > 0)
        )
        if not len(positives):
            return
        self.kept.append(positives)
        count = sum(len(each) for each in self.kept)
        if count > _MOST_POSITIVES // thread_count():
            # Every other one stands for all, with about twice the weight: where rows were thinned
            # out before, the halves differ.
            both = Rows.joined(self.kept)
            half = both.take(np.arange(0, count, 2))
            factor = _weights(both).sum() / _weights(half).sum()
            self.kept = [replace(half, weights=factor * _weights(half))]


class _Worker:
    """The sums of one worker, by fold and by segment."""

    def __init__(self, columns: Columns, folds: list[_Fold]) -> None:
        self.columns = columns
        self.folds = folds
        self.segments = SegmentSums(names=columns.segments, kind=columns.evidence.__name__)
        self.waiting: list[tuple[Rows, Indices]] = []
        self._codes = [SegmentCodes() for _ in columns.segments]

    def add(self, rows: Rows, first: int) -> None:
        """Add valid rows; `first` is the number of the first row of their batch."""
        folds = np.zeros(len(rows), dtype=np.intp)
        if len(self.folds) > 1 and rows.users is None:
            folds = row_partitions(first, len(rows), len(self.folds))
        elif len(self.folds) > 1:
            folds = buckets_of(rows, first, len(self.folds))
        if not self.columns.needs_popularity:
            self.add_to_folds(rows, folds)
            return
        # The weights of positives follow from the whole table.
        is_positive = rows.labels != 0
        self.waiting.append((rows.take(is_positive), folds[is_positive]))
        if self.columns.segments:
            # Bins are placed by all rows: positives have higher scores.
            everything = checked_evidence(naive, rows.labels, None, rows.weights)
            self.segments.place_bins(rows.scores, everything)
        rows = replace(rows, propensity=np.ones(len(rows)))
        self.add_to_folds(rows.take(~is_positive), folds[~is_positive])

    def add_to_folds(self, rows: Rows, folds: Indices) -> None:
        """Add rows whose exposure is known."""
        if not len(rows):
            return
        evidence = evidence_of(self.columns, rows)
        if self.columns.segments:
            columns = zip(self._codes, rows.segments, strict=True)
            encoded = [codes.encode(column) for codes, column in columns]
            self.segments.add(rows.scores, evidence, encoded)
        rows = replace(rows, segments=())
        if len(self.folds) == 1:
            self.folds[0].add(rows, evidence)
            return
        for number, fold in enumerate(self.folds):
            chosen = folds == number
            fold.add(rows.take(chosen), evidence.rows(chosen))


def _weights(rows: Rows) -> Floats:
    return cast("Floats", rows.weights)  # kept rows always have them


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """All rows of a table: scores, evidence, features by name, and users where there are any."""

    scores: Floats
    evidence: Evidence
    features: dict[str, Floats | Encoded]
    users: npt.NDArray[np.intp] | None


def is_level_column(table: Table, name: str) -> bool:
    """Whether a column holds text or booleans by its type; of CSV, by its first cells."""
    file = table.files[0]
    kind = table.schema(file).field(name).type
    if format_of(file) == "csv" and kind == pa.string():
        return not is_number_column(file, name)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind))


def read_features(
    table: Table,
    columns: Columns,
    rules: Rules,
    exposure: TableExposure | None = None,
    progress: Progress | None = None,
) -> FeatureRows:
    """Read all valid rows; `columns.features` are numbers and `columns.segments` categories."""
    batches: list[Rows] = []
    for rows in rows_of(table, columns, rules, progress):
        batches.append(rows)
        if sum(map(len, batches)) > MOST_ROWS:
            raise DataError(
                table.name,
                f"have at most {MOST_ROWS:,} rows for a fit with features, which holds them in "
                "memory",
                "more",
                "Use levels alone, or a random sample of the rows.",
            )
    if not batches:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
    exposure = exposure or exposure_of(columns, batches, table.name)
    if exposure is not None:
        batches = [exposure.fill(rows) for rows in batches]
    features: dict[str, Floats | Encoded] = {}
    for place, name in enumerate(columns.features):
        parts = [rows.features[place] for rows in batches]
        features[name] = np.concatenate(parts).astype(np.float64)
    for place, name in enumerate(columns.segments):
        features[name] = join_segments([rows.segments[place] for rows in batches])
    users = None
    if columns.user is not None:
        users = join_segments([rows.users for rows in batches]).codes.astype(np.intp)
    joined = Rows.joined(batches)
    evidence = evidence_of(columns, joined)
    return FeatureRows(joined.scores.astype(np.float64), evidence, features, users)
