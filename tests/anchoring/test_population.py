"""Populations, ranks, and the functions that curves are made of."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.logit import expit, logit
from calibrank.anchoring import _population
from calibrank.anchoring._population import Population, at_ranks, moved_start, population_of
from calibrank.anchoring._terms import candidate_terms, orthonormalize
from tests.maps.samples import map_of, step_map


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    return np.sort(np.random.default_rng(0).gumbel(size=5_000))


@pytest.fixture(scope="module")
def population(scores: np.ndarray) -> Population:
    return Population.of(scores)


@pytest.fixture(scope="module")
def fitted(scores: np.ndarray) -> cr.CalibrationMap:
    labels = np.random.default_rng(1).random(5_000) < expit(scores - 1)
    return cr.Platt().fit(scores, labels)


def test_means_over_the_grid_are_means_over_the_population(
    population: Population, scores: np.ndarray
) -> None:
    assert population.weights.sum() == pytest.approx(1)
    for function in (np.sin, np.tanh, lambda x: x**2):
        expected = function(scores)
        assert population.mean(function(population.grid)) == pytest.approx(
            expected.mean(), rel=0.03
        )
        assert population.spread(function(population.grid)) == pytest.approx(
            expected.std(), rel=0.08
        )
    # Each quantile stands for what is nearer to it than to its neighbours.
    edges = np.concatenate([[0], np.cumsum(population.weights)])
    ranks = population.ranks
    halfway = (ranks[1:] + ranks[:-1]) / 2
    np.testing.assert_allclose(edges[1:-1], halfway, atol=3e-4)
    # The outermost 0.2% have quantiles of their own.
    assert (ranks < 0.002).sum() == (ranks > 0.998).sum() == 3
    assert ranks[0] == pytest.approx(1e-4, abs=1e-4)


def test_ranks_are_those_of_the_middle_of_ties() -> None:
    values = np.array([1.0, 2.0, 2.0, 2.0, 5.0])
    population = Population.of(values)
    # Half a row below each, and never at an end.
    found = population.rank(np.array([0.0, 1.0, 1.5, 2.0, 4.0, 5.0, 9.0]))
    assert found == pytest.approx([0.1, 0.1, 0.2, 0.5, 0.8, 0.9, 0.9])


def test_nearly_tied_scores_are_used_once_each() -> None:
    values = np.concatenate([np.zeros(100_000), [1.0, 2.0, 3.0]])
    population = Population.of(np.sort(values))
    assert population.grid[0] < population.grid[-1]
    assert set(population.grid[[0, -1]]) <= {0.0, 3.0} | set(population.grid)
    assert (np.diff(population.grid) > 0).all()
    assert population.weights.sum() == pytest.approx(1)


def test_a_population_is_thinned_and_its_default_is_that_of_the_fit(
    fitted: cr.CalibrationMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = np.array([0.0, 1.0])
    own = population_of(fitted, shown, None)
    np.testing.assert_array_equal(own.scores, fitted.record.score_quantiles)
    tied = replace(fitted, record=replace(fitted.record, score_quantiles=(0.0, *[1.0] * 200)))
    assert population_of(tied, shown, None).scores.tolist() == [0.0, *[1.0] * 200]
    # Without a sketch, the pairs shown are there, and the range of the fit.
    without = map_of(step_map(4).curve)
    found = population_of(without, shown, None)
    assert len(found.scores) == 22
    assert set(shown) < set(found.scores)
    low, high = without.curve.span
    assert (found.scores.min(), found.scores.max()) == (min(low, 0.0), max(high, 1.0))
    monkeypatch.setattr(_population, "_MAX_POPULATION", 100)
    given = np.random.default_rng(2).permutation(300)
    found = population_of(fitted, shown, given)
    np.testing.assert_array_equal(found.scores, np.sort(given[::3]))
    found = population_of(fitted, shown, {"score": given[:199], "other": given[:199]})
    assert len(found.scores) == 199


def test_a_map_at_ranks_has_the_old_probabilities_and_errors_at_each_rank(
    fitted: cr.CalibrationMap, scores: np.ndarray
) -> None:
    new = Population.of(np.sort(np.exp(scores / 2)))
    sketch = fitted.record.score_quantiles
    moved = at_ranks(fitted, new, sketch)
    old = np.interp(new.ranks, np.linspace(0, 1, len(sketch)), sketch)
    np.testing.assert_allclose(moved.predict(new.grid), fitted.predict(old), rtol=1e-5)
    ends = [
        logit(np.array(each.sampling_interval(at)))
        for each, at in ((moved, new.grid), (fitted, old))
    ]
    np.testing.assert_allclose(*[high - low for low, high in ends], rtol=1e-3)
    values = np.array(moved.curve.values)
    assert (np.diff(values) > 0).all()
    # Beyond the population it hardly rises.
    low, high = moved.curve.end_slopes
    assert low == high == pytest.approx(1e-6 / np.ptp(new.grid))
    assert moved.record.previous_map == fitted.digest


def test_a_start_is_moved_to_ranks_only_where_scores_are_others(
    fitted: cr.CalibrationMap, scores: np.ndarray
) -> None:
    assert moved_start(fitted, Population.of(scores[::2])) is None
    moved = moved_start(fitted, Population.of(3 * scores[::2] + 50))
    assert moved.predict(3 * scores + 50).mean() == pytest.approx(
        fitted.predict(scores).mean(), rel=0.01
    )
    assert moved_start(map_of(step_map(4).curve), Population.of(3 * scores)) is None


def test_maps_that_are_averaged_have_the_total_variance(fitted: cr.CalibrationMap) -> None:
    scores = np.array(fitted.record.score_quantiles)
    other = fitted.moved(1.0, 0.5)
    both = cr.anchoring.transfer([fitted, other], scores)
    alone = [cr.anchoring.transfer(each, scores).curve for each in (fitted, other)]
    drawn = np.random.default_rng(3).standard_normal((10_000, 1))
    z = np.vstack([np.array(each.values) + drawn * each.value_errors for each in alone])
    np.testing.assert_allclose(both.curve.value_errors, z.std(axis=0), rtol=0.03)
    assert (both.record.rows, both.record.total) == (10_000, 2 * fitted.record.total)
    assert both.record.positive == 2 * fitted.record.positive


def test_terms_are_orthonormal_functions_of_score_and_rank(
    fitted: cr.CalibrationMap, population: Population
) -> None:
    asked = np.concatenate([population.grid[::7], [-100.0, 100.0]])
    ranks = population.rank(asked)
    z = fitted.log_odds(population.grid)
    low, high = np.quantile(population.scores, [0.005, 0.995])
    normal = np.array([NormalDist().inv_cdf(rank) for rank in population.ranks])
    shapes = {
        "line": population.grid.clip(2 * low - high, 2 * high - low),
        "normal": normal,
        "upper": -np.log(1 - population.ranks),
        "lower": np.log(population.ranks),
    }
    expected = [z.clip(-14, 14)]
    for values in [*shapes.values(), shapes["line"]]:
        # The least-squares fit to the log odds of the biased map.
        slope, level = np.polyfit(values, z, 1, w=np.sqrt(population.weights))
        expected.append(level + slope * values)
    found = list(candidate_terms(fitted, population, asked))
    assert [each.are_cosines for each in found] == [True] * 5 + [False]
    assert sum(each.probability for each in found[:5]) == pytest.approx(1)
    for terms, base in zip(found, expected, strict=True):
        np.testing.assert_allclose(terms.base_curve, base, atol=1e-6)
        products = terms.population * population.weights @ terms.population.T
        np.testing.assert_allclose(products, np.eye(len(products)), atol=1e-9)
        np.testing.assert_allclose(terms.population[0], 1)
        # The base curve is its mean, plus its spread times the second term.
        own = population.mean(base) + population.spread(base) * terms.population[1]
        np.testing.assert_allclose(own, base, atol=1e-6)
        # Labels of grid scores have what the grid has.
        np.testing.assert_allclose(terms.labels[:, :-2], terms.population[:, ::7], atol=1e-6)
        at_ends = terms.labels[:, -2:]
        assert np.abs(at_ends[0] - 1).max() < 1e-9
        assert ranks[-2] < 1e-3
    # Further out than one range of the scores, a line and what is of ranks are constant.
    beyond = np.array([3 * low - 2 * high, 4 * low - 3 * high, 4 * high - 3 * low, 9 * high])
    for terms in candidate_terms(fitted, population, beyond):
        np.testing.assert_allclose(terms.labels[:, 0], terms.labels[:, 1], atol=1e-9)
        np.testing.assert_allclose(terms.labels[:, 2], terms.labels[:, 3], atol=1e-9)


def test_deviations_are_cosines_of_normal_scores_or_powers_of_the_score(
    fitted: cr.CalibrationMap, population: Population
) -> None:
    by_rank, by_score = (
        list(candidate_terms(fitted, population, population.grid))[k] for k in (0, 5)
    )
    place = np.array([NormalDist().inv_cdf(rank) for rank in population.ranks])
    end = NormalDist().inv_cdf(1 - 5e-4)
    # From 0 at one end of the population to 1 at the other.
    place = (place.clip(-end, end) + end) / (2 * end)
    low, high = np.quantile(population.scores, [0.005, 0.995])
    position = ((population.grid - low) / (high - low) * 2 - 1).clip(-1, 1)
    for terms, raw in (
        (by_rank, [np.cos(np.pi * wave * place) for wave in range(1, 17)]),
        (by_score, [position**power for power in (2, 3, 4)]),
    ):
        base = [np.ones(len(place)), terms.base_curve]
        for count in range(len(raw)):
            # Each term is in the span of what comes before it and of its own function.
            span = np.array([*base, *raw[: count + 1]]) * np.sqrt(population.weights)
            term = terms.population[2 + count] * np.sqrt(population.weights)
            rest = term - span.T @ np.linalg.lstsq(span.T, term, rcond=None)[0]
            assert np.abs(rest).max() < 1e-9
        assert len(terms.population) == 2 + len(raw)


def test_terms_that_earlier_ones_explain_are_left_out() -> None:
    rng = np.random.default_rng(4)
    weights = rng.dirichlet(np.ones(30))
    first, second = rng.normal(size=(2, 30))
    terms = np.array([np.ones(30), first, 3 * first - 2, 0 * first, second, first + second])
    transform = orthonormalize(terms, weights)
    assert transform.shape == (3, 6)
    found = transform @ terms
    np.testing.assert_allclose(found * weights @ found.T, np.eye(3), atol=1e-12)
    # A nearly redundant one is one of its own.
    terms = np.array([np.ones(30), first, first + 1e-4 * second])
    assert orthonormalize(terms, weights).shape == (3, 3)


def test_a_falling_start_has_lines_that_hardly_rise(population: Population) -> None:
    falling = map_of(step_map(4).curve).moved(0.0, 1.0)
    curves = list(candidate_terms(falling, population, np.zeros(1)))
    for terms in curves:
        assert (np.diff(terms.base_curve) >= 0).all()
        assert np.abs(terms.base_curve).max() <= 14 + 60


def test_what_is_no_map_is_not_transferred(fitted: cr.CalibrationMap) -> None:
    for each in ("map.json", [fitted, 3]):
        with pytest.raises(cr.DataError, match="must be"):
            cr.anchoring.transfer(each, [0.0, 1.0])
