"""Sum the evidence of a table on disk by segment, in one pass and in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from calibrank._threads import in_workers, thread_count
from calibrank._validation import Floats
from calibrank.evidence import Evidence, make_evidence, naive
from calibrank.summary.by_segment import SegmentSums
from calibrank.tabular._fold import first_evidence
from calibrank.tabular.batch import as_segments
from calibrank.tabular.columns import Columns
from calibrank.tabular.exposure import TableExposure
from calibrank.tabular.files import Progress, ReadTask
from calibrank.tabular.popularity import POPULARITY, encode_ids, item_exposure, widen_ids
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, valid_rows
from calibrank.tabular.rules import Rules


def sum_by_segment(
    table: Table,
    columns: Columns,
    rules: Rules,
    edges: Floats,
    exposure: TableExposure | None = None,
    progress: Progress | None = None,
) -> SegmentSums:
    """Sum the rows of a table by its segment columns and by bins of the score between edges."""
    workers = [_Worker(columns, SegmentSums(edges)) for _ in range(thread_count())]

    def add(worker: int, task: ReadTask) -> None:
        for batch in task():
            rows = valid_rows(batch, columns, rules)
            if exposure is not None:
                rows = replace(rows, propensity=exposure.propensity(rows))
            workers[worker].add(rows)

    in_workers(add, table.read_tasks(columns.read, progress), len(workers))
    if columns.needs_popularity:
        _add_positives(workers)
    first, *others = workers
    for other in others:
        first.sums.merge(other.sums)
    return first.sums


@dataclass(slots=True)
class _Worker:
    """The sums of one worker, and its positives while the popularity of items is not known."""

    columns: Columns
    sums: SegmentSums
    positives: list[Rows] = field(default_factory=list)

    def add(self, rows: Rows) -> None:
        if self.columns.needs_popularity:
            is_positive = rows.labels != 0
            self._keep(rows.take(np.flatnonzero(is_positive)))
            rows = rows.take(np.flatnonzero(~is_positive))
            self.add_evidence(rows, naive(rows.labels, weights=rows.weights))
        else:
            self.add_evidence(rows, first_evidence(self.columns, rows))

    def add_evidence(self, rows: Rows, evidence: Evidence) -> None:
        if not len(rows):
            return
        self.sums.add(rows.scores, evidence, [as_segments(column) for column in rows.segments])

    def _keep(self, positives: Rows) -> None:
        if len(positives) and positives.items is not None:
            items = widen_ids(positives.items)
            self.positives.append(replace(positives, items=items, users=None, others=()))


def _add_positives(workers: Sequence[_Worker]) -> None:
    """Weight the positives by the popularity of their items, as `aggregate` does, and add them."""
    kept = [(worker, rows) for worker in workers for rows in worker.positives]
    codes = encode_ids([rows.items for _, rows in kept])
    counts = np.zeros(max((int(code.max()) for code in codes), default=-1) + 1)
    for code, (_, rows) in zip(codes, kept, strict=True):
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        np.add.at(counts, code, weights)
    by_item = item_exposure(counts)
    for code, (worker, rows) in zip(codes, kept, strict=True):
        propensity = POPULARITY.propensity(by_item[code])
        evidence = make_evidence(worker.columns.evidence, rows.labels, propensity, rows.weights)
        worker.add_evidence(rows, evidence)
