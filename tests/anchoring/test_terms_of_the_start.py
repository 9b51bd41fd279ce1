"""Anchoring maps of any kind: with terms, at a known rate, anchored before, on any evidence."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.anchoring.anchor import group_weights

COUNTRIES = 12


class World(NamedTuple):
    """A map of a log, and the levels of random labels, whose odds are lower than in the log."""

    fitted: cr.CalibrationMap
    levels: np.ndarray
    rng: np.random.Generator

    def draw(self, rows: int) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        """Scores, columns and true probabilities."""
        scores, price = self.rng.normal(size=(2, rows))
        country = self.rng.integers(0, COUNTRIES, rows)
        truth = expit(scores - 2.5 + self.levels[country] + 0.5 * price)
        return scores, {"country": country, "price": price}, truth

    def labelled(self, rows: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        scores, columns, truth = self.draw(rows)
        return scores, (self.rng.random(rows) < truth).astype(float), columns


def world(*, is_right: bool, seed: int, model: cr.Model | None = None) -> World:
    """The levels of the log are those of the labels, or others that say nothing about them."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(0, 0.8, COUNTRIES)
    logged = levels if is_right else rng.normal(0, 0.8, COUNTRIES)
    scores, price = rng.normal(size=(2, 8_000))
    country = rng.integers(0, COUNTRIES, 8_000)
    truth = expit(scores - 1 + logged[country] + (0.5 * price if is_right else 0))
    model = cr.Gaussian() + cr.Level("country") if model is None else model
    labels = rng.random(8_000) < truth
    fitted = model.fit(scores, labels, {"country": country, "price": price})
    return World(fitted, levels, rng)


def loss(truth: np.ndarray, p: np.ndarray) -> float:
    return float(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean())


@pytest.mark.parametrize(("is_right", "labels"), [(True, 300), (False, 300), (False, 1_000)])
def test_levels_of_the_log_are_kept_as_far_as_the_labels_confirm_them(
    is_right: bool, labels: int
) -> None:
    """Never worse than to leave them out, or to estimate them from the labels alone."""
    factors, losses = [], []
    for seed in range(6):
        made = world(is_right=is_right, seed=seed)
        given = made.labelled(labels)
        asked, columns, truth = made.draw(8_000)
        alone = made.fitted.without_terms()
        kept = cr.anchor(made.fitted, *given)
        own = cr.anchor(alone, *given, terms=[cr.Level("country")])
        plain = cr.anchor(alone, *given[:2])
        factors.append(kept.record.anchoring.term_factor)
        predicted = [kept.predict(asked, columns), own.predict(asked, columns)]
        losses.append([loss(truth, p) for p in (*predicted, plain.predict(asked))])
    assert (np.mean(factors) > 0.75) if is_right else (np.mean(factors) < 0.35)
    by_kept, by_own, by_none = np.array(losses).T
    for other in (by_own, by_none):
        difference = by_kept - other
        assert difference.mean() < difference.std(ddof=1) / np.sqrt(6) + 2e-4
    assert by_kept.mean() < by_none.mean() - 0.005
    if is_right:
        assert by_kept.mean() < by_own.mean() - 0.003


@pytest.mark.parametrize("is_right", [True, False])
def test_functions_and_levels_of_the_log_are_kept_together(is_right: bool) -> None:
    model = cr.Gaussian() + cr.Level("country") + cr.Smooth("price")
    made = world(is_right=is_right, seed=1, model=model)
    given = made.labelled(600)
    asked, columns, truth = made.draw(8_000)
    anchored = cr.anchor(made.fitted, *given)
    factor = anchored.record.anchoring.term_factor
    assert (factor > 0.7) if is_right else (factor < 0.4)
    assert anchored.columns == ("country", "price")
    by_terms = loss(truth, anchored.predict(asked, columns))
    plain = cr.anchor(made.fitted.without_terms(), *given[:2])
    assert by_terms < loss(truth, plain.predict(asked)) - 0.005
    assert by_terms < loss(truth, made.fitted.predict(asked, columns)) - 0.05


