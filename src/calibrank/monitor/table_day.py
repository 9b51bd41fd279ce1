"""A day from a table on disk, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.monitor.day import CLUSTERS, Day
from calibrank.tabular.batch import Batch, to_arrow
from calibrank.tabular.files import Progress
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, buckets_of, columns_of
from calibrank.tabular.rules import Rules


class DayColumns(NamedTuple):
    """Column names by role; without labels only the scores of a day are kept."""

    score: str
    label: str | None = None
    weight: str | None = None
    user: str | None = None
    segments: tuple[str, ...] = ()
    """Columns whose values are levels of the map."""
    features: Mapping[str, str] = MappingProxyType({})
    """Numeric columns that change the map, with the role whose rule they keep."""

    def used_by(self, fitted: CalibrationMap) -> DayColumns:
        """These columns and those that a map uses."""
        return self._replace(segments=fitted.level_columns, features=fitted.number_columns)

    @property
    def checked(self) -> dict[str, str]:
        """Numeric columns by role; each role has a rule."""
        found = {"score": self.score, "label": self.label, "weight": self.weight}
        return {role: name for role, name in found.items() if name is not None}

    @property
    def ids(self) -> list[str]:
        """Columns of ids."""
        return [] if self.user is None else [self.user]


def day_of_table(
    table: Table,
    fitted: CalibrationMap,
    columns: DayColumns,
    rules: Rules,
    date: str,
    progress: Progress | None = None,
) -> Day:
    """Sum up all rows of a table as one day; a row whose label is missing has none yet."""
    day: Day | None = None
    first = 0
    columns = columns.used_by(fitted)
    names = [*columns.checked.values(), *columns.ids, *columns.segments, *columns.features]
    for batch in table.batches(list(dict.fromkeys(names)), progress):
        rows = _valid(batch, columns, rules)
        clusters = buckets_of(rows, first, CLUSTERS)
        is_missing = np.isnan(rows.labels)
        for chosen in (~is_missing, is_missing):
            if chosen.any():
                some = rows if chosen.all() else rows.take(chosen)
                labels = None if chosen is is_missing else some.labels
                used = columns_of(columns, some)
                args = (some.weights, clusters[chosen], date, used)
                part = Day.of_clusters(fitted, some.scores, labels, *args)
                day = part if day is None else day + part
        first += len(rows)
    if day is None:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
    return day


def _valid(batch: Batch, columns: DayColumns, rules: Rules) -> Rows:
    """The valid rows of a batch; labels that are missing are NaN."""
    scores = batch.numbers(columns.score).astype(np.float64)
    labels = np.full(len(scores), np.nan)
    checked = batch
    if columns.label is not None:
        labels = batch.numbers(columns.label)
        checked = _with_labels(batch, columns.label, labels)
    valid = rules.valid_rows(
        checked, columns.checked, columns.ids, columns.segments, columns.features
    )
    rows = Rows(
        scores=scores,
        labels=labels,
        propensity=None,
        weights=None if columns.weight is None else batch.numbers(columns.weight),
        items=None,
        users=None if columns.user is None else batch.ids(columns.user),
        segments=tuple([batch.segments(name) for name in columns.segments]),
        features=tuple([batch.numbers(name) for name in columns.features]),
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
