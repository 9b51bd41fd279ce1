"""Other people's models, trained for real: to a score table, to a map, and back to lists with probabilities."""

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from calibrank import ECE, DataError, DroppedRowsWarning, Gaussian, Interactions
from calibrank.adapters import Implicit, LensKit, Probability, Ranker, from_lists, from_nested
from calibrank.data import RandomSplit
from tests.adapted import AS_IS, LOWEST, World, cells, check_to_the_end, make_adapted_world
from tests.spark_session import session


@pytest.fixture(scope="module")
def world() -> World:
    return make_adapted_world()


def test_no_framework_is_loaded_for_nothing() -> None:
    frameworks = (
        "implicit",
        "lenskit",
        "pyspark",
        "xgboost",
        "lightgbm",
        "torch",
        "pandas",
        "pyarrow",
    )
    code = f"import sys, calibrank.adapters; print([name for name in {frameworks!r} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["bpr", "als"])
def test_implicit(world: World, name: str) -> None:
    pytest.importorskip("implicit")
    check_to_the_end(Implicit(trained_implicit(world, name), world.matrix), world)


def trained_implicit(world: World, name: str) -> Any:
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from implicit.nearest_neighbours import CosineRecommender

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # implicit's own advice about BLAS threads
        model = {
            "bpr": lambda: BayesianPersonalizedRanking(
                factors=8, iterations=60, random_state=3, num_threads=1
            ),
            "als": lambda: AlternatingLeastSquares(
                factors=8, iterations=8, random_state=3, num_threads=1
            ),
            "cosine": lambda: CosineRecommender(K=20, num_threads=1),
        }[name]()
        model.fit(world.matrix, show_progress=False)
    return model


def test_implicit_neighbours_and_their_history_at_score_0(world: World) -> None:
    pytest.importorskip("implicit")
    adapter = Implicit(trained_implicit(world, "cosine"), world.matrix)
    lists = adapter.recommend(AS_IS, np.arange(20), k=world.train.n_items)
    had = np.asarray(world.matrix[lists.users, lists.items]).ravel()
    assert len(lists) > 500
    assert not had.any()
    np.testing.assert_allclose(lists.scores, adapter.score(lists.users, lists.items), rtol=1e-6)


def test_implicit_pads_in_two_ways_and_both_go(world: World) -> None:
    pytest.importorskip("implicit")
    model, n_items = trained_implicit(world, "als"), world.train.n_items
    items, scores = model.recommend(np.arange(5), world.matrix[:5], N=n_items + 4)
    assert (scores == LOWEST).any(), "implicit no longer marks history by -3.4e38: look at it again"
    assert (items[:, -4:] == 0).all(), "implicit no longer pads with id 0: look at it again"
    assert (scores[:, -4:] == 0).all()
    lists = from_lists(AS_IS, np.arange(5), items, scores)
    assert len(lists) == 5 * n_items - np.count_nonzero(world.train.users < 5)
    assert lists.left_out == items.size - len(lists)
    assert lists.scores.min() > LOWEST


def test_implicit_by_names_and_strangers(world: World) -> None:
    pytest.importorskip("implicit")
    model = trained_implicit(world, "als")
    users = np.array([f"u{row}" for row in range(world.train.n_users)])
    items = np.array([f"i{row}" for row in range(world.train.n_items)])
    named, plain = Implicit(model, world.matrix, users, items), Implicit(model, world.matrix)
    assert named.score(["u7"], ["i30"]) == plain.score([7], [30])
    assert np.isnan(named.score(["u7", "nobody"], ["nothing", "i30"])).all()
    with pytest.warns(DroppedRowsWarning, match="1 of 3 rows are left out"):
        table = named.score_table(
            Interactions(["u7", "nobody", "u9"], ["i30", "i30", "i4"], [1, 0, 0])
        )
    assert table.users.tolist() == ["u7", "u9"]
    with pytest.warns(DroppedRowsWarning, match="1 of 2 users get no recommendation"):
        lists = named.recommend(AS_IS, ["nobody", "u7"], k=3)
    assert lists.users.tolist() == ["u7"] * 3
    assert lists.items.tolist() == [f"i{row}" for row in plain.recommend(AS_IS, [7], k=3).items]
    assert lists.left_out == 0


