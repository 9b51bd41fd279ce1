"""Synthetic data: the simulated dataset and the world of scored pairs."""

import numpy as np
import pytest

from calibrank.data import GammaScores, make_world, simulate
from calibrank.errors import DataError


def test_a_simulated_log_is_biased_by_popularity_and_its_test_set_is_not():
    dataset = simulate(200, 100, 30, seed=1)
    assert dataset.propensity.shape == (200, 100)
    logged = np.bincount(dataset.train.items, minlength=100)
    assert np.corrcoef(logged, dataset.propensity[0])[0, 1] > 0.5
    tested = np.bincount(dataset.test.items, minlength=100)
    assert abs(np.corrcoef(tested, dataset.propensity[0])[0, 1]) < 0.3
    with pytest.raises(DataError, match="shown must be a whole number, 1 to 10, got 11"):
        simulate(20, 10, 11)


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: simulate(20, 10, 5, seed=seed).test.items,
        lambda seed: make_world(200, seed=seed).scores,
        lambda seed: make_world(200).redraw(seed).scores,
        lambda seed: GammaScores().draw(np.ones(50), seed),
    ],
    ids=["simulate", "make_world", "redraw", "draw"],
)
def test_synthetic_data_depend_on_the_seed_which_may_be_a_generator(draw):
    np.testing.assert_array_equal(draw(3), draw(3))
    assert (draw(3) != draw(4)).any()
    first = draw(np.random.default_rng(3))
    np.testing.assert_array_equal(first, draw(np.random.default_rng(3)))
    rng = np.random.default_rng(3)
    np.testing.assert_array_equal(first, draw(rng))
    assert (first != draw(rng)).any()  # the generator moves on
