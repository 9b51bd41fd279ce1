"""A small synthetic world to train other libraries' models in, and the checks of every adapter."""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import sparse

from calibrank import ECE, Gaussian, Sigmoid
from calibrank.adapters import PairModel
from calibrank.data import simulate
from calibrank.propensity import Known
from calibrank.tables import Interactions

LOWEST = float(np.finfo(np.float32).min)
SIGMOID_MAP = Sigmoid().fit([0.0, 1.0], [0, 1])
"""A map that does not depend on the data it is fitted to."""


class World(NamedTuple):
    train: Interactions
    validation: Interactions
    """A second biased log with the same propensities, of pairs that are not in `train`."""
    truth: Interactions
    """Further pairs that are not in `train`, with their true labels."""
    propensity: Known
    user_features: np.ndarray
    item_features: np.ndarray

    @property
    def matrix(self) -> sparse.csr_matrix:
        """The training log as a user-item matrix of ones."""
        ones = np.ones(len(self.train), dtype=np.float32)
        shape = (self.train.n_users, self.train.n_items)
        return sparse.csr_matrix((ones, (self.train.users, self.train.items)), shape)

    @property
    def affinity(self) -> np.ndarray:
        """The true log odds of every pair, up to a constant."""
        vectors, quality = self.item_features[:, :4], self.item_features[:, 4]
        return self.user_features @ vectors.T + quality


@cache
def make_adapted_world() -> World:
    dataset = simulate(320, 120, shown=120, seed=4)
    # Libraries know only the users and items that occur in the training log.
    users = np.unique(dataset.train.users)
    items = np.unique(dataset.train.items)

    def recoded(log: Interactions) -> Interactions:
        log = log.take(np.isin(log.users, users) & np.isin(log.items, items))
        user_rows = np.searchsorted(users, log.users)
        item_rows = np.searchsorted(items, log.items)
        return Interactions(user_rows, item_rows, log.labels, len(users), len(items))

    train = recoded(dataset.train)
    everything = recoded(dataset.test)
    propensity = Known(dataset.propensity[np.ix_(users, items)])
    is_new = ~np.isin(pair_numbers(everything), pair_numbers(train))
    rng = np.random.default_rng(8)
    in_first_half = rng.random(len(everything)) < 0.5
    later = everything.take(is_new & in_first_half)
    observed = rng.random(len(later)) < propensity.predict(later.users, later.items)
    validation = Interactions(
        later.users, later.items, later.labels * observed, len(users), len(items)
    )
    return World(
        train,
        validation,
        everything.take(is_new & ~in_first_half),
        propensity,
        dataset.user_features[users],
        dataset.item_features[items],
    )


def pair_numbers(log: Interactions) -> np.ndarray:
    return log.users * log.n_items + log.items


def check_adapter(adapter: PairModel, world: World, bound: float = 0.02) -> None:
    """From a biased log to true probabilities, and to lists without padding or history."""
    table = adapter.score_table(world.validation, propensity=world.propensity)
    assert len(table) == len(world.validation)
    fitted = Gaussian().fit(table.scores, table.evidence())
    probabilities = fitted.predict(adapter.score(world.truth.users, world.truth.items))
    assert ECE()(probabilities, world.truth.labels) < bound
    check_lists(adapter, world, fitted)


def check_lists(adapter: PairModel, world: World, fitted) -> None:
    n_items = world.train.n_items
    lists = adapter.recommend(fitted, np.arange(20), k=n_items)
    history = set(zip(world.train.users.tolist(), world.train.items.tolist(), strict=True))
    shown = list(zip(lists.users.tolist(), lists.items.tolist(), strict=True))
    n_history = np.count_nonzero(world.train.users < 20)
    assert len(set(shown)) == len(shown) == 20 * n_items - n_history
    assert not history & set(shown)
    assert np.abs(lists.scores).max() < 1e6
    scores = adapter.score(lists.users, lists.items)
    np.testing.assert_allclose(lists.scores, scores, rtol=1e-4, atol=1e-5)
    for user in range(20):
        own = lists.take(lists.users == user)
        assert (np.diff(own.probabilities) <= 1e-12).all()
        assert (own.ranks == np.arange(len(own)) + 1).all()
    short = adapter.recommend(fitted, np.arange(20), k=3)
    assert (short.items == lists.items[lists.ranks <= 3]).all()
