"""Summarize a table on disk, in one pass unless exposure is counted first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from threading import Event
from typing import cast

import numpy as np

from calibrank._internal.threads import in_workers, thread_count
from calibrank._internal.validation import Floats, Indices
from calibrank.anchoring import Positives
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence, checked_evidence, impressions, naive
from calibrank.summary import Summary, SummaryBuilder
from calibrank.summary.by_segment import SegmentSums
from calibrank.summary.grid import CAPACITY
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Progress, ReadTask
from calibrank.tabular.propensity import TableExposure, evidence_of, exposure_of
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, folds_of, rows_of, valid_rows
from calibrank.tabular.rules import Rules
from calibrank.tabular.segment_codes import SegmentCodes

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


def summarize(
    table: Table, columns: Columns, rules: Rules, progress: Progress | None = None, folds: int = 1
) -> list[Summary]:
    """Summarize each fold of a table.

    A user's rows are all in the same fold; without a user column, row numbers are hashed.
    """
    found = aggregate(table, columns, rules, progress, folds)
    if folds == 1:
        return [found.summary]
    if len(found.folds) < folds:
        raise DataError(
            table.name, f"have enough users for {folds} folds", "an empty fold", "Use fewer folds."
        )
    return list(found.folds)


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
    edges = _SharedEdges()
    workers = []
    for number in range(thread_count()):
        parts = [_Fold(columns, SummaryBuilder(distinct)) for _ in range(folds)]
        workers.append(_Worker(columns, number, parts, edges))
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
        try:
            for batch in task():
                rows = valid_rows(batch, columns, rules)
                if len(rows):
                    rows = rows if exposure is None else exposure.fill(rows)
                    workers[worker].add(rows, batch.before)
        finally:
            workers[worker].share_edges()

    in_workers(add, table.read_tasks(columns.read, progress, columns.segments), len(workers))
    waiting = [rows for worker in workers for rows, _ in worker.waiting]
    if not waiting:
        return exposure
    popularity = exposure_of(columns, waiting)
    for worker in workers:
        worker.add_waiting(popularity)
    return popularity


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
            raise FitError(
                "labels",
                "hold both classes",
                f"only positives in {self.rows:,} rows of {name}",
                "Add pairs without an interaction (negatives).",
            )

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


@dataclass(slots=True)
class _SharedEdges:
    """The bins of sums by segment, which the first rows of the first worker ask for."""

    are_known: Event = field(default_factory=Event)
    edges: Floats | None = None


class _Worker:
    """The sums of one worker, by fold and by segment."""

    def __init__(
        self, columns: Columns, number: int, folds: list[_Fold], edges: _SharedEdges
    ) -> None:
        self.columns = columns
        self.folds = folds
        self.segments = SegmentSums(names=columns.segments, kind=columns.evidence.__name__)
        self._is_first = number == 0
        self._shared = edges
        self.waiting: list[tuple[Rows, Indices]] = []
        self._codes = [SegmentCodes() for _ in columns.segments]

    def add(self, rows: Rows, first: int) -> None:
        """Add valid rows; `first` is the number of the first row of their batch."""
        folds = np.zeros(len(rows), dtype=np.intp)
        if len(self.folds) > 1:
            folds = folds_of(rows, first, len(self.folds))
        if not self.columns.needs_popularity:
            self._add(rows, folds)
            return
        # The weights of positives follow from the whole table.
        is_positive = rows.labels != 0
        self.waiting.append((rows.take(is_positive), folds[is_positive]))
        if self.columns.segments:
            # Bins are placed by all rows: positives have higher scores.
            everything = checked_evidence(naive, rows.labels, None, rows.weights)
            self._wait_for_edges()
            self.segments.place_bins(rows.scores, everything)
            self.share_edges()
        rows = replace(rows, propensity=np.ones(len(rows)))
        self._add(rows.take(~is_positive), folds[~is_positive])

    def add_waiting(self, exposure: TableExposure | None) -> None:
        """Add the positives, when the exposure of their items is known."""
        for rows, folds in self.waiting:
            self._add(rows if exposure is None else exposure.fill(rows), folds)

    def _add(self, rows: Rows, folds: Indices) -> None:
        if not len(rows):
            return
        evidence = evidence_of(self.columns, rows)
        if self.columns.segments:
            self._wait_for_edges()
            columns = zip(self._codes, rows.segments, strict=True)
            encoded = [codes.encode(column) for codes, column in columns]
            self.segments.add(rows.scores, evidence, encoded)
            self.share_edges()
        rows = replace(rows, segments=())
        if len(self.folds) == 1:
            self.folds[0].add(rows, evidence)
            return
        for number, fold in enumerate(self.folds):
            chosen = folds == number
            fold.add(rows.take(chosen), evidence.rows(chosen))

    def _wait_for_edges(self) -> None:
        if self._is_first or self.segments.has_edges:
            return
        self._shared.are_known.wait()
        if self._shared.edges is not None:
            self.segments.start_with(self._shared.edges)

    def share_edges(self) -> None:
        """Let the others start, after the first rows of the first worker, or if it had none."""
        if self._is_first and not self._shared.are_known.is_set():
            if self.segments.has_edges:
                self._shared.edges = self.segments.edges
            self._shared.are_known.set()


def _weights(rows: Rows) -> Floats:
    return cast("Floats", rows.weights)  # kept rows always have them
