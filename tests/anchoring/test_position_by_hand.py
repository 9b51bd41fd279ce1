"""First positions: the parts of the fit, against scipy, draws and truths by construction."""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression, minimize
from scipy.stats import rankdata

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.anchoring import list_ranks, position
from calibrank.anchoring.position import EXPONENTS, fit_position
from calibrank.maps import PiecewiseCurve

# Log odds are the scores.
IDENTITY = PiecewiseCurve((-8.0, 8.0), (-8.0, 8.0), (1.0, 1.0), (0.1, 0.1), (0.0, 0.0))


def log_positions(ranks: np.ndarray) -> np.ndarray:
    return -np.log(ranks - 0.5)


def test_ranks_are_those_of_scipy_in_each_list() -> None:
    rng = np.random.default_rng(0)
    scores, lists = rng.integers(0, 9, 200).astype(float), rng.integers(0, 12, 200)
    found = list_ranks(scores, lists)
    for one in range(12):
        own = lists == one
        np.testing.assert_array_equal(found[own], rankdata(-scores[own]))


def test_values_by_rank_are_the_nearest_that_fall() -> None:
    values = np.random.default_rng(1).normal(size=30) * 50 + 7
    expected = isotonic_regression(values, increasing=False).x
    np.testing.assert_allclose(position._falling(values), expected, atol=1e-9)
    np.testing.assert_allclose(position._falling(np.full(4, 3.0)), 3)


def test_mean_log_odds_are_linear_between_quantiles_of_the_position() -> None:
    rng = np.random.default_rng(2)
    ranks = rng.integers(1, 200, 3_000).astype(float)
    x = log_positions(ranks)
    weights = rng.uniform(0.5, 2, 3_000)
    levels = (0, 0.3, 0.6, 0.8, 0.95, 0.99, 1)
    knots = np.unique(np.quantile(x, levels))
    values = rng.normal(size=len(knots))
    # A curve that has these means exactly is recovered, and noise is fitted by least squares.
    scores = np.interp(x, knots, values)
    found = position._mean_by_position(IDENTITY, scores, ranks, weights, "rank", None)
    np.testing.assert_allclose(found[0], knots)
    np.testing.assert_allclose(found[1], values, atol=1e-9)
    noisy = scores + rng.normal(size=3_000)
    _, fitted = position._mean_by_position(IDENTITY, noisy, ranks, weights, "rank", None)
    hats = np.array([np.interp(x, knots, unit) for unit in np.eye(len(knots))])
    residuals = noisy - fitted @ hats
    np.testing.assert_allclose(hats @ (weights * residuals), 0, atol=1e-7)
    # Few rows have no quantile between the outermost two; a population with ranks replaces labels.
    few = {"score": scores[:1_999], "rank": ranks[:1_999]}
    knots_of_few, values_of_few = position._mean_by_position(
        IDENTITY, np.zeros(1), np.ones(1), np.ones(1), "rank", few
    )
    np.testing.assert_allclose(knots_of_few, np.unique(np.quantile(x[:1_999], [*levels[:5], 1])))
    assert np.abs(np.interp(x[:1_999], knots_of_few, values_of_few) - scores[:1_999]).mean() < 0.2
    # Without ranks of the population, labels are all that is known.
    alone = position._mean_by_position(IDENTITY, scores, ranks, weights, "rank", scores)
    np.testing.assert_allclose(alone[1], values, atol=1e-9)


def test_a_large_population_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    ranks = rng.integers(1, 50, 900).astype(float)
    scores = rng.normal(size=900)
    monkeypatch.setattr(position, "_MAX_POPULATION", 300)
    none = np.ones(1)
    thinned = position._mean_by_position(
        IDENTITY, none, none, none, "rank", {"score": scores, "rank": ranks}
    )
    few = {"score": scores[::3], "rank": ranks[::3]}
    expected = position._mean_by_position(IDENTITY, none, none, none, "rank", few)
    for one, two in zip(thinned, expected, strict=True):
        np.testing.assert_allclose(one, two)


