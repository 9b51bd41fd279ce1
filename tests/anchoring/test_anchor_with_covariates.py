"""Anchoring with covariates: few labels change little, and many find the truth."""

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.maps import AdditiveMap

BIASED = cr.Gaussian().fit(
    np.linspace(-3, 3, 400), (np.random.default_rng(9).random(400) < 0.5).astype(float)
)


def world(rows: int, seed: int, effect: float) -> tuple[np.ndarray, np.ndarray, dict, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores, x = rng.normal(size=(2, rows))
    country = rng.choice(["NL", "DE", "BE"], rows)
    truth = expit(scores - 1 + effect * x + effect * (country == "NL"))
    labels = (rng.random(rows) < truth).astype(float)
    return scores, labels, {"x": x, "country": country}, truth


def excess(truth: np.ndarray, p: np.ndarray) -> float:
    """Expected log loss beyond that of the truth."""
    cross = -(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean()
    return float(cross + (truth * np.log(truth) + (1 - truth) * np.log1p(-truth)).mean())


def test_many_labels_find_the_truth() -> None:
    scores, labels, features, _ = world(6_000, 0, 1.0)
    fitted = cr.anchor_with_covariates(BIASED, scores, labels, features, ("x", "country"))
    assert isinstance(fitted, AdditiveMap)
    assert fitted.record.base_rate_source == "random labels"
    asked, _, other, truth = world(5_000, 1, 1.0)
    assert excess(truth, fitted.predict(asked, other)) < 0.003
    assert excess(truth, fitted.predict(asked)) > 0.05


def test_features_without_an_effect_do_no_harm_with_few_labels() -> None:
    differences = []
    asked, _, other, truth = world(4_000, 99, 0.0)
    for seed in range(8):
        scores, labels, features, _ = world(150, seed, 0.0)
        one = cr.anchor(BIASED, scores, labels)
        with_features = cr.anchor_with_covariates(
            BIASED, scores, labels, features, ("x", "country")
        )
        p = with_features.predict(asked, other)
        differences.append(excess(truth, p) - excess(truth, one.predict(asked)))
    assert np.mean(differences) < 0.004


def test_propensities_of_exploration_weigh_the_labels() -> None:
    """Where x matters, pairs were shown six times as often: weights undo it."""
    rng = np.random.default_rng(3)
    scores, x = rng.normal(size=(2, 12_000))
    matters = rng.random(12_000) < 0.5
    labels = (rng.random(12_000) < expit(scores - 1 + 1.5 * x * matters)).astype(float)
    propensity = np.where(matters, 0.6, 0.1)
    shown = rng.random(12_000) < propensity
    data = scores[shown], labels[shown], {"x": x[shown]}, "x"

    def slope(fitted: AdditiveMap) -> float:
        return float(
            np.subtract(*np.interp([1, -1], fitted.terms[0].knots, fitted.terms[0].values))
        )

    weighted = slope(cr.anchor_with_covariates(BIASED, *data, propensity=propensity[shown]))
    unweighted = slope(cr.anchor_with_covariates(BIASED, *data))
    everyone = slope(cr.anchor_with_covariates(BIASED, scores, labels, {"x": x}, "x"))
    assert weighted == pytest.approx(everyone, abs=0.25)
    assert unweighted > everyone + 0.5


def test_of_a_map_with_covariates_the_map_of_scores_is_anchored() -> None:
    scores, labels, features, _ = world(800, 4, 0.5)
    first = cr.Covariates("x", cr.Gaussian()).fit(scores, labels, features)
    again = cr.anchor_with_covariates(first, scores, labels, features, "x")
    alone = cr.anchor_with_covariates(first.base, scores, labels, features, "x")
    np.testing.assert_allclose(
        again.predict(scores, features), alone.predict(scores, features), rtol=1e-12
    )


def test_numbers_can_be_declared_categories() -> None:
    scores, labels, _, _ = world(500, 5, 0.0)
    codes = {"zip": np.arange(500) % 3}
    fitted = cr.anchor_with_covariates(BIASED, scores, labels, codes, "zip", categories=("zip",))
    assert fitted.categories == {"zip": ("0", "1", "2")}
    with pytest.raises(cr.DataError, match="among the columns"):
        cr.anchor_with_covariates(BIASED, scores, labels, codes, "zip", categories=("x",))


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_of_one_kind_are_fitted(label: float) -> None:
    """30 labels of rare positives often hold none."""
    scores, labels, features, _ = world(30, 0, 1.0)
    fitted = cr.anchor_with_covariates(
        BIASED, scores, np.full_like(labels, label), features, ("x", "country")
    )
    p = fitted.predict(scores, features)
    assert (np.abs(p - label) < 0.5).all()
