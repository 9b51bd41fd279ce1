"""Valid rows of a table as arrays, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.validation import Floats
from calibrank.tables import hash_partitions, row_partitions
from calibrank.tabular.batch import Batch, indices_of, take_ids
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Progress
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.tabular.segment_codes import as_segments


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of some valid rows; a column that is not used is None."""

    scores: Floats
    labels: npt.NDArray[Any]
    propensity: Floats | None
    weights: Floats | None
    items: pa.Array | None
    users: pa.Array | None
    others: tuple[pa.Array, ...] = ()
    segments: tuple[pa.Array, ...] = ()
    features: tuple[Floats, ...] = ()

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, chosen: npt.NDArray[Any]) -> Rows:
        """Select rows by mask or by row number."""
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        return Rows(
            self.scores[chosen],
            self.labels[chosen],
            None if self.propensity is None else self.propensity[chosen],
            None if self.weights is None else self.weights[chosen],
            None if self.items is None else take_ids(self.items, chosen),
            None if self.users is None else take_ids(self.users, chosen),
            tuple(take_ids(column, chosen) for column in self.others),
            tuple(take_ids(column, chosen) for column in self.segments),
            tuple(column[chosen] for column in self.features),
        )

    def numbers(self) -> Rows:
        """The same rows, without ids and the columns of terms."""
        return replace(self, items=None, users=None, others=(), segments=(), features=())

    @classmethod
    def joined(cls, batches: Sequence[Rows]) -> Rows:
        """Concatenate the numeric columns of several batches; ids and other columns are dropped."""
        return cls(
            np.concatenate([batch.scores for batch in batches]),
            np.concatenate([batch.labels for batch in batches]),
            _concatenate([batch.propensity for batch in batches]),
            _concatenate([batch.weights for batch in batches]),
            None,
            None,
        )


def rows_of(
    table: Table, columns: Columns, rules: Rules, progress: Progress | None
) -> Iterator[Rows]:
    """Yield the valid rows of each batch of a table that has any."""
    for batch in table.batches(columns.read, progress):
        rows = valid_rows(batch, columns, rules)
        if len(rows):
            yield rows


def valid_rows(batch: Batch, columns: Columns, rules: Rules) -> Rows:
    """Return the valid rows of a batch."""
    levels = (*columns.segments, *columns.label_texts)
    valid = rules.valid_rows(batch, columns.checked, columns.ids, levels, columns.features)
    rows = _all_rows(batch, columns)
    if valid is not None:
        rows = rows.take(valid)
    if columns.examination is not None and rows.propensity is not None:
        rows = replace(rows, propensity=columns.examination.predict(rows.propensity))
    return rows if columns.negatives_kept == 1 else _reweighted(rows, columns.negatives_kept)


def columns_of(columns: Any, rows: Rows) -> dict[str, Any]:
    """The columns of terms, by name, as maps take them."""
    by_name: dict[str, Any] = dict(zip(columns.features, rows.features, strict=True))
    for name, values in zip(columns.segments, rows.segments, strict=True):
        by_name[name] = as_segments(values)
    return by_name


def buckets_of(rows: Rows, first: int, buckets: int) -> npt.NDArray[np.intp]:
    """Assign each row to a bucket by its user, the same one in any batch, file or run.

    Without a user column the row number decides; `first` is the number of the first row.
    """
    if rows.users is None:
        return (first + np.arange(len(rows))) % buckets
    encoded = rows.users.dictionary_encode()
    bucket_of_user = hash_partitions(encoded.dictionary.to_pylist(), buckets)
    return bucket_of_user[indices_of(encoded)]


def folds_of(rows: Rows, first: int, folds: int) -> npt.NDArray[np.intp]:
    """Assign each row to a fold by its user, or by a hash of its number without a user column."""
    if rows.users is None:
        return row_partitions(first, len(rows), folds)
    return buckets_of(rows, first, folds)


def _all_rows(batch: Batch, columns: Columns) -> Rows:
    def numbers(name: str | None) -> Floats | None:
        return None if name is None else batch.numbers(name)

    def ids(name: str | None) -> pa.Array | None:
        return None if name is None else batch.ids(name)

    scores = batch.numbers(columns.score)
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    labels, counts = labels_of(batch, columns)
    weights = numbers(columns.weight)
    if counts is not None:
        weights = counts if weights is None else weights * counts
    return Rows(
        scores,
        labels,
        numbers(columns.propensity),
        weights,
        ids(columns.item),
        ids(columns.user),
        tuple(batch.values(name) for name in columns.others),
        tuple(batch.segments(name) for name in columns.segments),
        tuple(batch.numbers(name) for name in columns.features),
    )


def labels_of(batch: Batch, columns: Columns) -> tuple[npt.NDArray[Any], Floats | None]:
    """The labels of a batch, and the number of rows each stands for (None: one)."""
    rule = columns.label_rule
    if rule is None:
        return batch.numbers(columns.label), None
    values = {name: batch.numbers(name) for name in rule.columns.values()}
    for name in rule.texts:
        values[name] = batch.texts(name)
    return rule.labels(values)


def _reweighted(rows: Rows, kept: float) -> Rows:
    """Weight negative mass, 1 - label, by the number of negatives that it was sampled from."""
    total = rows.labels + (1 - rows.labels) / kept
    weights = total if rows.weights is None else rows.weights * total
    return replace(rows, labels=rows.labels / total, weights=weights)


def _concatenate(arrays: Sequence[Floats | None]) -> Floats | None:
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if present else None
