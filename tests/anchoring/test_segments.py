"""Anchoring by segment: right with many labels, no worse than one map with few."""

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.maps import GroupedMap


def draw(rows: int, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, true probabilities and segments, whose log odds differ by `spread`."""
    rng = np.random.default_rng(seed)
    segment = rng.integers(0, 12, rows)
    shifts = spread * np.random.default_rng(99).normal(size=12)
    scores = rng.normal(size=rows)
    return scores, expit(scores - 2 + shifts[segment]), segment


@pytest.fixture(scope="module")
def biased() -> cr.CalibrationMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    return cr.Gaussian().fit(scores, rng.random(4_000) < expit(1.5 * scores))


def losses(biased: cr.CalibrationMap, labels: int, spread: float) -> np.ndarray:
    """Excess log loss of the single anchored map and of the one by segment, for several samples."""
    test_scores, truth, test_segment = draw(20_000, spread, 7)
    found = []
    for seed in range(3):
        scores, chances, segment = draw(labels, spread, 100 + seed)
        drawn = np.random.default_rng(seed).random(labels) < chances
        single = cr.anchor(biased, scores, drawn)
        grouped = cr.anchor_by_segment(biased, scores, drawn, {"s": segment}, "s")
        by_segment = grouped.predict(test_scores, {"s": test_segment})
        p = np.array([single.predict(test_scores), by_segment])
        found.append(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean(axis=1))
    return np.array(found)


def test_with_segments_that_differ_it_is_better_the_more_labels_there_are(
    biased: cr.CalibrationMap,
) -> None:
    few = losses(biased, 300, 1.0)
    many = losses(biased, 3_000, 1.0)
    assert (many[:, 1] < many[:, 0] - 0.02).all()
    assert few[:, 1].mean() < few[:, 0].mean()


def test_with_segments_that_do_not_differ_it_costs_next_to_nothing(
    biased: cr.CalibrationMap,
) -> None:
    excess = np.diff(losses(biased, 300, 0.0)).ravel()
    assert excess.mean() < 0.002


def test_it_starts_from_the_anchored_map_and_keeps_its_record(biased: cr.CalibrationMap) -> None:
    scores, chances, segment = draw(500, 1.0, 3)
    labels = np.random.default_rng(0).random(500) < chances
    fitted = cr.anchor_by_segment(biased, scores, labels, {"s": segment}, "s")
    assert isinstance(fitted, GroupedMap)
    assert fitted.record.base_rate_source == "random labels"
    expected = cr.anchor(biased, scores, labels).predict(scores)
    np.testing.assert_array_equal(fitted.predict(scores), expected)
    again = cr.anchor_by_segment(fitted, scores, labels, {"s": segment}, "s")
    assert again.columns == ("s",)


def test_labels_of_an_uneven_policy_are_weighted(biased: cr.CalibrationMap) -> None:
    """Positives of segment 0 were shown four times as often as its negatives."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=20_000)
    segment = rng.integers(0, 2, 20_000)
    labels = rng.random(20_000) < expit(scores - 1)
    propensity = np.where((segment == 0) & ~labels, 0.25, 1.0)
    shown = rng.random(20_000) < propensity
    fitted = cr.anchor_by_segment(
        biased, scores[shown], labels[shown], {"s": segment[shown]}, "s", propensity[shown]
    )
    probabilities = fitted.predict([0.0, 0.0], {"s": [0, 1]})
    np.testing.assert_allclose(probabilities, expit(-1), atol=0.03)
