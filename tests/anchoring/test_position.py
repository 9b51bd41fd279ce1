"""The top of the list: a world in which selection makes the top overestimated."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit, logit

import calibrank as cr
from calibrank.anchoring import Exploration, choose_pairs, list_ranks
from calibrank.anchoring.position import _rank_knots
from calibrank.maps import PositionTerm
from tests.maps.samples import map_of


class World(NamedTuple):
    """Users by items: scores, ranks in the user's list, true probabilities, and a biased map."""

    scores: np.ndarray
    ranks: np.ndarray
    truth: np.ndarray
    labels: np.ndarray
    biased: cr.CalibrationMap


def selected_world(seed: int = 0, users: int = 1_200, items: int = 100) -> World:
    """Scores understate how much users differ, so that being first in a list says something.

    Of two pairs with one score, the one that is first in its list has a user who likes less.
    """
    rng = np.random.default_rng(seed)
    user = rng.normal(size=(users, 1))
    taste = rng.normal(size=(users, items))
    scores = taste + 0.3 * user + 0.5 * rng.normal(size=(users, items))
    truth = expit(taste + 1.5 * user - 2)
    labels = rng.random((users, items)) < truth
    shown = rng.permutation(users * items)[:6_000]
    biased = cr.Gaussian().fit(scores.ravel()[shown], labels.ravel()[shown])
    ranks = list_ranks(scores.ravel(), np.repeat(np.arange(users), items))
    return World(scores.ravel(), ranks, truth.ravel(), labels.ravel().astype(float), biased)


def anchor_top(
    fitted: cr.CalibrationMap,
    scores: np.ndarray,
    labels: np.ndarray,
    ranks: np.ndarray,
    n: int = 5,
    **options: object,
) -> cr.CalibrationMap:
    terms = [cr.Position("rank", n)]
    return cr.anchor(fitted, scores, labels, {"rank": ranks}, terms=terms, **options)


def choose_at_top(world: World, count: int) -> Exploration:
    """About a third of the labels among the first five, which are 5% of all pairs."""
    importance = np.where(world.ranks <= 5, 6.0, 0.75)
    return choose_pairs(world.biased, world.scores, count, importance=importance, smallest=0.1)


def top_of(fitted: cr.CalibrationMap) -> PositionTerm:
    (term,) = fitted.terms
    assert isinstance(term, PositionTerm)
    return term


def bias_at_top(world: World, p: np.ndarray) -> float:
    at_top = world.ranks <= 5
    return float((p - world.truth)[at_top].mean())


def test_a_map_for_all_pairs_is_too_high_at_the_top_and_one_for_the_top_is_not() -> None:
    world = selected_world()
    one = world.biased.predict(world.scores)
    assert abs((one - world.truth).mean()) < 0.015
    assert bias_at_top(world, one) > 0.05
    chosen = choose_at_top(world, 1_000)
    fitted = anchor_top(
        world.biased,
        world.scores[chosen.rows],
        world.labels[chosen.rows],
        world.ranks[chosen.rows],
        propensity=chosen.propensity,
        population={"score": world.scores, "rank": world.ranks},
    )
    both = fitted.predict(world.scores, {"rank": world.ranks})
    assert abs(bias_at_top(world, both)) < 0.04
    at_top = world.ranks <= 5
    ece = cr.ECE()
    after = ece(both[at_top], world.labels[at_top])
    assert after < ece(one[at_top], world.labels[at_top]) / 2
    # Elsewhere it is the map that is anchored on all labels.
    outside = fitted.without_terms().predict(world.scores[~at_top])
    np.testing.assert_allclose(both[~at_top], outside, rtol=1e-12)
    assert abs((both - world.truth).mean()) < 0.02


def test_uniformly_random_labels_at_all_ranks_correct_the_top() -> None:
    """50 of 1,000 labels are at the top; the level there follows from all of them."""
    world = selected_world(1)
    at_top = world.ranks <= 5
    before = []
    after = []
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(len(world.scores))[:1_000]
        data = world.scores[rows], world.labels[rows]
        one = cr.anchor(world.biased, *data, population=world.scores)
        fitted = anchor_top(world.biased, *data, world.ranks[rows], population=world.scores)
        before.append(bias_at_top(world, one.predict(world.scores)))
        p = fitted.predict(world.scores, {"rank": world.ranks})
        after.append(bias_at_top(world, p))
        outside = fitted.without_terms().predict(world.scores[~at_top])
        np.testing.assert_allclose(p[~at_top], outside, rtol=1e-12)
    assert np.abs(after).mean() < np.abs(before).mean() / 2


def power_law_world(exponent: float, seed: int = 0) -> World:
    """Odds are a power of the rank, and scores have a level per user that says nothing."""
    rng = np.random.default_rng(seed)
    users, items = 400, 300
    scores = (2 * rng.normal(size=(users, 1)) + rng.normal(size=(users, items))).ravel()
    ranks = list_ranks(scores, np.repeat(np.arange(users), items))
    truth = expit(-exponent * np.log(ranks - 0.5))
    truth = truth if exponent else np.full(len(ranks), 0.06)
    labels = (rng.random(len(truth)) < truth).astype(float)
    shown = rng.permutation(len(scores))[:6_000]
    biased = cr.Gaussian().fit(scores[shown], labels[shown])
    return World(scores, ranks, truth, labels, biased)


