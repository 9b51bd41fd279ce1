"""Propensity estimators."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrank as cr
from calibrank.data.score_world import make_world
from calibrank.propensity import (
    Known,
    Logistic,
    NaiveBayes,
    Popularity,
    Propensity,
    Random,
    Uniform,
)

FEATURES = np.random.default_rng(0).normal(size=(9, 2))
MEMBERS: list[Propensity] = [
    Popularity(),
    Popularity(power=1.0, clip=0.5),
    Uniform(0.3),
    Random(seed=4),
    NaiveBayes([0, 1, 0, 1]),
    Logistic(FEATURES, FEATURES),
    Known(np.full((9, 9), 0.2)),
]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: type(m).__name__)
@given(pairs=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=40))
def test_every_estimate_is_usable(member: Propensity, pairs: list[tuple[int, int]]) -> None:
    users, items = np.array(pairs).T
    log = cr.Interactions(users, items, n_users=9, n_items=9)
    asked = np.arange(9)
    first = member.fit(log).predict(asked, asked[::-1])
    assert ((first > 0) & (first <= 1)).all()
    np.testing.assert_array_equal(first, member.fit(log).predict(asked, asked[::-1]))
    cr.ips(np.ones(9), first)


def test_popularity_is_the_papers_formula() -> None:
    items = np.repeat(["a", "b", "c"], [100, 25, 0])
    fitted = Popularity().fit(cr.Interactions(np.arange(125), items))
    np.testing.assert_allclose(fitted.predict([0, 0, 0], ["a", "b", "c"]), [1, 0.5, 0.1])


def test_popularity_counts_positives_only() -> None:
    log = cr.Interactions([1, 2, 3, 4], ["a", "b", "b", "b"], [1, 1, 0, 0])
    np.testing.assert_allclose(Popularity().fit(log).predict([1, 1], ["a", "b"]), [1, 1])
    with pytest.raises(cr.DataError, match="must hold a positive to tell popularity"):
        Popularity().fit(cr.Interactions([1], [1], [0]))


def test_naive_bayes_sets_the_base_rate() -> None:
    world = make_world(200_000, seed=1)
    shown_at_random = world.redraw(2).preferences[::50]
    propensity = (
        NaiveBayes(shown_at_random).fit(world.interactions()).predict(world.users, world.items)
    )
    fitted = cr.Gaussian().fit(world.scores, cr.ips(world.labels, propensity))
    ratio = cr.CalibrationInTheLarge()(fitted.predict(world.scores), world.preferences)
    assert ratio == pytest.approx(1, abs=0.1)


def test_logistic_learns_exposure_from_features() -> None:
    rng = np.random.default_rng(3)
    people, things = rng.normal(size=(200, 2)), rng.normal(size=(150, 1))
    logits = -2 + (people @ [0.8, -0.5])[:, None] + (things @ [1.0])[None]
    truth = 1 / (1 + np.exp(-logits))
    users, items = np.nonzero(rng.random(truth.shape) < truth)
    fitted = Logistic(people, things).fit(cr.Interactions(users, items, n_users=200, n_items=150))
    asked_users, asked_items = np.divmod(np.arange(truth.size), 150)
    guessed = fitted.predict(asked_users, asked_items).reshape(truth.shape)
    assert np.abs(guessed - np.maximum(truth, 0.01)).mean() < 0.01


def test_logistic_and_known_refuse_unknown_ids() -> None:
    log = cr.Interactions([0], [0])
    with pytest.raises(cr.DataError, match="items must be numbers below 9"):
        Logistic(FEATURES, FEATURES).fit(log).predict([0], [9])
    with pytest.raises(cr.DataError, match="users must be numbers below 9, got <U1"):
        Logistic(FEATURES, FEATURES).fit(cr.Interactions(["a"], [0]))
    with pytest.raises(cr.DataError, match="users must be numbers below 2"):
        Known([[0.1, 0.2], [0.3, 0.4]]).fit(log).predict([2], [0])
