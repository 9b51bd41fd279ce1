"""Maps at a known rate: what is known no longer varies, and bands have that rate at their ends."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

import calibrank as cr
from calibrank._internal.logit import expit, logit
from calibrank.anchoring import known_rate, with_sampling_range
from calibrank.anchoring._priors import SLOPE_FACTORS
from calibrank.maps import Sensitivity, SmoothTerm
from tests.maps.samples import map_of, step_map


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=500)


@pytest.fixture(scope="module")
def fitted(scores: np.ndarray) -> cr.CalibrationMap:
    labels = np.random.default_rng(1).random(500) < expit(scores - 1)
    return cr.Gaussian().fit(scores, labels)


def drawn(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    """Log odds of coefficients drawn from their normal distribution, one row per draw."""
    curve = fitted.curve
    means = [curve.intercept, *curve.coefficients]
    rng = np.random.default_rng(2)
    return rng.multivariate_normal(means, curve.covariance, 2_000) @ curve.gradient(scores)


@pytest.mark.parametrize("top_rate", [None, 0.5])
def test_a_known_mean_does_not_vary_and_the_rest_is_conditional_on_it(
    fitted: cr.CalibrationMap, scores: np.ndarray, top_rate: float | None
) -> None:
    """Among draws of the free fit, those with the known means vary like draws of the moved one."""
    moved = cr.to_base_rate(fitted, 0.2, scores, top_rate=top_rate)
    slope = moved.curve.coefficients[0] / fitted.curve.coefficients[0]
    free = slope * drawn(fitted, scores)
    given = drawn(moved, scores)
    p = moved.predict(scores)
    weights = [p * (1 - p) / 500]
    if top_rate is not None:
        top = scores >= np.quantile(scores, 0.9)
        weights.append(p * (1 - p) * top / 50)
    for each in weights:
        # To first order, the mean moves by the weighted change of the log odds.
        assert np.std(given @ each) < 1e-3 * np.std(free @ each)
    # Each draw of the free fit, put back to the known means by a shift (and a slope), is a draw
    # of the moved one.
    center = moved.log_odds(scores)
    directions = np.array([np.ones(500), center])[: len(weights)]
    gaps = (free - free.mean(axis=0)) @ np.array(weights).T
    steps = np.linalg.solve(np.array(weights) @ directions.T, gaps.T).T
    expected = free - steps @ directions
    at = np.array([10, 200, 400])
    np.testing.assert_allclose(
        np.cov(given[:, at].T), np.cov(expected[:, at].T), rtol=0.1, atol=1e-4
    )


def test_the_highest_tenth_has_parts_of_the_group_at_its_border() -> None:
    mass = np.array([0.3, 0.04, 0.5, 0.16])
    log_odds = np.array([0.0, 2.0, -1.0, 1.0])
    assert known_rate.top_tenth(log_odds, mass) == pytest.approx([0, 0.4, 0, 0.6])
    # Whatever the masses sum to.
    assert known_rate.top_tenth(log_odds, 7 * mass) == pytest.approx([0, 0.4, 0, 0.6])


def test_the_rate_of_impressions_varies_as_their_resamples_do() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=400)
    chances = rng.uniform(0.1, 1, 400)
    labels = (rng.random(400) < expit(scores - 1)).astype(float)
    summary = cr.Summary.of(scores, cr.impressions(labels, chances))
    found = with_sampling_range(cr.Platt().fit_summary(summary), summary)
    low, high = found.record.base_rate_range
    rows = rng.integers(400, size=(2_000, 400))
    weights = 1 / chances[rows]
    rates = (weights * labels[rows]).sum(axis=1) / weights.sum(axis=1)
    rate = (labels / chances).sum() / (1 / chances).sum()
    assert (logit(low) + logit(high)) / 2 == pytest.approx(logit(rate))
    assert logit(high) - logit(low) == pytest.approx(2 * 1.96 * np.std(logit(rates)), rel=0.05)


def test_a_certain_rate_keeps_a_range() -> None:
    """Of many impressions alike, or of one score: the least reach is in log odds."""
    labels = np.tile([0.0, 1.0], 2)
    for copies in (1, 10**14):
        evidence = cr.impressions(labels, np.ones(4), weights=np.full(4, float(copies)))
        summary = cr.Summary.of(np.arange(4.0), evidence)
        low, high = with_sampling_range(map_of(step_map(4).curve), summary).record.base_rate_range
        assert low < 0.5 < high


@pytest.mark.parametrize("assumption", ["relative propensities", "logged propensities"])
@pytest.mark.parametrize("effect", [0.0, 2.0])
@pytest.mark.parametrize("top_rate", [None, 0.5])
def test_the_ends_of_a_band_have_the_known_rate_at_every_slope(
    fitted: cr.CalibrationMap,
    scores: np.ndarray,
    assumption: str,
    top_rate: float | None,
    effect: float,
) -> None:
    """Over the population with its terms, of which the band itself has none."""
    columns = {"x": np.random.default_rng(4).random(500)}
    term = SmoothTerm("x", (0.0, 1.0), (-effect / 4, effect))
    places = np.linspace(scores.min(), scores.max(), 9)
    low, high = np.linspace(-3, 0, 9), np.linspace(-2, 2.5, 9)
    band = Sensitivity(
        low_rate=0.1,
        high_rate=0.9,
        alternatives=(),
        scores=tuple(places),
        low=tuple(low),
        high=tuple(high),
        exposure_factor=10.0,
        assumption=assumption,
    )
    record = replace(fitted.record, sensitivity=band)
    start = cr.CalibrationMap(fitted.curve, record, (term,))
    moved = cr.to_base_rate(start, 0.2, scores, top_rate=top_rate, columns=columns)
    assert moved.predict(scores, columns).mean() == pytest.approx(0.2)
    # What the terms of the moved map add to its curve.
    offset = moved.log_odds(scores, columns) - moved.curve.log_odds(scores)
    found = moved.record.sensitivity
    assert (found.low_rate, found.high_rate, found.exposure_factor) == (0.2, 0.2, 1.0)
    slope = moved.curve.coefficients[0] / fitted.curve.coefficients[0]
    free = top_rate is None and assumption == "relative propensities"
    interval = moved.without_terms().sampling_interval(places)
    curves = [logit(interval.low), logit(interval.high)]
    for end in (low, high):
        for factor in SLOPE_FACTORS if free else [slope]:
            z = factor * np.interp(scores, places, end) + offset
            shift = brentq(lambda x, z=z: expit(z + x).mean() - 0.2, -30, 30)
            curves.append(factor * end + shift)
    expected_low, expected_high = np.min(curves, axis=0), np.max(curves, axis=0)
    np.testing.assert_allclose(found.low, expected_low, atol=1e-6)
    np.testing.assert_allclose(found.high, expected_high, atol=1e-6)


def test_log_odds_of_a_band_stay_finite() -> None:
    certain = known_rate.clipped_logit(np.array([0.0, 0.3, 1.0]))
    assert expit(certain) == pytest.approx([1e-6, 0.3, 1 - 1e-6], rel=1e-9)
    np.testing.assert_allclose(known_rate.clipped_log_odds(100 * certain)[[0, 2]], certain[[0, 2]])