def test_levels_without_labels_and_unknown_ones_stay_as_uncertain_as_they_are() -> None:
    made = world(is_right=True, seed=2)
    scores, labels, columns = made.labelled(400)
    rows = columns["country"] > 2
    some = {name: values[rows] for name, values in columns.items()}
    anchored = cr.anchor(made.fitted, scores[rows], labels[rows], some)
    (before,), (after,) = made.fitted.terms, anchored.terms
    assert set(after.keys) == set(before.keys)
    factor = anchored.record.anchoring.term_factor
    for key in ("0",), ("1",), ("2",):
        old, new = before.node(key) - 1, after.node(key) - 1
        expected = factor * before.intercepts[old] + 0.0
        # The change of a typical level may come on top.
        assert after.intercepts[new] == pytest.approx(expected, abs=0.3)
    assert after.spreads[0] > 0.5 * factor * before.spreads[0]
    known = anchored.interval(0.0, {"country": 5})
    unknown = anchored.interval(0.0, {"country": "?"})
    assert unknown.high - unknown.low > 1.5 * (known.high - known.low)


def test_a_map_needs_its_columns_to_be_anchored() -> None:
    made = world(is_right=True, seed=0)
    scores, labels, columns = made.labelled(50)
    with pytest.raises(cr.DataError, match="columns must have country"):
        cr.anchor(made.fitted, scores, labels)
    with pytest.raises(cr.DataError, match="must have the column 'country', got 'price'"):
        cr.anchor(made.fitted, scores, labels, {"price": columns["price"]})
    with pytest.raises(cr.DataError, match="terms must be of different columns"):
        cr.anchor(made.fitted, scores, labels, columns, terms=[cr.Level("country")])


