"""Evaluate the probabilities of a table on disk, in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.threads import meanwhile
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence, naive, soft_evidence
from calibrank.maps import CalibrationMap
from calibrank.maps.score_shift import AnchorLabels, ScoreComparison
from calibrank.metrics import CalibrationTest, Estimate, Metric, ReliabilityCurve, reliability
from calibrank.metrics.clustered_bootstrap import CLUSTERS
from calibrank.metrics.panel import PANEL, PER_LIST, PanelSums, list_estimates
from calibrank.summary import SummaryBuilder
from calibrank.tables import hash_partitions
from calibrank.tabular.arrow import SegmentCodes, indices_of
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Progress
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, buckets_of, columns_of, rows_of
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
    is_of_fit: bool = False
    """Whether the rows are probably those that the map was fitted on."""
    is_of_anchor: bool = False
    """Whether the map was anchored on these rows, or on most of them."""


def evaluate(
    table: Table,
    columns: Columns,
    fitted: CalibrationMap | None,
    rules: Rules,
    progress: Progress | None = None,
    metrics: Sequence[Metric] = (),
    segment_columns: Sequence[str] | None = None,
) -> Evaluation:
    """Evaluate a map on a score column, or a probability column as it is.

    Without a map, `columns.score` names the column of probabilities. With one, a warning says if
    the scores do not look like those of its fit. The columns in `columns.others`, or only those
    named, are evaluated by value. `metrics` are computed beside those of the panel; the columns
    that they need are among the others.
    """
    if fitted is not None:
        columns = columns.used_by(fitted)
    accumulator = _Accumulator(metrics=metrics)
    names = columns.others if segment_columns is None else segment_columns
    segments: dict[str, dict[str, _Accumulator]] = {name: {} for name in names}
    comparison = None if fitted is None else ScoreComparison(fitted.record)
    anchored_on = None if fitted is None else AnchorLabels(fitted.record)
    for rows in rows_of(table, columns, rules, progress):
        probabilities = rows.scores
        if fitted is not None:
            probabilities = fitted.predict(rows.scores, columns_of(columns, rows))
        others = dict(zip(columns.others, rows.others, strict=True))
        accumulator.add(rows, probabilities, others)
        for name, by_value in segments.items():
            _add_to_segments(by_value, name, others[name], rows, probabilities)
        if comparison is not None:
            comparison.add(rows.scores)
        if anchored_on is not None:
            anchored_on.add(rows.scores, rows.labels)
    if not accumulator.rows:
        rule = "hold at least one valid row of nonzero weight"
        raise DataError(table.name, rule, "none", "Name a table with rows.")
    result = accumulator.result()
    is_of_fit = False
    if comparison is not None and fitted is not None:
        comparison.warn()
        positive = float(result.curve.observed @ result.curve.total)
        ends = comparison.low, comparison.high
        is_of_fit = fitted.record.looks_fitted_on(result.rows, *ends, positive)
    evaluated = {}
    for name, by_value in segments.items():
        evaluated[name] = {value: by_value[value].result() for value in sorted(by_value)}
    is_of_anchor = anchored_on is not None and anchored_on.are_used_again
    return replace(result, segments=evaluated, is_of_fit=is_of_fit, is_of_anchor=is_of_anchor)


def _add_to_segments(
    segments: dict[str, _Accumulator],
    column: str,
    values: pa.Array,
    rows: Rows,
    probabilities: Floats,
) -> None:
    encoded = values.dictionary_encode(null_encoding="encode")
    codes = indices_of(encoded)
    rows = replace(rows, others=())
    for code, value in enumerate(encoded.dictionary.to_pylist()):
        name = _MISSING if value is None else str(value)
        if name not in segments:
            segments[name] = _Accumulator(_SEGMENT_CLUSTERS, keep_lists=False)
        if len(segments) > MOST_SEGMENTS:
            rule = f"have at most {MOST_SEGMENTS} values"
            remedy = "Put numbers into groups first, such as quantiles."
            raise DataError(f"segment column {column!r}", rule, "more", remedy)
        chosen = np.flatnonzero(codes == code)
        segments[name].add(rows.take(chosen), probabilities[chosen], {})


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
    metrics: Sequence[Metric] = ()
    rows: int = 0
    pooled: SummaryBuilder = field(default_factory=SummaryBuilder)
    sums: PanelSums = field(init=False)
    list_rows: list[_ListRows] = field(default_factory=list)
    user_numbers: SegmentCodes = field(default_factory=SegmentCodes)
    cluster_of_user: npt.NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    fields: dict[str, list[pa.Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sums = PanelSums(self.clusters)

    def add(self, rows: Rows, probabilities: Floats, others: dict[str, pa.Array]) -> None:
        # Evaluation uses labels as they are: it tests calibration on the pairs of this table.
        evidence = soft_evidence(naive, rows.labels, None, rows.weights)
        keep_rows = self.keep_lists and self.rows + len(rows) <= MOST_ROWS_IN_MEMORY
        users = None
        # Rows of a user fall into one cluster in whichever batch they are; without users, single
        # rows are distributed over the clusters.
        if rows.users is not None and keep_rows:
            # Code 0 is a missing user, and valid rows have none.
            users = self.user_numbers.encode(rows.users).codes.astype(np.intp) - 1
            clusters = self._clusters_of(users)
        else:
            clusters = buckets_of(rows, self.rows, self.clusters)
        self.sums.add(probabilities, evidence, clusters)
        self.pooled.update(probabilities, evidence)
        self.rows += len(probabilities)
        if not keep_rows or (users is None and not self.metrics):
            self.list_rows.clear()
            self.fields.clear()
            return
        # Without users, single rows are resampled in clusters.
        users = clusters if users is None else users
        for metric in self.metrics:
            for name in metric.columns:
                parts = self.fields.setdefault(name, [])
                if len(parts) == len(self.list_rows):
                    parts.append(others[name].cast(pa.string()))
        kept = _ListRows(probabilities, evidence.positive, evidence.total, users)
        self.list_rows.append(kept)

    def _clusters_of(self, users: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The clusters of numbered users; each is hashed once, in the batch where it is new."""
        new = self.user_numbers.values[1 + len(self.cluster_of_user) :]
        added = hash_partitions(new, self.clusters)
        self.cluster_of_user = np.concatenate([self.cluster_of_user, added])
        return self.cluster_of_user[users]

    @one_blas_thread()
    def result(self) -> Evaluation:
        summary = self.pooled.summary()
        lists = {}
        # NumPy sorts and takes rows without Python's lock, so the two kinds share the cores.
        with meanwhile(lambda: self.sums.estimates(summary)) as panel:
            if self.list_rows:
                lists = self._list_estimates(has_positives=bool(summary.positive.any()))
            estimates = panel() | lists
        asked = (*PER_LIST, *self.metrics)
        return Evaluation(
            rows=self.rows,
            estimates=estimates,
            better={metric.name: metric.better.value for metric in (*PANEL, *self.metrics)},
            calibration_test=self.sums.calibration_test(),
            curve=reliability(summary.scores, summary.evidence),
            left_out=tuple(metric.name for metric in asked if metric.name not in estimates),
        )

    def _list_estimates(self, *, has_positives: bool) -> dict[str, Estimate]:
        columns = [np.concatenate(column) for column in zip(*self.list_rows, strict=True)]
        probabilities, positive, total, users = columns
        evidence = Evidence.trusted(positive, total, "naive")
        # Only the panel's own metrics are left out where they are undefined; others say why.
        metrics = (*PER_LIST, *self.metrics) if has_positives else tuple(self.metrics)
        if not len(self.cluster_of_user):
            metrics = tuple(metric for metric in metrics if not metric.needs_users)
        fields = {name: pa.chunked_array(parts).to_pylist() for name, parts in self.fields.items()}
        return list_estimates(probabilities, evidence, users, metrics, fields)
