"""Tables of interactions and scores, exchanged by datasets, propensities and models."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import listed, whole
from calibrank._internal.validation import (
    Floats,
    Ids,
    IdsLike,
    Indices,
    Mask,
    Numbers,
    as_frame,
    column,
    ids,
    require,
    require_role,
    require_scores,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence, impressions, ips, naive

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Which users met which items, and whether they liked them (label 1).

    A row with label 0 was shown and not liked: a dislike, a skip, an impression without a click.
    Pairs that are not listed are unobserved. `n_users` and `n_items` are the sizes of the
    population that the log was drawn from (default: the distinct users and items in the log).
    `times` may be any numbers that increase with time, `ratings` are the values that labels were
    made from, where the data have them; NaN means unknown.

    >>> Interactions(users=["ann", "bob"], items=[7, 9], labels=[1, 0])
    Interactions(2 rows, 1 positive, 2 users, 2 items)
    """

    users: Ids
    items: Ids
    labels: Floats
    n_users: int
    n_items: int
    times: Floats | None
    ratings: Floats | None

    def __init__(
        self,
        users: IdsLike,
        items: IdsLike,
        labels: Numbers | None = None,
        n_users: int | None = None,
        n_items: int | None = None,
        times: Numbers | None = None,
        ratings: Numbers | None = None,
    ) -> None:
        users = ids("users", users)
        rows = len(users)
        labels = np.ones(rows) if labels is None else column("labels", labels, rows)
        require_role("label", "labels", labels)
        times = _optional("times", times, rows)
        if times is not None:
            rule = "be finite or NaN"
            require(lambda values: ~np.isinf(values), "times", rule, times, "Correct it.")
        items = ids("items", items, rows)
        ratings = _optional("ratings", ratings, rows)
        n_users = _size("n_users", n_users, users)
        n_items = _size("n_items", n_items, items)
        columns = (users, items, labels, n_users, n_items, times, ratings)
        for name, value in zip(self.__slots__, columns, strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: npt.NDArray[Any]) -> Interactions:
        """Some of the rows, by mask or number; the population sizes stay the same."""
        return Interactions(
            self.users[rows],
            self.items[rows],
            self.labels[rows],
            self.n_users,
            self.n_items,
            times=None if self.times is None else self.times[rows],
            ratings=None if self.ratings is None else self.ratings[rows],
        )

    def positives(self) -> Interactions:
        """Only the rows with label 1."""
        return self.take(self.labels == 1)

    def __repr__(self) -> str:
        rows = f"{len(self):,} rows, {int(self.labels.sum()):,} positive"
        return f"Interactions({rows}, {self.n_users:,} users, {self.n_items:,} items)"


# Rows whose numbers are hashed at a time: they stay in cache.
_BLOCK = 2**15

Frame: TypeAlias = "IntoFrame"
"""A dataframe of any library that narwhals supports."""

_FRAME_COLUMNS = ("user", "item", "label")


