"""Read the rows of a report from a table on disk, sampling users of a table too long for memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from calibrank._internal.segment_keys import Encoded
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.report.rows import MISSING, MOST_CATEGORIES, Categorical, ReportRows, segment_column
from calibrank.tabular.aggregate import (
    POPULARITY,
    Columns,
    Rows,
    buckets_of,
    item_exposure,
    make_evidence,
    rows_of,
)
from calibrank.tabular.evaluate import MOST_ROWS_IN_MEMORY
from calibrank.tabular.exposure import EXPOSURE
from calibrank.tabular.ids import unify_ids
from calibrank.tabular.read import Progress, Table, indices_of
from calibrank.tabular.rules import Rules
from calibrank.tabular.segment_codes import SegmentCodes

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
    for rows in rows_of(table, columns, rules, progress):
        sample.add(rows)
    if not sample.batches:
        raise DataError(table.name, "hold at least one valid row", got="none", remedy="Check it.")
    return sample.report_rows(columns)


@dataclass(slots=True)
class _UserSample:
    """Batches of rows whose users hash below a limit, which is halved when they are too many."""

    most_rows: int
    batches: list[tuple[Rows, Codes]] = field(default_factory=list)
    """Rows with the hash bucket of each row's user."""
    rows_seen: int = 0
    limit: int = _BUCKETS

    def add(self, rows: Rows) -> None:
        self._keep(rows, buckets_of(rows, self.rows_seen, _BUCKETS))
        self.rows_seen += len(rows.scores)
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
        batches = [rows for rows, _ in self.batches]
        joined = Rows.joined(batches)
        labels = joined.labels.astype(np.float64)
        items = None if columns.item is None else _categorical([rows.items for rows in batches])
        users = None if columns.user is None else _categorical([rows.users for rows in batches])
        segments: dict[str, Categorical | Floats] = {}
        for position, name in enumerate(columns.others):
            segments[name] = _segment(name, [rows.others[position] for rows in batches])
        used = _columns(columns, batches)
        for name, values in used.items():
            segments[name] = segment_column(name, values, len(joined))
        return ReportRows(
            scores=joined.scores.astype(np.float64),
            labels=labels,
            evidence=_evidence(columns, labels, joined.propensity, items, users, joined.weights),
            users=users,
            items=items,
            segments=segments,
            columns=used,
            rows_in_table=self.rows_seen,
            estimated_propensity=columns.needs_popularity or columns.needs_exposure,
        )


def _columns(columns: Columns, batches: list[Rows]) -> dict[str, Encoded | Floats]:
    """The columns of the map's terms over all batches."""
    used: dict[str, Encoded | Floats] = {}
    for place, name in enumerate(columns.segments):
        codes = SegmentCodes()
        encoded = [codes.encode(rows.segments[place]).codes for rows in batches]
        used[name] = Encoded(np.concatenate(encoded), codes.values)
    for place, name in enumerate(columns.features):
        used[name] = np.concatenate([rows.features[place] for rows in batches])
    return used


def _evidence(
    columns: Columns,
    labels: Floats,
    propensity: Floats | None,
    items: Categorical | None,
    users: Categorical | None,
    weights: Floats | None,
) -> Evidence:
    """Convert labels to evidence, estimating missing propensities from the items' popularity."""
    if columns.needs_popularity:
        if items is None:
            raise DataError(
                "propensities",
                "be given or estimated from items",
                got="neither",
                remedy="Name a propensity or an item column.",
            )
        is_positive = labels == 1
        mass = None if weights is None else weights[is_positive]
        counts = np.bincount(items.codes[is_positive], mass, minlength=len(items.names))
        propensity = POPULARITY.propensity(item_exposure(counts))[items.codes]
    elif columns.needs_exposure:
        propensity = _exposure(columns, items, users, weights)
    return make_evidence(columns.evidence, labels, propensity, weights)


def _exposure(
    columns: Columns, items: Categorical | None, users: Categorical | None, weights: Floats | None
) -> Floats | None:
    """P(shown) from the numbers of impressions of items and users."""
    result: Floats | None = None
    for name, ids in ((columns.item, items), (columns.user, users)):
        if ids is None or name not in columns.exposure:
            continue
        counts = np.bincount(ids.codes, weights, minlength=len(ids.names))
        factor = EXPOSURE.factor(counts, counts.max())[ids.codes]
        result = factor if result is None else result * factor
    return result


def _categorical(chunks: list[Any]) -> Categorical:
    encoded = pa.chunked_array(unify_ids(chunks)).combine_chunks().dictionary_encode()
    # combine_chunks returns several chunks where the text of one would exceed 2 GB.
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    names = [str(name) for name in encoded.dictionary.to_pylist()]
    return Categorical(indices_of(encoded).astype(np.intp), names)


def _same_type(chunks: list[Any]) -> list[Any]:
    """Columns of one type: numbers if all are, otherwise text."""
    types = {chunk.type for chunk in chunks}
    if len(types) == 1:
        return chunks
    is_numeric = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in types)
    return [chunk.cast(pa.float64() if is_numeric else pa.large_string()) for chunk in chunks]


def _segment(name: str, chunks: list[Any]) -> Categorical | Floats:
    values = pa.chunked_array(_same_type(chunks))
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        numbers = np.array(values.cast(pa.float64()).fill_null(np.nan).to_pylist())
        if len(np.unique(numbers[~np.isnan(numbers)])) > MOST_CATEGORIES:
            return numbers
    encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    distinct = encoded.dictionary.to_pylist()
    names = [MISSING if value is None else str(value) for value in distinct]
    texts = np.array(names, dtype=np.str_)[indices_of(encoded)]
    return segment_column(name, texts, len(values))
