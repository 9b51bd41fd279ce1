"""Datasets, and any Parquet or CSV table with user, item and label columns as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import path_of, text
from calibrank._internal.validation import Floats, Ids, require
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

if TYPE_CHECKING:
    from calibrank.tabular.read import Table

_IDS = ("user", "item")


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


Values = npt.NDArray[Any]


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
    from calibrank.tabular.read import Table  # noqa: PLC0415  (needs pyarrow, which is optional)

    names = {"user": user, "item": item, "label": label, "time": time}
    for role, column in names.items():
        if column is not None:
            text(role, column, "It names a column.")
    path_of("train", train)
    if test is not None:
        path_of("test", test)
    tables = [Table.find(str(path)) for path in (train, test) if path is not None]
    logs = [_read_table(table, names, positive) for table in tables]
    return dataset_from_logs(Path(train).stem, logs, log or tables[0].roles().log or "positives")


def dataset_from_logs(name: str, logs: Sequence[RawLog], kind: str) -> Dataset:
    """A dataset whose log and test set number users and items in the same way."""
    columns = [_of_one_type([getattr(log, side) for log in logs]) for side in ("users", "items")]
    users, items = Index.of(*columns[0]), Index.of(*columns[1])
    parts = []
    for log, user_ids, item_ids in zip(logs, *columns, strict=True):
        same = replace(log, users=user_ids, items=item_ids)
        parts.append(_interactions(same, users, items))
    test = parts[1] if len(parts) > 1 else None
    return Dataset(name, parts[0], test, users, items, log=kind)


def _of_one_type(columns: Sequence[Ids]) -> Sequence[Ids]:
    """Ids that are all numbers or all text: the number 7 and the text "7" are one id."""
    is_text = any(ids.dtype.kind == "U" for ids in columns)
    return [ids.astype(np.str_) for ids in columns] if is_text else columns


def read_log(
    files: Sequence[Path],
    columns: Mapping[str, str | None],
    is_positive: Callable[[Values], Values] | None = None,
    *,
    label_role: str | None = None,
) -> RawLog:
    """Read columns by role; `is_positive` turns the label column into 0 and 1 where needed.

    `label_role` names the rule that the label column must obey before that; by default none.
    """
    import pyarrow as pa  # noqa: PLC0415  (optional)

    from calibrank.tabular.arrow import compact_ids, names_of, unify_ids  # noqa: PLC0415  (needs pyarrow)
    from calibrank.tabular.read import Table  # noqa: PLC0415  (needs pyarrow)
    from calibrank.tabular.rules import Rules  # noqa: PLC0415  (needs pyarrow)

    named = {role: name for role, name in columns.items() if name is not None}
    if len(set(named.values())) < len(named):
        same = ", ".join(map(repr, named.values()))
        raise DataError("user, item, label and time", "be different columns", same)
    # An invalid row is an error: a training log must not lose rows silently.
    rules = Rules(skip=False)
    # Values that `is_positive` converts may be any numbers; labels must be 0 or 1.
    rule = "label" if is_positive is None else label_role
    checked = {rule: named["label"]} if rule is not None and "label" in named else {}
    parts: dict[str, list[Any]] = {role: [] for role in named}
    for batch in Table(str(files[0]), tuple(files)).batches(list(named.values())):
        rules.valid_rows(batch, checked, [named["user"], named["item"]])
        for role, name in named.items():
            parts[role].append(batch.ids(name) if role in _IDS else batch.numbers(name))
    if not parts["user"]:
        raise DataError(files[0], "hold at least one row", "none")
    read: dict[str, Values] = {}
    for role, found in parts.items():
        if role in _IDS:
            # Arrow arrays are joined before conversion: strings become one numpy array once.
            read[role] = names_of(compact_ids(pa.chunked_array(unify_ids(found)).combine_chunks()))
        else:
            read[role] = np.concatenate(found)
    labels = read.get("label", np.ones(len(read["user"])))
    if is_positive is not None:
        labels = is_positive(labels)
    times = read["time"].astype(np.float64) if "time" in read else None
    return RawLog(read["user"], read["item"], labels.astype(np.float64), times)


def _read_table(table: Table, given: Mapping[str, str | None], positive: str | None) -> RawLog:
    from calibrank.tabular.labels import parse_rule  # noqa: PLC0415  (needs pyarrow)

    columns: dict[str, str | None] = {role: table.resolve(role, given[role]) for role in _IDS}
    for role in ("label", "time"):
        name = given[role]
        columns[role] = table.resolve(role, name) if name else table.has(role)
    is_positive = None
    if positive is not None:
        rule = parse_rule(positive)
        is_positive = rule.is_liked
        columns["label"] = table.resolve("positive", rule.column)
    log = read_log(table.files, columns, is_positive, label_role="grade")
    if log.times is not None:
        # A row without a time has no place in the order of a log.
        name = f"{table.name}, {columns['time']}"
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
