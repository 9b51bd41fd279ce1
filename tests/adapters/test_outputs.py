"""Models known by their output or interface alone, and every way that lists are padded."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from calibrank import (
    ClippedScoresWarning,
    DataError,
    DroppedRowsWarning,
    Gaussian,
    Interactions,
    Isotonic,
)
from calibrank.adapters import (
    Cornac,
    CrossEncoder,
    Margin,
    Probability,
    Ranker,
    RecBole,
    from_lists,
    from_nested,
)
from tests.adapted import AS_IS, LOWEST, World, check_to_the_end, make_adapted_world


@pytest.fixture(scope="module")
def world() -> World:
    return make_adapted_world()


def test_nested_recommendations_in_pandas_and_broken_ones() -> None:
    pd = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")
    lists = [
        [{"item": 4, "rating": 2.0}, {"item": 2, "rating": 0.5}],
        None,
        [{"item": 3, "rating": float("nan")}],
    ]
    frame = pd.DataFrame(
        pa.table({"user": ["ann", "bob", "eve"], "recommendations": lists}).to_pandas()
    )
    told = from_nested(AS_IS, zip(frame["user"], frame["recommendations"], strict=True))
    assert told.users.tolist() == ["ann", "ann"]
    assert told.items.tolist() == [4, 2]
    assert told.left_out == 1
    with pytest.raises(
        DataError, match=r"entries must be an item and a score, got \(4, 2.0, 'x'\)"
    ):
        from_nested(AS_IS, [("ann", [(4, 2.0, "x")])])


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
    with pytest.warns(ClippedScoresWarning):  # words in common are few: many share the lowest score
        table = encoder.score_table(pairs, labels)
    fitted = Gaussian().fit(table.scores, table.evidence())
    assert np.abs(fitted.predict(scores) - truth).max() < 0.05
    lists = encoder.recommend(fitted, "a b c", ["d", "c a b", "a"])
    assert lists.items.tolist() == ["c a b", "a", "d"]
    assert lists.probabilities[0] > 2 * lists.probabilities[2]
    with pytest.raises(TypeError):
        CrossEncoder(Overlap())  # type: ignore[call-arg]


def test_declared_probabilities_must_be_some() -> None:
    with pytest.raises(
        DataError, match=r"probabilities must lie strictly between 0 and 1, got 1.0 at row 1"
    ):
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
    clipping = Ranker(
        SimpleNamespace(predict=lambda rows: np.clip(rows[:, 0], 1, 5))
    )  # as CatBoost's: `predict` alone
    with pytest.warns(
        ClippedScoresWarning, match=r"of 20,000 rows have the highest score, 5: if the model clips"
    ):
        table = clipping.score_table(raw[:, None], labels, queries)
    pile = labels[raw > 5].mean()
    level = {
        fitter.name: fitter.fit(table.scores, labels).predict([5.0])[0]
        for fitter in (Gaussian(), Isotonic())
    }
    assert abs(level["Isotonic"] - pile) < 1e-3
    assert abs(level["Gaussian"] - pile) > 0.01, "the warning's advice has lost its reason"
    assert (
        len(Ranker(lambda rows: rows[:, 0]).score_table(raw[:, None], labels, queries)) == 20_000
    ), "and no warning"


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
    leaky = np.where(
        np.isneginf(matrix[:, :1]), 99.0, matrix
    )  # a padding column that someone forgot to mask
    assert -1 not in RecBole(np.arange(n_users), leaky, tokens).recommend(AS_IS, [3], k=5).items
    with pytest.warns(DroppedRowsWarning, match="1 of 2 rows"):
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
        (
            [[5, 0, 3, 0, 0]],
            [[1.0, 0.5, -0.2, 0.0, 0.0]],
            [5, 0, 3],
        ),  # id 0 once as an item, then as padding
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
    with pytest.raises(
        DataError, match=r"scores must have a row for each of 3 users, got shape \(2, 2\)"
    ):
        from_lists(AS_IS, [1, 2, 3], np.ones((3, 2), dtype=int), np.ones((2, 2)))