def test_positives_alone_speak_for_every_pair_outside_training(world: World) -> None:
    """A log split in two, positives only: probabilities of the truth for what is not in training."""
    pytest.importorskip("implicit")
    kept, held = RandomSplit(fraction=0.2).divide(world.train)
    halved = world._replace(train=kept)
    adapter = Implicit(trained_implicit(halved, "bpr"), halved.matrix)
    table = adapter.score_table(held, kept, world.propensity)
    logged = np.isin(table.users * kept.n_items + table.items, cells(world.train))
    assert (logged == (table.labels == 1)).all()
    assert table.weights.sum() == pytest.approx(kept.n_users * kept.n_items - len(kept))
    fitted = Gaussian().fit(table.scores, table.evidence())
    some = (
        np.random.default_rng(1).random(len(held)) < 0.5
    )  # the truth holds half of the pairs in no log
    users, items = (
        np.r_[world.truth.users, held.users[some]],
        np.r_[world.truth.items, held.items[some]],
    )
    likes = np.r_[world.truth.labels, held.labels[some]]
    assert ECE()(fitted.predict(adapter.score(users, items)), likes) < 0.02


def test_positives_alone_by_names(world: World) -> None:
    pytest.importorskip("implicit")
    users = np.array([f"u{row}" for row in range(world.train.n_users)])
    held, train = world.validation.positives(), world.train
    adapter = Implicit(trained_implicit(world, "als"), world.matrix, users)
    named = adapter.score_table(
        Interactions(users[held.users], held.items), Interactions(users[train.users], train.items)
    )
    assert named.users[: len(held)].tolist() == users[held.users].tolist()
    assert named.propensity is None
    again = adapter.score_table(
        Interactions(users[held.users], held.items), Interactions(users[train.users], train.items)
    )
    assert (named.scores == again.scores).all()
    with pytest.raises(
        DataError, match="validation must hold positives and leave other pairs, got 0"
    ):
        adapter.score_table(
            Interactions(["u1"], [1], [0]), Interactions(users[train.users], train.items)
        )


def test_lenskit(world: World) -> None:
    lenskit = pytest.importorskip(
        "lenskit", reason="lenskit is not installed", exc_type=ImportError
    )
    if not hasattr(lenskit, "score"):
        pytest.skip(f"lenskit {lenskit.__version__} is older than 2025")
    import pandas as pd
    from lenskit.als import ImplicitMFScorer
    from lenskit.data import from_interactions_df
    from lenskit.pipeline import topn_pipeline

    pipeline = topn_pipeline(ImplicitMFScorer(embedding_size=8, epochs=8))
    pipeline.train(
        from_interactions_df(
            pd.DataFrame({"user_id": world.train.users, "item_id": world.train.items})
        )
    )
    check_to_the_end(LensKit(pipeline), world)
    strangers = LensKit(pipeline).score([3, 3, 9999], [5, 9999, 5])
    assert np.isnan(strangers).tolist() == [False, True, True]


@pytest.fixture(scope="module")
def spark():
    return session()


@pytest.fixture(scope="module")
def als(spark, world: World):
    import pyarrow as pa
    from pyspark.ml.recommendation import ALS

    log = pa.table(
        {"who": world.train.users, "what": world.train.items, "liked": np.ones(len(world.train))}
    )
    settings = ALS(
        rank=6, maxIter=3, implicitPrefs=True, seed=3, userCol="who", itemCol="what", ratingCol="liked",
        coldStartStrategy="drop", numUserBlocks=1, numItemBlocks=1,
    )  # fmt: skip
    return settings.fit(spark.createDataFrame(log))