def as_interactions(log: Interactions | Frame) -> Interactions:
    """Interactions as they are; a dataframe of any library by its columns user, item and label.

    >>> import pyarrow as pa
    >>> as_interactions(pa.table({"user": ["ann", "bob"], "item": [7, 9], "label": [1, 0]}))
    Interactions(2 rows, 1 positive, 2 users, 2 items)
    """
    if isinstance(log, Interactions):
        return log
    frame = as_frame(log)
    if frame is None:
        raise DataError(
            "interactions",
            "be calibrank.Interactions or a dataframe with columns user, item and label",
            type(log).__name__,
            "Pass Interactions(users, items, labels).",
        )
    names = frame.collect_schema().names()
    missing = [name for name in _FRAME_COLUMNS if name not in names]
    if missing:
        raise DataError(
            "a frame of interactions",
            "have columns user, item and label",
            listed(names),
            "Rename its columns, or pass Interactions(users, items, labels).",
        )
    # A lazy frame is collected; an eager one stays as it is.
    selected = frame.lazy().select(_FRAME_COLUMNS).collect()
    return Interactions(*[selected[name].to_numpy() for name in _FRAME_COLUMNS])


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """A model's scores of user-item pairs with their labels: the input of calibration.

    `propensity` is each pair's P(observed), `weights` how many pairs a row stands for (a sampled
    negative stands for many). Columns that are not given are None.

    >>> table = ScoreTable(
    ...     ["ann", "bob"], [7, 9], scores=[2.5, -0.3], labels=[1, 0], propensity=[0.5, 0.1]
    ... )
    >>> table.evidence()
    Evidence(2 rows, positive=2, total=2, kind='ips')
    """

    users: Ids
    items: Ids
    scores: Floats
    labels: Floats
    propensity: Floats | None
    weights: Floats | None

    def __init__(
        self,
        users: IdsLike,
        items: IdsLike,
        scores: Numbers,
        labels: Numbers,
        propensity: Numbers | None = None,
        weights: Numbers | None = None,
    ) -> None:
        users = ids("users", users)
        rows = len(users)
        scores = column("scores", scores, rows)
        labels = column("labels", labels, rows)
        require_scores(scores)
        require_role("label", "labels", labels)
        items = ids("items", items, rows)
        propensity = _optional("propensity", propensity, rows, "propensity")
        weights = _optional("weights", weights, rows, "weight")
        columns = (users, items, scores, labels, propensity, weights)
        for name, value in zip(self.__slots__, columns, strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.users)

    def evidence(self) -> Evidence:
        """The evidence of the labels: `ips` with propensities, otherwise `naive`."""
        if self.propensity is None:
            return naive(self.labels, weights=self.weights)
        return ips(self.labels, self.propensity, weights=self.weights)

    def impressions(self) -> Evidence:
        """The evidence if every row was shown: `propensity` is then that of being shown.

        >>> ScoreTable(["ann", "bob"], [7, 9], [2.5, -0.3], [1, 0], [0.5, 0.1]).impressions()
        Evidence(2 rows, positive=2, total=12, kind='impressions')
        """
        return impressions(self.labels, self.propensity, weights=self.weights)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns that were given, by name, as dataframe constructors accept them."""
        columns = {
            "user": self.users,
            "item": self.items,
            "score": self.scores,
            "label": self.labels,
            "propensity": self.propensity,
            "weight": self.weights,
        }
        return {name: values for name, values in columns.items() if values is not None}

    def __repr__(self) -> str:
        rows = f"{len(self):,} rows, {int(self.labels.sum()):,} positive"
        extent = f" over [{self.scores.min():.6g}, {self.scores.max():.6g}]" if len(self) else ""
        return f"ScoreTable({rows}, scores{extent})"


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The ids behind row numbers: models number users and items from 0.

    >>> index = Index.of(["bob", "ann", "bob"])
    >>> index.names, index.rows("users", ["bob"])
    (array(['ann', 'bob'], dtype='<U3'), array([1]))
    """

    names: Ids
    """Distinct ids in sorted order."""

    @classmethod
    def of(cls, *names: IdsLike) -> Index:
        """Index every id that occurs."""
        return cls(np.unique(np.concatenate(alike("ids", [ids("ids", some) for some in names]))))

    def __len__(self) -> int:
        return len(self.names)

    def rows(self, what: str, names: IdsLike) -> Indices:
        """The row number of each id; unknown ids raise an error that calls the column `what`."""
        wanted = ids(what, names)
        rows, known = self.find(what, wanted)
        if not known.all():
            row = int(np.argmin(known))
            unknown = wanted[row].item()
            rule, remedy = "be known from training", "Drop such rows."
            raise DataError(what, rule, f"{unknown!r}", remedy, row=row)
        return rows

    def find(self, what: str, names: IdsLike) -> tuple[Indices, Mask]:
        """The row number of each id, and whether the id is known; unknown ones get any number."""
        wanted = ids(what, names)
        if len(wanted) and _is_text(self.names) != _is_text(wanted):
            kinds = f"({self.names.dtype}), got {wanted.dtype}"
            raise DataError(what, f"be ids as in the log {kinds}", remedy="Convert them.")
        known_names, wanted = alike(what, [self.names, wanted])
        rows = np.searchsorted(known_names, wanted)
        # An id after the last one would be found at a row that does not exist.
        rows = np.minimum(rows, max(len(self.names) - 1, 0))
        return rows, known_names[rows] == wanted


def hash_partitions(names: Iterable[object], partitions: int) -> Indices:
    """Assign each name to a partition by its hash: the same in every batch, file and run.

    >>> hash_partitions(["ann", "bob"], 5)
    array([2, 4])
    """
    # Python's own hash of a string changes from run to run.
    hashes = [zlib.crc32(str(name).encode()) for name in names]
    return (np.array(hashes, dtype=np.int64) % partitions).astype(np.intp)


def row_partitions(first: int, rows: int, partitions: int) -> Indices:
    """Assign each row to a partition by a hash of its number; `first` is that of the first row.

    In turn would be simpler, but where all lists are of the same length (one positive and 99
    negatives), every positive would be in the same partition.

    >>> row_partitions(0, 8, 5)
    array([0, 0, 4, 4, 2, 0, 3, 0])
    """
    found = np.empty(rows, dtype=np.intp)
    for start in range(0, rows, _BLOCK):
        block = found[start : start + _BLOCK]
        numbers = np.arange(first + start + 1, first + start + len(block) + 1, dtype=np.uint64)
        block[:] = mix_bits(numbers) % np.uint64(partitions)
    return found


def mix_bits(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash numbers such that every bit depends on all bits of the number.

    This is SplitMix64 (Steele et al. 2014); multiplication wraps around on purpose.
    """
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def alike(what: str, columns: list[Ids]) -> list[Ids]:
    """Ids of several columns in types that can be compared without rounding."""
    kinds = {names.dtype.kind for names in columns if len(names)}
    if kinds & {"U", "S"} and kinds - {"U", "S"}:
        raise DataError(what, "be ids of one kind", "strings and numbers", "Convert them.")
    if "u" not in kinds or kinds == {"u"}:
        return columns
    # Only ids beyond int64 are unsigned here; NumPy would compare the two as decimals.
    if "f" in kinds or any(len(names) and names.min() < 0 for names in columns):
        found = "ids above 2^63 and negative or decimal ones"
        raise DataError(what, "be integers of one type", found, "Convert them to strings.")
    return [names.astype(np.uint64) for names in columns]


def _is_text(names: Ids) -> bool:
    return names.dtype.kind in "US"


def _optional(
    name: str, values: Numbers | None, rows: int, role: str | None = None
) -> Floats | None:
    if values is None:
        return None
    array = column(name, values, rows)
    if role is not None:
        require_role(role, name, array)
    return array


def _size(name: str, given: int | None, seen: Ids) -> int:
    distinct = len(np.unique(seen))
    if given is None:
        return distinct
    given = whole(name, given)
    if given < distinct:
        raise DataError(name, f"be at least the {distinct:,} ids seen", f"{given:,}")
    return given
