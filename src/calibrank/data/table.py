"""Datasets, and any Parquet or CSV table with user, item and label columns as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import path_of, text
from calibrank._internal.validation import Floats, Ids, require
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A training log and a test set with users and items numbered from 0.

    `users` and `items` hold the original ids. `train` is the biased log; `test` holds pairs that
    were exposed at random, or is None. Features and the published P(observed) are None where the
    dataset does not provide them.
    """

    name: str
    train: Interactions
    test: Interactions | None
    users: Index
    items: Index
    user_features: Floats | None = None
    item_features: Floats | None = None
    propensity: Floats | None = None
    log: str = "positives"
    """What the log holds: "positives", or "impressions" if label 0 means shown and not liked."""

    def __repr__(self) -> str:
        return f"Dataset({self.name}: train {self.train!r}, test {self.test!r})"


if TYPE_CHECKING:
    from calibrank.tabular.read import Table

Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns of a log; without `label`, every row is a positive."""

    user: str
    item: str
    label: str | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.all)) < len(self.all):
            raise DataError(
                "user, item, label and time", "be different columns", ", ".join(map(repr, self.all))
            )

    @property
    def all(self) -> list[str]:
        """Every column to read."""
        names = (self.user, self.item, self.label, self.time)
        return [name for name in names if name is not None]


@dataclass(frozen=True, slots=True)
class RawLog:
    """The columns of a log with the ids as they are in its files."""

    users: Ids
    items: Ids
    labels: Floats
    times: Floats | None = None


def load_table(
    train: str | Path,
    test: str | Path | None = None,
    user: str | None = None,
    item: str | None = None,
    label: str | None = None,
    time: str | None = None,
    log: str | None = None,
    positive: str | None = None,
) -> Dataset:
    """Load a log and, if given, a test set of randomly exposed pairs; each a file, folder or glob.

    Columns are found by their usual names unless named. Without a label column every row is a
    positive. A pair that occurs more than once is positive if any of its rows is. `log` is
    "impressions" if label 0 means that a pair was shown and not liked; by default what calibrank
    recorded in the file, otherwise "positives". `positive` is a rule for what is liked, such as
    "rating >= 4", instead of a label column of 0 and 1.
    """
    # An address such as s3://... is refused later, with what to do about it.
    for name, given in (("train", train), ("test", test)):
        if given is not None:
            path_of(name, given)
    for role, column in (("user", user), ("item", item), ("label", label), ("time", time)):
        if column is not None:
            text(role, column, "It names a column.")
    columns = (user, item, label, time, positive)
    train_log = _read_table(train, *columns)
    test_log = None if test is None else _read_table(test, *columns)
    kind = log or find_table(train).roles().log or "positives"
    return dataset_from_logs(Path(train).stem, train_log, test_log, log=kind)


def dataset_from_logs(
    name: str, train: RawLog, test: RawLog | None, *, log: str = "positives"
) -> Dataset:
    """A dataset whose log and test set number users and items in the same way."""
    logs = with_same_ids([train] if test is None else [train, test])
    train = logs[0]
    test = None if test is None else logs[1]
    users = Index.of(*(log.users for log in logs))
    items = Index.of(*(log.items for log in logs))
    return Dataset(
        name,
        _interactions(train, users, items),
        None if test is None else _interactions(test, users, items),
        users,
        items,
        log=log,
    )


def with_same_ids(logs: Sequence[RawLog]) -> list[RawLog]:
    """Logs whose ids are all numbers or all text: the number 7 and the text "7" are one id."""
    same = []
    for log in logs:
        users = _text_if_any([other.users for other in logs], log.users)
        items = _text_if_any([other.items for other in logs], log.items)
        same.append(replace(log, users=users, items=items))
    return same


def _text_if_any(columns: Sequence[Ids], column: Ids) -> Ids:
    is_text = any(ids.dtype.kind == "U" for ids in columns)
    return column.astype(np.str_) if is_text else column


def find_table(path: str | Path) -> Table:
    """The files of a table."""
    from calibrank.tabular.read import Table  # noqa: PLC0415  (needs pyarrow, which is optional)

    return Table.find(str(path))


def read_log(
    table: Table,
    columns: ColumnNames,
    is_positive: Callable[[Values], Values] | None = None,
    *,
    label_role: str | None = None,
) -> RawLog:
    """Read the named columns; `is_positive` turns the label column into 0 and 1 where needed.

    `label_role` names the rule that the label column must obey before that; by default none.
    """
    import pyarrow as pa  # noqa: PLC0415  (optional)

    from calibrank.tabular.ids import compact_ids, unify_ids  # noqa: PLC0415  (needs pyarrow)
    from calibrank.tabular.read import names_of  # noqa: PLC0415  (needs pyarrow)
    from calibrank.tabular.rules import Rules  # noqa: PLC0415  (needs pyarrow)

    # An invalid row is an error: a training log must not lose rows silently.
    rules = Rules(skip=False)
    # Values that `is_positive` converts may be any numbers; labels must be 0 or 1.
    role = "label" if is_positive is None else label_role
    is_checked = columns.label is not None and role is not None
    checked = {str(role): str(columns.label)} if is_checked else {}
    users, items, labels, times = [], [], [], []
    for batch in table.batches(columns.all):
        rules.valid_rows(batch, checked, [columns.user, columns.item])
        users.append(batch.ids(columns.user))
        items.append(batch.ids(columns.item))
        if columns.label is not None:
            values = batch.numbers(columns.label)
            labels.append(values if is_positive is None else is_positive(values))
        if columns.time is not None:
            times.append(batch.numbers(columns.time))
    if not users:
        raise DataError(table.name, "hold at least one row", "none")
    # Arrow arrays are joined before conversion: strings become one numpy array once.
    user_ids = names_of(compact_ids(pa.chunked_array(unify_ids(users)).combine_chunks()))
    item_ids = names_of(compact_ids(pa.chunked_array(unify_ids(items)).combine_chunks()))
    return RawLog(
        user_ids,
        item_ids,
        np.concatenate(labels).astype(np.float64) if labels else np.ones(len(user_ids)),
        np.concatenate(times).astype(np.float64) if times else None,
    )


def _read_table(
    path: str | Path,
    user: str | None,
    item: str | None,
    label: str | None,
    time: str | None,
    positive: str | None,
) -> RawLog:
    from calibrank.tabular.labels import parse_rule  # noqa: PLC0415  (needs pyarrow)

    table = find_table(path)
    rule = None if positive is None else parse_rule(positive)
    if rule is not None:
        label = table.resolve("positive", rule.column)
    columns = ColumnNames(
        table.resolve("user", user),
        table.resolve("item", item),
        table.resolve("label", label) if label else table.has("label"),
        table.resolve("time", time) if time else table.has("time"),
    )
    log = read_log(table, columns, None if rule is None else rule.is_liked, label_role="grade")
    if log.times is not None:
        # A row without a time has no place in the order of a log.
        name = f"{table.name}, {columns.time}"
        require(np.isfinite, name, "be finite", log.times, "Drop rows without a time.")
    return log


def _interactions(log: RawLog, users: Index, items: Index) -> Interactions:
    """The distinct pairs of a log; of repeated pairs a positive row is kept if there is one."""
    user_rows = users.rows("users", log.users)
    item_rows = items.rows("items", log.items)
    pairs = user_rows * len(items) + item_rows
    # Sorted by pair with positives first, the first row of each run is the one to keep.
    order = np.lexsort((-log.labels, pairs))
    is_first = np.r_[True, np.diff(pairs[order]) != 0]
    kept = np.sort(order[is_first])
    times = None if log.times is None else log.times[kept]
    return Interactions(
        user_rows[kept], item_rows[kept], log.labels[kept], len(users), len(items), times
    )
