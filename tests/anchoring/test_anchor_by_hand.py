"""What `anchor` does around the posterior: weights of labels, ends of curves, rates, and terms."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

import calibrank as cr
from calibrank._internal.logit import expit, logit
from calibrank.anchoring import _terms_of, count_columns
from calibrank.anchoring._population import Population, moved_start
from calibrank.anchoring.anchor import (
    PRIOR_CORRELATION,
    PRIOR_GROUPS,
    _move_of_terms,
    _moved,
    _piecewise_curve,
    _rate,
    group_weights,
    label_weights,
)
from calibrank.anchoring.posterior import PosteriorCurve, RandomLabels, posterior_curve
from calibrank.maps import Anchoring, LevelTerm, SmoothTerm
from calibrank.maps import record as documents
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.tables import Interactions


@pytest.fixture(scope="module")
def start() -> cr.CalibrationMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2_000)
    return cr.Platt().fit(scores, rng.random(2_000) < expit(scores))


def test_weights_sum_to_the_number_of_labels_with_the_same_variance() -> None:
    chances = np.random.default_rng(1).uniform(0.05, 1, 200)
    weights = label_weights(chances, 200)
    np.testing.assert_allclose(weights * chances, (weights * chances)[0])
    # A weighted mean has the variance that this many labels have.
    variance = ((weights / weights.sum()) ** 2).sum()
    assert weights.sum() == pytest.approx(1 / variance)
    np.testing.assert_array_equal(label_weights(None, 3), 1)
    np.testing.assert_allclose(label_weights(np.full(5, 0.2), 5), 1)


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [((1, 1, 2, 3, 5, 5, 8, 9, 12), None), ((7, 9, 8), None), ((9, 9, 9), 1), ((2,) * 9, 0)],
)
def test_the_correlation_within_groups_is_that_of_all_pairs(
    start: cr.CalibrationMap, sizes: tuple[int, ...], limit: int | None
) -> None:
    rng = np.random.default_rng(2)
    count = len(sizes)
    groups = np.repeat(np.arange(count), sizes)
    scores = rng.normal(size=len(groups))
    offset = rng.normal(size=len(groups)) / 2
    total = rng.uniform(0.5, 2, len(groups))
    shares = rng.random(len(groups)) * rng.random(count)[groups]
    if limit is not None:
        # All labels of a group are alike, or one of its two is positive.
        shares = (groups % 2 if limit else np.arange(len(groups)) % 2).astype(float)
        scores, offset = np.zeros(len(groups)), np.zeros(len(groups))
    found = group_weights(start, scores, cr.Evidence(total * shares, total), offset, groups)
    z = start.log_odds(scores) + offset

    def loss(x: np.ndarray) -> float:
        at = x[0] + x[1] * z
        penalty = (x[0] / 2) ** 2 / 2 + ((x[1] - 1) / 0.5) ** 2 / 2
        return float((np.logaddexp(0, at) - shares * at).sum() + penalty)

    level, slope = minimize(loss, [0.0, 1.0], tol=1e-12).x
    p = expit(level + slope * z)
    residuals = (shares - p) / np.sqrt(p * (1 - p))
    products = [
        residuals[one] * residuals[two]
        for one, two in combinations(range(len(groups)), 2)
        if groups[one] == groups[two]
    ]
    # Two groups went into the level and the slope.
    raw = np.mean(products) * count / (count - 2)
    own = np.clip(raw, 0, 1)
    assert (0 < raw < 1) == (limit is None)
    assert limit in (None, own)
    known = sum(size > 1 for size in sizes) - 2
    correlation = (known * own + PRIOR_GROUPS * PRIOR_CORRELATION) / (known + PRIOR_GROUPS)
    expected = 1 / (1 + (np.array(sizes) - 1) * correlation)
    np.testing.assert_allclose(found, expected[groups], rtol=1e-4)
    # A group of one label is no group.
    alone = group_weights(start, scores[:3], cr.naive([0, 1, 1]), offset[:3], ["a", "b", "c"])
    np.testing.assert_array_equal(alone, 1)


def made_curve(places: int = 101) -> PosteriorCurve:
    scores = np.linspace(-2, 2, places)
    covariance = (
        0.4**2
        + 0.2**2 * np.outer(scores, scores)
        + 0.01 * np.exp(-np.abs(scores[:, None] - scores))
    )
    return PosteriorCurve(scores, expit(1.5 * scores - 1), covariance, 0.9, 0.8, 0.7, 1.0)


def test_the_range_of_the_rate_is_that_of_drawn_curves() -> None:
    made = made_curve()
    rng = np.random.default_rng(3)
    weights = rng.dirichlet(np.full(101, 5.0))
    population = Population(made.scores, made.scores, made.scores, weights)
    z = rng.multivariate_normal(logit(made.probabilities), made.covariance, 4_000)
    rates = expit(z) @ weights
    rate, (low, high) = _rate(made, population)
    assert rate == pytest.approx(weights @ made.probabilities)
    assert (logit(low) + logit(high)) / 2 == pytest.approx(logit(rate))
    assert logit(high) - logit(low) == pytest.approx(2 * 1.96 * np.std(logit(rates)), rel=0.05)


@pytest.mark.parametrize(("lowest", "highest"), [(-5.0, 4.0), (-2.0, 2.0), (-2.001, 2.001)])
def test_a_curve_goes_on_as_it_ends(lowest: float, highest: float) -> None:
    made = made_curve()
    curve = _piecewise_curve(made, lowest, highest)
    knots, values = np.array(curve.knots), np.array(curve.values)
    errors = np.array(curve.value_errors)
    assert (np.diff(values) > 0).all()
    inside = (knots >= -2) & (knots <= 2)
    np.testing.assert_allclose(knots[inside], made.scores)
    np.testing.assert_allclose(values[inside], logit(made.probabilities), atol=2e-6)
    np.testing.assert_allclose(errors[inside], np.sqrt(np.diag(made.covariance)))
    # The slope at the ends is that over the outermost 2% of the curve, which has its own error.
    assert curve.end_slopes == pytest.approx((1.5, 1.5), rel=1e-4)
    for error, (outer, inner) in zip(curve.slope_errors, ((0, 2), (-1, -3)), strict=True):
        rows = np.ix_([outer, inner], [outer, inner])
        variance = np.array([1, -1]) @ made.covariance[rows] @ np.array([1, -1])
        assert error == pytest.approx(np.sqrt(variance) / 0.08)
    if lowest == -5:
        assert (knots[0], knots[-1]) == (lowest, highest)
        assert values[[0, -1]] == pytest.approx([-8.5, 5.0], rel=1e-4)
        for place, end, distance in ((0, 0, 3), (-1, 1, 2)):
            inner = errors[1] if place == 0 else errors[-2]
            assert errors[place] == pytest.approx(inner + distance * curve.slope_errors[end])
    else:
        # Nothing is gained by a knot so near.
        assert len(knots) == 101


def test_a_certain_curve_has_finite_log_odds_and_no_knot_at_a_large_number() -> None:
    scores = np.linspace(0, 1, 50)
    steps = (scores > 0.5).astype(float)
    made = PosteriorCurve(scores, steps, np.eye(50), 1.0, 1.0, 1.0, 1.0)
    curve = _piecewise_curve(made, -1e9, 1e9)
    values = np.array(curve.values)
    assert np.isfinite(values).all()
    assert (np.diff(values) > 0).all()
    assert expit(values[0]) == pytest.approx(1e-12, rel=0.01)
    assert 1 - expit(values[-1]) == pytest.approx(1e-12, rel=0.01)
    rising = PosteriorCurve(scores, expit(scores), np.eye(50), 1.0, 1.0, 1.0, 1.0)
    far = _piecewise_curve(rising, -5e3, 90.0)
    assert far.knots[0] == 0
    assert far.knots[-1] == 90


def test_terms_move_the_rate_as_far_as_they_move_the_labelled_pairs(
    start: cr.CalibrationMap,
) -> None:
    term = SmoothTerm("price", (0.0, 1.0), (-1.0, 2.0))
    with_term = cr.CalibrationMap(start.curve, start.record, (term,))
    scores, price = np.linspace(-1, 1, 5), np.linspace(0, 1, 5)
    weights = np.array([1.0, 0.0, 2.0, 0.5, 3.0])
    z = start.log_odds(scores)
    with_terms = np.average(expit(z - 1 + 3 * price), weights=weights)
    alone = np.average(expit(z), weights=weights)
    move = _move_of_terms(with_term, start, scores, {"price": price}, weights)
    assert move == pytest.approx(logit(with_terms) - logit(alone))
    assert _move_of_terms(start, start, scores, None, weights) == 0
    anchoring = Anchoring(5, 5.0, 1.0, 1.0, 1.0, 0.2, (0.1, 0.4), 0.3)
    moved = _moved(anchoring, 0.5, -1.0)
    rates = np.array([moved.rate, *moved.rate_range, moved.start_rate])
    shifts = logit(rates) - logit(np.array([0.2, 0.1, 0.4, 0.3]))
    np.testing.assert_allclose(shifts, [0.5, 0.5, 0.5, -1.0])


def test_the_sum_of_functions_is_their_sum_everywhere() -> None:
    first = SmoothTerm("x", (0.0, 1.0, 3.0), (0.0, 2.0, 1.0), (0.3, 0.3, 0.3))
    second = SmoothTerm("x", (-1.0, 0.5, 2.0), (1.0, -1.0, 0.0), (0.4, 0.4, 0.4))
    both = _terms_of._sum(first, second)
    asked = np.linspace(-3, 5, 60)

    def at(term: SmoothTerm) -> np.ndarray:
        zeros = np.zeros(60)
        return term.on(NumpyTarget(), zeros, zeros, term.read({"x": asked}, 60))

    np.testing.assert_allclose(at(both), at(first) + at(second), atol=1e-12)
    assert both.errors == pytest.approx([0.5] * 6)
    certain = SmoothTerm("x", (0.0, 1.0), (0.0, 2.0))
    assert _terms_of._sum(certain, second).errors == pytest.approx([0.4] * 5)
    assert _terms_of._sum(None, second) is second
    half = _terms_of.scaled(first, 0.5)
    np.testing.assert_allclose(at(half), at(first) / 2)
    assert half.errors == pytest.approx((0.15,) * 3)


def test_scaled_levels_are_as_far_from_none_as_the_factor_says() -> None:
    term = LevelTerm(
        ("x",), (("a",), ("b",)), (2.0, -1.0), (1.5, 0.5), (0.4, 0.2), (9, 9), (1.2,), 0.6
    )
    half = _terms_of.scaled(term, 0.5)
    assert half.intercepts == pytest.approx((1.0, -0.5))
    assert half.typical == pytest.approx(0.3)
    assert half.errors == pytest.approx((0.2, 0.1))
    assert half.spreads == pytest.approx((0.6,))
    none, full = _terms_of.scaled(term, 0.0), _terms_of.scaled(term, 1.0)
    assert none.slopes == pytest.approx((1.0, 1.0))
    assert full.slopes == pytest.approx(term.slopes)


def test_counts_are_of_positives_and_of_the_asked_ids() -> None:
    log = Interactions(
        users=["b", "b", "a", "c"], items=[5, 7, 7, 9], labels=np.array([1.0, 1.0, 1.0, 0.0])
    )
    found = count_columns(log, users=["a", "b", "c", "z"], items=[9, 7, 100, 5])
    np.testing.assert_allclose(np.expm1(found["item_popularity"]), [0, 2, 0, 1])
    np.testing.assert_allclose(np.expm1(found["user_activity"]), [1, 2, 0, 0])
    none = Interactions(users=["a"], items=[1], labels=np.zeros(1))
    empty = count_columns(none, users=["a"], items=[1])
    assert [each.tolist() for each in empty.values()] == [[0.0], [0.0]]
    with pytest.raises(cr.DataError, match=r"items must be ids as in the log \(int64\)"):
        count_columns(log, users=["a"], items=["7"])


@pytest.mark.parametrize("holds", [True, False])
def test_levels_of_the_start_are_kept_if_the_labels_say_so(holds: bool) -> None:
    rng = np.random.default_rng(4)
    levels = rng.normal(0, 2, 12)
    scores, country = rng.normal(size=4_000), rng.integers(0, 12, 4_000)
    labels = rng.random(4_000) < expit(scores + levels[country])
    fitted = (cr.Platt() + cr.Level("country")).fit(scores, labels, {"country": country})
    truth = expit(scores + levels[country] - 1 if holds else scores - 1)
    chosen = rng.permutation(4_000)[:150]
    given = (rng.random(150) < truth[chosen]).astype(float)
    anchored = cr.anchor(fitted, scores[chosen], given, {"country": country[chosen]})
    factor = anchored.record.anchoring.term_factor
    assert factor > 0.8 if holds else factor < 0.3
    p = anchored.predict(scores, {"country": country})
    assert np.abs(p - truth).mean() < 0.08
    assert (
        cr.anchor(fitted.without_terms(), scores[:9], given[:9]).record.anchoring.term_factor
        is None
    )


def test_a_count_is_a_term_by_default_unless_the_map_has_it(start: cr.CalibrationMap) -> None:
    names = ["item_popularity", "user_activity", "price"]
    assert [term.column for term in _terms_of.default_terms(start, names)] == names[:2]
    term = SmoothTerm("user_activity", (0.0, 1.0), (-1.0, 2.0))
    known = cr.CalibrationMap(start.curve, start.record, (term,))
    assert [term.column for term in _terms_of.default_terms(known, names)] == names[:1]
    assert _terms_of.default_terms(start, []) == []
    with pytest.raises(cr.DataError, match="Group"):
        cr.anchor(start, [0.0, 1.0], [0, 1], {"user": [1, 2]}, terms=[cr.Group("user")])


@pytest.mark.parametrize("is_judged", [False, True])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_map_is_the_posterior_of_its_weighted_labels(
    start: cr.CalibrationMap, is_judged: bool, is_replaced: bool
) -> None:
    """All that a user passes arrives: weights, counts, groups, the range, and the second start."""
    rng = np.random.default_rng(5)
    record = replace(start.record, base_rate_range=(0.3, 0.6))
    if is_judged:
        record = replace(record, population=documents.Population("documents", None, 5))
    term = SmoothTerm("price", (0.0, 1.0), (-1.0, 1.0))
    fitted = cr.CalibrationMap(start.curve, record, (term,))
    scores = rng.normal(size=90) + 20 * is_replaced
    columns = {"price": rng.random(90)}
    total = rng.integers(1, 3, 90).astype(float)
    evidence = cr.Evidence(rng.binomial(total.astype(int), 0.3).astype(float), total)
    chances, groups = rng.uniform(0.3, 1, 90), rng.integers(0, 20, 90)
    shown = rng.normal(size=3_000) + 20 * is_replaced
    found = cr.anchor(
        fitted,
        scores,
        evidence,
        columns,
        propensity=chances,
        groups=groups,
        population=shown,
        terms=(),
    )
    offset = 2 * columns["price"] - 1
    weights = label_weights(chances, 90)
    weights = weights * group_weights(start, scores, evidence, offset, groups)
    labels = RandomLabels(
        scores, weights * total, weights * evidence.positive, offset, has_terms=True
    )
    population = Population.of(np.sort(shown))
    alone = cr.CalibrationMap(start.curve, record)
    starts = [alone, moved_start(alone, population)] if is_replaced else [alone]
    curve = posterior_curve(starts, labels, population, (0.3, 0.6), is_judged=is_judged)
    anchoring = found.record.anchoring
    assert anchoring.labels == 90
    assert anchoring.effective_labels == pytest.approx((weights * total).sum())
    learned = (anchoring.intercept, anchoring.slope, anchoring.curvature, anchoring.term_factor)
    expected = (curve.intercept, curve.slope, curve.curvature, curve.term_factor)
    assert learned == pytest.approx(expected)
    # The level and the slope of the curve are fitted again beside the term: the shape is not.
    before, after = logit(curve.probabilities), found.curve.log_odds(curve.scores)
    change = np.polyfit(before, after, 1)
    np.testing.assert_allclose(after, np.polyval(change, before), atol=1e-4)
    # The curve reaches over the labels, the population and the range of the start.
    span = starts[-1].curve.span
    ends = np.concatenate([scores, shown, span])
    assert found.curve.knots[0] == pytest.approx(ends.min(), abs=1e-3 * np.ptp(ends))
    assert found.curve.knots[-1] == pytest.approx(ends.max(), abs=1e-3 * np.ptp(ends))
    move = _move_of_terms(fitted, alone, scores, columns, weights * total)
    rate = population.mean(start.predict(population.grid))
    assert logit(anchoring.start_rate) == pytest.approx(logit(rate) + move)
    own, interval = _rate(curve, population)
    # From the curve that the rate is of, not from the one that is fitted beside the term.
    reached = _piecewise_curve(curve, float(ends.min()), float(ends.max()))
    typical = cr.CalibrationMap(reached, found.record)
    move = _move_of_terms(found, typical, scores, columns, weights * total)
    rates = logit(np.array([anchoring.rate, *anchoring.rate_range]))
    np.testing.assert_allclose(rates, logit(np.array([own, *interval])) + move)
    loss = cr.LogLoss()(found.predict(scores, columns), cr.Evidence(labels.positive, labels.total))
    assert found.record.loss == pytest.approx(loss)
    assert found.record.base_rate_source == "random labels"
    assert found.record.top_rate is None
    assert found.record.sensitivity is None