def test_spark_als(als, world: World) -> None:
    from calibrank.adapters import SparkALS

    adapter = SparkALS(als, history=world.train)
    check_to_the_end(adapter, world)
    assert np.isnan(adapter.score([3, 3, 9999], [5, 9999, 5])).tolist() == [False, True, True]


def test_nested_spark_recommendations_are_laid_flat(als) -> None:
    from calibrank.adapters import flatten

    nested = als.recommendForAllUsers(4).persist()
    rows = nested.orderBy("who").collect()
    here = from_nested(AS_IS, rows)
    there = flatten(nested).orderBy("who", "rank")
    assert there.columns == ["who", "what", "score", "rank"]
    flat = there.toArrow()
    assert flat["who"].to_numpy().tolist() == here.users.tolist()
    assert flat["what"].to_numpy().tolist() == here.items.tolist()
    assert flat["rank"].to_numpy().tolist() == here.ranks.tolist() == [1, 2, 3, 4] * len(rows)
    np.testing.assert_allclose(flat["score"].to_numpy(), here.scores)
    arrow = nested.orderBy("who").toArrow().to_pylist()
    again = from_nested(AS_IS, [(row["who"], row["recommendations"]) for row in arrow])
    assert (again.items == here.items).all()


def features_of(world: World, log: Interactions) -> np.ndarray:
    mixed = world.user_features[log.users] * world.item_features[log.items, :4]
    return np.column_stack([mixed, world.item_features[log.items, 4]])


@pytest.mark.parametrize("package", ["lightgbm", "xgboost"])
def test_gradient_boosted_rankers(world: World, package: str) -> None:
    pytest.importorskip(package)
    judged = world.truth  # clicks of pairs shown at random: a ranker's training set
    order = np.argsort(judged.users, kind="stable")
    judged = judged.take(order)
    half = judged.users < 150
    learn, rest = judged.take(half), judged.take(~half)
    fit, test = rest.take(rest.users % 2 == 0), rest.take(rest.users % 2 == 1)
    adapter = Ranker(trained_ranker(package, features_of(world, learn), learn))
    table = adapter.score_table(features_of(world, fit), fit.labels, fit.users, fit.items)
    fitted = Gaussian().fit(table.scores, table.evidence())
    rows = features_of(world, test)
    assert ECE()(fitted.predict(adapter.score(rows)), test.labels) < 0.03
    lists = adapter.recommend(fitted, rows, test.users, test.items, k=5)
    for user in np.unique(test.users):
        mine, theirs = lists.take(lists.users == user), test.users == user
        best = np.argsort(-adapter.score(rows[theirs]), kind="stable")[:5]
        assert (mine.items == test.items[theirs][best]).all()
        assert (np.diff(mine.probabilities) <= 0).all()


def trained_ranker(package: str, rows: np.ndarray, learn: Interactions) -> Any:
    _, sizes = np.unique(learn.users, return_counts=True)
    if package == "lightgbm":
        from lightgbm import LGBMRanker

        return LGBMRanker(n_estimators=40, num_leaves=8, n_jobs=1, random_state=1, verbose=-1).fit(
            rows, learn.labels, group=sizes
        )
    from xgboost import XGBRanker

    return XGBRanker(n_estimators=40, max_depth=3, n_jobs=1, random_state=1).fit(
        rows, learn.labels, qid=learn.users
    )


def test_a_logistic_booster_is_declared(world: World) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = features_of(world, world.truth)
    booster = xgboost.train(
        {"objective": "binary:logistic", "max_depth": 3, "nthread": 1},
        xgboost.DMatrix(rows, world.truth.labels),
        20,
    )
    sure = Ranker(lambda some: booster.predict(xgboost.DMatrix(some)), Probability())
    margin = booster.predict(xgboost.DMatrix(rows), output_margin=True)
    np.testing.assert_allclose(sure.score(rows), margin, atol=1e-4)
    with pytest.raises(DataError, match="got a classifier"):
        Ranker(xgboost.XGBClassifier())
