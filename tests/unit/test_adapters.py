"""Other people's models, trained for real: to a score table, to a map, and back to lists with probabilities."""

import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from calibrank import ECE, DataError, Gaussian, Interactions, Isotonic, LeftOutWarning, PiledScoresWarning, Sigmoid
from calibrank.adapters import (
    Cornac,
    CrossEncoder,
    Implicit,
    LensKit,
    Margin,
    PairModel,
    Probability,
    Ranker,
    RecBole,
    from_lists,
    from_nested,
)
from calibrank.data.simulated import simulate
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
            (np.ones(len(self.train), dtype=np.float32), (self.train.users, self.train.items)), shape
        )


@pytest.fixture(scope="module")
def world() -> World:
    made = simulate(320, 120, shown=120, seed=4)
    people, things = np.unique(made.train.users), np.unique(made.train.items)  # whoever logged something

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
    validation = Interactions(later.users, later.items, later.labels * seen, len(people), len(things))
    features = made.user_features[people], made.item_features[things]
    return World(train, validation, everything.take(new & ~half), known, *features)


def cells(log: Interactions) -> np.ndarray:
    return log.users * log.n_items + log.items


def check_to_the_end(adapter: PairModel, world: World, bound: float = 0.03) -> None:
    """From a biased log to probabilities of the truth, and to lists without padding or history."""
    table = adapter.score_table(world.validation, propensity=world.propensity)
    assert len(table) == len(world.validation)
    fitted = Gaussian().fit(table.scores, table.evidence())
    assert ECE()(fitted.predict(adapter.score(world.truth.users, world.truth.items)), world.truth.labels) < bound
    n_items = world.train.n_items
    lists = adapter.recommend(fitted, np.arange(20), k=n_items)
    history = set(zip(world.train.users.tolist(), world.train.items.tolist(), strict=True))
    shown = list(zip(lists.users.tolist(), lists.items.tolist(), strict=True))
    assert len(set(shown)) == len(shown) == 20 * n_items - np.count_nonzero(world.train.users < 20)
    assert not history & set(shown)
    assert np.abs(lists.scores).max() < 1e6
    np.testing.assert_allclose(lists.scores, adapter.score(lists.users, lists.items), rtol=1e-4, atol=1e-5)
    for user in range(20):
        mine = lists.take(lists.users == user)
        assert (np.diff(mine.probabilities) <= 1e-12).all()
        assert (mine.ranks == np.arange(len(mine)) + 1).all()
    short = adapter.recommend(fitted, np.arange(20), k=3)
    assert (short.items == lists.items[lists.ranks <= 3]).all()


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
            "bpr": lambda: BayesianPersonalizedRanking(factors=8, iterations=60, random_state=3, num_threads=1),
            "als": lambda: AlternatingLeastSquares(factors=8, iterations=8, random_state=3, num_threads=1),
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
    with pytest.warns(LeftOutWarning, match="1 of 3 rows are left out"):
        table = named.score_table(Interactions(["u7", "nobody", "u9"], ["i30", "i30", "i4"], [1, 0, 0]))
    assert table.users.tolist() == ["u7", "u9"]
    with pytest.warns(LeftOutWarning, match="1 of 2 users get no recommendation"):
        lists = named.recommend(AS_IS, ["nobody", "u7"], k=3)
    assert lists.users.tolist() == ["u7"] * 3
    assert lists.items.tolist() == [f"i{row}" for row in plain.recommend(AS_IS, [7], k=3).items]
    assert lists.left_out == 0


def test_positives_alone_are_set_against_pairs_in_neither_log(world: World) -> None:
    pytest.importorskip("implicit")
    model = trained_implicit(world, "als")
    users = np.array([f"u{row}" for row in range(world.train.n_users)])
    held, train = world.validation.positives(), world.train
    names = Interactions(users[held.users], held.items), Interactions(users[train.users], train.items)
    table = Implicit(model, world.matrix, users).score_table(*names)
    pairs = {(user, item) for log in names for user, item in zip(log.users.tolist(), log.items.tolist(), strict=True)}
    drawn = table.labels == 0
    assert not pairs & set(zip(table.users[drawn].tolist(), table.items[drawn].tolist(), strict=True))
    rate = table.evidence().positive.sum() / table.evidence().total.sum()
    assert rate == pytest.approx(len(pairs) / (train.n_users * train.n_items), rel=0.06)


