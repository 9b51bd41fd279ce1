"""Estimate propensities of a table without any: of items by popularity, of pairs by impressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.validation import Floats
from calibrank.anchoring import PropensityModel
from calibrank.errors import DataError
from calibrank.propensity import Exposure, Popularity
from calibrank.tabular.batch import indices_of, names_of, to_arrow
from calibrank.tabular.columns import Columns
from calibrank.tabular.ids import unify_ids
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, rows_of
from calibrank.tabular.rules import Rules

Codes: TypeAlias = npt.NDArray[np.integer[Any]]

POPULARITY = Popularity()
"""How commands turn the popularity of items into propensities."""

# Integer ids in a range of at most this size index an array of counts directly. Encoding them
# would import pyarrow.compute, which is slow to load.
_LARGEST_RANGE = 10_000_000


def estimate_exposure(batches: Sequence[Rows]) -> Iterator[Floats]:
    """The exposure of each row's item, from the total weight of its positives in all batches.

    It is evaluated one batch at a time: all exposures would take as much memory as the scores.
    """
    codes = encode_ids([_widened(cast("pa.Array", rows.items)) for rows in batches])
    largest = max((int(code.max()) for code in codes), default=-1)
    counts = np.zeros(largest + 1)
    for code, rows in zip(codes, batches, strict=True):
        is_positive = np.flatnonzero(rows.labels)
        masses = None if rows.weights is None else rows.weights[is_positive]
        counts += np.bincount(code[is_positive], masses, len(counts))
    if not counts.any():
        raise DataError(
            "labels", "hold a positive with nonzero weight to estimate popularity", "none"
        )
    by_item = POPULARITY.exposure(counts)
    return (by_item[code] for code in codes)


def propensity_model_for(columns: Columns) -> tuple[PropensityModel, str]:
    """Return the model behind the propensities, and what it assumes about exposure.

    Only logged propensities have a known scale. Others, and popularity, are relative.
    """
    if columns.propensity is not None:
        return PropensityModel(power=1, clip=0), columns.assumption
    return PropensityModel(POPULARITY.power, POPULARITY.clip), "item popularity"


def encode_ids(columns: Sequence[pa.Array]) -> list[Codes]:
    """Replace ids by integers from 0, the same id by the same integer in all columns."""
    if not columns:
        return []
    if all(pa.types.is_integer(ids.type) for ids in columns):
        numbers = [names_of(ids) for ids in columns]
        low = min(int(ids.min()) for ids in numbers)
        high = max(int(ids.max()) for ids in numbers)
        rows = sum(len(ids) for ids in numbers)
        if high - low < min(_LARGEST_RANGE, 100 * rows):
            return [ids - low for ids in numbers]
    encoded = pa.chunked_array(unify_ids(columns)).dictionary_encode()
    # Chunks of one encoded column share its dictionary.
    return [indices_of(chunk) for chunk in encoded.chunks]


def _widened(ids: pa.Array) -> pa.Array:
    """Convert ids to a type that all files of a table can share.

    Files may store the same ids as int32 and int64. A large string column has 64-bit offsets, so
    concatenating many of them cannot overflow.
    """
    if pa.types.is_integer(ids.type):
        numbers = names_of(ids)
        is_unsigned = numbers.dtype == np.uint64
        if is_unsigned and len(numbers) and int(numbers.max()) >= 2**63:
            return ids.cast(pa.large_string())
        return to_arrow(numbers.astype(np.int64))
    if pa.types.is_string(ids.type):
        return ids.cast(pa.large_string())
    return ids


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
    # Skipped rows are counted by the pass that sums them.
    counted = exposure_of(columns, rows_of(table, columns, Rules(skip=rules.skip), None))
    if not all(
        any(ids.counts.values()) for ids in (counted.items, counted.users) if ids is not None
    ):
        raise DataError(
            table.name, "hold an impression with nonzero weight to estimate exposure", "none"
        )
    return counted


def exposure_of(columns: Columns, batches: Iterable[Rows]) -> TableExposure:
    """Count the impressions of some batches."""
    found = TableExposure(
        items=_IdCounts() if columns.item in columns.exposure else None,
        users=_IdCounts() if columns.user in columns.exposure else None,
    )
    for rows in batches:
        found.add(rows)
    return found
