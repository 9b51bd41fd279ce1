"""Propensity estimators: the laws, and the formula of each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression

import calibrank as cr
from calibrank.data.score_world import make_world
from calibrank.metrics import CalibrationInTheLarge
from calibrank.propensity import (
    Known,
    Logistic,
    NaiveBayes,
    Popularity,
    Propensity,
    Random,
    Uniform,
)
from calibrank.tables import Interactions
from tests.checks import PROPENSITY_LAWS, Log
from tests.members import PROPENSITIES, PROPENSITY_SIZE

FEATURES = np.random.default_rng(0).normal(size=(9, 2))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Interactions in which the last item never occurs and the first row is a positive."""
    ids = st.integers(0, PROPENSITY_SIZE - 1)
    items = st.integers(0, PROPENSITY_SIZE - 2)
    rows = draw(st.lists(st.tuples(ids, items, st.integers(0, 1)), min_size=1, max_size=40))
    users, items, labels = np.array(rows).T
    labels[0] = 1
    log = Interactions(users, items, labels, PROPENSITY_SIZE, PROPENSITY_SIZE)
    return Log(log, PROPENSITY_SIZE, PROPENSITY_SIZE)


@pytest.mark.parametrize("member", PROPENSITIES, ids=lambda member: type(member).__name__)
@pytest.mark.parametrize("law", PROPENSITY_LAWS)
@given(log=logs())
def test_public_laws_hold(member: Propensity, law: str, log: Log) -> None:
    PROPENSITY_LAWS[law](member, log)


@pytest.mark.parametrize("member", PROPENSITIES, ids=lambda member: type(member).__name__)
def test_a_dataframe_is_fitted_like_its_interactions(member: Propensity) -> None:
    users, items, labels = [0, 1, 2], [0, 1, 1], [1, 0, 1]
    frame = pytest.importorskip("pandas").DataFrame({"user": users, "item": items, "label": labels})
    expected = member.fit(Interactions(users, items, labels)).predict(users, items)
    np.testing.assert_array_equal(member.fit(frame).predict(users, items), expected)
    with pytest.raises(cr.DataError, match="must have columns user, item and label, got 'a', 'b'"):
        member.fit(frame[["user", "item"]].set_axis(["a", "b"], axis=1))


def test_popularity_is_the_formula_of_the_paper() -> None:
    items = np.repeat(["a", "b", "c"], [100, 25, 0])
    fitted = Popularity().fit(Interactions(np.arange(125), items))
    np.testing.assert_allclose(fitted.predict([0, 0, 0], ["a", "b", "c"]), [1, 0.5, 0.1])


def test_popularity_counts_positives_only() -> None:
    log = Interactions([1, 2, 3, 4], ["a", "b", "b", "b"], [1, 1, 0, 0])
    np.testing.assert_allclose(Popularity().fit(log).predict([1, 1], ["a", "b"]), [1, 1])
    with pytest.raises(cr.DataError, match="must hold a positive to estimate popularity, got none"):
        Popularity().fit(Interactions([1], [1], [0]))


def test_the_formula_takes_the_maximum_of_another_engine() -> None:
    calls = []

    def maximum(values: np.ndarray, bound: float) -> np.ndarray:
        calls.append(bound)
        return np.maximum(values, bound)

    propensity = Popularity(clip=0.2).propensity(np.array([1.0, 0.01]), maximum)
    np.testing.assert_allclose(propensity, [1, 0.2])
    assert calls == [0.2]


def test_uniform_and_random_ignore_the_labels() -> None:
    log = Interactions([1, 2], ["a", "b"], [0, 0])
    assert Uniform(0.3).fit(log).predict([1], ["a"]) == pytest.approx(0.3)
    pairs = (np.repeat([1, 2, 3], 3), np.tile(["a", "b", "new"], 3))
    unlabelled = Interactions([1, 2], ["a", "b"])
    first = Random(clip=0.2).fit(log).predict(*pairs)
    np.testing.assert_array_equal(first, Random(clip=0.2).fit(unlabelled).predict(*pairs))


def test_random_draws_one_uniform_propensity_per_pair() -> None:
    log = Interactions([0], [0])
    users, items = np.divmod(np.arange(20_000), 100)
    values = Random(seed=3, clip=1e-9).fit(log).predict(users, items)
    assert len(np.unique(values)) == len(values)
    assert stats.kstest(values, "uniform").pvalue > 0.01
    table = values.reshape(200, 100)
    # Neither users nor items share a level, as they would with one propensity per item.
    assert table.mean(axis=0).std() == pytest.approx((1 / 12 / 200) ** 0.5, rel=0.25)
    assert table.mean(axis=1).std() == pytest.approx((1 / 12 / 100) ** 0.5, rel=0.25)
    clipped = Random(seed=3, clip=0.1).fit(log).predict(users, items)
    np.testing.assert_array_equal(clipped, np.maximum(values, 0.1))
    named = Random(seed=3).fit(log).predict(users.astype(str), items.astype(str))
    assert len(np.unique(named)) > 15_000


def test_a_random_seed_may_be_a_generator() -> None:
    log = Interactions(np.arange(20), np.arange(20))
    asked = np.arange(20)
    rng = np.random.default_rng(3)
    first = Random(rng).fit(log).predict(asked, asked)
    second = Random(rng).fit(log).predict(asked, asked)
    np.testing.assert_array_equal(first, Random(3).fit(log).predict(asked, asked))
    assert not np.array_equal(first, second)