def test_lenskit(world: World) -> None:
    lenskit = pytest.importorskip("lenskit", reason="lenskit is not installed", exc_type=ImportError)
    if not hasattr(lenskit, "score"):
        pytest.skip(f"lenskit {lenskit.__version__} is older than 2025")
    import pandas as pd
    from lenskit.als import ImplicitMFScorer
    from lenskit.data import from_interactions_df
    from lenskit.pipeline import topn_pipeline

    pipeline = topn_pipeline(ImplicitMFScorer(embedding_size=8, epochs=8))
    pipeline.train(from_interactions_df(pd.DataFrame({"user_id": world.train.users, "item_id": world.train.items})))
    check_to_the_end(LensKit(pipeline), world)
    strangers = LensKit(pipeline).score([3, 3, 9999], [5, 9999, 5])
    assert np.isnan(strangers).tolist() == [False, True, True]


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    import shutil

    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not here")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own, at its start
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = (
            sql.SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
        )
        return builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()


@pytest.fixture(scope="module")
def als(spark, world: World):
    import pyarrow as pa
    from pyspark.ml.recommendation import ALS

    log = pa.table({"who": world.train.users, "what": world.train.items, "liked": np.ones(len(world.train))})
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


def test_nested_recommendations_in_pandas_and_broken_ones() -> None:
    pd = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")
    lists = [[{"item": 4, "rating": 2.0}, {"item": 2, "rating": 0.5}], None, [{"item": 3, "rating": float("nan")}]]
    frame = pd.DataFrame(pa.table({"user": ["ann", "bob", "eve"], "recommendations": lists}).to_pandas())
    told = from_nested(AS_IS, zip(frame["user"], frame["recommendations"], strict=True))
    assert told.users.tolist() == ["ann", "ann"]
    assert told.items.tolist() == [4, 2]
    assert told.left_out == 1
    with pytest.raises(DataError, match=r"entries must be an item and a score, got \(4, 2.0, 'x'\)"):
        from_nested(AS_IS, [("ann", [(4, 2.0, "x")])])


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

    return XGBRanker(n_estimators=40, max_depth=3, n_jobs=1, random_state=1).fit(rows, learn.labels, qid=learn.users)


def test_a_logistic_booster_is_declared(world: World) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = features_of(world, world.truth)
    booster = xgboost.train(
        {"objective": "binary:logistic", "max_depth": 3, "nthread": 1}, xgboost.DMatrix(rows, world.truth.labels), 20
    )
    sure = Ranker(lambda some: booster.predict(xgboost.DMatrix(some)), Probability())
    margin = booster.predict(xgboost.DMatrix(rows), output_margin=True)
    np.testing.assert_allclose(sure.score(rows), margin, atol=1e-4)
    with pytest.raises(DataError, match="got a classifier"):
        Ranker(xgboost.XGBClassifier())


class Overlap:
    """A cross-encoder's interface: torch out, a sigmoid at its end."""

    def predict(self, pairs: list[tuple[str, str]]) -> Any:
        torch = pytest.importorskip("torch")
        shared = [len(set(query.split()) & set(passage.split())) for query, passage in pairs]
        weight = torch.nn.Parameter(torch.tensor(1.5))
        return torch.sigmoid(weight * torch.tensor(shared, dtype=torch.float32) - 2)[:, None]


def test_cross_encoders_say_what_they_give() -> None:
    rng = np.random.default_rng(2)
    words = np.array(list("abcdefgh"))
    pairs = [(" ".join(rng.choice(words, 4)), " ".join(rng.choice(words, 4))) for _ in range(4000)]
    encoder = CrossEncoder(Overlap(), Probability())
    scores = encoder.score(pairs)
    truth = expit(0.8 * scores - 0.5)
    labels = (rng.random(4000) < truth).astype(float)
    with pytest.warns(PiledScoresWarning):  # words in common are few: many share the lowest score
        table = encoder.score_table(pairs, labels)
    fitted = Gaussian().fit(table.scores, table.evidence())
    assert np.abs(fitted.predict(scores) - truth).max() < 0.05
    lists = encoder.recommend(fitted, "a b c", ["d", "c a b", "a"])
    assert lists.items.tolist() == ["c a b", "a", "d"]
    assert lists.probabilities[0] > 2 * lists.probabilities[2]
    with pytest.raises(TypeError):
        CrossEncoder(Overlap())  # type: ignore[call-arg]


def test_declared_probabilities_must_be_some() -> None:
    with pytest.raises(DataError, match=r"probabilities must lie strictly between 0 and 1, got 1.0 at row 1"):
        Probability().scores([0.5, 1.0])
    with pytest.raises(DataError, match=r"got 3.5 at row 0"):
        Probability().scores([3.5])
    inside = np.array([0.2, 0.9])
    assert (Margin().scores(inside) == inside).all(), "scores in [0, 1] by accident are left alone"


