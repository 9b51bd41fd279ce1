"""A dataset: a biased log to learn from and, where someone paid for it, randomly exposed labels to judge by."""

from dataclasses import dataclass

from calibrank._validation import Floats
from calibrank.tables import Index, Interactions


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Interactions that count users and items from 0; `users` and `items` hold their names.

    `train` is the biased log, `test` pairs that were exposed at random (None if there are none). Features and the
    publisher's own P(observed) come along where a dataset has them.
    """

    name: str
    train: Interactions
    test: Interactions | None
    users: Index
    items: Index
    user_features: Floats | None = None
    item_features: Floats | None = None
    propensity: Floats | None = None

    def __repr__(self) -> str:
        return f"Dataset({self.name}: train {self.train!r}, test {self.test!r})"
