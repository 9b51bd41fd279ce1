"""Adapters with real trained models: score table, fitted map, lists with probabilities."""

import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrank import ECE, DataError, Gaussian
from calibrank.adapters import Implicit, LensKit, Probability, Ranker, from_lists
from calibrank.data import RandomSplit
from calibrank.errors import DroppedRowsWarning
from calibrank.propensity import Exposure
from calibrank.tables import Interactions
from tests.adapted import (
    LOWEST,
    SIGMOID_MAP,
    World,
    check_adapter,
    make_adapted_world,
    pair_numbers,
)


@pytest.fixture(scope="module")
def world() -> World:
    return make_adapted_world()


def test_importing_the_adapters_loads_no_library() -> None:
    libraries = (
        "implicit",
        "lenskit",
        "pyspark",
        "xgboost",
        "lightgbm",
        "torch",
        "pandas",
        "pyarrow",
    )
    code = (
        "import sys, calibrank.adapters; "
        f"print([name for name in {libraries!r} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["bpr", "als"])
def test_implicit_factor_models(world: World, name: str) -> None:
    pytest.importorskip("implicit")
    check_adapter(Implicit(trained_implicit(world, name), world.matrix), world)


def trained_implicit(world: World, name: str) -> Any:
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from implicit.nearest_neighbours import CosineRecommender

    settings = {"factors": 8, "random_state": 3, "num_threads": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # implicit's advice about BLAS threads
        if name == "bpr":
            model = BayesianPersonalizedRanking(iterations=60, **settings)
        elif name == "als":
            model = AlternatingLeastSquares(iterations=8, **settings)
        else:
            model = CosineRecommender(K=20, num_threads=1)
        model.fit(world.matrix, show_progress=False)
    return model


def test_history_that_implicit_neighbour_models_score_0_is_left_out(world: World) -> None:
    pytest.importorskip("implicit")
    adapter = Implicit(trained_implicit(world, "cosine"), world.matrix)
    lists = adapter.recommend(SIGMOID_MAP, np.arange(20), k=world.train.n_items)
    in_history = np.asarray(world.matrix[lists.users, lists.items]).ravel()
    assert len(lists) > 500
    assert not in_history.any()
    np.testing.assert_allclose(lists.scores, adapter.score(lists.users, lists.items), rtol=1e-6)


def test_both_kinds_of_padding_of_implicit_are_left_out(world: World) -> None:
    pytest.importorskip("implicit")
    model = trained_implicit(world, "als")
    n_items = world.train.n_items
    items, scores = model.recommend(np.arange(5), world.matrix[:5], N=n_items + 4)
    assert (scores == LOWEST).any(), (
        "implicit no longer marks history by -3.4e38: update the adapter"
    )
    assert (items[:, -4:] == 0).all(), "implicit no longer pads with id 0: update the adapter"
    assert (scores[:, -4:] == 0).all()
    lists = from_lists(SIGMOID_MAP, np.arange(5), items, scores)
    assert len(lists) == 5 * n_items - np.count_nonzero(world.train.users < 5)
    assert lists.left_out == items.size - len(lists)
    assert lists.scores.min() > LOWEST


def test_implicit_with_ids_and_with_unknown_users(world: World) -> None:
    pytest.importorskip("implicit")
    model = trained_implicit(world, "als")
    users = np.array([f"u{row}" for row in range(world.train.n_users)])
    items = np.array([f"i{row}" for row in range(world.train.n_items)])
    named = Implicit(model, world.matrix, users, items)
    plain = Implicit(model, world.matrix)
    assert named.score(["u7"], ["i30"]) == plain.score([7], [30])
    assert np.isnan(named.score(["u7", "nobody"], ["nothing", "i30"])).all()
    with pytest.warns(DroppedRowsWarning, match="1 of 3 rows are left out"):
        table = named.score_table(
            Interactions(["u7", "nobody", "u9"], ["i30", "i30", "i4"], [1, 0, 0])
        )
    assert table.users.tolist() == ["u7", "u9"]
    with pytest.warns(DroppedRowsWarning, match="1 of 2 users get no recommendation"):
        lists = named.recommend(SIGMOID_MAP, ["nobody", "u7"], k=3)
    assert lists.users.tolist() == ["u7"] * 3
    assert lists.items.tolist() == [
        f"i{row}" for row in plain.recommend(SIGMOID_MAP, [7], k=3).items
    ]
    assert lists.left_out == 0


def test_positives_and_sampled_negatives_represent_every_pair_outside_training(
    world: World,
) -> None:
    """From a log of positives, split in two, to true probabilities of pairs outside training."""
    pytest.importorskip("implicit")
    kept, held = RandomSplit(fraction=0.2).divide(world.train)
    halved = world._replace(train=kept)
    adapter = Implicit(trained_implicit(halved, "bpr"), halved.matrix)
    table = adapter.score_table(held, kept, world.propensity)
    is_logged = np.isin(table.users * kept.n_items + table.items, pair_numbers(world.train))
    assert (is_logged == (table.labels == 1)).all()
    assert table.weights.sum() == pytest.approx(kept.n_users * kept.n_items - len(kept))
    fitted = Gaussian().fit(table.scores, table.evidence())
    # `truth` holds half of the pairs outside both logs, so take half of the held-out ones too.
    half = np.random.default_rng(1).random(len(held)) < 0.5
    users = np.r_[world.truth.users, held.users[half]]
    items = np.r_[world.truth.items, held.items[half]]
    labels = np.r_[world.truth.labels, held.labels[half]]
    assert ECE()(fitted.predict(adapter.score(users, items)), labels) < 0.02


def test_a_score_table_of_a_dataframe_is_that_of_its_interactions(world: World) -> None:
    def as_frame(log: Interactions) -> Any:
        columns = {"user": log.users, "item": log.items, "label": log.labels}
        return pytest.importorskip("pandas").DataFrame(columns)

    rng = np.random.default_rng(0)
    model = SimpleNamespace(  # in place of a trained one
        user_factors=np.ones((world.train.n_users, 2)),
        item_factors=rng.normal(size=(world.train.n_items, 2)),
    )
    adapter = Implicit(model, world.matrix)
    for train in (None, world.train):
        held = world.validation if train is None else world.validation.positives()
        expected = adapter.score_table(held, train)
        frame = None if train is None else as_frame(train)
        actual = adapter.score_table(as_frame(held), frame)
        np.testing.assert_array_equal(actual.scores, expected.scores)
        np.testing.assert_array_equal(actual.labels, expected.labels)


def test_negatives_are_sampled_by_id_and_depend_on_the_seed(world: World) -> None:
    pytest.importorskip("implicit")
    users = np.array([f"u{row}" for row in range(world.train.n_users)])
    held = world.validation.positives()
    validation = Interactions(users[held.users], held.items)
    train = Interactions(users[world.train.users], world.train.items)
    adapter = Implicit(trained_implicit(world, "als"), world.matrix, users)
    table = adapter.score_table(validation, train)
    assert table.users[: len(held)].tolist() == users[held.users].tolist()
    assert table.propensity is None
    again = adapter.score_table(validation, train, seed=np.random.default_rng(0))
    np.testing.assert_array_equal(table.scores, again.scores)
    other = adapter.score_table(validation, train, seed=1)
    assert (table.scores != other.scores).any()
    without_positives = Interactions(["u1"], [1], [0])
    with (
        pytest.warns(DroppedRowsWarning, match="1 validation rows with label 0"),
        pytest.raises(DataError, match=r"validation must hold positives .*, got 0 positives"),
    ):
        adapter.score_table(without_positives, train)


def test_a_score_table_of_impressions_keeps_dislikes(world: World) -> None:
    rng = np.random.default_rng(0)
    model = SimpleNamespace(  # in place of a trained one
        user_factors=np.ones((world.train.n_users, 2)),
        item_factors=rng.normal(size=(world.train.n_items, 2)),
    )
    adapter = Implicit(model, world.matrix)
    shown = world.validation
    exposure = Exposure().fit(shown)
    table = adapter.score_table(shown, propensity=exposure)
    assert len(table) == len(shown) > shown.labels.sum()
    weights = 1 / exposure.predict(shown.users, shown.items)
    np.testing.assert_allclose(table.impressions().total, weights)
    # With a train log negatives are sampled, which must not happen silently.
    dislikes = int((shown.labels == 0).sum())
    with pytest.warns(DroppedRowsWarning, match=f"{dislikes:,} validation rows with label 0"):
        sampled = adapter.score_table(shown, world.train)
    assert sampled.labels.sum() == shown.labels.sum()


def test_lenskit_pipelines(world: World) -> None:
    lenskit = pytest.importorskip(
        "lenskit", reason="lenskit is not installed", exc_type=ImportError
    )
    if not hasattr(lenskit, "score"):
        # LensKit before 2025 has another interface.
        pytest.skip(f"lenskit {lenskit.__version__} is older than 2025")  # .ci/run has a newer one
    import pandas as pd
    from lenskit.als import ImplicitMFScorer
    from lenskit.data import from_interactions_df
    from lenskit.pipeline import topn_pipeline

    log = pd.DataFrame({"user_id": world.train.users, "item_id": world.train.items})
    pipeline = topn_pipeline(ImplicitMFScorer(embedding_size=8, epochs=8))
    pipeline.train(from_interactions_df(log))
    check_adapter(LensKit(pipeline), world)
    scores = LensKit(pipeline).score([3, 3, 9999], [5, 9999, 5])
    assert np.isnan(scores).tolist() == [False, True, True]


def features_of(world: World, log: Interactions) -> np.ndarray:
    products = world.user_features[log.users] * world.item_features[log.items, :4]
    return np.column_stack([products, world.item_features[log.items, 4]])


@pytest.mark.parametrize("package", ["lightgbm", "xgboost"])
def test_gradient_boosted_rankers(world: World, package: str) -> None:
    pytest.importorskip(package)
    # Rankers expect the rows of a query one after another.
    labelled = world.truth.take(np.argsort(world.truth.users, kind="stable"))
    train = labelled.take(labelled.users < 150)
    rest = labelled.take(labelled.users >= 150)
    fit = rest.take(rest.users % 2 == 0)
    test = rest.take(rest.users % 2 == 1)
    adapter = Ranker(trained_ranker(package, features_of(world, train), train))
    table = adapter.score_table(features_of(world, fit), fit.labels, fit.users, fit.items)
    fitted = Gaussian().fit(table.scores, table.evidence())
    rows = features_of(world, test)
    assert ECE()(fitted.predict(adapter.score(rows)), test.labels) < 0.03
    lists = adapter.recommend(fitted, rows, test.users, test.items, k=5)
    for user in np.unique(test.users):
        recommended = lists.take(lists.users == user)
        of_user = test.users == user
        best = np.argsort(-adapter.score(rows[of_user]), kind="stable")[:5]
        assert (recommended.items == test.items[of_user][best]).all()
        assert (np.diff(recommended.probabilities) <= 0).all()


def trained_ranker(package: str, rows: np.ndarray, train: Interactions) -> Any:
    _, sizes = np.unique(train.users, return_counts=True)
    if package == "lightgbm":
        from lightgbm import LGBMRanker

        ranker = LGBMRanker(n_estimators=40, num_leaves=8, n_jobs=1, random_state=1, verbose=-1)
        return ranker.fit(rows, train.labels, group=sizes)
    from xgboost import XGBRanker

    ranker = XGBRanker(n_estimators=40, max_depth=3, n_jobs=1, random_state=1)
    return ranker.fit(rows, train.labels, qid=train.users)


def test_the_probabilities_of_a_logistic_booster_become_its_margins(world: World) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = features_of(world, world.truth)
    booster = xgboost.train(
        {"objective": "binary:logistic", "max_depth": 3, "nthread": 1},
        xgboost.DMatrix(rows, world.truth.labels),
        20,
    )
    ranker = Ranker(lambda rows: booster.predict(xgboost.DMatrix(rows)), Probability())
    margin = booster.predict(xgboost.DMatrix(rows), output_margin=True)
    np.testing.assert_allclose(ranker.score(rows), margin, atol=1e-4)
    with pytest.raises(DataError, match="got a classifier"):
        Ranker(xgboost.XGBClassifier())
