"""The test of calibration in every segment: its size under the null, its power, and its errors."""

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank._internal.segment_keys import encode
from calibrank.metrics import multicalibration_test
from calibrank.metrics.multicalibration import SegmentSums, adjusted_p_values


def world(
    seed: int, spread: float = 0.0, users: int = 300, rate: float = -1.0
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Right probabilities, labels that are alike within a user, segments, and users."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), 10)
    p = expit(rate + rng.normal(size=len(user)))
    # A shared draw per user for half of the rows: rates stay right, labels of a user are alike.
    shared = rng.random(users)[user]
    own = rng.random(len(user))
    draw = np.where(rng.random(len(user)) < 0.5, shared, own)
    device = rng.integers(0, 40, users)[user]
    country = rng.integers(0, 5, len(user))
    shift = spread * (device == 3)
    truth = expit(np.log(p / (1 - p)) + shift)
    return p, draw < truth, {"device": device, "country": country}, user


@pytest.mark.parametrize("rate", [-1.0, -4.0])
def test_right_probabilities_are_seldom_refused_in_any_of_45_segments_and_200_pairs(
    rate: float,
) -> None:
    refused = 0
    for seed in range(60):
        p, labels, segments, users = world(seed, rate=rate)
        result = multicalibration_test(p, labels, segments, users=users)
        found = [gap.p_value for gap in (*result.segments, *result.pairs)]
        assert result.p_value == min(found)
        refused += result.p_value < 0.1
    # 6 are expected; 14 or more have a chance of 0.2%.
    assert refused < 14


def test_inverse_propensities_do_not_refuse_right_segments() -> None:
    """Squared residuals as the least variances refused every table."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(25):
        p = np.exp(rng.normal(size=1_000))
        p = np.minimum(60 * p / p.sum(), 0.9)
        propensity = np.clip(rng.beta(0.6, 1, 1_000), 0.05, 1)
        evidence = cr.ips((rng.random(1_000) < p * propensity).astype(float), propensity)
        segments = {"a": rng.integers(0, 5, 1_000), "b": rng.integers(0, 20, 1_000)}
        found.append(multicalibration_test(p, evidence, segments).p_value)
    assert np.mean(np.array(found) <= 0.05) <= 0.1


def test_pairs_are_seldom_refused_where_columns_alone_explain_all() -> None:
    """Both columns are wrong, each by itself: no combination is to blame."""
    refused = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        one, two = rng.integers(0, 8, (2, 4_000))
        z = rng.normal(size=4_000)
        labels = rng.random(4_000) < expit(z + 0.6 * (one == 1) - 0.6 * (two == 2))
        result = multicalibration_test(expit(z), labels, {"one": one, "two": two})
        assert len(result.pairs) == 64
        refused += result.pairs[0].p_value < 0.1
    # 6 are expected; 14 or more have a chance of 0.2%.
    assert refused < 14


def test_a_wrong_pair_is_named_as_a_level() -> None:
    rng = np.random.default_rng(4)
    country, device, noise = rng.integers(0, 6, (3, 12_000))
    z = rng.normal(size=12_000) - 1
    truth = expit(z + 1.5 * ((country == 2) & (device == 3)))
    segments = {"country": country, "device": device, "noise": noise}
    result = multicalibration_test(expit(z), rng.random(12_000) < truth, segments)
    first = result.pairs[0]
    assert (first.column, first.value) == ("country x device", "2 x 3")
    assert first.rows == ((country == 2) & (device == 3)).sum()
    assert result.advice.startswith('Add Level("country", "device"): where it is 2 x 3, ')
    right = multicalibration_test(expit(z), rng.random(12_000) < expit(z), segments)
    assert right.advice == ""


def test_few_combinations_are_looked_at_of_many() -> None:
    rng = np.random.default_rng(5)
    many = {name: rng.integers(0, 30, 60_000) for name in "abc"}
    p = np.full(60_000, 0.3)
    result = multicalibration_test(p, rng.random(60_000) < 0.3, many)
    assert 900 <= len(result.pairs) <= 1_100


def test_without_users_dependent_labels_are_refused_too_often() -> None:
    """Why users matter: the same worlds, with rows treated as independent."""
    refused = 0
    for seed in range(40):
        p, labels, segments, _ = world(seed)
        refused += multicalibration_test(p, labels, segments).p_value < 0.1
    assert refused > 8


def test_a_wrong_segment_is_found_and_comes_first() -> None:
    p, labels, segments, users = world(1, spread=2.0, users=2_000)
    result = multicalibration_test(p, labels, segments, users=users)
    assert result.p_value < 0.01
    worst = result.segments[0]
    assert (worst.column, worst.value) == ("device", "3")
    assert worst.observed > worst.predicted + 0.2
    assert worst.rows == (segments["device"] == 3).sum()
    gap = (labels - p)[segments["device"] == 3].sum() / len(p)
    assert result.error == pytest.approx(gap)
    assert sum(segment.p_value < 0.05 for segment in result.segments) < 4


def test_a_wrong_slope_within_a_segment_is_found() -> None:
    rng = np.random.default_rng(2)
    z = rng.normal(size=8_000)
    country = rng.choice(["NL", "DE"], 8_000)
    labels = rng.random(8_000) < expit(np.where(country == "NL", 0.3 * z, z))
    result = multicalibration_test(expit(z), labels, {"country": country})
    assert result.p_value < 0.01
    assert result.segments[0].value == "NL"


def test_after_a_fit_by_segment_nothing_is_left() -> None:
    """Found and fixed: the test before and after, on new rows."""
    rng = np.random.default_rng(3)
    country = rng.choice(["NL", "DE", "BE"], 12_000)
    scores = rng.normal(size=12_000)
    labels = rng.random(12_000) < expit(scores - 1 + (country == "NL"))
    fit, test = np.arange(6_000), np.arange(6_000, 12_000)
    model = cr.Platt() + cr.Level("country")
    fitted = model.fit(scores[fit], labels[fit], {"country": country[fit]})
    shown = {"country": country[test]}
    before = multicalibration_test(
        fitted.without_terms().predict(scores[test]), labels[test], shown
    )
    after = multicalibration_test(fitted.predict(scores[test], shown), labels[test], shown)
    assert before.p_value < 0.001
    assert after.p_value > 0.05


def test_missing_values_are_a_segment() -> None:
    result = multicalibration_test([0.5] * 4, [0, 1, 0, 1], {"a": ["x", None, "x", None]})
    assert {segment.value for segment in result.segments} == {"x", "(missing)"}


def test_a_column_of_another_length_is_refused() -> None:
    with pytest.raises(cr.DataError, match="one value per score"):
        multicalibration_test([0.5] * 4, [0, 1, 0, 1], {"a": ["x"]})


def test_statistics_are_sums_over_clusters_divided_by_their_spread() -> None:
    """One column of three segments, by hand: level and slope of each, one row per cluster."""
    rng = np.random.default_rng(4)
    p = rng.uniform(0.1, 0.9, 60)
    labels = (rng.random(60) < 0.5).astype(float)
    weights = rng.uniform(0.5, 2, 60)
    codes = np.arange(60) % 3
    clusters = np.arange(60) // 6
    column = encode("c", np.array(["a", "b", "c"])[codes])
    sums = SegmentSums.of(p, cr.naive(labels, weights=weights), column, clusters)
    residuals = weights * (labels - p)
    log_odds = np.log(p / (1 - p))
    information = weights * p * (1 - p)
    for segment in range(3):
        inside = codes == segment
        assert sums.values[segment] == "abc"[segment]
        assert sums.rows[segment] == 20
        assert sums.positive[segment] == pytest.approx((weights * labels)[inside].sum())
        assert sums.total[segment] == pytest.approx(weights[inside].sum())
        assert sums.residuals[segment] == pytest.approx(residuals[inside].sum())
        mean = np.average(log_odds[inside], weights=information[inside])
        for part, function in ((0, np.ones(60)), (3, log_odds - mean)):
            by_cluster = np.array(
                [(residuals * function)[inside & (clusters == n)].sum() for n in range(10)]
            )
            least = (weights**2 * p * (1 - p) * function**2)[inside].sum()
            spread = np.sqrt(max((by_cluster**2).sum(), least))
            np.testing.assert_allclose(sums.statistics[:, part + segment], by_cluster / spread)


def test_adjusted_p_values_compare_with_the_largest_of_all() -> None:
    statistics = [np.array([[3.0, 0.1], [3.0, -0.1]]), np.array([[0.5], [-0.5]])]
    found = adjusted_p_values(statistics)
    assert [len(part) for part in found] == [2, 1]
    # Half of all signs agree, and then the first column is as large as it was.
    assert found[0][0] == pytest.approx(0.5, abs=0.05)
    # A sum of 0 is exceeded by every draw.
    assert found[0][1] == 1.0
    assert found[1][0] == 1.0
    again = adjusted_p_values(statistics)
    assert [part.tolist() for part in again] == [part.tolist() for part in found]
    certain = adjusted_p_values([np.ones((40, 1))])[0]
    assert certain[0] == 1 / 2001


def test_gaps_of_segments_without_mass_are_left_out() -> None:
    evidence = cr.naive([1, 0, 1, 0], weights=[1, 1, 0, 0])
    result = multicalibration_test([0.5, 0.5, 0.2, 0.2], evidence, {"a": ["x", "x", "y", "y"]})
    assert [segment.value for segment in result.segments] == ["x"]
    assert result.segments[0][:5] == ("a", "x", 2, 0.5, 0.5)
    assert result.error == 0


def test_segments_without_a_column_are_refused() -> None:
    with pytest.raises(cr.DataError, match="segments must have at least one column, got none"):
        multicalibration_test([0.5, 0.5], [0, 1], {})
    with pytest.raises(cr.DataError, match="segments must be a mapping of column names"):
        multicalibration_test([0.5, 0.5], [0, 1], ["a", "b"])


def test_certain_probabilities_have_finite_statistics() -> None:
    """Where they are right they add nothing to the level, and where they are wrong a whole row."""
    p, labels = np.array([0.0, 1.0, 0.5, 0.5, 1.0]), np.array([0.0, 1.0, 1.0, 0.0, 0.0])
    column = encode("c", ["a", "a", "a", "b", "b"])
    sums = SegmentSums.of(p, cr.naive(labels), column, np.arange(5))
    assert np.isfinite(sums.statistics).all()
    assert sums.residuals.tolist() == [0.5, -1.5]
    np.testing.assert_allclose(sums.statistics[:, 0], [0, 0, 1, 0, 0])
    np.testing.assert_allclose(sums.statistics[:, 1], [0, 0, 0, -0.5 / 1.25**0.5, -1 / 1.25**0.5])
    # Only rows of 1/2 have information, so slopes turn around their log odds, 0.
    np.testing.assert_allclose(sums.statistics[:, 3], [0, 0, 0, 0, -1])
