"""Tables: the columns that datasets, propensities and models exchange."""

from dataclasses import dataclass

import numpy as np

from calibrank.arrays import Floats, Ids, IdsLike, Numbers, column, ids, is_binary, require
from calibrank.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Who met what, and whether they liked it (label 1).

    Unlisted pairs are unobserved. `n_users` and `n_items` are the sizes of the world the log was drawn from; by
    default, the users and items seen.

    >>> Interactions(users=["ann", "bob"], items=[7, 9], labels=[1, 0])
    Interactions(2 rows, 1 positive, 2 users, 2 items)
    """

    users: Ids
    items: Ids
    labels: Floats
    n_users: int
    n_items: int

    def __init__(
        self,
        users: IdsLike,
        items: IdsLike,
        labels: Numbers | None = None,
        n_users: int | None = None,
        n_items: int | None = None,
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

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        rows = f"{len(self):,} rows, {int(self.labels.sum()):,} positive"
        return f"Interactions({rows}, {self.n_users:,} users, {self.n_items:,} items)"


def _size(name: str, given: int | None, seen: Ids) -> int:
    distinct = len(np.unique(seen))
    if given is not None and given < distinct:
        raise DataError(f"{name} must be at least the {distinct:,} ids seen, got {given:,}.")
    return distinct if given is None else given
