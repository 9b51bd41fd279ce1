"""A world whose truth is known, for models of others to be trained in, and what every adapter must do there."""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import sparse

from calibrank import ECE, Gaussian, Interactions, Sigmoid
from calibrank.adapters import PairModel
from calibrank.data.toy_dataset import simulate
from calibrank.propensity import Known

LOWEST = float(np.finfo(np.float32).min)
AS_IS = Sigmoid().fit([0.0, 1.0], [0, 1])
"""A map that is known without fitting."""


class World(NamedTuple):
    train: Interactions
    validation: Interactions
    """A second biased log, of pairs not in the first: what was shown by the same propensities and liked."""
    truth: Interactions
    """Other pairs not in the first log, with what their users truly like."""
    propensity: Known
    user_features: np.ndarray
    item_features: np.ndarray

    @property
    def matrix(self) -> sparse.csr_matrix:
        shape = (self.train.n_users, self.train.n_items)
        return sparse.csr_matrix(
            (np.ones(len(self.train), dtype=np.float32), (self.train.users, self.train.items)),
            shape,
        )


@cache
def make_adapted_world() -> World:
    made = simulate(320, 120, shown=120, seed=4)
    people, things = (
        np.unique(made.train.users),
        np.unique(made.train.items),
    )  # whoever logged something

    def recoded(log: Interactions) -> Interactions:
        log = log.take(np.isin(log.users, people) & np.isin(log.items, things))
        rows = np.searchsorted(people, log.users), np.searchsorted(things, log.items)
        return Interactions(*rows, log.labels, len(people), len(things))

    train, everything = recoded(made.train), recoded(made.test)
    known = Known(made.propensity[np.ix_(people, things)])
    new = ~np.isin(cells(everything), cells(train))
    rng = np.random.default_rng(8)
    half = rng.random(len(everything)) < 0.5
    later = everything.take(new & half)
    seen = rng.random(len(later)) < known.predict(later.users, later.items)
    validation = Interactions(
        later.users, later.items, later.labels * seen, len(people), len(things)
    )
    features = made.user_features[people], made.item_features[things]
    return World(train, validation, everything.take(new & ~half), known, *features)


def cells(log: Interactions) -> np.ndarray:
    return log.users * log.n_items + log.items


def check_to_the_end(adapter: PairModel, world: World, bound: float = 0.02) -> None:
    """From a biased log to probabilities of the truth, and to lists without padding or history."""
    table = adapter.score_table(world.validation, propensity=world.propensity)
    assert len(table) == len(world.validation)
    fitted = Gaussian().fit(table.scores, table.evidence())
    assert (
        ECE()(
            fitted.predict(adapter.score(world.truth.users, world.truth.items)), world.truth.labels
        )
        < bound
    )
    n_items = world.train.n_items
    lists = adapter.recommend(fitted, np.arange(20), k=n_items)
    history = set(zip(world.train.users.tolist(), world.train.items.tolist(), strict=True))
    shown = list(zip(lists.users.tolist(), lists.items.tolist(), strict=True))
    assert len(set(shown)) == len(shown) == 20 * n_items - np.count_nonzero(world.train.users < 20)
    assert not history & set(shown)
    assert np.abs(lists.scores).max() < 1e6
    np.testing.assert_allclose(
        lists.scores, adapter.score(lists.users, lists.items), rtol=1e-4, atol=1e-5
    )
    for user in range(20):
        mine = lists.take(lists.users == user)
        assert (np.diff(mine.probabilities) <= 1e-12).all()
        assert (mine.ranks == np.arange(len(mine)) + 1).all()
    short = adapter.recommend(fitted, np.arange(20), k=3)
    assert (short.items == lists.items[lists.ranks <= 3]).all()
