"""Levels and groups by brute force: integrals over all that is unknown, resamples and loops."""

from itertools import product

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.terms import _shrinkage
from calibrank.terms._groups import GroupedRows
from calibrank.terms._modes import (
    Prior,
    SegmentProblem,
    mode_with_numpy,
    posterior_modes,
    sums_of_runs,
)
from calibrank.terms._shrinkage import (
    INTERCEPT_SDS,
    MEAN_SD,
    OUTLIER_PROBABILITY,
    OUTLIER_SD,
    SLOPE_SDS,
    shrunk_changes,
)
from calibrank.terms.group import Average, Curve, _as_curve, _robust_covariance, _selection


def made_problem(levels: np.ndarray, slopes: np.ndarray, rows: int, seed: int) -> SegmentProblem:
    rng = np.random.default_rng(seed)
    count, bins = len(levels), 5
    x = np.tile(np.linspace(-1.5, 1.5, bins), count)
    offset = x - 0.5
    segment = np.repeat(np.arange(count), bins)
    total = np.full(count * bins, float(rows))
    p = expit(offset + levels[segment] + slopes[segment] * x)
    positive = rng.binomial(rows, p).astype(float)
    starts = np.arange(0, count * bins + 1, bins)
    return SegmentProblem(positive, total, offset, x, starts, np.full(count, 1.3))


