"""Valid rows of a table as arrays, batch by batch, and their exposure where it is estimated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.validation import Floats, add_up
from calibrank.anchoring import PropensityModel
from calibrank.errors import DataError
from calibrank.evidence import Evidence, checked_evidence
from calibrank.propensity import Exposure, Popularity
from calibrank.tables import hash_partitions
from calibrank.tabular.arrow import as_segments, indices_of, numbers_of, take_ids, unify_ids
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Batch, Progress, ReadTask
from calibrank.tabular.read import Table, prefetch
from calibrank.tabular.rules import Rules

POPULARITY = Popularity()
"""How commands turn the popularity of items into propensities."""

EXPOSURE = Exposure()
"""How commands turn numbers of impressions into propensities."""

# Counts of separate batches are merged when they hold this many ids: merging hashes all of them.
_MERGE_IDS = 1_000_000


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
        columns = {
            column.name: _take(getattr(self, column.name), chosen) for column in fields(self)
        }
        return Rows(**columns)

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

    def read(task: ReadTask) -> list[Rows]:
        return [valid_rows(batch, columns, rules) for batch in task()]

    # Text becomes numbers in the threads that read it.
    tasks = table.read_tasks(columns.read, progress)
    for rows in prefetch(partial(read, task) for task in tasks):
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
        return batch.labels(columns.label), None
    values = {name: batch.numbers(name) for name in rule.columns.values()}
    for name in rule.texts:
        values[name] = batch.texts(name)
    return rule.labels(values)


def _reweighted(rows: Rows, kept: float) -> Rows:
    """Weight negative mass, 1 - label, by the number of negatives that it was sampled from."""
    total = rows.labels + (1 - rows.labels) / kept
    weights = total if rows.weights is None else rows.weights * total
    return replace(rows, labels=rows.labels / total, weights=weights)


def _take(column: Any, chosen: npt.NDArray[Any]) -> Any:
    if isinstance(column, tuple):
        return tuple([_take(each, chosen) for each in column])
    if column is None or isinstance(column, np.ndarray):
        return None if column is None else column[chosen]
    return take_ids(column, chosen)


def _concatenate(arrays: Sequence[Floats | None]) -> Floats | None:
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if present else None


@dataclass(slots=True)
class IdCounts:
    """The weighted number of rows of each id; counts of batches are merged from time to time."""

    _ids: list[pa.Array] = field(default_factory=list)
    _counts: list[Floats] = field(default_factory=list)

    def add(self, ids: pa.Array, weights: Floats | None = None) -> None:
        """Count some more rows."""
        encoded = ids.dictionary_encode(null_encoding="encode")
        self._ids.append(encoded.dictionary)
        self._counts.append(add_up(indices_of(encoded), weights, len(encoded.dictionary)))
        # Waiting until the unmerged ids outnumber the merged ones keeps the total work linear.
        unmerged = sum(len(counts) for counts in self._counts[1:])
        if unmerged > max(len(self._counts[0]), _MERGE_IDS):
            self._merge()

    @property
    def ids(self) -> pa.Array:
        """The distinct ids."""
        self._merge()
        return self._ids[0] if self._ids else pa.array([], pa.int64())

    @property
    def counts(self) -> Floats:
        """The weighted number of rows of each distinct id."""
        self._merge()
        return self._counts[0] if self._counts else np.empty(0)

    def of(self, ids: pa.Array) -> Floats:
        """The count of each row's id, 0 for an id that was not counted."""
        import pyarrow.compute as pc  # noqa: PLC0415  (slow to load)

        encoded = ids.dictionary_encode()
        known, wanted = unify_ids([self.ids, encoded.dictionary])
        places = numbers_of(pc.index_in(wanted, value_set=known).fill_null(-1))
        return np.append(self.counts, 0.0)[places][indices_of(encoded)]

    def _merge(self) -> None:
        if len(self._ids) < 2:
            return
        joined = pa.chunked_array(unify_ids(self._ids)).combine_chunks()
        encoded = joined.dictionary_encode(null_encoding="encode")
        self._counts = [add_up(indices_of(encoded), np.concatenate(self._counts))]
        self._ids = [encoded.dictionary]


@dataclass(frozen=True, slots=True)
class TableExposure:
    """What determines the exposure of a pair: positives by item, or impressions by item and user.

    Each is None where exposure does not depend on it.
    """

    items: IdCounts | None
    users: IdCounts | None
    by_popularity: bool = False

    def add(self, rows: Rows) -> None:
        """Count some valid rows."""
        if self.by_popularity:
            rows = rows.take(rows.labels != 0)
        for counts, ids in ((self.items, rows.items), (self.users, rows.users)):
            if counts is not None and ids is not None:
                counts.add(ids, rows.weights)

    def fill(self, rows: Rows) -> Rows:
        """The rows with exposure as their propensity; it is known up to a constant factor."""
        exposure = np.ones(len(rows))
        for counts, ids in ((self.items, rows.items), (self.users, rows.users)):
            if counts is not None and ids is not None:
                found, highest = counts.of(ids), counts.counts.max()
                relative = POPULARITY.exposure if self.by_popularity else EXPOSURE.factor
                exposure = exposure * relative(found, highest)
        return replace(rows, propensity=exposure)

    def __str__(self) -> str:
        parts = []
        for name, ids in (("items", self.items), ("users", self.users)):
            if ids is not None:
                parts.append(f"{len(ids.counts):,} {name}")
        return f"exposure estimated from the impressions of {' and '.join(parts)}"


def exposure_of(
    columns: Columns, batches: Iterable[Rows], name: str = "the table"
) -> TableExposure | None:
    """Count what propensities come from; None if they need no counts."""
    if columns.needs_popularity:
        if columns.item is None:
            remedy = "Name a propensity or an item column."
            raise DataError("propensities", "be given or estimated from items", "neither", remedy)
        found = TableExposure(IdCounts(), None, by_popularity=True)
        name, needed = "labels", "a positive with nonzero weight to estimate popularity"
    elif columns.needs_exposure:
        items = IdCounts() if columns.item in columns.exposure else None
        users = IdCounts() if columns.user in columns.exposure else None
        found = TableExposure(items, users)
        needed = "an impression with nonzero weight to estimate exposure"
    else:
        return None
    for rows in batches:
        found.add(rows)
    for counts in (found.items, found.users):
        if counts is not None and not counts.counts.any():
            raise DataError(name, f"hold {needed}", "none")
    return found


def evidence_of(columns: Columns, rows: Rows) -> Evidence:
    """The evidence of valid rows, whose exposure is filled in where it is estimated."""
    propensity = rows.propensity
    if columns.needs_popularity:
        propensity = POPULARITY.propensity(propensity)
    return checked_evidence(
        columns.evidence, rows.labels, propensity, rows.weights, is_binary=columns.has_binary_labels
    )


def propensity_model_for(columns: Columns) -> tuple[PropensityModel, str]:
    """Return the model behind the propensities, and what it assumes about exposure.

    Only logged propensities have a known scale. Others, and popularity, are relative.
    """
    if columns.propensity is not None:
        return PropensityModel(power=1, clip=0), columns.assumption
    return PropensityModel(POPULARITY.power, POPULARITY.clip), "item popularity"
