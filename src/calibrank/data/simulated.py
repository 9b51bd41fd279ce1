"""Simulated logs with known truth: a dataset to train on, and impressions that users chose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import real, seeded, whole
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.data.table import Dataset
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

# Every pair is simulated: 10 GB of matrices.
_MOST_PAIRS = 10**8
# The stream of the seed that this module draws from.
_DATASET_STREAM = 77
# Users and items have random vectors of this length: enough structure for a model to learn.
_DIMENSIONS = 4


def simulate(
    n_users: int = 300, n_items: int = 200, shown: int = 20, seed: int | np.random.Generator = 0
) -> Dataset:
    """Simulate a recommender's log: popular items are shown more often, positives are logged.

    The test set holds `shown` items per user, drawn uniformly, with their labels. `propensity` is
    the true P(observed) of every pair.

    >>> simulate(50, 40, 10).test
    Interactions(500 rows, 106 positive, 50 users, 40 items)
    """
    n_users = whole("n_users", n_users, 1)
    n_items = whole("n_items", n_items, 1)
    if n_users * n_items > _MOST_PAIRS:
        raise DataError(
            "n_users times n_items",
            f"be at most {_MOST_PAIRS:,}",
            f"{n_users:,} and {n_items:,}",
            "Simulate fewer.",
        )
    shown = whole("shown", shown, 1, n_items, "A user has at most one impression per item.")
    rng = seeded(seed, _DATASET_STREAM)
    user_vectors = rng.standard_normal((n_users, _DIMENSIONS))
    item_vectors = rng.standard_normal((n_items, _DIMENSIONS))
    quality = rng.standard_normal(n_items)
    # Coefficients chosen so that about one pair in five is liked and two in five are shown.
    affinity = expit(user_vectors @ item_vectors.T + 0.7 * quality - 2.5)
    liked = rng.random((n_users, n_items)) < affinity
    # Good items are shown more often: the log is biased towards them.
    exposure = expit(1.2 * quality + 0.8 * rng.standard_normal(n_items) - 0.5)
    propensity = np.broadcast_to(exposure, liked.shape)
    observed = rng.random(liked.shape) < propensity
    users, items = np.nonzero(observed & liked)
    return Dataset(
        "synthetic",
        Interactions(users, items, None, n_users, n_items),
        _random_test(liked, shown, rng),
        Index(np.arange(n_users)),
        Index(np.arange(n_items)),
        user_vectors,
        np.column_stack([item_vectors, quality]),
        _writable(propensity),
    )


def _random_test(
    liked: npt.NDArray[np.bool_], shown: int, rng: np.random.Generator
) -> Interactions:
    """`shown` items per user, drawn without replacement, with their true labels."""
    n_users, n_items = liked.shape
    items = np.argsort(rng.random(liked.shape), axis=1)[:, :shown].ravel()
    users = np.repeat(np.arange(n_users), shown)
    labels = liked[users, items].astype(np.float64)
    return Interactions(users, items, labels, n_users, n_items)


def _writable(values: Floats) -> Floats:
    # A broadcast array repeats one row in memory and cannot be written to.
    return np.array(values)


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

    >>> world = make_shown_world(100, 50, selection=1.0)
    >>> bool(world.log.labels.mean() > 1.5 * world.rate)
    True
    """
    n_users = whole("n_users", n_users, 1)
    n_items = whole("n_items", n_items, 1)
    rate = real("rate", rate, "(0, 1)")
    selection = real("selection", selection)
    activity_effect = real("activity_effect", activity_effect)
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
