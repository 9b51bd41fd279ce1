"""Scorers: pair scores, saving and loading."""

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


def test_no_users_give_empty_results_of_the_right_shape():
    scorer = InnerProduct(np.ones((2, 3), np.float32), np.ones((5, 3), np.float32), {})
    nobody = np.empty(0, dtype=int)
    assert scorer.score(nobody, nobody).shape == (0,)
    assert scorer.score_all(nobody).shape == (0, 5)


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
    with (tmp_path / "model.npz").open("r+b") as file:
        file.seek(200)
        file.write(b"xyz")
    with pytest.raises(DataError, match=r"must be a model that calibrank saved, got Bad CRC-32"):
        SavedModel.load(tmp_path)
    with pytest.raises(DataError, match=r"must be a saved model, got no model\.npz"):
        SavedModel.load(tmp_path / "nowhere")