def test_clipped_ratings_are_said() -> None:
    rng = np.random.default_rng(0)
    raw = 4 + rng.standard_normal(20_000)
    labels = (rng.random(20_000) < expit(3 * (raw - 4.5))).astype(float)
    queries = np.arange(20_000)
    clipping = Ranker(SimpleNamespace(predict=lambda rows: np.clip(rows[:, 0], 1, 5)))  # as CatBoost's: `predict` alone
    with pytest.warns(PiledScoresWarning, match=r"of 20,000 rows have the highest score, 5: if the model clips"):
        table = clipping.score_table(raw[:, None], labels, queries)
    pile = labels[raw > 5].mean()
    level = {fitter.name: fitter.fit(table.scores, labels).predict([5.0])[0] for fitter in (Gaussian(), Isotonic())}
    assert abs(level["Isotonic"] - pile) < 1e-3
    assert abs(level["Gaussian"] - pile) > 0.01, "the warning's advice has lost its reason"
    assert len(Ranker(lambda rows: rows[:, 0]).score_table(raw[:, None], labels, queries)) == 20_000, "and no warning"


def test_recbole_matrix(world: World) -> None:
    """What `full_sort_scores` returns: a padding item in column 0, history at -inf."""
    rng = np.random.default_rng(1)
    n_users, n_items = world.train.n_users, world.train.n_items
    taste = world.user_features @ world.item_features[:, :4].T + world.item_features[:, 4]
    matrix = np.full((n_users, n_items + 1), -np.inf, dtype=np.float32)
    matrix[:, 1:] = taste + 0.5 * rng.standard_normal(taste.shape)
    matrix[world.train.users, world.train.items + 1] = -np.inf
    tokens = np.r_[-1, np.arange(n_items)]
    check_to_the_end(RecBole(np.arange(n_users), matrix, tokens), world)
    leaky = np.where(np.isneginf(matrix[:, :1]), 99.0, matrix)  # a padding column that someone forgot to mask
    assert -1 not in RecBole(np.arange(n_users), leaky, tokens).recommend(AS_IS, [3], k=5).items
    with pytest.warns(LeftOutWarning, match="1 of 2 rows"):
        RecBole([0], matrix[:1]).score_table(
            Interactions([0, 0], [0, 1 + int(np.isfinite(matrix[0, 1:]).argmax())], [0, 1])
        )


def test_recbole_top_k_output() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.tensor([[2.0, 1.0, -torch.inf], [0.5, -torch.inf, -torch.inf]])
    lists = from_lists(AS_IS, ["ann", "bob"], torch.tensor([[4, 2, 0], [3, 0, 1]]), scores)
    assert lists.items.tolist() == [4, 2, 3]
    assert lists.left_out == 3


def test_cornac_by_its_interface(world: World) -> None:
    """`score(row)` gives what was learnt in training; `rank` and `rate` are not asked."""
    n_users, n_items = world.train.n_users, world.train.n_items
    taste = world.user_features @ world.item_features[:, :4].T + world.item_features[:, 4]
    order = np.random.default_rng(5).permutation(n_items)  # cornac numbers items as they come
    model = SimpleNamespace(
        uid_map={user: user for user in range(n_users)},
        iid_map={int(item): row for row, item in enumerate(order)} | {9000: n_items},
        score=lambda row: taste[row, order],
    )
    adapter = Cornac(model, history=world.train)
    check_to_the_end(adapter, world)
    assert np.isnan(adapter.score([3, 9999], [9000, 3])).all()


@pytest.mark.parametrize(
    ("items", "scores", "kept"),
    [
        ([[5, 3, 0]], [[1.0, 0.5, LOWEST]], [5, 3]),  # float32's lowest
        ([[5, 3, 0]], [[1.0, 0.5, -1.7976931348623157e308]], [5, 3]),  # float64's lowest
        ([[5, 3, 0]], [[1.0, -np.inf, -np.inf]], [5]),  # masked
        ([[5, 3, -1]], [[1.0, 0.5, 0.0]], [5, 3]),  # an id that is none
        ([[5, 0, 3, 0, 0]], [[1.0, 0.5, -0.2, 0.0, 0.0]], [5, 0, 3]),  # id 0 once as an item, then as padding
        ([[5, 0, 3]], [[1.0, 0.0, -0.2]], [5, 0, 3]),  # id 0 and score 0 are fine in themselves
        ([[5, 3, 0]], [[np.nan, np.nan, np.nan]], []),
    ],
)
def test_empty_slots(items: list, scores: list, kept: list) -> None:
    lists = from_lists(AS_IS, [1], items, scores)
    assert lists.items.tolist() == kept
    assert lists.left_out == len(items[0]) - len(kept)


def test_lists_are_cut_where_they_stop_being_worth_it() -> None:
    lists = from_lists(AS_IS, [1, 2], [[5, 3], [4, 6]], [[2.0, -1.0], [1.0, 0.5]])
    assert lists.above(0.5).items.tolist() == [5, 4, 6]
    assert list(lists.columns()) == ["user", "item", "score", "probability", "rank"]
    with pytest.raises(DataError, match=r"scores must have a row for each of 3 users, got shape \(2, 2\)"):
        from_lists(AS_IS, [1, 2, 3], np.ones((3, 2), dtype=int), np.ones((2, 2)))
