"""Propensities from Bayes' rule and a few unbiased labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._internal.validation import Floats, Ids, Numbers, column, require_role
from calibrank.errors import DataError
from calibrank.propensity.propensity import FittedPropensity, require_probability
from calibrank.tables import Frame, Interactions, as_interactions


@dataclass(frozen=True, slots=True, eq=False)
class NaiveBayes:
    """P(observed | positive) = P(positive, observed) / P(positive) (Schnabel et al. 2016).

    P(positive) is the mean of `unbiased`: labels of randomly shown pairs. Without ratings all
    positives get the same propensity, at least `clip`: it corrects the base rate and does not
    change the shape. With the `ratings` of the same pairs there is one propensity per rating value,
    P(rating, observed) / P(rating), which `fitted.of_ratings` returns.

    >>> log = Interactions(users=[1, 2], items=[1, 1], n_users=4, n_items=5, ratings=[4, 5])
    >>> NaiveBayes(unbiased=[1, 0, 0, 0, 0]).fit(log).predict([1], [1])
    array([0.5])
    >>> fitted = NaiveBayes(unbiased=[1, 1, 1, 0, 0], ratings=[4, 4, 5, 1, 2]).fit(log)
    >>> fitted.of_ratings([4, 5])
    array([0.125, 0.25 ])
    """

    unbiased: Numbers
    clip: float = 0.001
    ratings: Numbers | None = None

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)
        labels = column("unbiased labels", self.unbiased)
        require_role("label", "unbiased labels", labels)
        if not labels.any():
            raise DataError(
                "unbiased labels", "hold a positive", f"none in {len(labels)}", "Collect more."
            )
        if self.ratings is not None:
            column("ratings", self.ratings, len(labels))

    def fit(self, interactions: Interactions | Frame) -> ByRating:
        """Divide the log's positives per pair by the unbiased positive rate, by rating value."""
        log = as_interactions(interactions)
        pairs = log.n_users * log.n_items
        positive_and_observed = log.labels.sum() / pairs
        positive = np.mean(column("unbiased labels", self.unbiased))
        of_positives = float(np.clip(positive_and_observed / positive, self.clip, 1))
        if self.ratings is None:
            return ByRating(np.zeros(0), np.zeros(0), of_positives)
        if log.ratings is None:
            raise DataError(
                "interactions",
                "have ratings to compare with the unbiased ones",
                "none",
                "Pass Interactions(..., ratings=...), or no ratings to NaiveBayes.",
            )
        return self._by_rating(log.ratings, pairs, of_positives)

    def _by_rating(self, logged: Floats, pairs: int, of_positives: float) -> ByRating:
        unbiased = column("ratings", self.ratings if self.ratings is not None else [])
        values = np.unique(unbiased)
        propensity = np.zeros(len(values))
        for place, value in enumerate(values):
            value_and_observed = np.count_nonzero(logged == value) / pairs
            propensity[place] = value_and_observed / np.mean(unbiased == value)
        return ByRating(values, np.clip(propensity, self.clip, 1), of_positives)


@dataclass(frozen=True, slots=True, eq=False)
class ByRating(FittedPropensity):
    """One propensity per rating value; `predict` knows no ratings and gives that of a positive."""

    ratings: Floats
    """Distinct values, sorted; empty if propensities do not depend on the rating."""
    values: Floats
    of_positives: float

    def of_ratings(self, ratings: Numbers) -> Floats:
        """P(observed) of pairs with these ratings; other values, and NaN, are taken as positives.

        A pair that was not rated is no positive, so that its propensity has no effect.
        """
        asked = column("ratings", ratings)
        if not len(self.ratings):
            return np.full(len(asked), self.of_positives)
        places = np.minimum(np.searchsorted(self.ratings, asked), len(self.ratings) - 1)
        return np.where(self.ratings[places] == asked, self.values[places], self.of_positives)

    def _predict(self, users: Ids, items: Ids) -> Floats:
        return np.full(len(users), self.of_positives)
