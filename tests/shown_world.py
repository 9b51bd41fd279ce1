"""Worlds with a log of impressions that users chose, with known truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrank._internal.arguments import seeded
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.tables import Interactions

# The stream of the seed that this module draws from.
_SHOWN_STREAM = 78
# Standard deviation of log activity between users, and its mean over the catalogue.
_ACTIVITY_SD = 0.8
_MEAN_ACTIVITY = 0.08
_LEAST_ACTIVITY, _MOST_ACTIVITY = 0.01, 0.9


@dataclass(frozen=True, slots=True, eq=False)
class ShownWorld:
    """A log of impressions, and scores and true probabilities of all pairs of users and items."""

    log: Interactions
    scores: Floats
    """One row per user, one column per item."""
    probabilities: Floats

    @property
    def rate(self) -> float:
        """The base rate over all pairs."""
        return float(self.probabilities.mean())


def make_shown_world(
    n_users: int = 1_000,
    n_items: int = 250,
    rate: float = 0.1,
    selection: float = 1.0,
    activity_effect: float = 0.0,
    seed: int | np.random.Generator = 0,
) -> ShownWorld:
    """Draw a log in which users see what they like, what is popular, and as much as they want.

    `selection` is how much a user prefers to see what the user likes, relative to the noise of the
    choice. `activity_effect` is how much the log odds of liking rise per standard deviation of log
    activity: 0 is the assumption of `assume_rate_from_activity`.
    """
    rng = seeded(seed, _SHOWN_STREAM)
    activity = rng.standard_normal(n_users)
    popularity = 0.5 * rng.standard_normal(n_items)
    quality = 0.5 * popularity + 0.5 * rng.standard_normal(n_items)
    affinity = 0.6 * np.outer(rng.standard_normal(n_users), rng.standard_normal(n_items))
    affinity = affinity + quality + activity_effect * activity[:, None]
    probabilities = expit(affinity + _intercept(affinity, rate))
    liked = rng.random(affinity.shape) < probabilities
    # A model knows part of the affinity, and nothing of the chance in a label.
    scores = affinity + 0.5 * rng.standard_normal(affinity.shape)
    utility = selection * liked + 0.5 * popularity + 0.3 * affinity
    utility = utility + rng.standard_normal(affinity.shape)
    mean_activity = _MEAN_ACTIVITY * np.exp(_ACTIVITY_SD * activity - _ACTIVITY_SD**2 / 2)
    counts = rng.binomial(n_items, mean_activity.clip(_LEAST_ACTIVITY, _MOST_ACTIVITY))
    ranks = np.argsort(np.argsort(-utility, axis=1), axis=1)
    shown = ranks < np.maximum(counts, 1)[:, None]
    users, items = np.nonzero(shown)
    log = Interactions(users, items, liked[shown].astype(np.float64), n_users, n_items)
    return ShownWorld(log, scores, probabilities)


def _intercept(affinity: Floats, rate: float) -> float:
    """The intercept at which the mean probability is the base rate, by bisection."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        if expit(affinity + middle).mean() < rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2
