"""A small world of people with tastes as a dataset: a biased log, a test at random, and the true propensities."""

import numpy as np

from calibrank._logit import expit
from calibrank.data.dataset import Dataset
from calibrank.errors import DataError
from calibrank.tables import Index, Interactions


def simulate(n_users: int = 300, n_items: int = 200, shown: int = 20, seed: int = 0) -> Dataset:
    """Everyone likes what suits them, sees what is popular, and logs what they saw and like.

    The test shows `shown` items drawn uniformly to each user. `propensity` is the true P(shown).

    >>> simulate(50, 40, 10).test
    Interactions(500 rows, 106 positive, 50 users, 40 items)
    """
    if not 1 <= shown <= n_items:
        raise DataError(f"shown must be 1 to the {n_items} items there are, got {shown}.")
    rng = np.random.default_rng([seed, 77])
    people, things = rng.standard_normal((n_users, 4)), rng.standard_normal((n_items, 4))
    quality = rng.standard_normal(n_items)
    liked = rng.random((n_users, n_items)) < expit(people @ things.T + 0.7 * quality - 2.5)
    propensity = np.broadcast_to(
        expit(1.2 * quality + 0.8 * rng.standard_normal(n_items) - 0.5), liked.shape
    )
    seen = rng.random(liked.shape) < propensity
    rows, columns = np.nonzero(seen & liked)
    drawn = np.argsort(rng.random(liked.shape), axis=1)[:, :shown]
    users = np.repeat(np.arange(n_users), shown)
    test = Interactions(
        users, drawn.ravel(), liked[users, drawn.ravel()].astype(np.float64), n_users, n_items
    )
    return Dataset(
        "synthetic",
        Interactions(rows, columns, None, n_users, n_items),
        test,
        Index(np.arange(n_users)),
        Index(np.arange(n_items)),
        people,
        np.column_stack([things, quality]),
        np.array(propensity),
    )
