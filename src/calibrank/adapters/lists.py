"""Recommendation lists: which slots hold a recommendation, and with what probability.

Every library pads lists in its own way. `PaddedLists.filled` is the one place that knows them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, shown
from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import Floats, Ids, IdsLike, floats, ids
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
    ranks: npt.NDArray[np.intp]
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


class PaddedLists(NamedTuple):
    """One list per row, best first, padded in any way."""

    items: Ids
    scores: Floats
    added: int = 0
    """Empty slots that we added ourselves, to give all lists the same length."""

    @classmethod
    def of(cls, ragged: Sequence[tuple[IdsLike, Any]]) -> PaddedLists:
        """Lists of different lengths, each (items, scores), padded with NaN."""
        items = [ids("items", list_items) for list_items, _ in ragged]
        scores = [floats("scores", to_numpy(list_scores)) for _, list_scores in ragged]
        lengths = [len(list_items) for list_items in items]
        shape = (len(items), max(lengths, default=0))
        # An empty list has no id type of its own.
        with_items = [list_items for list_items in items if len(list_items)]
        item_type = np.result_type(*with_items) if with_items else np.intp
        item_grid = np.zeros(shape, dtype=item_type)
        score_grid = np.full(shape, np.nan, dtype=np.result_type(np.float32, *scores))
        for row, length in enumerate(lengths):
            item_grid[row, :length] = items[row]
            score_grid[row, :length] = scores[row]
        return cls(item_grid, score_grid, score_grid.size - sum(lengths))

    def filled(self) -> npt.NDArray[np.bool_]:
        """Which slots hold a recommendation.

        A slot is empty if it has no score (NaN, -inf, -3.4e38), if its id is negative, or if its
        item occurs earlier in the list: implicit fills lists that are longer than the catalogue
        with item 0 at score 0.
        """
        filled = is_score(self.scores) & ~_repeated(self.items)
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
    lists = PaddedLists(np.asarray(to_numpy(items)), floats("scores", to_numpy(scores)))
    expected = (len(checked), *lists.scores.shape[-1:])
    for name, grid in (("items", lists.items), ("scores", lists.scores)):
        if grid.ndim != 2 or grid.shape != expected:
            raise DataError(
                name,
                f"have one row per user ({len(checked)} users)",
                f"shape {grid.shape}",
                "Pass lists of equal length, padded with NaN.",
            )
    return calibrated(fitted, checked, lists, outputs, columns)


def from_nested(
    fitted: CalibrationMap,
    rows: Iterable[tuple[Any, Iterable[Any] | None]],
    outputs: Outputs = MARGIN,
    columns: Any = None,
) -> Recommendations:
    """Recommendations from nested rows (user, [(item, score), ...]).

    Spark's `recommendForAllUsers` collects to such rows. Entries may be tuples, Spark rows or
    mappings: the item comes first, the score second. `columns` has the columns of the map's terms,
    one value per row; a rank is the place in the list.

    >>> from calibrank import Sigmoid
    >>> fitted = Sigmoid().fit([0.0, 1.0], [0, 1])
    >>> from_nested(fitted, [("ann", [(4, 2.0), (2, 0.5)]), ("bob", [{"item": 3, "rating": 1.0}])])
    Recommendations(3 rows, 2 users)
    """
    users = []
    ragged = []
    for user, entries in _nested_rows(rows):
        pairs = [_item_and_score(entry) for entry in (() if entries is None else entries)]
        users.append(user)
        ragged.append(([item for item, _ in pairs], [score for _, score in pairs]))
    return calibrated(fitted, ids("users", users), PaddedLists.of(ragged), outputs, columns)


def _nested_rows(rows: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the user and the list of each row."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise DataError("rows", "be (user, list) pairs", shown(rows), "Pass a list of them.")
    for row in rows:
        is_pair = isinstance(row, Sequence) and not isinstance(row, str | bytes) and len(row) == 2
        if not is_pair or not isinstance(row[1], Iterable | None):
            raise DataError(
                "rows", "be (user, list) pairs", shown(row), "Select the user and the list first."
            )
        yield row[0], row[1]


def calibrated(
    fitted: CalibrationMap,
    users: Ids,
    lists: PaddedLists,
    outputs: Outputs = MARGIN,
    columns: Any = None,
    hidden: npt.NDArray[np.bool_] | None = None,
    most: int | None = None,
) -> Recommendations:
    """The filled slots that are not hidden, at most `most` per user, with their probabilities."""
    require_map(fitted)
    instance("outputs", outputs, Outputs, DECLARED)
    # Hidden slots are history, not padding: they are not counted as left out.
    filled = lists.filled()
    shown = filled if hidden is None else filled & ~hidden
    ranks = np.cumsum(shown, axis=1, dtype=np.intp)
    if most is not None:
        shown = shown & (ranks <= most)
    scores = outputs.scores(lists.scores[shown])
    user_rows, _ = np.nonzero(shown)
    n_empty = int(filled.size - np.count_nonzero(filled))

    def of_slots(name: str) -> npt.NDArray[Any]:
        values = np.asarray(column_of("columns", name, columns))
        if values.shape not in ((len(users),), shown.shape):
            raise DataError(
                f"column {name!r}",
                f"have one value per user ({len(users)}) or per item {shown.shape}",
                f"shape {values.shape}",
            )
        return values[user_rows] if values.ndim == 1 else values[shown]

    return Recommendations(
        users[user_rows],
        lists.items[shown],
        scores,
        fitted.predict(scores, with_ranks(fitted, columns, ranks[shown], of_slots)),
        ranks[shown],
        n_empty - lists.added,
    )


def with_ranks(
    fitted: CalibrationMap, columns: Any, ranks: npt.NDArray[np.intp], of_rows: Callable[[str], Any]
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


def best(scores: Floats, k: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """The columns of the `k` highest scores of each row, and those scores, best first.

    Missing scores come last, as -inf.
    """
    ranked = np.where(is_score(scores), scores, -np.inf)
    k = min(k, scores.shape[1])
    if k:
        columns = np.argpartition(-ranked, k - 1, axis=1)[:, :k]
    else:
        columns = np.empty((len(scores), 0), dtype=np.intp)
    # Equal scores are ordered by column, so that lists do not depend on the partition.
    order = np.lexsort((columns, -np.take_along_axis(ranked, columns, axis=1)), axis=1)
    columns = np.take_along_axis(columns, order, axis=1)
    return columns, np.take_along_axis(ranked, columns, axis=1)


def _item_and_score(entry: Any) -> tuple[Any, Any]:
    values = entry.values() if isinstance(entry, Mapping) else entry
    is_text = isinstance(values, str | bytes)
    fields = tuple(values) if isinstance(values, Iterable) and not is_text else (entry,)
    if len(fields) != 2:
        raise DataError(
            "entries", "be an item and a score", str(fields)[:60], "Select these two first."
        )
    return fields


def _repeated(items: Ids) -> npt.NDArray[np.bool_]:
    """Slots whose item occurs earlier in the same list."""
    # A stable sort keeps equal items in list order, so all but the first of a run are repeats.
    order = np.argsort(items, axis=1, kind="stable")
    ordered = np.take_along_axis(items, order, axis=1)
    repeated = np.zeros(items.shape, dtype=bool)
    np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return repeated
