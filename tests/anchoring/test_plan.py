"""Label plans: the worlds that they draw, and the errors that they average."""

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit, logit
from calibrank.anchoring import ExpectedError, label_plan, labels_needed, plan_labels
from calibrank.maps import Sensitivity


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=600)


@pytest.fixture(scope="module")
def judged(scores: np.ndarray) -> cr.CalibrationMap:
    labels = np.random.default_rng(1).random(600) < expit(1.2 * scores - 1)
    return cr.Platt().fit(scores, labels)


def test_probabilities_of_inclusion_are_proportional_up_to_one() -> None:
    weights = np.random.default_rng(2).lognormal(0, 1.5, 500)
    for count in (1, 50, 400, 500):
        found = label_plan._inclusion_probabilities(weights, count)
        assert found.sum() == pytest.approx(count)
        assert found.max() <= 1
        free = found < 1
        if free.any():
            np.testing.assert_allclose(found[free] / weights[free], (found / weights)[free][0])
            # What is limited would otherwise have more than a certain chance.
            assert (weights[~free] * (found / weights)[free][0] >= 1 - 1e-9).all()


def test_chances_are_those_of_neyman_with_a_least_part_of_the_mean(
    judged: cr.CalibrationMap, scores: np.ndarray
) -> None:
    importance = np.where(scores > 0, 3.0, 1.0)
    rows, propensity = label_plan.choose_pairs(
        judged, scores, 60, importance=importance, smallest=0.2
    )
    p = judged.predict(scores)
    ideal = importance * np.sqrt(p * (1 - p))
    expected = 0.2 + 0.8 * ideal / ideal.mean()
    expected *= 60 / expected.sum()
    assert expected.max() < 1
    np.testing.assert_allclose(propensity, expected[rows])


def test_each_segment_is_a_turned_list_by_score() -> None:
    """Within a segment rows are by score, from a place on that follows the golden ratio."""
    rng = np.random.default_rng(3)
    codes = rng.integers(5, size=200)
    values = rng.normal(size=200)
    found = label_plan._by_segment(np.argsort(values, kind="stable"), codes, rng)
    assert sorted(found) == list(range(200))
    changes = np.flatnonzero(np.diff(codes[found])) + 1
    assert len(changes) == 4
    starts = []
    for part in np.split(found, changes):
        # One descent at most: it wraps around from the highest score to the lowest.
        assert (np.diff(values[part]) < 0).sum() <= 1
        starts.append((values[part] < values[part[0]]).mean())
    golden = (5**0.5 - 1) / 2
    for place, start in enumerate(starts):
        # The first row is the one whose turned position is the smallest.
        assert start == pytest.approx(-golden * place % 1, abs=0.06)


def test_curves_of_judges_have_levels_and_slopes_of_their_own(
    judged: cr.CalibrationMap, scores: np.ndarray
) -> None:
    count = 400
    curves = logit(np.array(label_plan._judged_curves(judged, scores, count)))
    z = judged.log_odds(scores)
    slopes = np.array([np.polyfit(z, each, 1)[0] for each in curves])
    levels = curves.mean(axis=1) - z.mean()
    # A standard deviation of 1, evenly spread, and four slopes in turn.
    np.testing.assert_allclose(slopes, np.tile([1.0, 0.5, 0.75, 1.25], count // 4))
    assert np.mean(levels) == pytest.approx(0, abs=1e-9)
    assert np.std(levels) == pytest.approx(1, rel=0.02)
    assert np.quantile(levels, [0.025, 0.975]) == pytest.approx([-1.96, 1.96], abs=0.03)
    known = cr.to_base_rate(judged, 0.2, scores, rate_range=(0.1, 0.4))
    curves = logit(np.array(label_plan._judged_curves(known, scores, count)))
    levels = curves.mean(axis=1) - known.log_odds(scores).mean()
    ends = np.quantile(levels, [0.025, 0.975])
    # The interval of the rate has 95% of the levels.
    assert ends[1] - ends[0] == pytest.approx(logit(0.4) - logit(0.1), rel=0.02)


def test_curves_of_a_band_are_evenly_between_its_ends() -> None:
    ends = {"scores": (0.0, 1.0), "low": (-2.0, -1.0), "high": (0.0, 7.0)}
    band = Sensitivity(0.1, 0.9, (), **ends)
    found = logit(np.array(label_plan._true_curves(band, np.array([0.0, 0.5, 1.0]), 2)))
    # A probability of nearly 1 is a bound and no plausible truth.
    np.testing.assert_allclose(found, [[-1.5, -0.75, 0.0], [-0.5, 0.75, 2.0]], atol=1e-9)


def test_levels_of_queries_leave_the_mean_over_queries_where_it_is() -> None:
    truth = np.array([0.03, 0.2, 0.5, 0.9])
    queries = np.repeat(np.arange(40_000), 4)
    found = label_plan._by_query(np.tile(truth, 40_000), queries, np.random.default_rng(4))
    by_query = found.reshape(-1, 4)
    np.testing.assert_allclose(by_query.mean(axis=0), truth, atol=0.01)
    levels = logit(by_query)
    np.testing.assert_allclose(levels.std(axis=0), 0.9, rtol=0.02)
    # One level per query moves all of its rows.
    assert np.ptp(levels - levels.mean(axis=0), axis=1).max() < 1e-9


def test_without_labels_the_error_is_that_of_the_map(
    judged: cr.CalibrationMap, scores: np.ndarray
) -> None:
    queries = np.arange(600) % 30
    plan = plan_labels(judged, scores, sizes=(0, 40, 700), draws=4, groups=queries)
    curves = label_plan._judged_curves(judged, scores, 4)
    p = judged.predict(scores)
    errors = [np.abs(p - truth).mean() for truth in curves]
    assert plan[0] == (0, pytest.approx(np.mean(errors)))
    assert plan[1].error < plan[0].error
    # Of 600 pairs, no 700 can be labelled.
    assert [each.labels for each in plan] == [0, 40]


def test_a_large_population_is_thinned(
    judged: cr.CalibrationMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_plan, "_MAX_POPULATION", 200)
    scores = np.sort(np.random.default_rng(5).normal(size=1_000))
    queries = np.repeat(np.arange(100), 10)
    plan = plan_labels(judged, scores, sizes=(0, 201), draws=2, groups=queries)
    curves = label_plan._judged_curves(judged, scores[::5], 2)
    p = judged.predict(scores[::5])
    assert [each.labels for each in plan] == [0]
    expected = np.mean([np.abs(p - truth).mean() for truth in curves])
    assert plan[0].error == pytest.approx(expected)


def test_labels_needed_lie_on_a_power_law() -> None:
    plan = [ExpectedError(n, 0.5 / np.sqrt(max(n, 1))) for n in (0, 30, 300, 3_000)]
    for error in (0.05, 0.02, 0.01):
        assert labels_needed(plan, error) == pytest.approx((0.5 / error) ** 2, abs=1)
    assert labels_needed(plan, 0.6) == 0
    assert labels_needed(plan, 0.3) == 30
    assert labels_needed(plan[1:], 0.3) == 30
    assert labels_needed(plan, 0.5 / np.sqrt(300)) == 300
    assert labels_needed(plan, 0.001) is None
    assert labels_needed([], 0.1) is None
    # An error that does not fall between two sizes: the larger one is where it is reached.
    flat = [ExpectedError(10, 0.1), ExpectedError(20, 0.1)]
    assert labels_needed(flat, 0.1) == 10
