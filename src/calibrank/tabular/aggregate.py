"""Summarize a table on disk in one pass and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice

from calibrank._internal.threads import in_workers, thread_count
from calibrank.anchoring import Positives
from calibrank.errors import DataError, FitError
from calibrank.evidence import naive
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums
from calibrank.summary.grid import CAPACITY
from calibrank.tabular._fold import FoldBuilder
from calibrank.tabular.by_segment import SegmentWorkers
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Progress, ReadTask
from calibrank.tabular.propensity import TableExposure, count_exposure, estimate_exposure
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, folds_of, valid_rows
from calibrank.tabular.rules import Rules


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A table's summary, and the positives whose propensities a sensitivity analysis varies."""

    summary: Summary
    positives: Positives | None
    folds: tuple[Summary, ...] = ()
    """One summary per fold that has rows, if folds were asked for."""
    exposure: TableExposure | None = None
    """The counts that propensities of being shown come from, where they were estimated."""
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
    exposure = count_exposure(table, columns, rules) if columns.needs_exposure else None

    def new_builders() -> list[FoldBuilder]:
        return [FoldBuilder(columns, distinct) for _ in range(folds)]

    builders, segments = _build(table, columns, rules, progress, exposure, new_builders)
    by_fold: tuple[Summary, ...] = ()
    if folds > 1:
        by_fold = tuple(each.summary() for each in builders if not each.builder.empty)
    whole = reduce(FoldBuilder.merge, builders)
    sums = segments.sums() if columns.segments else None
    return Aggregate(whole.summary(), whole.positives(), by_fold, exposure, sums)


def _build(
    table: Table,
    columns: Columns,
    rules: Rules,
    progress: Progress | None,
    exposure: TableExposure | None,
    new_builders: Callable[[], list[FoldBuilder]],
) -> tuple[list[FoldBuilder], SegmentWorkers]:
    """A builder per fold, and workers that sum by segment where there are segment columns."""
    # Each worker has builders of its own, so that none waits for a lock.
    by_worker = [new_builders() for _ in range(thread_count())]
    segments = SegmentWorkers(columns, len(by_worker))

    def add(worker: int, task: ReadTask) -> None:
        with segments.task_of(worker):
            for batch in task():
                rows = valid_rows(batch, columns, rules)
                if exposure is not None:
                    rows = replace(rows, propensity=exposure.propensity(rows))
                segments.add(worker, rows)
                rows = replace(rows, segments=())
                _add_to_folds(by_worker[worker], rows, batch.before)

    tasks = table.read_tasks(columns.read, progress, columns.segments)
    in_workers(add, tasks, len(by_worker))
    by_fold = zip(*by_worker, strict=True)
    builders = [reduce(FoldBuilder.merge, same_fold) for same_fold in by_fold]
    _require_rows(builders, table, columns)
    if columns.needs_popularity and columns.item is not None:
        _set_exposure(builders)
    return builders, segments


def _add_to_folds(builders: list[FoldBuilder], rows: Rows, first: int) -> None:
    if len(builders) == 1:
        builders[0].add(rows)
        return
    fold_of_row = folds_of(rows, first, len(builders))
    for fold, builder in enumerate(builders):
        builder.add(rows.take(fold_of_row == fold))


def _require_rows(builders: list[FoldBuilder], table: Table, columns: Columns) -> None:
    rows = sum(builder.rows for builder in builders)
    if not rows:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
    only_positives = all(builder.only_positives for builder in builders)
    if only_positives and columns.evidence is not naive:
        raise FitError(
            "labels",
            "hold both classes",
            f"only positives in {rows:,} rows of {table.name}",
            "Add pairs without an interaction (negatives).",
        )


def _set_exposure(builders: list[FoldBuilder]) -> None:
    """Estimate the exposure of every item from the whole table, and weight the positives by it."""
    kept = [rows for builder in builders for rows in builder.kept]
    exposures = estimate_exposure(kept)
    for builder in builders:
        builder.set_exposure(islice(exposures, len(builder.kept)))
