"""Scorers: pair scores, recommendations, saving and loading."""

import os

import numpy as np
import pytest

from calibrank.errors import DataError
from calibrank.models import NCF
from calibrank.scorers import Distance, InnerProduct, NeuMF, SavedModel
from calibrank.tables import Index


@pytest.mark.parametrize("kind", [InnerProduct, Distance, NeuMF])
def test_pair_scores_equal_the_entries_of_the_grid(kind):
    rng = np.random.default_rng(0)
    weights = NCF(dim=4).initial_weights(rng) if kind is NeuMF else {}
    scorer = kind(rng.standard_normal((5, 8)), rng.standard_normal((7, 8)), weights)
    users, items = np.divmod(np.arange(35), 7)
    pairs = scorer.score(users, items).reshape(5, 7)
    np.testing.assert_allclose(pairs, scorer.score_all(np.arange(5)), rtol=1e-10)


def test_recommendations_are_the_best_items_that_are_not_excluded():
    rng = np.random.default_rng(0)
    scorer = InnerProduct(rng.standard_normal((6, 3)), rng.standard_normal((9, 3)), {})
    exclude = (np.array([0] * 8 + [2]), np.array([*range(8), 4]))
    items, scores = scorer.recommend(np.arange(6), 4, exclude)
    grid = scorer.score_all(np.arange(6))
    grid[exclude] = -np.inf
    np.testing.assert_array_equal(items[1:], np.argsort(-grid, axis=1)[1:, :4])
    np.testing.assert_array_equal(items[0], [8, -1, -1, -1])
    assert np.isneginf(scores[0, 1:]).all()
    with pytest.raises(DataError, match="k must be between 1 and the 9 items, got 10"):
        scorer.recommend([0], 10)


def test_no_users_give_empty_results_of_the_right_shape():
    scorer = InnerProduct(np.ones((2, 3), np.float32), np.ones((5, 3), np.float32), {})
    nobody = np.empty(0, dtype=int)
    assert scorer.score(nobody, nobody).shape == (0,)
    assert scorer.score_all(nobody).shape == (0, 5)
    items, scores = scorer.recommend(nobody, 2)
    assert items.shape == scores.shape == (0, 2)


@pytest.mark.parametrize(
    "names",
    [Index.of(range(5, 10)), Index.of(["añé", "b", "c", "d", "🎸"])],
    ids=["integers", "strings"],
)
def test_a_saved_model_loads_unchanged_and_damage_is_an_error(tmp_path, names):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2, 5, 8)).astype(np.float32)
    scorer = NeuMF(*vectors, NCF(dim=4).initial_weights(rng))
    saved = SavedModel(scorer, names, names, {"model": "NCF"})
    saved.save(tmp_path)
    loaded = SavedModel.load(tmp_path)
    np.testing.assert_array_equal(loaded.scorer.score_all(range(5)), scorer.score_all(range(5)))
    np.testing.assert_array_equal(loaded.users.names, names.names)
    assert loaded.about == {"model": "NCF"}
    assert loaded.digest == saved.digest
    with (tmp_path / "weights.safetensors").open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        file.write(b"xyz")
    with pytest.raises(DataError, match=r"must be the file saved with model\.json"):
        SavedModel.load(tmp_path)
    with pytest.raises(DataError, match=r"must be a saved model, got no model\.json"):
        SavedModel.load(tmp_path / "nowhere")
