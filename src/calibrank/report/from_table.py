"""A ledger from a table on disk, in one pass; a table too long for memory gives a share of its users."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from calibrank._validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence, naive
from calibrank.propensity import Popularity
from calibrank.report.ledger import Coded, Codes, Ledger, segment_column
from calibrank.tabular.aggregate import EVIDENCE_BY_LOSS, Columns, Rows, buckets_of, rows_of
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
        raise DataError(f"{table.name} must hold at least one good row, got none.")
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
        evidence = _evidence(columns.loss, labels, whole.propensity, items, whole.weights)
        guess = columns.loss != "naive" and columns.propensity is None
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
            guess,
        )


def _evidence(
    loss: str,
    labels: Floats,
    propensity: Floats | None,
    items: Coded | None,
    weights: Floats | None,
) -> Evidence:
    """Labels as evidence; without propensities, these are guessed from the popularity of items."""
    if loss == "naive":
        return naive(labels, weights=weights)
    if propensity is None:
        if items is None or not labels.any():
            raise DataError(
                "propensities must be given, or guessed from items that someone liked, got neither."
            )
        liked = np.bincount(items.codes[labels == 1], minlength=len(items.names))
        propensity = Popularity().of_counts(liked)[items.codes]
    return EVIDENCE_BY_LOSS[loss](labels, propensity, weights=weights)


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
