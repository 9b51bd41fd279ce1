"""Check every row of a batch against the column rules, and report or skip the invalid ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.rules import COLUMN_RULES, ColumnRule
from calibrank.errors import DataError, Remedy, Setting
from calibrank.tables import Index
from calibrank.tabular.arrow import names_like, names_of, to_arrow
from calibrank.tabular.files import Batch
from calibrank.tabular.labels import declaration_for

Mask: TypeAlias = npt.NDArray[np.bool_]

_FIX = "Fix the table."
_SKIP: list[Remedy] = [_FIX, ("Or leave such rows out with ", Setting("on_bad_rows", "skip"), ".")]


@dataclass(slots=True)
class Rules:
    """Checks the columns of a table; an invalid row raises an error, or is skipped and counted."""

    skip: bool
    skipped: dict[str, int] = field(default_factory=dict)
    """Number of skipped rows by the role of the invalid column."""
    only_missing_labels: bool = False
    """Whether a label that is neither 0, 1 nor missing is an error even if rows are skipped."""
    # Workers check their batches at the same time, and share the counts.
    _lock: Any = field(default_factory=Lock, repr=False, compare=False)

    def valid_rows(
        self,
        batch: Batch,
        columns: dict[str, str],
        ids: Sequence[str] = (),
        levels: Sequence[str] = (),
        numbers: Mapping[str, str] = MappingProxyType({}),
    ) -> Mask | None:
        """Return which rows are valid (None: all of them).

        `columns` maps the role of each numeric column to its name; `ids` are columns of ids.
        `levels` and `numbers` are the columns of terms, `numbers` with the role of each.
        """
        valid: Mask | None = None
        for role, name in columns.items():
            valid = _both(valid, self._check_numbers(batch, role, name))
        for name in ids:
            valid = _both(valid, self._check_present(batch, name, batch.ids(name), "be an id"))
        for name in levels:
            present = self._check_present(batch, name, batch.segments(name), "not be missing")
            valid = _both(valid, present)
        for name, role in numbers.items():
            valid = _both(valid, self._check_numbers(batch, role, name))
        return valid

    def known_rows(self, batch: Batch, name: str, index: Index, valid: Mask | None) -> Mask | None:
        """Return which rows have an id that the index contains (None: all of them).

        Rows that are already invalid are not looked up, and count as known.
        """
        count = batch.rows.num_rows
        rows = np.arange(count) if valid is None else np.flatnonzero(valid)
        names = names_of(batch.ids(name).take(to_arrow(rows)))
        known = np.ones(count, dtype=bool)
        known[rows] = index.find(name, names_like(index.names, names))[1]
        if known.all():
            return None
        values = np.empty(len(known), dtype=object)
        values[rows] = names
        self._reject(batch, name, name, "be known to the model", values, known)
        return known

    def _check_numbers(self, batch: Batch, role: str, name: str) -> Mask | None:
        rule = COLUMN_RULES[role]
        values = batch.labels(name) if role == "label" else batch.numbers(name)
        if _range_is_valid(rule, values):
            return None
        valid: Mask = rule.holds(values)
        if valid.all():
            return None
        self._require_labels(batch, role, name, values, valid)
        value = float(values[np.argmin(valid)])
        remedy = _remedy(role, name, values, value)
        self._reject(batch, role, name, rule.statement_for(value), values, valid, remedy)
        return valid

    def _require_labels(
        self, batch: Batch, role: str, name: str, values: npt.NDArray[Any], valid: Mask
    ) -> None:
        """Only missing labels can be skipped: of ratings, those of 1 would stay as likes."""
        if role != "label" or not self.only_missing_labels:
            return
        other = valid | np.isnan(values)
        if not other.all():
            row = int(np.argmin(other))
            where = f"{batch.file}, row {batch.first + row}: {name}"
            remedy = _remedy(role, name, values, float(values[row]))
            raise DataError(where, "be 0 or 1, or missing to be skipped", values[row], remedy)

    def _check_present(
        self, batch: Batch, name: str, column: pa.Array, statement: str
    ) -> Mask | None:
        if not column.null_count:
            return None
        valid = np.array(column.is_valid().to_pylist())
        values = np.full(len(valid), "none")
        self._reject(batch, name, name, statement, values, valid)
        return valid

    def _reject(
        self,
        batch: Batch,
        role: str,
        name: str,
        statement: str,
        values: npt.NDArray[Any],
        valid: Mask,
        remedy: list[Remedy] = _SKIP,
    ) -> None:
        """Count the invalid rows if they are skipped, else raise an error about the first one."""
        if self.skip:
            with self._lock:
                self.skipped[role] = self.skipped.get(role, 0) + int((~valid).sum())
            return
        row = int(np.argmin(valid))
        where = f"{batch.file}, row {batch.first + row}: {name}"
        raise DataError(where, statement, values[row], remedy)


def _remedy(role: str, name: str, values: npt.NDArray[Any], value: float) -> list[Remedy]:
    """What to do about the first invalid value of a column."""
    if role != "label":
        return _SKIP
    if np.isnan(value):
        return ["This label is missing.", *_SKIP]
    declaration = declaration_for(name, values)
    # No label but a missing one is offered to be skipped: `_require_labels` would refuse it.
    return declaration if values.dtype.kind in "iu" or value > 1 else [_FIX, *declaration]


def _range_is_valid(rule: ColumnRule, values: npt.NDArray[Any]) -> bool:
    """Whether the smallest and the largest value prove that all values are valid.

    Finding them is much faster than a mask of all rows, and nearly every batch is valid. NaN is
    both, so it proves nothing. Between 0 and 1 there is no other integer, but other floats.
    """
    if not values.size or (rule.only_ends and values.dtype.kind not in "iu"):
        return False
    lowest = values.min()
    if rule.smallest and lowest == 0 and values.dtype.kind not in "iu":
        return False  # between 0 and the smallest valid value there may be others
    return bool(rule.holds(np.array([lowest, values.max()])).all())


def _both(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second