def queries(
    rng: np.random.Generator, count: int, size: int, spread: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and queries whose log odds differ."""
    query = np.repeat(np.arange(count), size)
    scores = rng.normal(size=len(query))
    level = rng.normal(0, spread, count)[query]
    return scores, (rng.random(len(query)) < expit(scores - 1 + level)).astype(float), query


@pytest.fixture(scope="module")
def judged() -> cr.CalibrationMap:
    """A judge's map: its odds are three times too high."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    return cr.Gaussian().fit(scores, rng.random(4_000) < expit(scores))


def test_labels_of_whole_queries_count_for_less(judged: cr.CalibrationMap) -> None:
    rng = np.random.default_rng(1)
    scores, labels, query = queries(rng, 40, 25, 2.0)
    by_query = cr.anchor(judged, scores, labels, groups=query)
    by_row = cr.anchor(judged, scores, labels, groups=np.arange(1_000))
    plain = cr.anchor(judged, scores, labels)
    assert by_row.predict(0.5) == plain.predict(0.5)
    assert by_row.record.anchoring.effective_labels == 1_000
    assert by_query.record.anchoring.effective_labels < 250
    low, high = by_query.interval(0.0)
    before = plain.interval(0.0)
    assert high - low > 1.6 * (before.high - before.low)


def test_the_weight_of_a_group_is_that_of_correlated_labels(judged: cr.CalibrationMap) -> None:
    """m labels with correlation r count as m / (1 + (m - 1) r); none count for more than one."""
    rng = np.random.default_rng(2)
    for spread, lowest, highest in ((0.0, 0.0, 0.06), (3.0, 0.3, 0.7)):
        scores, labels, query = queries(rng, 200, 10, spread)
        weights = group_weights(judged, scores, cr.naive(labels), np.zeros(len(scores)), query)
        assert np.unique(weights).size == 1
        correlation = (1 / weights[0] - 1) / 9
        assert lowest <= correlation <= highest
    # Few groups say little: the correlation stays near that of judged pools, 0.2.
    scores, labels, query = queries(rng, 3, 10, 0.0)
    weights = group_weights(judged, scores, cr.naive(labels), np.zeros(len(scores)), query)
    assert (1 / weights[0] - 1) / 9 == pytest.approx(0.2, abs=0.08)


def test_intervals_cover_the_truth_of_new_queries(judged: cr.CalibrationMap) -> None:
    """The mean over queries, at three scores, in forty samples of forty queries."""
    asked = np.array([-1.0, 0.0, 1.0])
    nodes = 2.0 * np.random.default_rng(9).normal(size=200_000)
    truth = np.array([expit(score - 1 + nodes).mean() for score in asked])
    covered = {"groups": [], "rows": []}
    for seed in range(40):
        rng = np.random.default_rng(100 + seed)
        scores, labels, query = queries(rng, 40, 10, 2.0)
        population = rng.normal(size=2_000)
        for name, groups in (("groups", query), ("rows", None)):
            fitted = cr.anchor(judged, scores, labels, groups=groups, population=population)
            low, high = fitted.interval(asked)
            covered[name].append((low <= truth) & (truth <= high))
    assert np.mean(covered["groups"]) > 0.87
    assert np.mean(covered["groups"]) > np.mean(covered["rows"]) + 0.03


def test_counts_are_repeated_rows(judged: cr.CalibrationMap) -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=60)
    total = rng.integers(1, 6, 60)
    positive = rng.binomial(total, expit(scores - 1))
    population = rng.normal(size=500)
    counts = cr.Evidence(positive.astype(float), total.astype(float))
    by_count = cr.anchor(judged, scores, counts, population=population)
    rows = np.repeat(np.arange(60), total)
    labels = np.concatenate([np.arange(n) < k for n, k in zip(total, positive, strict=True)])
    by_row = cr.anchor(judged, scores[rows], labels, population=population)
    asked = np.linspace(-3, 3, 21)
    np.testing.assert_allclose(by_count.predict(asked), by_row.predict(asked), rtol=1e-6)
    for one, two in zip(by_count.interval(asked), by_row.interval(asked), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    effective = [each.record.anchoring.effective_labels for each in (by_count, by_row)]
    assert effective == pytest.approx([total.sum()] * 2)


def test_a_soft_label_is_a_part_of_each(judged: cr.CalibrationMap) -> None:
    soft = cr.Evidence(np.array([0.5, 0.2, 0.9]), np.ones(3))
    fitted = cr.anchor(judged, [-1.0, 0.0, 1.0], soft)
    assert fitted.record.anchoring.labels == 3
    assert 0 < fitted.predict(0.0) < 1


def test_an_anchored_map_is_anchored_again(judged: cr.CalibrationMap) -> None:
    """The second start is so much better that half of the labels are enough."""
    rng = np.random.default_rng(4)
    asked = rng.normal(size=3_000)
    truth = expit(asked - 1)
    errors = []
    for _ in range(6):
        scores, labels, _ = queries(rng, 900, 1, 0.0)
        first = cr.anchor(judged, scores[:800], labels[:800])
        again = cr.anchor(first, scores[800:], labels[800:])
        only = cr.anchor(judged, scores[800:], labels[800:])
        assert again.record.anchoring.start_rate == pytest.approx(
            first.record.anchoring.rate, abs=0.005
        )
        errors.append([np.abs(each.predict(asked) - truth).mean() for each in (again, only)])
    again, only = np.mean(errors, axis=0)
    assert again < 0.8 * only


def test_a_map_at_a_known_rate_is_anchored_within_its_range(judged: cr.CalibrationMap) -> None:
    rng = np.random.default_rng(5)
    population = rng.normal(size=3_000)
    rate = float(expit(population - 1).mean())
    errors = []
    for _ in range(8):
        scores, labels, _ = queries(rng, 30, 1, 0.0)
        found = []
        for ends in ((0.9 * rate, 1.1 * rate), None):
            moved = cr.to_base_rate(judged, rate, population, rate_range=ends)
            fitted = cr.anchor(moved, scores, labels, population=population)
            assert fitted.record.base_rate_source == "random labels"
            found.append(abs(fitted.record.anchoring.rate - rate))
        errors.append(found)
    known, unknown = np.mean(errors, axis=0)
    assert known < 0.6 * unknown


def test_a_digest_knows_the_labels_again(judged: cr.CalibrationMap) -> None:
    scores, labels, _ = queries(np.random.default_rng(6), 50, 1, 0.0)
    first = cr.anchor(judged, scores, labels).record.anchoring.digest
    assert cr.anchor(judged, scores, labels).record.anchoring.digest == first
    assert cr.anchor(judged, scores, 1 - labels).record.anchoring.digest != first


@pytest.mark.parametrize(
    "model",
    [
        cr.Isotonic(),
        cr.Histogram(),
        cr.Spline(),
        cr.Gaussian() + cr.Level("country"),
        cr.Isotonic() + cr.Level("country"),
        cr.Spline() + cr.Level("country") + cr.Smooth("price"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("top_rate", [None, 0.3])
def test_any_map_is_moved_to_a_known_rate_exactly(
    model: cr.Calibrator | cr.Model, top_rate: float | None
) -> None:
    rng = np.random.default_rng(7)
    scores, price = rng.normal(size=(2, 5_000))
    columns = {"country": rng.integers(0, 5, 5_000), "price": price}
    labels = rng.random(5_000) < expit(scores + 0.3 * columns["country"] - 1 + 0.5 * price)
    columns = columns if isinstance(model, cr.Model) else None
    fitted = model.fit(scores, labels, columns)
    moved = cr.to_base_rate(fitted, 0.07, scores, top_rate, columns=columns)
    after = moved.predict(scores, columns)
    assert after.mean() == pytest.approx(0.07, rel=1e-9)
    if top_rate is not None:
        highest = fitted.log_odds(scores, columns).argsort(kind="stable")[-500:]
        assert after[highest].mean() == pytest.approx(0.3, rel=0.02)
    assert moved.record.base_rate == 0.07


def test_terms_stay_what_they_were_asked_to_be():
    """Levels without slopes get none from the labels, and a straight line no bends."""
    rng = np.random.default_rng(5)
    scores, price = rng.normal(size=(2, 3_000))
    country = rng.choice(["NL", "DE"], 3_000)
    slope = np.where(country == "NL", 2.0, 0.3)
    labels = (rng.random(3_000) < 1 / (1 + np.exp(1 - slope * scores - price**2))).astype(float)
    columns = {"country": country, "price": price}
    for term in (cr.Level("country", slopes=False), cr.Smooth("price", knots=2)):
        start = (cr.Platt() + term).fit(scores, labels, columns)
        found = cr.anchor(start, scores, labels, columns).terms[0]
        if isinstance(term, cr.Level):
            assert set(found.slopes) == {1.0}
        else:
            assert len(found.knots) == 2


def test_the_rate_is_that_of_the_map_and_not_of_its_curve_at_a_typical_level() -> None:
    rng = np.random.default_rng(0)
    scores, price = rng.normal(size=20_000), rng.lognormal(0, 1.2, 20_000)
    country = rng.choice(["US", "FR", "DE", "NL", "BE"], 20_000, p=[0.8, 0.05, 0.05, 0.05, 0.05])
    log_odds = scores - 2 - (country != "US") - 0.6 * np.log(price)
    labels = rng.random(20_000) < 1 / (1 + np.exp(-log_odds))
    rows = {"country": country, "price": price}
    fitted = (cr.Platt() + cr.Level("country") + cr.Smooth("price")).fit(scores, labels, rows)
    drawn = rng.choice(20_000, 300, replace=False)
    some = {name: values[drawn] for name, values in rows.items()}
    anchored = cr.anchor(fitted, scores[drawn], labels[drawn], some)
    found = anchored.record.anchoring
    assert found.rate == pytest.approx(anchored.predict(scores, rows).mean(), rel=0.1)
    assert found.start_rate == pytest.approx(labels.mean(), rel=0.1)
    assert found.rate_range[0] < labels.mean() < found.rate_range[1]
