"""Datasets: a biased training log and, where there is one, a test set of randomly exposed pairs."""

from __future__ import annotations

from dataclasses import dataclass

from calibrank._internal.validation import Floats
from calibrank.tables import Index, Interactions


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A training log and a test set with users and items numbered from 0.

    `users` and `items` hold the original ids. `train` is the biased log; `test` holds pairs that
    were exposed at random, or is None. Features and the published P(observed) are None where the
    dataset does not provide them.
    """

    name: str
    train: Interactions
    test: Interactions | None
    users: Index
    items: Index
    user_features: Floats | None = None
    item_features: Floats | None = None
    propensity: Floats | None = None
    log: str = "positives"
    """What the log holds: "positives", or "impressions" if label 0 means shown and not liked."""

    def __repr__(self) -> str:
        return f"Dataset({self.name}: train {self.train!r}, test {self.test!r})"
