"""Propensities of being shown, from a first pass over a table that counts its impressions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.propensity import Exposure
from calibrank.tabular.batch import indices_of
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, rows_of
from calibrank.tabular.rules import Rules

EXPOSURE = Exposure()
"""How commands turn numbers of impressions into propensities."""


@dataclass(slots=True)
class _IdCounts:
    """The weighted number of impressions of each id."""

    # By text: files of one table may store the same ids as numbers and as strings.
    counts: dict[str, float] = field(default_factory=dict)

    def add(self, ids: pa.Array, weights: Floats | None) -> None:
        encoded = ids.dictionary_encode()
        sums = np.bincount(indices_of(encoded), weights, len(encoded.dictionary))
        for name, mass in zip(encoded.dictionary.to_pylist(), sums.tolist(), strict=True):
            key = str(name)
            self.counts[key] = self.counts.get(key, 0.0) + mass

    @property
    def clipped(self) -> int:
        """The number of ids whose relative exposure is raised to the clip."""
        lowest = EXPOSURE.clip * max(self.counts.values())
        return sum(count < lowest for count in self.counts.values())

    def factors(self, ids: pa.Array) -> Floats:
        """The relative exposure of each row."""
        encoded = ids.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        counts = np.array([self.counts.get(str(name), 0.0) for name in names])
        highest = max(self.counts.values())
        return EXPOSURE.factor(counts, highest)[indices_of(encoded)]


@dataclass(frozen=True, slots=True)
class TableExposure:
    """Numbers of impressions by item and by user; None where exposure does not depend on it."""

    items: _IdCounts | None
    users: _IdCounts | None

    def add(self, rows: Rows) -> None:
        """Count some valid rows."""
        if self.items is not None and rows.items is not None:
            self.items.add(rows.items, rows.weights)
        if self.users is not None and rows.users is not None:
            self.users.add(rows.users, rows.weights)

    def propensity(self, rows: Rows) -> Floats:
        """P(shown) of each row, up to a constant factor."""
        result = np.ones(len(rows))
        if self.items is not None and rows.items is not None:
            result = result * self.items.factors(rows.items)
        if self.users is not None and rows.users is not None:
            result = result * self.users.factors(rows.users)
        return result

    def __str__(self) -> str:
        parts = []
        for name, ids in (("items", self.items), ("users", self.users)):
            if ids is not None:
                parts.append(f"{len(ids.counts):,} {name} ({ids.clipped:,} clipped)")
        return f"exposure estimated from the impressions of {' and '.join(parts)}"


def count_exposure(table: Table, columns: Columns, rules: Rules) -> TableExposure:
    """Count the impressions of a table in a pass of its own."""
    found = TableExposure(
        items=_IdCounts() if columns.item in columns.exposure else None,
        users=_IdCounts() if columns.user in columns.exposure else None,
    )
    # Skipped rows are counted by the pass that sums them.
    for rows in rows_of(table, columns, Rules(skip=rules.skip), None):
        found.add(rows)
    counted = [ids.counts for ids in (found.items, found.users) if ids is not None]
    if not all(any(counts.values()) for counts in counted):
        raise DataError(
            table.name, "hold an impression with nonzero weight to estimate exposure", got="none"
        )
    return found