def test_naive_bayes_divides_observed_positives_by_the_unbiased_rate() -> None:
    log = Interactions([1, 2], [1, 1], [1, 0], n_users=4, n_items=5)
    assert NaiveBayes([1, 0, 0, 0, 0]).fit(log).predict([1], [1]) == pytest.approx(0.25)


def test_naive_bayes_has_one_propensity_per_rating_value() -> None:
    rng = np.random.default_rng(0)
    shape = (300, 200)
    ratings = rng.choice([1, 2, 4, 5], p=[0.5, 0.2, 0.2, 0.1], size=shape)
    truth = {1: 0.02, 2: 0.05, 4: 0.1, 5: 0.4}
    propensity = np.vectorize(truth.get)(ratings)
    users, items = np.nonzero(rng.random(shape) < propensity)
    logged = ratings[users, items]
    log = Interactions(users, items, logged > 3, *shape, ratings=logged)
    unbiased = ratings.ravel()[::7]
    fitted = NaiveBayes(unbiased > 3, ratings=unbiased).fit(log)
    estimated = fitted.of_ratings(list(truth))
    np.testing.assert_allclose(estimated, list(truth.values()), rtol=0.15)
    # Of pairs without a rating it knows what the other kind of naive Bayes does.
    of_positives = NaiveBayes(unbiased > 3).fit(log)
    np.testing.assert_allclose(
        fitted.of_ratings([np.nan, 3]), of_positives.predict([0] * 2, [0] * 2)
    )
    np.testing.assert_allclose(of_positives.of_ratings([4, 5]), fitted.predict([0] * 2, [0] * 2))


def test_naive_bayes_by_rating_needs_a_log_with_ratings() -> None:
    log = Interactions([1], [1])
    with pytest.raises(cr.DataError, match=r"must have ratings .*, got none"):
        NaiveBayes([1, 0], ratings=[5, 1]).fit(log)
    with pytest.raises(cr.DataError, match="ratings must have one value per row"):
        NaiveBayes([1, 0], ratings=[5])


def test_naive_bayes_corrects_the_base_rate() -> None:
    world = make_world(200_000, seed=1)
    unbiased = world.redraw(2).preferences[::50]
    fitted = NaiveBayes(unbiased).fit(world.interactions())
    propensity = fitted.predict(world.users, world.items)
    calibrated = cr.Gaussian().fit(world.scores, cr.ips(world.labels, propensity))
    ratio = CalibrationInTheLarge()(calibrated.predict(world.scores), world.preferences)
    assert ratio == pytest.approx(1, abs=0.1)


def test_logistic_recovers_exposure_from_features() -> None:
    rng = np.random.default_rng(3)
    user_features, item_features = rng.normal(size=(200, 2)), rng.normal(size=(150, 1))
    by_user = user_features @ [0.8, -0.5]
    by_item = item_features @ [1.0]
    truth = 1 / (1 + np.exp(-(-2 + by_user[:, None] + by_item[None])))
    users, items = np.nonzero(rng.random(truth.shape) < truth)
    log = Interactions(users, items, n_users=200, n_items=150)
    fitted = Logistic(user_features, item_features).fit(log)
    all_users, all_items = np.divmod(np.arange(truth.size), 150)
    estimated = fitted.predict(all_users, all_items).reshape(truth.shape)
    assert np.abs(estimated - np.maximum(truth, 0.01)).mean() < 0.01


def test_logistic_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    user_features, item_features = rng.normal(size=(8, 2)), rng.normal(size=(6, 1))
    observed = rng.random((8, 6)) < 0.3
    design = np.hstack([np.repeat(user_features, 6, axis=0), np.tile(item_features, (8, 1))])
    reference = LogisticRegression(C=1 / 5, tol=1e-10).fit(design, observed.ravel())
    fitted = Logistic(user_features, item_features, ridge=5.0).fit(
        Interactions(*np.nonzero(observed))
    )
    propensity = fitted.predict(*np.divmod(np.arange(48), 6))
    np.testing.assert_allclose(propensity, reference.predict_proba(design)[:, 1], rtol=1e-5)


def test_logistic_without_information_predicts_the_observed_fraction() -> None:
    log = Interactions([0, 1, 2], [0, 1, 2], n_users=3, n_items=4)
    fitted = Logistic(np.zeros((3, 1)), np.zeros((4, 1)), ridge=10.0).fit(log)
    assert fitted.predict([0], [0]) == pytest.approx(0.25)


def test_logistic_counts_a_repeated_pair_once() -> None:
    features, asked = np.random.default_rng(0).normal(size=(5, 1)), np.arange(5)
    estimator = Logistic(features, features)
    once = estimator.fit(Interactions([0, 1, 3], [0, 2, 4]))
    twice = estimator.fit(Interactions([0, 0, 1, 3], [0, 0, 2, 4]))
    np.testing.assert_allclose(once.predict(asked, asked), twice.predict(asked, asked))


def test_logistic_and_known_reject_unknown_ids() -> None:
    log = Interactions([0], [0])
    with pytest.raises(cr.DataError, match="items must be numbers below 9"):
        Logistic(FEATURES, FEATURES).fit(log).predict([0], [9])
    with pytest.raises(cr.DataError, match="users must be numbers below 9, got <U1"):
        Logistic(FEATURES, FEATURES).fit(Interactions(["a"], [0]))
    with pytest.raises(cr.DataError, match="users must be numbers below 2"):
        Known([[0.1, 0.2], [0.3, 0.4]]).fit(log).predict([2], [0])
