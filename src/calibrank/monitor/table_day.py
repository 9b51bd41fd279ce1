"""A day from a table on disk, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.monitor.day import CLUSTERS, Day
from calibrank.tabular.arrow import as_segments, to_arrow
from calibrank.tabular.files import Batch, Progress
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, buckets_of
from calibrank.tabular.rules import Rules

USER = "user"


def day_of_table(
    table: Table,
    fitted: CalibrationMap,
    named: Mapping[str, str],
    rules: Rules,
    date: str,
    progress: Progress | None = None,
) -> Day:
    """Sum up all rows of a table as one day; a row whose label is missing has none yet.

    `named` has the columns by role: score, and label, weight and user if there are such.
    """
    day: Day | None = None
    first = 0
    names = [*named.values(), *fitted.columns]
    for batch in table.batches(list(dict.fromkeys(names)), progress):
        rows = _valid(batch, fitted, named, rules)
        clusters = buckets_of(rows, first, CLUSTERS)
        is_missing = np.isnan(rows.labels)
        for chosen in (~is_missing, is_missing):
            if chosen.any():
                some = rows if chosen.all() else rows.take(chosen)
                labels = None if chosen is is_missing else some.labels
                columns: dict[str, Any] = dict(
                    zip(fitted.number_columns, some.features, strict=True)
                )
                for name, values in zip(fitted.level_columns, some.segments, strict=True):
                    columns[name] = as_segments(values)
                part = Day.of(
                    fitted,
                    some.scores,
                    labels,
                    date=date,
                    weights=some.weights,
                    columns=columns,
                    clusters=clusters[chosen],
                )
                day = part if day is None else day + part
        first += len(rows)
    if day is None:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
    return day


def _valid(batch: Batch, fitted: CalibrationMap, named: Mapping[str, str], rules: Rules) -> Rows:
    """The valid rows of a batch; labels that are missing are NaN."""
    numbers = {role: name for role, name in named.items() if role != USER}
    values = {role: batch.numbers(name) for role, name in numbers.items()}
    labels = values.get("label", np.full(batch.rows.num_rows, np.nan))
    checked = batch if "label" not in named else _with_labels(batch, named["label"], labels)
    users = [named[USER]] if USER in named else []
    levels, features = fitted.level_columns, fitted.number_columns
    valid = rules.valid_rows(checked, numbers, users, levels, features)
    rows = Rows(
        scores=values["score"].astype(np.float64),
        labels=labels,
        propensity=None,
        weights=values.get("weight"),
        items=None,
        users=batch.ids(named[USER]) if USER in named else None,
        segments=tuple([batch.segments(name) for name in levels]),
        features=tuple([batch.numbers(name) for name in features]),
    )
    return rows if valid is None else rows.take(valid)


def _with_labels(batch: Batch, name: str, labels: npt.NDArray[Any]) -> Batch:
    """The batch with 0 for each missing label, which the rules would refuse."""
    is_missing = np.isnan(labels)
    if not is_missing.any():
        return batch
    filled = to_arrow(np.where(is_missing, 0.0, labels))
    place = batch.rows.schema.get_field_index(name)
    return replace(batch, rows=batch.rows.set_column(place, name, filled))
