"""Tables: the columns that datasets, propensities and models exchange."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import (
    Floats,
    Ids,
    IdsLike,
    Numbers,
    column,
    ids,
    is_binary,
    require,
    require_scores,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence, ips, naive


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Who met what, and whether they liked it (label 1).

    Unlisted pairs are unobserved. `n_users` and `n_items` are the sizes of the world the log was drawn from; by
    default, the users and items seen. `times` are any numbers that grow.

    >>> Interactions(users=["ann", "bob"], items=[7, 9], labels=[1, 0])
    Interactions(2 rows, 1 positive, 2 users, 2 items)
    """

    users: Ids
    items: Ids
    labels: Floats
    n_users: int
    n_items: int
    times: Floats | None

    def __init__(
        self,
        users: IdsLike,
        items: IdsLike,
        labels: Numbers | None = None,
        n_users: int | None = None,
        n_items: int | None = None,
        times: Numbers | None = None,
    ) -> None:
        users = ids("users", users)
        items = ids("items", items, len(users))
        labels = np.ones(len(users)) if labels is None else column("labels", labels, len(users))
        require(is_binary, "labels", "be 0 or 1", labels, "Turn ratings into likes first.")
        object.__setattr__(self, "users", users)
        object.__setattr__(self, "items", items)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "n_users", _size("n_users", n_users, users))
        object.__setattr__(self, "n_items", _size("n_items", n_items, items))
        object.__setattr__(
            self, "times", None if times is None else column("times", times, len(users))
        )

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: npt.NDArray[Any]) -> "Interactions":
        """Some of the rows, by mask or number, of the same world."""
        times = None if self.times is None else self.times[rows]
        return Interactions(
            self.users[rows], self.items[rows], self.labels[rows], self.n_users, self.n_items, times
        )

    def positives(self) -> "Interactions":
        """Only what was liked."""
        return self.take(self.labels == 1)

    def __repr__(self) -> str:
        rows = f"{len(self):,} rows, {int(self.labels.sum()):,} positive"
        return f"Interactions({rows}, {self.n_users:,} users, {self.n_items:,} items)"


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """A model's scores of pairs beside what became of them: all that calibration is fitted on.

    `propensity` is each pair's P(observed), `weights` how many pairs a row stands for (sampled negatives stand for
    many), `groups` the segment it belongs to. Those left out are None.

    >>> ScoreTable(["ann", "bob"], [7, 9], scores=[2.5, -0.3], labels=[1, 0], propensity=[0.5, 0.1]).evidence()
    Evidence(2 rows, positive=2, total=2, kind='ips')
    """

    users: Ids
    items: Ids
    scores: Floats
    labels: Floats
    propensity: Floats | None
    weights: Floats | None
    groups: Ids | None

    def __init__(
        self,
        users: IdsLike,
        items: IdsLike,
        scores: Numbers,
        labels: Numbers,
        propensity: Numbers | None = None,
        weights: Numbers | None = None,
        groups: IdsLike | None = None,
    ) -> None:
        users = ids("users", users)
        rows = len(users)
        scores, labels = column("scores", scores, rows), column("labels", labels, rows)
        require_scores(scores)
        require(is_binary, "labels", "be 0 or 1", labels, "Turn ratings into likes first.")
        object.__setattr__(self, "users", users)
        object.__setattr__(self, "items", ids("items", items, rows))
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(
            self,
            "propensity",
            None if propensity is None else column("propensity", propensity, rows),
        )
        object.__setattr__(
            self, "weights", None if weights is None else column("weights", weights, rows)
        )
        object.__setattr__(self, "groups", None if groups is None else ids("groups", groups, rows))

    def __len__(self) -> int:
        return len(self.users)

    def evidence(self) -> Evidence:
        """What the labels argue for: `ips` where propensities are known, otherwise `naive`."""
        if self.propensity is None:
            return naive(self.labels, weights=self.weights)
        return ips(self.labels, self.propensity, weights=self.weights)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name, as any dataframe library takes them; those left out are absent."""
        names = {"user": self.users, "item": self.items, "score": self.scores, "label": self.labels}
        more = {"propensity": self.propensity, "weight": self.weights, "group": self.groups}
        return names | {name: values for name, values in more.items() if values is not None}

    def __repr__(self) -> str:
        ends = f" over [{self.scores.min():.6g}, {self.scores.max():.6g}]" if len(self) else ""
        return f"ScoreTable({len(self):,} rows, {int(self.labels.sum()):,} positive, scores{ends})"


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The names of a table's rows: models count users and items from 0, people call them otherwise.

    >>> index = Index.of(["bob", "ann", "bob"])
    >>> index.names, index.rows("users", ["bob"])
    (array(['ann', 'bob'], dtype='<U3'), array([1]))
    """

    names: Ids
    """Sorted, each once."""

    @classmethod
    def of(cls, *names: IdsLike) -> "Index":
        """Every name that occurs."""
        return cls(np.unique(np.concatenate([ids("ids", some) for some in names])))

    def __len__(self) -> int:
        return len(self.names)

    def rows(self, what: str, names: IdsLike) -> npt.NDArray[np.intp]:
        """The row number of each name; one that is unknown is an error."""
        wanted = ids(what, names)
        rows, known = self.find(what, wanted)
        if not known.all():
            row = int(np.argmin(known))
            raise DataError(
                f"{what} must be known from training, got {wanted[row].item()!r} at row {row}. Drop such rows."
            )
        return rows

    def find(self, what: str, names: IdsLike) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """The row number of each name, and whether it is known at all."""
        wanted = ids(what, names)
        if len(wanted) and (self.names.dtype.kind in "US") != (wanted.dtype.kind in "US"):
            kinds = f"({self.names.dtype}), got {wanted.dtype}"
            raise DataError(f"{what} must be ids as in training {kinds}. Convert them.")
        rows = np.minimum(np.searchsorted(self.names, wanted), max(len(self.names) - 1, 0))
        return rows, self.names[rows] == wanted


def hash_partitions(names: Iterable[object], shares: int) -> npt.NDArray[np.intp]:
    """A share for each name, the same in any batch, file or run.

    >>> hash_partitions(["ann", "bob"], 5)
    array([2, 4])
    """
    return np.array([zlib.crc32(str(name).encode()) % shares for name in names], dtype=np.intp)


def _size(name: str, given: int | None, seen: Ids) -> int:
    distinct = len(np.unique(seen))
    if given is not None and given < distinct:
        raise DataError(f"{name} must be at least the {distinct:,} ids seen, got {given:,}.")
    return distinct if given is None else given
