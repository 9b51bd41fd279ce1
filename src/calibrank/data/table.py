"""Any table of user, item and label, in Parquet or CSV, as a dataset."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._validation import Floats, Ids
from calibrank.data.dataset import Dataset
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions
from calibrank.tabular.read import Table, names_of
from calibrank.tabular.rules import Rules


@dataclass(frozen=True, slots=True)
class Named:
    """Columns of a table, by what they are; `label` is a column or absent (every row is a positive)."""

    user: str
    item: str
    label: str | None = None
    time: str | None = None

    @property
    def all(self) -> list[str]:
        """Every column to read."""
        return [name for name in (self.user, self.item, self.label, self.time) if name is not None]


def load_table(
    train: str | Path,
    test: str | Path | None = None,
    user: str | None = None,
    item: str | None = None,
    label: str | None = None,
    time: str | None = None,
) -> Dataset:
    """A log (file, folder or glob) and, if there is one, a table of randomly exposed pairs in the same columns.

    Columns go by their usual names unless named. Without a label column every row is a positive; a pair that
    occurs more than once is liked if it ever was.
    """
    parts = [
        _read_table(Table.find(str(path)), user, item, label, time)
        for path in (train, test)
        if path is not None
    ]
    return dataset_of(Path(train).stem, parts[0], parts[1] if test is not None else None)


@dataclass(frozen=True, slots=True)
class Log:
    """Columns as they stand in files, by name."""

    users: Ids
    items: Ids
    labels: Floats
    times: Floats | None = None


def dataset_of(name: str, train: Log, test: Log | None) -> Dataset:
    """Names become row numbers, the same ones in both parts."""
    logs = [log for log in (train, test) if log is not None]
    users = Index.of(*(log.users for log in logs))
    items = Index.of(*(log.items for log in logs))
    made = [_interactions(log, users, items) for log in logs]
    return Dataset(name, made[0], made[1] if test is not None else None, users, items)


def read_log(
    table: Table, columns: Named, like: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None
) -> Log:
    """The named columns of a table; `like` turns the label column into 0 and 1 where it is not that already."""
    rules = Rules(skip=False)
    checked = {} if columns.label is None or like is not None else {"label": columns.label}
    users, items, labels, times = [], [], [], []
    for batch in table.batches(columns.all):
        rules.valid_rows(batch, checked, [columns.user, columns.item])
        users.append(batch.ids(columns.user))
        items.append(batch.ids(columns.item))
        if columns.label is not None:
            values = batch.numbers(columns.label)
            labels.append(values if like is None else like(values))
        if columns.time is not None:
            times.append(batch.numbers(columns.time))
    if not users:
        raise DataError(f"{table.name} must hold at least one row, got none.")
    people, things = (
        names_of(pa.chunked_array(parts).combine_chunks()) for parts in (users, items)
    )
    liked = np.concatenate(labels).astype(np.float64) if labels else np.ones(len(people))
    return Log(people, things, liked, np.concatenate(times).astype(np.float64) if times else None)


def _read_table(
    table: Table, user: str | None, item: str | None, label: str | None, time: str | None
) -> Log:
    named = Named(
        table.resolve("user", user),
        table.resolve("item", item),
        table.resolve("label", label) if label else table.has("label"),
        table.resolve("time", time) if time else table.has("time"),
    )
    return read_log(table, named)


def _interactions(log: Log, users: Index, items: Index) -> Interactions:
    people, things = users.rows("users", log.users), items.rows("items", log.items)
    pairs = people * len(items) + things
    order = np.lexsort((-log.labels, pairs))  # of equal pairs the liked one first
    first = order[np.r_[True, np.diff(pairs[order]) != 0]]
    kept = np.sort(first)
    times = None if log.times is None else log.times[kept]
    return Interactions(people[kept], things[kept], log.labels[kept], len(users), len(items), times)
