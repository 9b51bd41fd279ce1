"""Anchoring on labels of few queries, and on the scores of a model that was replaced."""

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.anchoring import transfer

QUERIES, SIZE = 400, 20
SPREAD = 0.9
# Of a logistic curve averaged over levels with this spread.
FLATTENED = np.sqrt(1 + 0.346 * SPREAD**2)


@pytest.fixture(scope="module")
def start() -> cr.CalibrationMap:
    """A judge's map: too generous, and too sure."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4000)
    return cr.Platt().fit(scores, rng.random(4000) < expit(0.4 + 1.5 * scores))


def draw(rng: np.random.Generator, queries: int, size: int) -> tuple[np.ndarray, ...]:
    """Labels of queries that have levels of their own."""
    query = np.repeat(np.arange(queries), size)
    scores = rng.normal(size=len(query))
    levels = rng.normal(0, SPREAD, queries)[query]
    labels = rng.random(len(query)) < expit(-0.6 + scores + levels)
    return scores, labels.astype(float), query


@pytest.mark.parametrize(("queries", "size"), [(60, 1), (12, 10), (5, 30)])
def test_intervals_cover_with_query_effects(
    start: cr.CalibrationMap, queries: int, size: int
) -> None:
    """95% intervals of the rate and of probabilities hold in nine of ten worlds or more."""
    rng = np.random.default_rng(queries)
    at = np.array([-1.0, 0.0, 1.0])
    truth = expit((-0.6 + at) / FLATTENED)
    rate = float(expit((-0.6 + rng.normal(size=100_000)) / FLATTENED).mean())
    worlds = 60
    rates, curves, careless = 0, 0.0, 0
    for _ in range(worlds):
        scores, labels, query = draw(rng, queries, size)
        anchored = cr.anchor(start, scores, labels, groups=query)
        low, high = anchored.record.anchoring.rate_range
        rates += low <= rate <= high
        interval = anchored.interval(at)
        curves += float(((interval.low <= truth) & (truth <= interval.high)).mean())
        low, high = cr.anchor(start, scores, labels).record.anchoring.rate_range
        careless += low <= rate <= high
    assert rates >= 0.88 * worlds
    assert curves >= 0.88 * worlds
    if size == 30:
        # Without groups, labels of one query count as if they were unrelated.
        assert careless < 0.75 * worlds


def test_a_replaced_model_keeps_the_probabilities_of_ranks(start: cr.CalibrationMap) -> None:
    rng = np.random.default_rng(1)
    quality = rng.normal(size=3000)
    scores = 1000 - 5 * np.exp(-quality)
    moved = transfer(start, scores)
    np.testing.assert_allclose(moved.predict(scores), start.predict(quality), atol=0.03)
    assert moved.record.previous_map == start.digest
    assert np.all(np.diff(moved.predict(np.sort(scores))) >= 0)
    labels = rng.random(3000) < expit(quality)
    countries = {"country": rng.choice(["a", "b"], 3000)}
    by_country = (cr.Platt() + cr.Level("country")).fit(quality, labels, countries)
    with pytest.raises(cr.DataError, match="must be one of scores alone, got terms of country"):
        transfer(by_country, scores)


def test_several_old_maps_are_averaged_by_rank() -> None:
    """Models of the same pairs, of which one is better: probabilities are averaged at each rank."""
    rng = np.random.default_rng(3)
    quality = rng.normal(size=4_000)
    labels = rng.random(4_000) < expit(2 * quality - 1)
    first = cr.Platt().fit(quality, labels)
    second = cr.Platt().fit(10 * (quality + rng.normal(size=4_000)), labels)
    scores = 100 + 3 * quality
    alone = [transfer(each, scores) for each in (first, second)]
    both = transfer([first, second], scores)
    at = np.array(both.curve.knots)
    mean = np.mean([each.predict(at) for each in alone], axis=0)
    np.testing.assert_allclose(both.predict(at), mean, rtol=1e-9)
    assert (np.diff(both.predict(np.sort(scores))) >= 0).all()
    # Where the maps disagree, the interval holds both.
    low, high = both.sampling_interval(at)
    assert (low[0] < alone[0].predict(at[0])) & (alone[1].predict(at[0]) < high[0])
    assert both.record.rows == 8_000
    assert transfer([first], scores).to_dict() == alone[0].to_dict()
    with pytest.raises(cr.DataError, match="the maps to transfer must be at least one, got none"):
        transfer([], scores)


def test_labels_of_a_replaced_model_start_from_the_old_map() -> None:
    """With 30 labels, the old map by ranks is better than the same labels alone."""
    rng = np.random.default_rng(2)
    quality = rng.normal(size=4000)
    truth = expit(2 * quality - 1)
    old = cr.Platt().fit(quality, rng.random(4000) < truth)
    scores = np.exp(quality) + 50
    errors: dict[str, list[float]] = {"old": [], "alone": []}
    for _ in range(15):
        rows = rng.integers(4000, size=30)
        labels = (rng.random(30) < truth[rows]).astype(float)
        after = cr.anchor(old, scores[rows], labels, population=scores)
        errors["old"].append(float(np.abs(after.predict(scores) - truth).mean()))
        alone = cr.Platt().fit(scores[rows], labels).predict(scores)
        errors["alone"].append(float(np.abs(alone - truth).mean()))
    assert np.mean(errors["old"]) < 0.9 * np.mean(errors["alone"])
