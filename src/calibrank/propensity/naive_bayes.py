"""Propensities from Bayes' rule and a few unbiased labels."""

from dataclasses import dataclass

import numpy as np

from calibrank._validation import Numbers, column, is_binary, require
from calibrank.errors import DataError
from calibrank.propensity.propensity import Constant, require_probability
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True, eq=False)
class NaiveBayes:
    """P(observed | liked) = P(liked, observed) / P(liked), with P(liked) from labels of randomly shown pairs.

    (Schnabel et al. 2016.) One propensity for all positives: it sets the base rate right and leaves the shape alone.
    `clip` bounds it from below.

    >>> log = Interactions(users=[1, 2], items=[1, 1], n_users=4, n_items=5)
    >>> NaiveBayes(unbiased=[1, 0, 0, 0, 0]).fit(log).predict([1], [1])
    array([0.5])
    """

    unbiased: Numbers
    clip: float = 0.001

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)
        labels = column("unbiased labels", self.unbiased)
        require(is_binary, "unbiased labels", "be 0 or 1", labels, "Turn ratings into likes first.")
        if not labels.any():
            raise DataError(
                f"unbiased labels must hold a positive, got none in {len(labels)}. Collect more."
            )

    def fit(self, interactions: Interactions) -> Constant:
        cells = interactions.n_users * interactions.n_items
        liked_and_observed = interactions.labels.sum() / cells
        liked = np.mean(column("unbiased labels", self.unbiased))
        return Constant(float(np.clip(liked_and_observed / liked, self.clip, 1)))
