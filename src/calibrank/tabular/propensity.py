"""Exposure in a table without propensities: of items by popularity, of pairs by impressions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from calibrank._internal.validation import Floats, add_up
from calibrank.anchoring import PropensityModel
from calibrank.errors import DataError
from calibrank.evidence import Evidence, checked_evidence
from calibrank.propensity import Exposure, Popularity
from calibrank.tabular.batch import indices_of, numbers_of
from calibrank.tabular.columns import Columns
from calibrank.tabular.ids import unify_ids
from calibrank.tabular.rows import Rows

POPULARITY = Popularity()
"""How commands turn the popularity of items into propensities."""

EXPOSURE = Exposure()
"""How commands turn numbers of impressions into propensities."""

# Counts of separate batches are merged when they hold this many ids: merging hashes all of them.
_MERGE_IDS = 1_000_000


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
        if self.items is not None and rows.items is not None:
            self.items.add(rows.items, rows.weights)
        if self.users is not None and rows.users is not None:
            self.users.add(rows.users, rows.weights)

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
                clipped = int((ids.counts < EXPOSURE.clip * ids.counts.max()).sum())
                parts.append(f"{len(ids.counts):,} {name} ({clipped:,} clipped)")
        return f"exposure estimated from the impressions of {' and '.join(parts)}"


def exposure_of(
    columns: Columns, batches: Iterable[Rows], name: str = "the table"
) -> TableExposure | None:
    """Count what propensities come from; None if they need no counts."""
    if columns.needs_popularity:
        if columns.item is None:
            raise DataError(
                "propensities",
                "be given or estimated from items",
                "neither",
                "Name a propensity or an item column.",
            )
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
