"""Sum the evidence of a table on disk by segment, in one pass and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

import numpy as np
import numpy.typing as npt

from calibrank._internal.segment_keys import Encoded
from calibrank._internal.validation import Floats
from calibrank.evidence import make_evidence, naive
from calibrank.summary.by_segment import SegmentSums
from calibrank.tabular._fold import first_evidence
from calibrank.tabular.columns import Columns
from calibrank.tabular.propensity import POPULARITY, estimate_exposure
from calibrank.tabular.rows import Rows
from calibrank.tabular.segment_codes import SegmentCodes


class SegmentWorkers:
    """Sums of several workers, in the bins that the first rows of the first worker ask for.

    Without segment columns they do nothing.
    """

    def __init__(self, columns: Columns, count: int) -> None:
        self._workers = [_Worker(columns) for _ in range(count if columns.segments else 0)]
        self._is_placed = Event()
        self._edges: Floats | None = None

    @contextmanager
    def task_of(self, worker: int) -> Iterator[None]:
        """To be open while a worker runs a task: the others wait for the first worker's first."""
        try:
            yield
        finally:
            # Also if it failed, or had no rows.
            if worker == 0:
                self._is_placed.set()

    def add(self, worker: int, rows: Rows) -> None:
        """Add valid rows."""
        if not len(rows) or not self._workers:
            return
        mine = self._workers[worker]
        if worker > 0 and not mine.sums.has_edges:
            self._is_placed.wait()
            if self._edges is not None:
                mine.sums.start_with(self._edges)
        mine.add(rows)
        if worker == 0 and not self._is_placed.is_set():
            self._edges = mine.sums.edges
            self._is_placed.set()

    def sums(self) -> SegmentSums:
        """The sums of all rows, with the positives that were kept."""
        if not self._workers:
            return SegmentSums()
        _add_positives(self._workers)
        first, *others = self._workers
        for other in others:
            first.sums.merge(other.sums)
        return first.sums


class _Worker:
    """The sums of one worker, and its positives while the popularity of items is not known."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.sums = SegmentSums(names=columns.segments, kind=columns.evidence.__name__)
        self.positives: list[tuple[Rows, list[Encoded]]] = []
        self._codes = [SegmentCodes() for _ in columns.segments]

    def add(self, rows: Rows) -> None:
        encoded = []
        for codes, column in zip(self._codes, rows.segments, strict=True):
            encoded.append(codes.encode(column))
        evidence = first_evidence(self.columns, rows)
        if not self.columns.needs_popularity:
            self.sums.add(rows.scores, evidence, encoded)
            return
        rows = rows.without_columns()
        self.sums.place_bins(rows.scores, evidence)
        is_positive = rows.labels != 0
        self._keep(rows, encoded, np.flatnonzero(is_positive))
        others = np.flatnonzero(~is_positive)
        rows = replace(rows, items=None).take(others)
        evidence = naive(rows.labels, weights=rows.weights)
        self.sums.add(rows.scores, evidence, _rows_of(encoded, others))

    def _keep(self, rows: Rows, encoded: list[Encoded], chosen: npt.NDArray[np.intp]) -> None:
        if len(chosen):
            self.positives.append((rows.take(chosen), _rows_of(encoded, chosen)))


def _rows_of(encoded: list[Encoded], chosen: npt.NDArray[np.intp]) -> list[Encoded]:
    return [Encoded(column.codes[chosen], column.values) for column in encoded]


def _add_positives(workers: Sequence[_Worker]) -> None:
    """Weight the positives by the popularity of their items, as `aggregate` does, and add them."""
    kept = [(worker, *batch) for worker in workers for batch in worker.positives]
    if not kept:
        return
    exposures = estimate_exposure([rows for _, rows, _ in kept])
    for exposure, (worker, rows, segments) in zip(exposures, kept, strict=True):
        propensity = POPULARITY.propensity(exposure)
        evidence = make_evidence(worker.columns.evidence, rows.labels, propensity, rows.weights)
        worker.sums.add(rows.scores, evidence, segments)
