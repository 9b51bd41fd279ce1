"""Proposition 2: the bias of the inverse-propensity risk if propensities are wrong."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.data.score_world import make_world
from calibrank.propensity import propensity_bias


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5])
def test_the_bias_is_that_of_the_risk_with_wrong_propensities(factor: float) -> None:
    """The true preferences are known here, so the risk that should have been found is too."""
    world = make_world(400_000, seed=3)
    probabilities = world.probability(world.scores) ** 1.3
    given = np.minimum(world.propensity / factor, 1)
    actual = world.propensity / given
    evidence = cr.ips(world.labels, given)
    risk = cr.LogLoss()(probabilities, evidence)
    ideal = cr.LogLoss()(probabilities, world.preferences)
    found = propensity_bias(probabilities, evidence, actual)
    assert found == pytest.approx(risk - ideal, abs=0.012)
    if factor == 0.5:
        assert found < -0.05


def test_the_sign_is_that_of_the_proof() -> None:
    """Below one half, propensities that are too small make the risk look larger."""
    evidence = cr.ips([1, 0], [0.5, 0.5])
    assert propensity_bias([0.2, 0.2], evidence, 2) > 0
    assert propensity_bias([0.2, 0.2], evidence, 0.5) < 0
    assert propensity_bias([0.8, 0.8], evidence, 2) < 0
    # By hand: (1 - 1 / 2) * (1 / 0.5) * log(0.8 / 0.2) / 2.
    assert propensity_bias([0.2, 0.2], evidence, 2) == pytest.approx(np.log(4) / 2)
    assert propensity_bias([0.2, 0.2], evidence, [2, 9]) == pytest.approx(np.log(4) / 2)


def test_right_propensities_have_no_bias_even_where_a_prediction_is_certain() -> None:
    assert propensity_bias([0.0, 1.0], cr.ips([1, 0], [0.5, 0.5]), 1) == 0
    assert propensity_bias([0.5, 1.0], cr.ips([1, 0], [0.5, 0.5]), 3) == 0


def test_pooled_rows_have_the_same_bias() -> None:
    evidence = cr.ips([1, 1, 0], [0.5, 0.25, 1])
    pooled = cr.Evidence([6.0, 0.0], [2.0, 1.0])
    rows = propensity_bias([0.3, 0.3, 0.6], evidence, 3)
    assert propensity_bias([0.3, 0.6], pooled, 3) == pytest.approx(rows)


@pytest.mark.parametrize("factor", [0, -1.0, np.nan, [1.0, 0.0]])
def test_a_factor_must_be_positive(factor: object) -> None:
    with pytest.raises(cr.DataError, match="factor must be finite and above 0, got"):
        propensity_bias([0.3, 0.3], cr.ips([1, 0], [0.5, 0.5]), factor)