def normal(x: np.ndarray, sd: float) -> np.ndarray:
    return np.exp(-((x / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi))


def log_likelihoods(made: SegmentProblem, a: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Of each segment (rows) at pairs of an intercept and a slope (columns)."""
    z = made.offset[:, None] + a + made.x[:, None] * c
    cells = made.positive[:, None] * z - made.total[:, None] * np.logaddexp(0, z)
    return np.array([each.sum(axis=0) for each in np.split(cells, made.starts[1:-1])]) / 1.3


@pytest.mark.parametrize("with_slopes", [False, True])
def test_changes_are_those_of_integrals_over_levels_and_their_spreads(with_slopes: bool) -> None:
    rng = np.random.default_rng(0)
    made = made_problem(rng.normal(0, 0.5, 9), rng.normal(0, 0.3, 9) * with_slopes, 40, 1)
    a = np.linspace(-4, 4, 801)[:, None]
    c = np.linspace(-2.5, 2.5, 161)[None] if with_slopes else np.zeros((1, 1))
    grid = [np.broadcast_to(each, (a.size, c.size)).ravel() for each in (a, c)]
    likelihoods = log_likelihoods(made, *grid)
    likelihoods = np.exp(likelihoods - likelihoods.max(axis=1, keepdims=True))
    likelihoods = likelihoods.reshape(9, a.size, c.size)

    def density(values: np.ndarray, sd: float) -> np.ndarray:
        if not sd:
            return (np.abs(values) < 1e-9).astype(float)
        found = normal(values, sd)
        return found / found.sum()

    weights, means, squares, slopes, sds = [], [], [], [], []
    for tau, kappa in product(INTERCEPT_SDS, SLOPE_SDS if with_slopes else (0.0,)):
        of_slope = likelihoods @ density(c.ravel(), kappa)
        wide = density(a.ravel(), OUTLIER_SD)
        prior = (1 - OUTLIER_PROBABILITY) * density(a.ravel(), tau) + OUTLIER_PROBABILITY * wide
        both = likelihoods * prior[:, None] * density(c.ravel(), kappa)
        evidence = of_slope @ prior
        weights.append(np.log(evidence).sum())
        means.append((both.sum(axis=2) @ a.ravel()) / evidence)
        squares.append((both.sum(axis=2) @ a.ravel() ** 2) / evidence)
        slopes.append((both.sum(axis=1) @ c.ravel()) / evidence)
        sds.append((tau, kappa))
    weights = np.exp(np.array(weights) - max(weights))
    weights /= weights.sum()
    found = shrunk_changes(made, with_slopes=with_slopes)
    mean = weights @ np.array(means)
    np.testing.assert_allclose(found.intercepts, mean, atol=0.02)
    np.testing.assert_allclose(found.slopes, weights @ np.array(slopes), atol=0.02)
    errors = np.sqrt(weights @ np.array(squares) - mean**2)
    np.testing.assert_allclose(found.errors, errors, rtol=0.05)
    expected = np.sqrt(weights @ np.square(sds))
    assert (found.intercept_sd, found.slope_sd) == pytest.approx(
        tuple(expected), rel=0.05, abs=0.01
    )
    assert found.typical == 0


def test_the_mean_of_the_levels_is_integrated_out() -> None:
    """Levels around 0.8: all shrink towards what the others say, and not towards 0."""
    rng = np.random.default_rng(2)
    made = made_problem(0.8 + rng.normal(0, 0.4, 7), np.zeros(7), 30, 3)
    a = np.linspace(-6, 6, 601)
    likelihoods = log_likelihoods(made, a, np.zeros_like(a))
    likelihoods = np.exp(likelihoods - likelihoods.max(axis=1, keepdims=True))
    step = a[1] - a[0]
    centers = np.linspace(-3, 4, 141)
    wide = normal(a, OUTLIER_SD) * step
    weights, means, squares, typical, variances = [], [], [], [], []
    for tau in INTERCEPT_SDS[1:]:
        # One row per mean of the levels.
        alike = normal(a - centers[:, None], tau) * step
        prior = (1 - OUTLIER_PROBABILITY) * alike + OUTLIER_PROBABILITY * wide
        evidence = prior @ likelihoods.T
        of_center = np.prod(evidence, axis=1) * normal(centers, MEAN_SD)
        own = of_center / of_center.sum()
        weights.append(of_center.max())
        means.append(own @ ((prior @ (likelihoods * a).T) / evidence))
        squares.append(own @ ((prior @ (likelihoods * a**2).T) / evidence))
        typical.append(own @ centers)
        variances.append(tau**2 + own @ centers**2 - (own @ centers) ** 2)
    # Each standard deviation counts by its most likely mean.
    weights = np.array(weights) / sum(weights)
    found = shrunk_changes(made, with_slopes=False, with_mean=True)
    mean = weights @ np.array(means)
    np.testing.assert_allclose(found.intercepts, mean, atol=0.02)
    np.testing.assert_allclose(
        found.errors, np.sqrt(weights @ np.array(squares) - mean**2), rtol=0.06
    )
    assert found.typical == pytest.approx(weights @ typical, abs=0.03)
    assert found.intercept_sd == pytest.approx(np.sqrt(weights @ variances), rel=0.08)


def test_every_so_many_segments_are_spread_over_their_rates() -> None:
    made = made_problem(np.zeros(12), np.zeros(12), 5, 4)
    total = made.total * np.repeat(np.random.default_rng(5).permutation(12) + 1.0, 5)
    offset = np.full(60, -1.0)
    uneven = SegmentProblem(made.positive, total, offset, made.x, made.starts, made.dispersion)
    few = _shrinkage._sample(uneven, 3)
    sizes = sums_of_runs(total, made.starts)
    chosen = [int(np.flatnonzero(sizes == size)[0]) for size in sums_of_runs(few.total, few.starts)]
    assert sorted(np.argsort(np.argsort(-sizes))[chosen]) == [0, 3, 6, 9]
    assert (np.diff(chosen) > 0).all()
    assert _shrinkage._sample(uneven, 1) is uneven


def test_possible_outliers_are_those_of_their_marginal_likelihoods() -> None:
    """With many labels a likelihood is nearly quadratic: the quick look finds the same levels."""
    levels = np.linspace(-1, 1.6, 131)
    made = made_problem(levels, np.zeros(131), 400, 10)
    for mean, tau in ((0.0, 0.2), (0.3, 0.3), (0.0, 0.05)):
        prior = Prior(tau, 0.0, mean)
        modes = posterior_modes(made, [prior, Prior(OUTLIER_SD, 0.0)])
        share = _shrinkage._outlying(modes[0].log_marginal, modes[1].log_marginal)
        expected = set(np.flatnonzero(share > _shrinkage._SMALLEST_SHARE))
        found = set(_shrinkage._possible_outliers(made, mean, [prior, Prior(9.0, 0.0)]))
        assert len(expected ^ found) <= 4
        assert 15 < len(found) < 125


def test_a_certain_average_has_finite_log_odds() -> None:
    for end in (-60.0, 60.0):
        average = Average((Curve(None, end, 0.0, 0.0),), (1.0,))
        assert average.log_odds(np.zeros(1)) == pytest.approx(np.sign(end) * np.log(1e12))


def grouped_rows(groups: int, size: int, seed: int) -> GroupedRows:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), size)
    scores = rng.normal(size=len(group))
    labels = rng.random(len(group)) < expit(scores - 0.5 + rng.normal(0, 1, groups)[group])
    return GroupedRows.of(scores, cr.naive(labels, weights=rng.uniform(0.5, 2, len(group))), group)


def test_the_errors_of_a_curve_are_those_of_resampled_groups() -> None:
    rows = grouped_rows(80, 12, 6)
    fitted = cr.Platt().fit_summary(rows.summary())
    average = Average((Curve(fitted, 0.0, 1.0, 0.0),), (1.0,))
    found = _robust_covariance(average, rows)
    z = average.log_odds(rows.scores)
    design = np.vstack([np.ones_like(z), z])
    rng = np.random.default_rng(7)
    draws = []
    for _ in range(400):
        count = np.bincount(rng.integers(80, size=80), minlength=80)[rows.group]
        x = np.array([0.0, 1.0])
        for _ in range(6):
            p = expit(x @ design)
            weights = count * rows.total * p * (1 - p)
            gradient = design @ (count * (rows.positive - rows.total * p))
            x = x + np.linalg.solve((design * weights) @ design.T, gradient)
        draws.append(x)
    expected = np.cov(np.array(draws).T)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(found / scale, expected / scale, atol=0.25)
    # By its definition, with loops over groups.
    p = expit(z)
    bread = np.linalg.inv((design * rows.total * p * (1 - p)) @ design.T)
    meat = np.zeros((2, 2))
    for group in range(80):
        own = rows.group == group
        total = design[:, own] @ (rows.positive - rows.total * p)[own]
        meat += np.outer(total, total)
    np.testing.assert_allclose(found, 80 / 79 * bread @ meat @ bread)
    curve = _as_curve(average, rows, rows.summary())
    at = np.vstack([np.ones(len(curve.knots)), average.log_odds(np.array(curve.knots))])
    np.testing.assert_allclose(curve.value_errors, np.sqrt(np.diag(at.T @ found @ at)))
    np.testing.assert_allclose(curve.values, at[1], atol=1e-5)
    assert (np.diff(curve.values) > 0).all()
    assert curve.end_slopes[0] == curve.end_slopes[1] > 0


def test_knots_are_quantiles_and_evenly_spaced() -> None:
    rows = grouped_rows(20, 50, 8)
    curve = _as_curve(Average((Curve(None, 0.3, 0.0, 0.0),), (1.0,)), rows, rows.summary())
    knots = np.array(curve.knots)
    low, high = rows.scores.min(), rows.scores.max()
    for even in np.linspace(low, high, 51):
        assert np.abs(knots - even).min() < 1e-9
    order = np.argsort(rows.scores)
    cumulative = np.cumsum(rows.total[order]) / rows.total.sum()
    for level in np.linspace(0, 1, 51)[1:-1]:
        quantile = rows.scores[order][np.searchsorted(cumulative, level)]
        assert np.abs(knots - quantile).min() < 1e-9
    assert len(knots) == 51 + 49
    assert (knots[0], knots[-1]) == (low, high)


def test_errors_of_losses_are_those_of_differences_between_groups() -> None:
    rng = np.random.default_rng(9)
    masses = [rng.uniform(1, 9, 30), rng.uniform(1, 9, 30)]
    best = [each * rng.uniform(0.4, 0.6, 30) for each in masses]
    other = [own + each * rng.normal(0.05, 0.1, 30) for own, each in zip(best, masses, strict=True)]
    found = _selection({"other": other, "best": best, "failed": best[:1]}, masses)
    assert (found.chosen, found.folds) == ("best", 2)
    by_name = {each.name: each for each in found.candidates}
    assert by_name["failed"].loss is None
    mass = np.concatenate(masses)
    for name, parts in (("best", best), ("other", other)):
        assert by_name[name].loss == pytest.approx(np.concatenate(parts).sum() / mass.sum())
    assert by_name["best"].standard_error == 0
    difference = np.concatenate(other) - np.concatenate(best)
    draws = rng.integers(60, size=(4_000, 60))
    ratios = difference[draws].sum(axis=1) / mass[draws].sum(axis=1)
    assert by_name["other"].standard_error == pytest.approx(ratios.std(), rel=0.06)
    # Of equal losses it is the first, which is the simplest.
    assert _selection({"a": best, "b": best}, masses).chosen == "a"


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("prior", [Prior(1.0, 0.4, -0.3), Prior(1.5, 0.0), Prior(2.5, 0.1, -2.0)])
def test_marginal_likelihoods_and_means_of_a_few_rows_are_those_of_integrals(
    rows: int, prior: Prior
) -> None:
    """Laplace's approximation was off by 0.01 to 0.05 per level: many levels then seemed alike."""
    made = made_problem(np.linspace(-1, 1, 4), np.zeros(4), rows, 0)
    a = prior.tau * np.linspace(-7, 7, 401)[:, None]
    c = prior.kappa * np.linspace(-7, 7, 201)[None] if prior.kappa else np.zeros((1, 1))
    grid = [np.broadcast_to(each, (a.size, c.size)).ravel() for each in (prior.mean + a, c)]
    before = log_likelihoods(made, np.zeros(1), np.zeros(1))
    masses = np.exp(log_likelihoods(made, *grid) - before).reshape(4, a.size, c.size)
    weights = np.exp(-((a / prior.tau) ** 2) / 2 - (c / (prior.kappa or 1.0)) ** 2 / 2)
    weights /= weights.sum()
    marginal = (masses * weights).sum(axis=(1, 2))
    means = (masses * weights * a).sum(axis=(1, 2)) / marginal
    for mode in (posterior_modes(made, [prior])[0], mode_with_numpy(made, prior)):
        assert mode.log_marginal == pytest.approx(np.log(marginal), abs=0.001)
        assert mode.intercepts + mode.above == pytest.approx(means, abs=0.01)


def test_levels_of_three_rows_differ_as_much_as_they_do() -> None:
    """By Laplace's approximation they differed by 0.45."""
    spreads = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shop = np.repeat(np.arange(2000), 3)
        scores = rng.normal(size=len(shop))
        log_odds = 0.7 * rng.normal(size=2000)[shop] + scores - 1
        labels = (rng.random(len(shop)) < expit(log_odds)).astype(float)
        fitted = (cr.Platt() + cr.Level("shop")).fit(scores, labels, {"shop": shop})
        spreads.append(fitted.terms[0].spreads[0])
    assert 0.55 < np.mean(spreads) < 0.85
