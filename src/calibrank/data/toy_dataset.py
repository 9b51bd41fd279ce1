"""A simulated *dataset* to train models on: a biased log, an unbiased test set and propensities.

It holds no scores. For scored pairs with known true probabilities see `score_world.make_world`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import seeded, whole
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats
from calibrank.data.dataset import Dataset
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions

# Every pair is simulated: 10 GB of matrices.
_MOST_PAIRS = 10**8
# The stream of the seed that this module draws from.
_STREAM = 77
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
            got=f"{n_users:,} and {n_items:,}",
            remedy="Simulate fewer.",
        )
    shown = whole("shown", shown, 1, n_items, "A user has at most one impression per item.")
    rng = seeded(seed, _STREAM)
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
