"""Propensities from Bayes' rule and a few unbiased labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._validation import Numbers, column, require_role
from calibrank.errors import DataError
from calibrank.propensity.propensity import Constant, require_probability
from calibrank.tables import Frame, Interactions, as_interactions


@dataclass(frozen=True, slots=True, eq=False)
class NaiveBayes:
    """P(observed | positive) = P(positive, observed) / P(positive) (Schnabel et al. 2016).

    P(positive) is the mean of `unbiased`: labels of randomly shown pairs. All positives get the
    same propensity, at least `clip`: it corrects the base rate and does not change the shape.

    >>> log = Interactions(users=[1, 2], items=[1, 1], n_users=4, n_items=5)
    >>> NaiveBayes(unbiased=[1, 0, 0, 0, 0]).fit(log).predict([1], [1])
    array([0.5])
    """

    unbiased: Numbers
    clip: float = 0.001

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)
        labels = column("unbiased labels", self.unbiased)
        require_role("label", "unbiased labels", labels)
        if not labels.any():
            raise DataError(
                f"unbiased labels must hold a positive, got none in {len(labels)}. Collect more."
            )

    def fit(self, interactions: Interactions | Frame) -> Constant:
        """Divide the log's positives per pair by the unbiased positive rate."""
        log = as_interactions(interactions)
        pairs = log.n_users * log.n_items
        positive_and_observed = log.labels.sum() / pairs
        positive = np.mean(column("unbiased labels", self.unbiased))
        propensity = np.clip(positive_and_observed / positive, self.clip, 1)
        return Constant(float(propensity))
