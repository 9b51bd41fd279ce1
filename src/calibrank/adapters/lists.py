"""Recommendation lists: which slots hold a recommendation, and with what probability.

Every framework pads in its own way. The one place that knows them all is `filled`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, Ids, IdsLike, floats, ids
from calibrank.adapters.outputs import Margin, Outputs, is_score, plain
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap

_MARGIN = Margin()


@dataclass(frozen=True, slots=True, eq=False)
class Recommendations:
    """Lists laid end to end, best first: a row a recommendation, `ranks` from 1.

    `left_out` counts the slots that came with them and held none: padding, masked history, repeats.

    >>> two = Recommendations(*map(np.array, (["ann", "ann"], [4, 2], [1.5, -0.2], [0.7, 0.3], [1, 2])))
    >>> two.above(0.5).items
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

    def take(self, rows: npt.NDArray[Any]) -> "Recommendations":
        """Some of the rows, by mask or number; ranks stay what they were."""
        scores, probabilities = self.scores[rows], self.probabilities[rows]
        return Recommendations(
            self.users[rows],
            self.items[rows],
            scores,
            probabilities,
            self.ranks[rows],
            self.left_out,
        )

    def above(self, threshold: float) -> "Recommendations":
        """Those at least that probable: a list is cut where it stops being worth it."""
        return self.take(self.probabilities >= threshold)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name, as any dataframe library takes them."""
        names = ("user", "item", "score", "probability", "rank")
        return dict(
            zip(
                names,
                (self.users, self.items, self.scores, self.probabilities, self.ranks),
                strict=True,
            )
        )

    def __repr__(self) -> str:
        people = len(np.unique(self.users))
        empty = f", {self.left_out:,} empty slots left out" if self.left_out else ""
        return f"Recommendations({len(self):,} rows, {people:,} users{empty})"


class Lists(NamedTuple):
    """A row a list, best first, padded in any way."""

    items: Ids
    scores: Floats
    added: int = 0
    """Empty slots that are ours, to make lists of unlike length fit."""

    @classmethod
    def of(cls, ragged: Sequence[tuple[IdsLike, Any]]) -> "Lists":
        """Lists of unlike length, padded with NaN."""
        parts = [(ids("items", items), floats("scores", plain(scores))) for items, scores in ragged]
        width = max((len(items) for items, _ in parts), default=0)
        kinds = [items for items, _ in parts if len(items)]
        grid = np.zeros((len(parts), width), dtype=np.result_type(*kinds) if kinds else np.intp)
        values = np.full(
            (len(parts), width),
            np.nan,
            dtype=np.result_type(np.float32, *(part[1] for part in parts)),
        )
        for row, (items, scores) in enumerate(parts):
            grid[row, : len(items)], values[row, : len(items)] = items, scores
        return cls(grid, values, values.size - sum(len(items) for items, _ in parts))

    def filled(self) -> npt.NDArray[np.bool_]:
        """Which slots hold a recommendation.

        A slot without a score (NaN, -inf, -3.4e38) or with a negative id is empty, and so is an item's second
        mention: implicit ends a list that is longer than the catalogue with item 0 at score 0.
        """
        good = is_score(self.scores) & ~_repeated(self.items)
        if self.items.dtype.kind == "i":
            good &= self.items >= 0
        return good


def from_lists(
    fitted: CalibrationMap, users: IdsLike, items: Any, scores: Any, outputs: Outputs = _MARGIN
) -> Recommendations:
    """Recommendations out of padded lists: a row of `items` and of `scores` a user, best first.

    >>> from calibrank import Sigmoid
    >>> half = Sigmoid().fit([0.0, 1.0], [0, 1])
    >>> from_lists(half, ["ann", "bob"], [[4, 2], [3, 0]], [[2.0, 0.0], [1.0, -3.4e38]])
    Recommendations(3 rows, 2 users, 1 empty slots left out)
    """
    people = ids("users", users)
    lists = Lists(np.asarray(plain(items)), floats("scores", plain(scores)))
    for name, grid in (("items", lists.items), ("scores", lists.scores)):
        if grid.ndim != 2 or grid.shape != (len(people), lists.scores.shape[-1]):
            raise DataError(
                f"{name} must have a row for each of {len(people)} users, got shape {grid.shape}."
            )
    return calibrated(fitted, people, lists, outputs)


def from_nested(
    fitted: CalibrationMap,
    rows: Iterable[tuple[Any, Iterable[Any] | None]],
    outputs: Outputs = _MARGIN,
) -> Recommendations:
    """Recommendations out of nested rows (user, [(item, score), ...]), as Spark's `recommendForAllUsers` collects.

    Entries may be tuples, Spark rows or mappings: the item comes first, the score second.

    >>> from calibrank import Sigmoid
    >>> half = Sigmoid().fit([0.0, 1.0], [0, 1])
    >>> from_nested(half, [("ann", [(4, 2.0), (2, 0.5)]), ("bob", [{"item": 3, "rating": 1.0}])])
    Recommendations(3 rows, 2 users)
    """
    nested = [
        (user, [] if entries is None else [_entry(entry) for entry in entries])
        for user, entries in rows
    ]
    people = ids("users", [user for user, _ in nested])
    ragged = [
        ([item for item, _ in entries], [score for _, score in entries]) for _, entries in nested
    ]
    return calibrated(fitted, people, Lists.of(ragged), outputs)


def calibrated(
    fitted: CalibrationMap,
    users: Ids,
    lists: Lists,
    outputs: Outputs = _MARGIN,
    hidden: npt.NDArray[np.bool_] | None = None,
    most: int | None = None,
) -> Recommendations:
    """The filled slots that are not hidden, at most so many a user, with their probabilities."""
    filled = lists.filled()
    shown = filled if hidden is None else filled & ~hidden
    ranks = np.cumsum(shown, axis=1, dtype=np.intp)
    if most is not None:
        shown = shown & (ranks <= most)
    scores = outputs.scores(lists.scores[shown])
    rows = np.nonzero(shown)[0]
    left_out = int(filled.size - np.count_nonzero(filled)) - lists.added
    return Recommendations(
        users[rows], lists.items[shown], scores, fitted.predict(scores), ranks[shown], left_out
    )


def best(scores: Floats, k: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """The columns of the `k` highest scores of each row and those scores, best first; unscored ones come last."""
    ranked = np.where(is_score(scores), scores, -np.inf)
    k = min(k, scores.shape[1])
    columns = (
        np.argpartition(-ranked, k - 1, axis=1)[:, :k]
        if k
        else np.empty((len(scores), 0), dtype=np.intp)
    )
    order = np.lexsort((columns, -np.take_along_axis(ranked, columns, axis=1)), axis=1)
    columns = np.take_along_axis(columns, order, axis=1)
    return columns, np.take_along_axis(ranked, columns, axis=1)


def _entry(entry: Any) -> tuple[Any, Any]:
    fields = tuple(entry.values() if isinstance(entry, Mapping) else entry)
    if len(fields) != 2:
        raise DataError(
            f"entries must be an item and a score, got {fields}. Select these two first."
        )
    return fields


def _repeated(items: Ids) -> npt.NDArray[np.bool_]:
    """Slots whose item the same list has named before."""
    order = np.argsort(items, axis=1, kind="stable")
    ordered = np.take_along_axis(items, order, axis=1)
    again = np.zeros(items.shape, dtype=bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return again