def test_the_top_without_any_label_there_continues_the_power_of_the_rank() -> None:
    world = power_law_world(0.7)
    at_top = world.ranks <= 5
    rest = np.flatnonzero(~at_top)
    rows = np.random.default_rng(1).permutation(rest)[:2_000]
    data = world.scores[rows], world.labels[rows]
    one = cr.anchor(world.biased, *data, population=world.scores)
    fitted = anchor_top(world.biased, *data, world.ranks[rows], population=world.scores)
    before = bias_at_top(world, one.predict(world.scores))
    after = bias_at_top(world, fitted.predict(world.scores, {"rank": world.ranks}))
    assert before < -0.25
    assert abs(after) < -before / 2


def test_a_ranker_that_says_nothing_is_hardly_changed_at_the_top() -> None:
    world = power_law_world(0.0)
    at_top = world.ranks <= 5
    rates = []
    for seed in range(4):
        rows = np.random.default_rng(seed).permutation(len(world.scores))[:1_000]
        data = world.scores[rows], world.labels[rows]
        fitted = anchor_top(world.biased, *data, world.ranks[rows], population=world.scores)
        rates.append(fitted.predict(world.scores[at_top], {"rank": world.ranks[at_top]}).mean())
    # An exponent of 0.6 would give 0.35.
    assert abs(np.mean(rates) - 0.06) < 0.04


def test_the_order_of_the_first_positions_stays() -> None:
    for world in (selected_world(6), power_law_world(0.7)):
        rows = np.random.default_rng(0).permutation(len(world.scores))[:500]
        fitted = anchor_top(world.biased, world.scores[rows], world.labels[rows], world.ranks[rows])
        assert (np.diff(top_of(fitted).by_rank.values) <= 0).all()
        items = int(world.ranks.max())
        p = fitted.predict(world.scores, {"rank": world.ranks}).reshape(-1, items)
        ranks = world.ranks.reshape(-1, items)
        order = np.argsort(ranks, axis=1)[:, :5]
        assert (np.diff(np.take_along_axis(p, order, axis=1), axis=1) <= 1e-12).all()


def test_intervals_follow_the_rank() -> None:
    world = selected_world(4)
    chosen = choose_at_top(world, 400)
    rows = chosen.rows
    fitted = anchor_top(
        world.biased,
        world.scores[rows],
        world.labels[rows],
        world.ranks[rows],
        5,
        propensity=chosen.propensity,
    )
    ends = fitted.sampling_interval([-1e6, 1e6], {"rank": [1, 1]})
    assert 0 <= min(ends.low) <= max(ends.high) <= 1
    low, high = fitted.sampling_interval([2.0, 2.0], {"rank": [1, 6]})
    term = top_of(fitted)
    inside = map_of(term.curve).sampling_interval(2.0)
    shifted = expit(logit(np.array(inside)) + term.by_rank.values[0])
    expected = tuple(shifted.tolist()), fitted.without_terms().sampling_interval(2.0)
    assert (low[0], high[0]) == pytest.approx(tuple(expected[0]))
    assert (low[1], high[1]) == pytest.approx(tuple(expected[1]))
    assert fitted.sampling_interval(2.0, {"rank": 1}) == pytest.approx(expected[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: anchor_top(w.biased, [1.0], [1.0], [0.0]), "column 'rank' must be a rank"),
        (lambda w: anchor_top(w.biased, [1.0], [1.0], [1.0], n=0), "n must"),
    ],
)
def test_errors_say_what_must_be_true(make: object, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        make(selected_world(users=20))


def test_positions_are_fitted_beside_the_other_terms() -> None:
    """Without what these add, the mean probability was .31 where .24 of the labels are 1."""
    rng = np.random.default_rng(1)
    levels, scores = rng.integers(0, 20, 3_000), rng.normal(size=3_000)
    columns = {"country": levels, "x": rng.normal(size=3_000), "rank": rng.integers(1, 4, 3_000)}
    labels = rng.random(3_000) < expit(1.2 * scores - 2.5 + rng.normal(0, 1.5, 20)[levels])
    model = cr.Platt() + cr.Level("country") + cr.Smooth("x")
    start = model.fit(scores, labels, columns)
    fitted = cr.anchor(start, scores, labels, columns, terms=[cr.Position("rank")])
    assert fitted.predict(scores, columns).mean() == pytest.approx(labels.mean(), abs=0.005)


def test_long_tops_have_a_knot_per_rank_at_first_and_fewer_beyond() -> None:
    halves = np.arange(1, 11, 0.5)
    assert _rank_knots(5).tolist() == halves[:10].tolist()
    longer = _rank_knots(100)
    assert longer[:20].tolist() == halves.tolist()
    assert longer[-1] == pytest.approx(100.5)
    assert len(longer) < 70
