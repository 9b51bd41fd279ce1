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
from calibrank.tabular.labels import LabelRule
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, buckets_of
from calibrank.tabular.rules import Rules

LABEL, USER = "label", "user"


def day_of_table(
    table: Table,
    fitted: CalibrationMap,
    named: Mapping[str, str],
    rules: Rules,
    date: str,
    progress: Progress | None = None,
    rule: LabelRule | None = None,
) -> Day:
    """Sum up all rows of a table as one day; a row whose label is missing has none yet.

    `named` has the columns by role: score, and label, weight and user if there are such. `rule`
    makes labels of 0 and 1 of the label column, unless it holds them.
    """
    day: Day | None = None
    first = 0
    names = [*named.values(), *fitted.columns]
    for batch in table.batches(list(dict.fromkeys(names)), progress):
        rows = _valid(batch, fitted, named, rule, rules)
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


def _valid(
    batch: Batch,
    fitted: CalibrationMap,
    named: Mapping[str, str],
    rule: LabelRule | None,
    rules: Rules,
) -> Rows:
    """The valid rows of a batch; labels that are missing are NaN."""
    numbers = {role: name for role, name in named.items() if role not in (USER, LABEL)}
    values = {role: batch.numbers(name) for role, name in numbers.items()}
    checked, labels = batch, np.full(batch.rows.num_rows, np.nan)
    if LABEL in named:
        numbers |= {LABEL: named[LABEL]} if rule is None else rule.columns
        checked, labels = _labels_of(batch, named[LABEL], rule)
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


def _labels_of(batch: Batch, name: str, rule: LabelRule | None) -> tuple[Batch, npt.NDArray[Any]]:
    """The labels, NaN where one is missing, and a batch with 0 there, which no check refuses."""
    if rule is not None and rule.texts:
        texts = batch.texts(name)
        is_missing = np.array([text is None for text in texts], dtype=bool)
        return batch, np.where(is_missing, np.nan, rule.labels({name: texts})[0])
    found = batch.labels(name) if rule is None else batch.numbers(name)
    is_missing = np.isnan(found)
    labels = found if rule is None else rule.labels({name: found})[0]
    if not is_missing.any():
        return batch, labels
    filled = to_arrow(np.where(is_missing, 0.0, found))
    place = batch.rows.schema.get_field_index(name)
    complete = replace(batch, rows=batch.rows.set_column(place, name, filled))
    return complete, np.where(is_missing, np.nan, labels)
