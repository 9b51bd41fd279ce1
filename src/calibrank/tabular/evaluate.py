"""Evaluate the probabilities of a table on disk, in one pass and bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence, naive, soft_evidence
from calibrank.maps import CalibrationMap
from calibrank.maps.known_values import KnownValues
from calibrank.maps.score_shift import ScoreComparison
from calibrank.metrics import CalibrationTest, Estimate, ReliabilityCurve, reliability
from calibrank.metrics.clustered_bootstrap import CLUSTERS
from calibrank.metrics.panel import PANEL, PER_LIST, PanelSums, list_estimates
from calibrank.summary import SummaryBuilder
from calibrank.tabular.aggregate import Columns, Rows, buckets_of, rows_of
from calibrank.tabular.read import Progress, Table, indices_of
from calibrank.tabular.rows import predict_rows
from calibrank.tabular.rules import Rules

MOST_ROWS_IN_MEMORY = 20_000_000
"""Metrics of each user's list need all rows in memory, about 1 GB for this many.

Longer tables are evaluated without these metrics, and the result names them.
"""

MOST_SEGMENTS = 100
"""How many values a segment column may have: each keeps sums of its own."""

# Fewer clusters of users than for the whole table, because every segment keeps sums per cluster.
_SEGMENT_CLUSTERS = 256

_MISSING = "(missing)"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The metrics of a table with intervals where possible, and its reliability curve."""

    rows: int
    estimates: dict[str, Estimate]
    better: dict[str, str]
    """Which values are better, by the name of the metric."""
    calibration_test: CalibrationTest
    curve: ReliabilityCurve
    left_out: tuple[str, ...]
    """Metrics that could not be computed: there are no users, too many rows, or no positives."""
    segments: dict[str, dict[str, Evaluation]] = field(default_factory=dict)
    """The same by segment column and value, without metrics of lists."""


def evaluate(
    table: Table,
    columns: Columns,
    fitted: CalibrationMap | None,
    rules: Rules,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a map on a score column, or a probability column as it is.

    Without a map, `columns.score` names the column of probabilities. With one, a warning says if
    the scores do not look like those of its fit. The columns in `columns.others` are evaluated
    by value.
    """
    if fitted is not None:
        columns = columns.used_by(fitted)
    accumulator = _Accumulator()
    segments: dict[str, dict[str, _Accumulator]] = {name: {} for name in columns.others}
    comparison = None if fitted is None else ScoreComparison(fitted.record)
    known = None if fitted is None else KnownValues(fitted)
    for rows in rows_of(table, columns, rules, progress):
        probabilities = (
            rows.scores if fitted is None else predict_rows(fitted, columns, rows, known)
        )
        accumulator.add(rows, probabilities)
        for name, values in zip(columns.others, rows.others, strict=True):
            _add_to_segments(segments[name], name, values, rows, probabilities)
        if comparison is not None:
            comparison.add(rows.scores)
    if not accumulator.rows:
        raise DataError(
            f"{table.name} must hold at least one valid row of nonzero weight, got none. "
            "Name a table with rows."
        )
    if comparison is not None and known is not None:
        comparison.warn()
        known.warn()
    evaluated = {}
    for name, by_value in segments.items():
        evaluated[name] = {value: by_value[value].result() for value in sorted(by_value)}
    return replace(accumulator.result(), segments=evaluated)


def _add_to_segments(
    segments: dict[str, _Accumulator],
    column: str,
    values: pa.Array,
    rows: Rows,
    probabilities: Floats,
) -> None:
    encoded = values.dictionary_encode(null_encoding="encode")
    if len(encoded.dictionary) > MOST_SEGMENTS:
        raise _too_many_segments(column)
    codes = indices_of(encoded)
    rows = replace(rows, others=())
    for code, value in enumerate(encoded.dictionary.to_pylist()):
        name = _MISSING if value is None else str(value)
        chosen = np.flatnonzero(codes == code)
        if name not in segments:
            segments[name] = _Accumulator(_SEGMENT_CLUSTERS, keep_lists=False)
        segments[name].add(rows.take(chosen), probabilities[chosen])
    if len(segments) > MOST_SEGMENTS:
        raise _too_many_segments(column)


def _too_many_segments(column: str) -> DataError:
    return DataError(
        f"segment column {column!r} must have at most {MOST_SEGMENTS} values, got more. "
        "Put numbers into groups first, such as quantiles."
    )


class _ListRows(NamedTuple):
    """The columns of a batch that metrics of each user's list need."""

    probabilities: Floats
    positive: Floats
    total: Floats
    users: npt.NDArray[np.intp]


@dataclass(slots=True)
class _Accumulator:
    """Sums per cluster of users, a summary of the probabilities, and the rows while they fit."""

    clusters: int = CLUSTERS
    keep_lists: bool = True
    rows: int = 0
    pooled: SummaryBuilder = field(default_factory=SummaryBuilder)
    sums: PanelSums = field(init=False)
    list_rows: list[_ListRows] = field(default_factory=list)
    user_codes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sums = PanelSums(self.clusters)

    def add(self, rows: Rows, probabilities: Floats) -> None:
        # Evaluation uses labels as they are: it tests calibration on the pairs of this table.
        evidence = soft_evidence(naive, rows.labels, None, rows.weights)
        # Rows of a user fall into one cluster in whichever batch they are; without users, single
        # rows are distributed over the clusters.
        clusters = buckets_of(rows, self.rows, self.clusters)
        self.sums.add(probabilities, evidence, clusters)
        self.pooled.update(probabilities, evidence)
        self.rows += len(probabilities)
        if rows.users is None or not self.keep_lists or self.rows > MOST_ROWS_IN_MEMORY:
            self.list_rows.clear()
            return
        users = self._number_users(rows.users)
        kept = _ListRows(probabilities, evidence.positive, evidence.total, users)
        self.list_rows.append(kept)

    def _number_users(self, users: pa.Array) -> npt.NDArray[np.intp]:
        """Number the users of a batch consistently with earlier batches."""
        # Only the distinct users of the batch pass through Python.
        encoded = users.dictionary_encode()
        codes = [
            # As text: files may store the same ids as numbers and as text.
            self.user_codes.setdefault(str(user), len(self.user_codes))
            for user in encoded.dictionary.to_pylist()
        ]
        return np.array(codes, dtype=np.intp)[indices_of(encoded)]

    def result(self) -> Evaluation:
        summary = self.pooled.summary()
        estimates = self.sums.estimates(summary)
        if self.list_rows and summary.positive.any():
            estimates |= self._list_estimates()
        return Evaluation(
            rows=self.rows,
            estimates=estimates,
            better={metric.name: metric.better.value for metric in PANEL},
            calibration_test=self.sums.calibration_test(),
            curve=reliability(summary.scores, summary.evidence),
            left_out=tuple(metric.name for metric in PER_LIST if metric.name not in estimates),
        )

    def _list_estimates(self) -> dict[str, Estimate]:
        columns = [np.concatenate(column) for column in zip(*self.list_rows, strict=True)]
        probabilities, positive, total, users = columns
        evidence = Evidence.trusted(positive, total, "naive")
        return list_estimates(probabilities, evidence, users)
