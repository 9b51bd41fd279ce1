"""Adapters tested with stand-ins that have a library's interface, and all kinds of padding."""

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from calibrank import DataError, Gaussian
from calibrank.adapters import CrossEncoder, Cutoff, Margin, Probability, RecBole, from_lists
from calibrank.errors import DroppedRowsWarning
from calibrank.tables import Interactions
from tests.adapted import LOWEST, SIGMOID_MAP, World, check_adapter, make_adapted_world


@pytest.fixture(scope="module")
def world() -> World:
    return make_adapted_world()


class WordOverlap:
    """The interface of a cross-encoder: a torch tensor with a gradient, after a sigmoid."""

    def predict(self, pairs: list[tuple[str, str]]) -> Any:
        torch = pytest.importorskip("torch")
        shared = [len(set(query.split()) & set(passage.split())) for query, passage in pairs]
        weight = torch.nn.Parameter(torch.tensor(1.5))
        return torch.sigmoid(weight * torch.tensor(shared, dtype=torch.float32) - 2)[:, None]


def test_cross_encoders_with_declared_probabilities() -> None:
    rng = np.random.default_rng(2)
    words = np.array(list("abcdefgh"))
    pairs = [(" ".join(rng.choice(words, 4)), " ".join(rng.choice(words, 4))) for _ in range(4000)]
    encoder = CrossEncoder(WordOverlap(), Probability())
    scores = encoder.score(pairs)
    truth = expit(0.8 * scores - 0.5)
    labels = (rng.random(4000) < truth).astype(float)
    fitted = Gaussian().fit(scores, labels)
    assert np.abs(fitted.predict(scores) - truth).max() < 0.05
    passages = [("a b c", passage) for passage in ("d", "c a b", "a")]
    kept = Cutoff(fitted, Probability()).kept(encoder.predict(passages)[:, 0])
    places, probabilities = zip(*kept, strict=True)
    assert places == (1, 2, 0)
    assert probabilities[0] > 2 * probabilities[2]
    with pytest.raises(TypeError):
        CrossEncoder(WordOverlap())  # type: ignore[call-arg]  # the missing argument is the test


def test_declared_probabilities_must_lie_between_0_and_1() -> None:
    with pytest.raises(
        DataError, match=r"probabilities must lie strictly between 0 and 1, got 1.0 at row 1"
    ):
        Probability().scores([0.5, 1.0])
    with pytest.raises(DataError, match=r"got 3.5 at row 0"):
        Probability().scores([3.5])
    inside = np.array([0.2, 0.9])
    assert (Margin().scores(inside) == inside).all()  # margins may happen to lie in [0, 1]


def test_the_score_matrix_of_recbole(world: World) -> None:
    """`full_sort_scores` returns a padding item in column 0, and history at -inf."""
    rng = np.random.default_rng(1)
    n_users, n_items = world.train.n_users, world.train.n_items
    matrix = np.full((n_users, n_items + 1), -np.inf, dtype=np.float32)
    matrix[:, 1:] = world.affinity + 0.5 * rng.standard_normal((n_users, n_items))
    matrix[world.train.users, world.train.items + 1] = -np.inf
    tokens = np.r_[-1, np.arange(n_items)]
    check_adapter(RecBole(np.arange(n_users), matrix, tokens), world)
    unmasked = matrix.copy()
    unmasked[:, 0] = 99.0
    lists = RecBole(np.arange(n_users), unmasked, tokens).recommend(SIGMOID_MAP, [3], k=5)
    assert -1 not in lists.items
    scored_item = 1 + int(np.isfinite(matrix[0, 1:]).argmax())
    with pytest.warns(DroppedRowsWarning, match="1 of 2 rows"):
        RecBole([0], matrix[:1]).score_table(Interactions([0, 0], [0, scored_item], [0, 1]))


def test_top_k_lists_of_recbole() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.tensor([[2.0, 1.0, -torch.inf], [0.5, -torch.inf, -torch.inf]])
    lists = from_lists(SIGMOID_MAP, ["ann", "bob"], torch.tensor([[4, 2, 0], [3, 0, 1]]), scores)
    assert lists.items.tolist() == [4, 2, 3]
    assert lists.left_out == 3


@pytest.mark.parametrize(
    ("items", "scores", "kept"),
    [
        ([[5, 3, 0]], [[1.0, 0.5, LOWEST]], [5, 3]),  # the lowest float32
        ([[5, 3, 0]], [[1.0, 0.5, -1.7976931348623157e308]], [5, 3]),  # the lowest float64
        ([[5, 3, 0]], [[1.0, -np.inf, -np.inf]], [5]),  # masked
        ([[5, 3, -1]], [[1.0, 0.5, 0.0]], [5, 3]),  # a negative id
        (
            [[5, 0, 3, 0, 0]],
            [[1.0, 0.5, -0.2, 0.0, 0.0]],
            [5, 0, 3],
        ),  # item 0, then padding with id 0
        ([[5, 0, 3]], [[1.0, 0.0, -0.2]], [5, 0, 3]),  # a real item 0 with score 0
        ([[5, 3, 0]], [[np.nan, np.nan, np.nan]], []),
    ],
)
def test_empty_slots_are_left_out_and_counted(items: list, scores: list, kept: list) -> None:
    lists = from_lists(SIGMOID_MAP, [1], items, scores)
    assert lists.items.tolist() == kept
    assert lists.left_out == len(items[0]) - len(kept)


def test_lists_can_be_cut_at_a_probability() -> None:
    lists = from_lists(SIGMOID_MAP, [1, 2], [[5, 3], [4, 6]], [[2.0, -1.0], [1.0, 0.5]])
    assert lists.above(0.5).items.tolist() == [5, 4, 6]
    assert list(lists.columns()) == ["user", "item", "score", "probability", "rank"]
    message = r"scores must have one row per user \(3 users\), got shape \(2, 2\)"
    with pytest.raises(DataError, match=message):
        from_lists(SIGMOID_MAP, [1, 2, 3], np.ones((3, 2), dtype=int), np.ones((2, 2)))
