"""Read the rows of a report from a table on disk, sampling users of a table too long for memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from calibrank._internal.segment_keys import Encoded
from calibrank._internal.threads import meanwhile
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import make_evidence
from calibrank.maps import CalibrationMap
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.report.rows import Categorical, ReportRows, segment_column
from calibrank.tabular.arrow import join_segments
from calibrank.tabular.columns import Columns
from calibrank.tabular.evaluate import MOST_ROWS_IN_MEMORY
from calibrank.tabular.files import Progress
from calibrank.tabular.read import Table
from calibrank.tabular.rows import POPULARITY, Rows, buckets_of, exposure_of, rows_of
from calibrank.tabular.rules import Rules

# Users are sampled by hash bucket; halving the buckets 16 times leaves one in 65,536 users.
_BUCKETS = 2**16


def read_report_rows(
    table: Table,
    columns: Columns,
    rules: Rules,
    progress: Progress | None = None,
    most_rows: int = MOST_ROWS_IN_MEMORY,
    fitted: CalibrationMap | None = None,
) -> ReportRows:
    """Read what a report needs; beyond `most_rows`, all rows of a random sample of users.

    With a map, the columns of its terms are read too, and calibration is shown by them.
    """
    if fitted is not None:
        columns = columns.used_by(fitted)
    sample = _UserSample(most_rows)
    # Intervals need it, and loading it takes an eighth of a second.
    with meanwhile(lambda: import_module("scipy.special")):
        for rows in rows_of(table, columns, rules, progress):
            sample.add(rows)
    if not sample.batches and not sample.unhashed:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
    return sample.report_rows(columns)


@dataclass(slots=True)
class _UserSample:
    """Batches of rows whose users hash below a limit, which is halved when they are too many."""

    most_rows: int
    batches: list[tuple[Rows, Codes]] = field(default_factory=list)
    """Rows with the hash bucket of each row's user."""
    unhashed: list[tuple[Rows, int]] = field(default_factory=list)
    """Rows with the number of the first one, as long as there are not too many."""
    rows_seen: int = 0
    limit: int = _BUCKETS

    def add(self, rows: Rows) -> None:
        self.unhashed.append((rows, self.rows_seen))
        self.rows_seen += len(rows)
        # Hashing the users takes longer than reading them, and most tables fit in memory.
        if self.rows_seen <= self.most_rows:
            return
        for each, first in self.unhashed:
            self._keep(each, buckets_of(each, first, _BUCKETS))
        self.unhashed.clear()
        while self.limit > 1 and self._kept() > self.most_rows:
            self.limit //= 2
            batches = self.batches
            self.batches = []
            for kept_rows, buckets in batches:
                self._keep(kept_rows, buckets)

    def _kept(self) -> int:
        return sum(len(buckets) for _, buckets in self.batches)

    def _keep(self, rows: Rows, buckets: Codes) -> None:
        sampled = buckets < self.limit
        if sampled.all():
            self.batches.append((rows, buckets))
        elif sampled.any():
            self.batches.append((rows.take(sampled), buckets[sampled]))

    def report_rows(self, columns: Columns) -> ReportRows:
        batches = [rows for rows, _ in (*self.batches, *self.unhashed)]
        exposure = exposure_of(columns, batches)
        if exposure is not None:
            batches = [exposure.fill(rows) for rows in batches]
        chunks = {
            "item": [rows.items for rows in batches],
            "user": [rows.users for rows in batches],
        }
        named = [name for name in chunks if getattr(columns, name) is not None]
        # Numbering ids takes as long as all else together.
        with meanwhile(lambda: {name: _categorical(chunks[name]) for name in named}) as numbered:
            joined = Rows.joined(batches)
            propensity = joined.propensity
            if columns.needs_popularity:
                propensity = POPULARITY.propensity(propensity)
            labels = joined.labels.astype(np.float64)
            evidence = make_evidence(columns.evidence, labels, propensity, joined.weights)
            ids = numbered()
        segments: dict[str, Categorical | Floats] = {}
        for position, name in enumerate(columns.others):
            values = _array([rows.others[position] for rows in batches])
            segments[name] = segment_column(name, values, len(joined))
        used = _columns(columns, batches)
        for name, values in used.items():
            segments[name] = segment_column(name, values, len(joined))
        return ReportRows(
            scores=joined.scores.astype(np.float64, copy=False),
            evidence=evidence,
            users=ids.get("user"),
            items=ids.get("item"),
            segments=segments,
            columns=used,
            rows_in_table=self.rows_seen,
            estimated_propensity=columns.needs_popularity or columns.needs_exposure,
        )


def _columns(columns: Columns, batches: list[Rows]) -> dict[str, Encoded | Floats]:
    """The columns of the map's terms over all batches."""
    used: dict[str, Encoded | Floats] = {}
    for place, name in enumerate(columns.segments):
        used[name] = join_segments([rows.segments[place] for rows in batches])
    for place, name in enumerate(columns.features):
        used[name] = np.concatenate([rows.features[place] for rows in batches])
    return used


def _categorical(chunks: list[Any]) -> Categorical:
    joined = join_segments(chunks)
    return Categorical(
        joined.codes.astype(np.intp, copy=False), [str(value) for value in joined.values]
    )


def _array(chunks: list[Any]) -> Any:
    """Chunks as one column: of numbers if all are, of their one type, or of text."""
    types = {chunk.type for chunk in chunks}
    is_number = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in types)
    if len(types) > 1:
        chunks = [chunk.cast(pa.float64() if is_number else pa.large_string()) for chunk in chunks]
    values = pa.chunked_array(chunks)
    # Arrow's nulls are NaN among numbers and None among others; both are missing values.
    return values.to_numpy() if is_number else np.array(values.to_pylist(), dtype=object)
