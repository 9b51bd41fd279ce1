"""A ledger from a table on disk, in one pass; a table too long for memory gives a share of its users."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from calibrank._validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.report.ledger import Coded, Codes, Ledger, segment_column
from calibrank.tabular.aggregate import (
    POPULARITY,
    Columns,
    Rows,
    buckets_of,
    item_exposure,
    make_evidence,
    rows_of,
)
from calibrank.tabular.read import Progress, Table, indices_of
from calibrank.tabular.rules import Rules

MOST_ROWS = 20_000_000
"""Beyond this many rows, those of a random share of users are kept, and that is said."""
_BUCKETS = 2**16


def read_ledger(
    table: Table,
    columns: Columns,
    rules: Rules,
    progress: Progress | None = None,
    most: int = MOST_ROWS,
) -> Ledger:
    """Read what a report needs."""
    kept = _Kept(most)
    for rows in rows_of(table, columns, rules, progress):
        kept.add(rows)
    if not kept.parts:
        raise DataError(f"{table.name} must hold at least one valid row, got none.")
    return kept.ledger(columns)


@dataclass(slots=True)
class _Kept:
    """Rows of users in the lowest buckets; whenever they are too many, half of the users go."""

    most: int
    parts: list[tuple[Rows, Codes]] = field(default_factory=list)
    seen: int = 0
    limit: int = _BUCKETS

    def add(self, rows: Rows) -> None:
        self._keep(rows, buckets_of(rows, self.seen, _BUCKETS))
        self.seen += len(rows.scores)
        while self.limit > 1 and sum(len(buckets) for _, buckets in self.parts) > self.most:
            self.limit //= 2
            parts, self.parts = self.parts, []
            for part in parts:
                self._keep(*part)

    def _keep(self, rows: Rows, buckets: Codes) -> None:
        chosen = buckets < self.limit
        if chosen.any():
            self.parts.append(
                (rows, buckets) if chosen.all() else (rows.take(chosen), buckets[chosen])
            )

    def ledger(self, columns: Columns) -> Ledger:
        batches = [rows for rows, _ in self.parts]
        whole = Rows.joined(batches)
        labels = whole.labels.astype(np.float64)
        users = None if columns.user is None else _coded([rows.users for rows in batches])
        items = None if columns.item is None else _coded([rows.items for rows in batches])
        evidence = _evidence(columns, labels, whole.propensity, items, whole.weights)
        others = zip(*(rows.others for rows in batches), strict=True)
        segments = {
            n: _segment(n, list(parts)) for n, parts in zip(columns.others, others, strict=False)
        }
        return Ledger(
            whole.scores.astype(np.float64),
            labels,
            evidence,
            users,
            items,
            segments,
            self.seen,
            columns.needs_popularity,
        )


def _evidence(
    columns: Columns,
    labels: Floats,
    propensity: Floats | None,
    items: Coded | None,
    weights: Floats | None,
) -> Evidence:
    """Labels as evidence; propensities that are missing are estimated from popularity."""
    if columns.needs_popularity:
        if items is None:
            raise DataError("propensities must be given, or estimated from items, got neither.")
        liked = labels == 1
        mass = None if weights is None else weights[liked]
        counts = np.bincount(items.codes[liked], mass, minlength=len(items.names))
        propensity = POPULARITY.propensity(item_exposure(counts))[items.codes]
    return make_evidence(columns.evidence, labels, propensity, weights)


def _coded(parts: list[Any]) -> Coded:
    encoded = pa.chunked_array(parts).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    names = [str(name) for name in encoded.dictionary.to_pylist()]
    return Coded(indices_of(encoded).astype(np.intp), names)


def _segment(name: str, parts: list[Any]) -> Coded | Floats:
    whole = pa.chunked_array(parts)
    if pa.types.is_floating(whole.type) or pa.types.is_integer(whole.type):
        numbers = np.array(whole.cast(pa.float64()).fill_null(np.nan).to_pylist())
        if len(np.unique(numbers[~np.isnan(numbers)])) > 12:
            return numbers
    encoded = whole.combine_chunks().dictionary_encode(null_encoding="encode")
    names = np.array(
        ["(missing)" if n is None else str(n) for n in encoded.dictionary.to_pylist()],
        dtype=np.str_,
    )
    return segment_column(name, names[indices_of(encoded)], len(whole))
