"""Levels of groups: integrated out for new groups, shrunk to the constant if needed."""

import json
import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

import calibrank as cr
from calibrank.errors import FlatMapWarning
from calibrank.export import to_sql
from calibrank.maps import CandidateLoss, Selection
from calibrank.registry import parse_model
from calibrank.terms._groups import GroupedRows, _loss, capped_masses, fit_mixed_model, integrated
from calibrank.terms._groups import _Rows as ModelRows
from calibrank.terms.group import Curve, GroupFit, _averaged, _selection
from tests import engines
from tests.search_world import SHAPES, judged_pool

MODEL = cr.Auto() + cr.Group("query")


def by_group(scores: np.ndarray, labels: object, groups: np.ndarray) -> cr.CalibrationMap:
    return MODEL.fit(scores, labels, {"query": groups})


def world(
    n_groups: int = 80, size: int = 30, slope: float = 1.0, spread: float = 1.5, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and groups whose levels are normal."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), size)
    scores = rng.normal(size=len(groups))
    level = rng.normal(0, spread, n_groups)[groups]
    labels = (rng.random(len(groups)) < expit(-0.5 + slope * scores + level)).astype(float)
    return scores, labels, groups


def test_the_marginal_likelihood_equals_numerical_integration() -> None:
    scores, labels, groups = world(4, 9)
    intercept, slope, spread = 0.3, 0.7, 1.2

    def likelihood(level: float, rows: np.ndarray) -> float:
        p = expit(intercept + slope * scores[rows] + level)
        density = np.exp(-((level / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
        return float(np.prod(np.where(labels[rows] == 1, p, 1 - p)) * density)

    exact = 0.0
    for group in range(4):
        rows = np.flatnonzero(groups == group)
        exact -= np.log(quad(likelihood, -12, 12, args=(rows,), epsabs=1e-14)[0])
    rows = ModelRows.of(scores, labels, np.ones(36), groups)
    parameters = np.array([intercept, slope, np.log(spread)])
    loss, gradient = _loss(parameters, rows)
    # The loss leaves out the constant sqrt(2) / sqrt(2 pi) of each group's integral.
    assert loss + 2 * np.log(np.pi) == pytest.approx(exact, abs=1e-5)
    for place in range(3):
        step = np.zeros(3)
        step[place] = 1e-5
        numeric = (_loss(parameters + step, rows)[0] - _loss(parameters - step, rows)[0]) / 2e-5
        assert gradient[place] == pytest.approx(numeric, abs=2e-3)


def test_the_parameters_of_the_world_are_recovered() -> None:
    scores, labels, groups = world(400, 20)
    model = fit_mixed_model(scores, labels, np.ones(len(scores)), groups)
    assert model.intercept == pytest.approx(-0.5, abs=0.25)
    assert model.slope == pytest.approx(1.0, abs=0.1)
    assert model.spread == pytest.approx(1.5, abs=0.2)


@pytest.mark.parametrize("spread", [1e-3, 0.5, 1.0, 1.5, 3.0, 10.0])
def test_the_integral_over_levels_is_exact(spread: float) -> None:
    log_odds = np.array([-12.0, -0.4, 0.0, 1.2, 20.0])
    exact = []
    for each in log_odds.tolist():

        def density(z: float, each: float = each) -> float:
            return float(expit(each + spread * z) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))

        # The logistic curve may be a step of the levels: quad is told where.
        step = [float(np.clip(-each / spread, -11, 11))]
        exact.append(quad(density, -12, 12, points=step, epsabs=1e-13, limit=200)[0])
    np.testing.assert_allclose(integrated(log_odds, spread), exact, rtol=0, atol=1e-9)


def test_a_new_group_gets_the_integrated_probability() -> None:
    scores, labels, groups = world(300, 10)
    fitted = by_group(scores, labels, groups)
    probes = np.array([-1.5, 0.0, 1.5])
    truth = integrated(-0.5 + probes, 1.5)
    np.testing.assert_allclose(fitted.predict(probes), truth, atol=0.06)
    # With the level of a typical group, the same slope would claim more.
    assert fitted.predict(1.5) < expit(-0.5 + 1.5)


def test_scores_that_mislead_new_groups_are_shrunk_to_the_constant() -> None:
    """The score tells one large group's relevance; in the others it means nothing."""
    rng = np.random.default_rng(3)
    groups = np.concatenate([np.repeat(np.arange(30), 10), np.full(900, 30)])
    scores = rng.normal(size=len(groups))
    log_odds = np.where(groups == 30, 3 * scores, rng.normal(0, 1, 31)[groups])
    labels = (rng.random(len(groups)) < expit(log_odds)).astype(float)
    fitted = by_group(scores, labels, groups)
    platt = cr.Platt().fit(scores, labels)
    rise = np.diff(fitted.log_odds(np.array([-1.0, 1.0])))
    assert rise < 0.7 * np.diff(platt.log_odds(np.array([-1.0, 1.0])))
    others = groups < 30
    loss = cr.LogLoss()(fitted.predict(scores[others]), labels[others])
    assert loss < cr.LogLoss()(platt.predict(scores[others]), labels[others])


def test_scores_without_meaning_give_a_constant_that_keeps_the_order() -> None:
    scores, labels, groups = world(40, 10, slope=0.0, seed=1)
    with pytest.warns(FlatMapWarning, match="no better than a constant"):
        fitted = by_group(-scores if _rises(scores, labels) else scores, labels, groups)
    low, high = fitted.predict(np.array([-2.0, 2.0]))
    assert high - low < 0.15
    assert high > low


def _rises(scores: np.ndarray, labels: np.ndarray) -> bool:
    return bool(np.corrcoef(scores, labels)[0, 1] > 0)


def test_the_mean_probability_is_the_rate_of_the_rows() -> None:
    scores, labels, groups = world(60, 20)
    fitted = by_group(scores, labels, groups)
    assert fitted.predict(scores).mean() == pytest.approx(labels.mean(), abs=0.005)


def test_intervals_account_for_groups() -> None:
    """Repeating every group's level in many rows must not narrow the interval to nothing."""
    scores, labels, groups = world(40, 60, slope=0.3, spread=2.0)
    fitted = by_group(scores, labels, groups)
    interval = fitted.sampling_interval(0.0)
    naive = cr.Platt().fit(scores, labels).sampling_interval(0.0)
    assert interval.high - interval.low > 3 * (naive.high - naive.low)


def test_weights_equal_repeated_rows_and_order_does_not_matter() -> None:
    scores, labels, groups = world(20, 8)
    doubled = cr.naive(labels, weights=np.full(len(labels), 2.0))
    repeated = [np.tile(each, 2) for each in (scores, labels, groups)]
    once = by_group(scores, doubled, groups)
    twice = by_group(*repeated)
    np.testing.assert_allclose(once.curve.values, twice.curve.values, atol=2e-3)
    order = np.random.default_rng(0).permutation(len(scores))
    shuffled = by_group(scores[order], labels[order], groups[order])
    np.testing.assert_allclose(
        by_group(scores, labels, groups).curve.values, shuffled.curve.values, atol=2e-3
    )


def test_the_map_is_an_ordinary_one_for_files_and_exporters() -> None:
    scores, labels, groups = world(30, 10)
    fitted = by_group(scores, labels, groups)
    assert fitted.method == "Auto + query"
    assert fitted.columns == ()
    selection = fitted.record.selection
    assert selection is not None
    names = [each.name for each in selection.candidates]
    assert names[:2] == ["constant", "Platt"]
    assert "Spline with a random intercept, 50% of the slope" in names
    probes = np.linspace(-5, 5, 41)
    np.testing.assert_allclose(
        engines.sqlite_query(to_sql(fitted, "sqlite"), probes.tolist()),
        fitted.predict(probes),
        rtol=1e-12,
    )
    record = json.loads(json.dumps(fitted.to_dict()))["record"]
    assert record["recipe"] == repr(MODEL)
    assert parse_model(repr(MODEL)) == MODEL
    assert (np.diff(fitted.log_odds(probes)) > 0).all()


def test_settings_and_few_groups_are_refused() -> None:
    scores, labels, groups = world(9, 10)
    with pytest.raises(cr.FitError, match="groups must hold at least 10 ids for 5 folds, got 9"):
        by_group(scores, labels, groups)
    for folds in (1, 1001, 2.5):
        with pytest.raises(cr.DataError, match="folds must be a whole number, 2 to 1,000"):
            cr.Group("query", folds=folds)
    assert type(cr.Group("query", folds=np.int64(2)).folds) is int
    assert cr.Group("query", folds=1000).folds == 1000
    with pytest.raises(cr.DataError, match="Group must not go with other terms"):
        MODEL + cr.Level("country")


def test_one_class_or_one_score_is_refused() -> None:
    scores, labels, groups = world(12, 5)
    few = GroupFit((cr.Platt(),), folds=2)
    with pytest.raises(cr.FitError, match="labels must hold both classes, got no positive"):
        few.fit(scores, np.zeros_like(labels), groups)
    with pytest.raises(cr.DataError, match="scores must differ from row to row"):
        few.fit(np.zeros_like(scores), labels, groups)
    # As many groups as two per fold are enough.
    with pytest.warns(FlatMapWarning, match="no better than a constant"):
        few.fit(scores[:20], scores[:20] + np.tile([-1, 1], 10) > 0, groups[:20])


def test_each_fold_has_groups_of_its_own() -> None:
    scores, labels, groups = world(12, 20)
    model = cr.Platt() + cr.Group("query", folds=6)
    fitted = model.fit(scores, labels, {"query": groups})
    selection = fitted.record.selection
    assert selection is not None
    assert selection.folds == 6
    parts = ["25% of the slope", "50% of the slope", "75% of the slope"]
    with_level = "Platt with a random intercept"
    names = ["constant", "Platt", *[f"{with_level}, {part}" for part in parts], with_level]
    assert [each.name for each in selection.candidates] == names


def test_a_few_large_groups_do_not_decide_the_level() -> None:
    """One group of forty has a quarter of the rows; the truth is known over many draws."""
    total = np.array([50.0] * 39 + [600.0])
    by_rows = []
    by_capped = []
    for seed in range(300):
        rates = expit(np.random.default_rng(seed).normal(0, 1, 40))
        weights = capped_masses(rates * total, total)
        by_rows.append(total @ rates / total.sum() - 0.5)
        by_capped.append(weights @ rates / weights.sum() - 0.5)
    assert np.std(by_capped) < 0.85 * np.std(by_rows)


def test_sizes_that_tell_the_rate_are_kept_where_groups_are_many() -> None:
    """Large groups have another rate: with many groups that is known, and nothing is capped."""
    rng = np.random.default_rng(0)
    sizes = [3600, 400]
    total = np.repeat([10.0, 200.0], sizes)
    rates = expit(np.repeat([1.0, -1.0], sizes) + rng.normal(0, 0.5, 4000))
    capped = capped_masses(rates * total, total)
    rate = (rates @ total) / total.sum()
    assert rates @ capped / capped.sum() == pytest.approx(rate, abs=0.01)
    # Of few groups the same sizes would be capped more.
    few = np.r_[0:36, 3600:3604]
    less = capped_masses(rates[few] * total[few], total[few])
    assert less[-1] / less[0] < 0.95 * capped[-1] / capped[0]


def test_groups_of_equal_mass_count_as_they_are() -> None:
    rates = np.array([0.1, 0.5, 0.9, 0.3])
    np.testing.assert_allclose(capped_masses(7 * rates, np.full(4, 7.0)), 7)
    with_empty = capped_masses(np.append(7 * rates, 0), np.array([7.0, 7, 7, 7, 0]))
    np.testing.assert_allclose(with_empty, [7, 7, 7, 7, 0])


def test_a_capped_fit_has_the_level_of_the_capped_rows() -> None:
    scores, labels, groups = world(40, 20)
    rng = np.random.default_rng(1)
    large = rng.normal(size=2000)
    relevant = (rng.random(2000) < 0.75).astype(float)
    both = [np.concatenate(each) for each in ((scores, large), (labels, relevant))]
    owner = np.concatenate([groups, np.full(2000, 40)])
    capped = GroupedRows.of(*both, owner).capped()
    assert capped.total.sum() < 2800
    fitted = by_group(*both, owner)
    mean = np.average(fitted.predict(both[0]), weights=capped.total)
    assert mean == pytest.approx(capped.positive.sum() / capped.total.sum(), abs=0.01)
    # The record is about the rows as they were given.
    assert fitted.record.total == 2800


def test_candidates_are_weighted_by_their_distance_in_standard_errors() -> None:
    losses = {"best": (0.5, 0.0), "near": (0.51, 0.02), "far": (0.6, 0.02)}
    candidates = tuple([CandidateLoss(name, *each) for name, each in losses.items()])
    curves = {name: Curve(None, place, 0.0, 0.0) for place, name in enumerate(losses)}
    average = _averaged(curves, Selection("best", 5, candidates))
    # 0.5 standard errors: exp(-1 / 4); 5 of them: left out.
    assert average.weights == pytest.approx([1 / (1 + np.exp(-0.25)), 1 / (1 + np.exp(0.25))])
    assert [curve.intercept for curve in average.curves] == [0, 1]


@pytest.mark.parametrize("copies", [1, 5])
def test_the_weight_is_the_likelihood_of_groups_and_not_of_rows(copies: int) -> None:
    """With a row per group it is the root of the likelihood ratio; copies of rows add nothing."""
    rng = np.random.default_rng(2)
    scores = rng.normal(size=4000)
    labels = (rng.random(4000) < expit(scores)).astype(float)
    fitted = cr.Platt().fit(scores, labels)
    best = fitted.log_odds(scores)
    other = fitted.log_odds(0.0) + 0.93 * (best - fitted.log_odds(0.0))
    losses = {}
    for name, log_odds in {"best": best, "other": other}.items():
        losses[name] = [copies * (np.logaddexp(0, log_odds) - labels * log_odds)]
    selection = _selection(losses, [np.full(4000, float(copies))])
    curves = {name: Curve(None, 0.0, 0.0, 0.0) for name in losses}
    ratio = np.exp((losses["best"][0].sum() - losses["other"][0].sum()) / copies)
    weights = _averaged(curves, selection).weights
    assert (weights[1] / weights[0]) ** 2 == pytest.approx(ratio, rel=0.1)
    assert 0.1 < ratio < 0.9


def test_new_queries_of_judged_pools_get_probabilities_that_are_right_on_average() -> None:
    """Eight worlds of four shapes of scores; the truth is known for 500 new queries each."""
    gains, gaps = [], []
    for seed in range(8):
        shape = SHAPES[seed % 4]
        known = judged_pool(shape, 40, seed, draw=0)
        new = judged_pool(shape, 500, seed, draw=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FlatMapWarning)
            fitted = by_group(known.scores, known.labels, known.queries)
        predicted = fitted.predict(new.scores)
        constant = np.full(len(new.truth), known.labels.mean())
        truth = cr.Evidence(new.truth, np.ones(len(new.truth)))
        losses = [cr.LogLoss()(each, truth) for each in (constant, predicted)]
        gains.append(losses[0] - losses[1])
        above = predicted >= 0.5
        if above.sum() > 100:
            gaps.append((new.truth - predicted)[above].mean())
    assert np.mean(gains) > 0.01
    assert min(gains) > -0.005
    assert len(gaps) >= 5
    assert abs(np.mean(gaps)) < 0.04


def test_scores_that_one_group_has_do_not_steepen_the_map() -> None:
    """One group lies far below the others and has no relevant row: its level is not a slope."""
    scores, labels, groups = world(40, 20)
    low = np.linspace(-9, -6, 30)
    both = np.concatenate([scores, low]), np.concatenate([labels, np.zeros(30)])
    fitted = by_group(*both, np.concatenate([groups, np.full(30, 40)]))
    lowest = np.sort([scores[groups == group].min() for group in range(40)])
    third = lowest[1]
    at_end = fitted.predict(third)
    assert fitted.predict(-9.0) == pytest.approx(at_end, abs=1e-4)
    # The order of the scores is kept.
    assert fitted.predict(-9.0) < fitted.predict(-8.0) < fitted.predict(third)
    assert fitted.predict(100.0) < 0.95
    rows = GroupedRows.of(scores, labels, groups)
    assert rows.supported_range()[0] == lowest[2]
    assert GroupedRows.of([1.0, 2.0, 3.0], [0, 1, 0], [1, 2, 3]).supported_range() == (1.0, 3.0)


def test_capped_masses_scale_with_the_weights() -> None:
    rates, total = np.array([0.2, 0.5, 0.1, 0.9]), np.array([3.0, 40.0, 2.0, 5.0])
    capped = capped_masses(rates * total, total)
    np.testing.assert_allclose(capped_masses(rates * total / 100, total / 100), capped / 100)
