"""Recommendation lists: which entries are recommendations, and with what probability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance
from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import Floats, Ids, IdsLike, Indices, Mask, floats, ids
from calibrank.adapters.outputs import DECLARED, MARGIN, Outputs, is_score, to_numpy
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.calibration_map import require_map

_COLUMNS = {
    "user": "users",
    "item": "items",
    "score": "scores",
    "probability": "probabilities",
    "rank": "ranks",
}


@dataclass(frozen=True, slots=True, eq=False)
class Recommendations:
    """Recommendations of all users, one row each, best first; `ranks` count from 1 per user.

    `left_out` is the number of slots without a recommendation: padding, masked history, repeats.

    >>> lists = Recommendations(
    ...     users=np.array(["ann", "ann"]), items=np.array([4, 2]), scores=np.array([1.5, -0.2]),
    ...     probabilities=np.array([0.7, 0.3]), ranks=np.array([1, 2]),
    ... )
    >>> lists.above(0.5).items
    array([4])
    """

    users: Ids
    items: Ids
    scores: Floats
    probabilities: Floats
    ranks: Indices
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: npt.NDArray[Any]) -> Recommendations:
        """The rows selected by a mask or by number; ranks are unchanged."""
        taken = {name: getattr(self, name)[rows] for name in _COLUMNS.values()}
        return replace(self, **taken)

    def above(self, threshold: float) -> Recommendations:
        """The recommendations with at least this probability."""
        return self.take(self.probabilities >= threshold)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name, as any dataframe library accepts them."""
        return {column: getattr(self, name) for column, name in _COLUMNS.items()}

    def __repr__(self) -> str:
        n_users = len(np.unique(self.users))
        left_out = f", {self.left_out:,} empty slots left out" if self.left_out else ""
        return f"Recommendations({len(self):,} rows, {n_users:,} users{left_out})"


class Entries(NamedTuple):
    """The entries of all lists, one list after the other, each best first."""

    lists: Indices
    """The number of each entry's list."""
    items: Ids
    scores: Floats

    @classmethod
    def of(cls, lists: Sequence[tuple[IdsLike, Any]]) -> Entries:
        """Lists of any length, each (items, scores)."""
        items = [ids("items", each) for each, _ in lists]
        scores = [floats("scores", to_numpy(each)) for _, each in lists]
        # An empty list has no id type of its own.
        with_items = [each for each in items if len(each)] or [np.empty(0, dtype=np.intp)]
        numbers = np.repeat(np.arange(len(items)), [len(each) for each in items])
        return cls(numbers, np.concatenate(with_items), np.concatenate([*scores, np.empty(0)]))

    def filled(self) -> Mask:
        """Which entries are recommendations, whatever a library pads lists with.

        An entry is empty if it has no score (NaN, -inf, -3.4e38), if its id is negative, or if its
        item occurs earlier in the list: implicit fills lists that are longer than the catalogue
        with item 0 at score 0.
        """
        # The sort is stable, so all but the first of equal items are repeats.
        order = np.lexsort((self.items, self.lists))
        is_equal = np.diff(self.lists[order]) == 0
        is_equal &= self.items[order][1:] == self.items[order][:-1]
        filled = is_score(self.scores)
        filled[order[1:][is_equal]] = False
        if self.items.dtype.kind == "i":
            filled &= self.items >= 0
        return filled


def from_lists(
    fitted: CalibrationMap,
    users: IdsLike,
    items: Any,
    scores: Any,
    outputs: Outputs = MARGIN,
    columns: Any = None,
) -> Recommendations:
    """Recommendations from padded lists: `items` and `scores` have one row per user, best first.

    `columns` has the columns of the map's terms by name: one value per user, or one per item in the
    shape of `items`. A rank is the place in the list, and is not given.

    >>> from calibrank import Sigmoid
    >>> fitted = Sigmoid().fit([0.0, 1.0], [0, 1])
    >>> from_lists(fitted, ["ann", "bob"], [[4, 2], [3, 0]], [[2.0, 0.0], [1.0, -3.4e38]])
    Recommendations(3 rows, 2 users, 1 empty slots left out)
    """
    checked = ids("users", users)
    grids = {"items": np.asarray(to_numpy(items)), "scores": floats("scores", to_numpy(scores))}
    expected = (len(checked), *grids["scores"].shape[-1:])
    for name, grid in grids.items():
        if grid.ndim != 2 or grid.shape != expected:
            rule, found = f"have one row per user ({len(checked)} users)", f"shape {grid.shape}"
            raise DataError(name, rule, found, "Pass lists of equal length, padded with NaN.")
    lists = np.repeat(np.arange(len(checked)), expected[1])
    entries = Entries(lists, *[grid.reshape(-1) for grid in grids.values()])
    return calibrated(fitted, checked, entries, outputs, columns)


def calibrated(
    fitted: CalibrationMap,
    users: Ids,
    entries: Entries,
    outputs: Outputs = MARGIN,
    columns: Any = None,
    most: int | None = None,
) -> Recommendations:
    """The entries that are recommendations, at most `most` per list, with their probabilities."""
    require_map(fitted)
    instance("outputs", outputs, Outputs, DECLARED)
    filled = np.flatnonzero(entries.filled())
    left_out = len(entries.lists) - len(filled)
    ranks = ranks_of(entries.lists[filled])
    if most is not None:
        filled, ranks = filled[ranks <= most], ranks[ranks <= most]
    places = entries.lists[filled]
    scores = outputs.scores(entries.scores[filled])

    def of_entries(name: str) -> npt.NDArray[Any]:
        values = np.asarray(column_of("columns", name, columns))
        if values.shape == users.shape:
            return values[places]
        if values.ndim == 2 and values.size == len(entries.lists):
            return values.reshape(-1)[filled]
        raise DataError(
            f"column {name!r}",
            f"have one value per user ({len(users)}) or per item",
            f"shape {values.shape}",
        )

    return Recommendations(
        users[places],
        entries.items[filled],
        scores,
        fitted.predict(scores, with_ranks(fitted, columns, ranks, of_entries)),
        ranks,
        left_out,
    )


def ranks_of(lists: Ids) -> Indices:
    """The place of each entry within its run of equal lists, from 1."""
    places = np.arange(len(lists))
    is_start = np.ones(len(lists), dtype=bool)
    is_start[1:] = lists[1:] != lists[:-1]
    return places - np.maximum.accumulate(np.where(is_start, places, 0)) + 1


def with_ranks(
    fitted: CalibrationMap, columns: Any, ranks: Indices, of_rows: Callable[[str], Any]
) -> dict[str, Any] | None:
    """The columns that a map needs: known ranks, and what `of_rows` gives for the others."""
    found: dict[str, Any] = {}
    for name in fitted.columns:
        if fitted.number_columns.get(name) == "rank":
            found[name] = ranks
        elif columns is None:
            raise DataError(
                "columns",
                f"have {name!r}, which the map needs",
                "none",
                "Pass columns=..., or use fitted.without_terms().",
            )
        else:
            found[name] = of_rows(name)
    return found or None
