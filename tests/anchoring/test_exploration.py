"""Which pairs to label: known probabilities, strata that are all reached, and unbiased results."""

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.anchoring import choose_pairs


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=2_000)


@pytest.fixture(scope="module")
def biased(scores: np.ndarray) -> cr.CalibrationMap:
    """A map that is right about the order and wrong about the base rate."""
    labels = np.random.default_rng(1).random(2_000) < expit(2 * scores - 1)
    return cr.Platt().fit(scores, labels)


def test_pairs_are_chosen_with_the_probabilities_that_are_logged(
    biased: cr.CalibrationMap, scores: np.ndarray
) -> None:
    chosen = np.zeros(len(scores))
    logged = np.zeros(len(scores))
    for seed in range(600):
        rows, propensity = choose_pairs(biased, scores, 100, smallest=0.2, seed=seed)
        assert len(np.unique(rows)) == len(rows) == 100
        chosen[rows] += 1
        logged[rows] = propensity
    seen = logged > 0
    assert seen.mean() > 0.99
    assert logged[seen].max() / logged[seen].min() > 4
    # Groups of pairs with similar probabilities: each mean is exact up to its sampling error.
    groups = np.digitize(logged[seen], np.quantile(logged[seen], np.linspace(0.1, 0.9, 9)))
    for group in range(10):
        some = groups == group
        expected = logged[seen][some].mean()
        error = np.sqrt(expected / 600 / some.sum())
        assert chosen[seen][some].mean() / 600 == pytest.approx(expected, abs=4 * error)


def test_the_weighted_rate_of_the_chosen_is_unbiased(
    biased: cr.CalibrationMap, scores: np.ndarray
) -> None:
    rng = np.random.default_rng(2)
    labels = (rng.random(len(scores)) < expit(scores - 3)).astype(float)
    estimates = []
    for seed in range(300):
        rows, propensity = choose_pairs(biased, scores, 150, seed=seed)
        estimates.append((labels[rows] / propensity).sum() / len(scores))
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert np.mean(estimates) == pytest.approx(labels.mean(), abs=3 * error)


def test_every_segment_gets_its_share_of_every_draw(
    biased: cr.CalibrationMap, scores: np.ndarray
) -> None:
    segments = np.where(np.arange(len(scores)) % 20 == 0, "rare", "common")
    for seed in range(20):
        rows, _ = choose_pairs(biased, scores, 200, segments=segments, smallest=1, seed=seed)
        assert abs((segments[rows] == "rare").sum() - 10) <= 1
        upper = scores[rows] > np.median(scores)
        assert abs(upper.sum() - 100) <= 2


def test_uncertain_and_important_pairs_are_chosen_more_often(
    biased: cr.CalibrationMap, scores: np.ndarray
) -> None:
    everyone = choose_pairs(biased, scores, len(scores) // 2, smallest=0.1)
    probabilities = biased.predict(scores[everyone.rows])
    uncertain = np.abs(probabilities - 0.5) < 0.2
    assert everyone.propensity[uncertain].min() > everyone.propensity[~uncertain].mean()
    importance = np.where(scores > 1, 5.0, 0.0)
    rows, propensity = choose_pairs(biased, scores, 100, importance=importance, smallest=0.1)
    assert (scores[rows] > 1).mean() > 0.7
    assert (scores[rows] <= 1).any()
    assert propensity.max() <= 1


def test_all_pairs_are_chosen_with_certainty(biased: cr.CalibrationMap, scores: np.ndarray) -> None:
    rows, propensity = choose_pairs(biased, scores[:50], 50)
    assert rows.tolist() == list(range(50))
    assert propensity == pytest.approx(1)


def test_a_certain_map_leaves_equal_probabilities() -> None:
    fitted = cr.MinMax().fit([0.0, 1.0], [0, 1])
    _, propensity = choose_pairs(fitted, [0.0, 1.0] * 50, 10)
    assert propensity == pytest.approx(0.1)


def test_anchor_takes_the_logged_probabilities(
    biased: cr.CalibrationMap, scores: np.ndarray
) -> None:
    """Pairs are chosen by what the score does not contain: only weights make up for that."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=40_000)
    young = rng.random(40_000) < 0.5
    labels = (rng.random(40_000) < expit(scores - 3 + 2 * young)).astype(float)
    importance = np.where(young, 10.0, 1.0)
    rows, propensity = choose_pairs(biased, scores, 3_000, importance=importance, smallest=0.1)
    given = scores[rows], labels[rows]
    weighted = cr.anchor(biased, *given, propensity=propensity, population=scores)
    unweighted = cr.anchor(biased, *given, population=scores)
    assert weighted.predict(scores).mean() == pytest.approx(labels.mean(), rel=0.1)
    assert unweighted.predict(scores).mean() > 1.3 * labels.mean()
    with pytest.raises(cr.DataError, match="columns must be a mapping"):
        cr.anchor(biased, *given, propensity)


def test_impressions_count_as_labels_with_their_propensities(
    biased: cr.CalibrationMap, scores: np.ndarray
) -> None:
    """The masses of a few rows sum to the number of all pairs, which nobody labelled."""
    rows, propensity = choose_pairs(biased, scores, 200, smallest=0.1, seed=1)
    shown, labels = scores[rows], (scores[rows] > 1).astype(float)
    wanted = cr.anchor(biased, shown, labels, propensity=propensity)
    anchored = cr.anchor(biased, shown, cr.impressions(labels, propensity))
    assert np.allclose(anchored.curve.values, wanted.curve.values)
    found = anchored.record.anchoring
    assert found is not None
    assert found.effective_labels <= len(rows)


def test_positives_of_a_log_count_for_less_than_labels(
    biased: cr.CalibrationMap, scores: np.ndarray
) -> None:
    """Most positives are unseen, and the others vary more: the interval of the rate is wider."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(30):
        shown = rng.choice(scores, 300)
        truth = expit(shown)
        propensity = rng.uniform(0.05, 0.5, 300)
        evidence = cr.ips((rng.random(300) < truth * propensity).astype(float), propensity)
        found = cr.anchor(biased, shown, evidence, population=scores).record.anchoring
        assert found is not None
        assert found.rate_range is not None
        low, high = found.rate_range
        held += low < expit(scores).mean() < high
    assert held >= 26


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must"),
        ({"count": 5_000}, "count must"),
        ({"count": 5, "smallest": 0.0}, "smallest must"),
        ({"count": 5, "importance": [1.0]}, "importance must"),
        ({"count": 5, "importance": [-1.0] * 2_000}, "importance must"),
        ({"count": 5, "segments": ["a"]}, "segments must"),
    ],
)
def test_invalid_arguments_are_refused(
    biased: cr.CalibrationMap, scores: np.ndarray, options: dict[str, object], message: str
) -> None:
    with pytest.raises(cr.DataError, match=message):
        choose_pairs(biased, scores, **options)