def test_labels_determine_the_top_and_its_slope() -> None:
    """Soft labels without noise: a fall along the list, and an own level and slope at the top."""
    rng = np.random.default_rng(4)
    ranks = rng.permutation(np.repeat(np.arange(1.0, 101), 300))
    x = log_positions(ranks)
    deviation = rng.normal(size=len(x))
    scores = 0.8 * x + 1.0 + deviation
    others = rng.normal(size=len(x)) / 2
    inside = ranks <= 3
    z = -1.0 + 0.6 * x + 1.2 * deviation + inside * (0.4 - 0.5 * deviation)
    total = rng.uniform(1, 2, len(x))
    evidence = cr.Evidence(total * expit(z + others), total)
    found = fit_position(
        cr.Position("rank", 3), IDENTITY, scores, evidence, {"rank": ranks}, others, None
    )
    slopes = np.diff(found.curve.values) / np.diff(found.curve.knots)
    np.testing.assert_allclose(slopes, 0.7, atol=0.06)
    np.testing.assert_allclose(found.curve.end_slopes, 0.7, atol=0.06)
    by_rank = np.interp([1, 2, 3], found.by_rank.knots, found.by_rank.values)
    at_rank = log_positions(np.array([1.0, 2.0, 3.0]))
    level = 0.7 * (0.8 * at_rank + 1.0) + by_rank
    np.testing.assert_allclose(level, -1.0 + 0.6 * at_rank + 0.4, atol=0.1)
    assert found.n == 3
    assert found.curve.value_errors[0] < 0.1


@pytest.mark.parametrize("count", [6, 150])
def test_the_top_is_the_mean_of_curves_drawn_from_the_posterior(count: int) -> None:
    rng = np.random.default_rng(5)
    ranks = rng.integers(1, 60, count).astype(float)
    ranks[: count // 3] = rng.integers(1, 5, count // 3)
    x = log_positions(ranks)
    scores = 0.5 * x + rng.normal(size=count)
    labels = (rng.random(count) < expit(scores - 0.5)).astype(float)
    weights = rng.uniform(0.2, 1, count)
    evidence = cr.Evidence(weights * labels, weights)
    others = rng.normal(size=count) / 3
    found = fit_position(
        cr.Position("rank", 4), IDENTITY, scores, evidence, {"rank": ranks}, others, None
    )
    inside = ranks < 4.5
    own = np.empty(count)
    for part in (inside, ~inside):
        own[part] = weights[part] * weights[part].sum() / (weights[part] ** 2).sum()
    center = np.average(x, weights=own)
    means = position._mean_by_position(IDENTITY, scores, ranks, weights, "rank", None)
    deviations = scores - np.interp(x, *means)
    design = np.array([np.ones(count), x - center, deviations, inside, inside * deviations])
    knots = np.arange(1, 5, 0.5)
    at = log_positions(knots)
    at_top = np.array([np.ones(8), at - center, np.zeros(8), np.ones(8), np.zeros(8)])
    top_slope = np.array([0, 0, 1, 0, 1])
    levels, slopes, chances, factors = [], [], [], []
    for exponent, (sd, probability) in EXPONENTS.items():
        prior = np.array([np.average(scores, weights=own), exponent, 1, 0, 0])
        sds = np.array([5.0, sd, position.DEVIATION_SD, *position.TOP_SDS])

        def loss(beta: np.ndarray, prior: np.ndarray = prior, sds: np.ndarray = sds) -> float:
            z = beta @ design + others
            penalty = (((beta - prior) / sds) ** 2).sum() / 2
            return float(own @ (np.logaddexp(0, z) - labels * z) + penalty)

        mode = minimize(loss, prior, tol=1e-12, options={"gtol": 1e-9}).x
        p = expit(mode @ design + others)
        hessian = (design * own * p * (1 - p)) @ design.T + np.diag(sds**-2.0)
        covariance = np.linalg.inv(hessian)
        drawn = rng.multivariate_normal(mode, covariance, 40_000)
        levels.append(drawn @ at_top)
        slopes.append(max(mode @ top_slope, 0.01))
        log_determinant = np.linalg.slogdet(hessian * np.outer(sds, sds))[1]
        chances.append(probability * np.exp(-loss(mode) - log_determinant / 2))
        factors.append(np.mean(1 / np.sqrt(1 + np.pi / 8 * levels[-1].var(axis=0).mean())))
    chances = np.array(chances) / sum(chances)
    mean = sum(chance * each.mean(axis=0) for chance, each in zip(chances, levels, strict=True))
    # The variance of levels, averaged over the top, with what the two priors differ by on average.
    within = chances @ [each.var(axis=0).mean() for each in levels]
    between = [each.mean() - mean.mean() for each in levels]
    error = np.sqrt(within + chances @ np.square(between))
    np.testing.assert_allclose(found.curve.value_errors, error, rtol=0.02)
    flattened = chances * factors
    slope = flattened @ slopes
    assert found.curve.end_slopes == pytest.approx((slope, slope), rel=0.01)
    value = sum(f * each.mean(axis=0) for f, each in zip(flattened, levels, strict=True))
    expected = position._falling(value - slope * np.interp(at, *means))
    np.testing.assert_allclose(found.by_rank.values, expected, atol=0.03)
