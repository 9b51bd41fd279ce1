"""Anchoring on labels of randomly shown pairs."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.anchoring import with_sampling_range
from calibrank.anchoring._laplace import LogisticPosteriors
from calibrank.anchoring._population import Population
from calibrank.anchoring._terms import _cosines
from calibrank.anchoring.posterior import RandomLabels, posterior_curve
from calibrank.data.score_world import GammaScores, World, make_world
from calibrank.errors import FlatMapWarning
from calibrank.maps import PiecewiseCurve
from tests.members import PARAMETRIC, name

# The true slopes of these worlds are steeper than is typical of real rankers.


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(60_000, seed=5)


@pytest.fixture(scope="module")
def biased(world: World) -> cr.CalibrationMap:
    """A naive fit: about ten times too low at the popular end, and of another shape."""
    return cr.Gaussian().fit(world.scores, world.labels)


def quiet_fit(method, scores, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        return method.fit(scores, labels)


def random_labels(world, size, seed):
    """Scores and preferences of pairs drawn at random from a new log."""
    fresh = world.redraw(seed)
    rows = np.random.default_rng(seed).permutation(len(fresh))[:size]
    return fresh.scores[rows], fresh.preferences[rows]


def mean_error(fitted, world):
    """The mean absolute difference from the true probabilities over the population."""
    return np.abs(fitted.predict(world.scores) - world.probability(world.scores)).mean()


def test_one_label_moves_the_map_little(world, biased):
    anchored = cr.anchor(biased, *random_labels(world, 1, 1), population=world.scores)
    moved = anchored.log_odds(world.scores) - biased.log_odds(world.scores)
    assert np.abs(moved).mean() < 1.5
    assert anchored.record.anchoring.intercept < 0.6


def test_many_labels_determine_the_map(world, biased):
    scores, labels = random_labels(world, 50_000, 2)
    anchored = cr.anchor(biased, scores, labels)
    unbiased = cr.Gaussian().fit(scores, labels)
    assert anchored.record.anchoring.intercept > 0.99
    difference = anchored.predict(world.scores) - unbiased.predict(world.scores)
    assert np.abs(difference).mean() < 0.002
    assert mean_error(anchored, world) < 0.003


@pytest.mark.parametrize("method", PARAMETRIC, ids=name)
def test_without_labels_the_posterior_is_the_biased_fit(world, method):
    fitted = quiet_fit(method, world.scores, world.labels)
    negligible = RandomLabels(world.scores[:1], np.array([1e-9]), np.zeros(1), np.zeros(1))
    population = Population.of(np.sort(world.scores))
    curve = posterior_curve([fitted], negligible, population)
    expected = fitted.predict(curve.scores)
    rate = population.mean(expected)
    assert population.mean(curve.probabilities) == pytest.approx(rate, rel=1e-3)
    # The shape is met only nearly: prior slopes from 0 to twice that of the biased fit.
    assert population.mean(np.abs(curve.probabilities - expected)) < 0.5 * rate
    assert max(curve.intercept, curve.slope, curve.curvature) < 1e-6


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 300), rate=st.floats(0, 1))
def test_posterior_modes_are_those_of_scipy(seed, rows, rate):
    """scipy finds nothing lower than each mode, where the gradient vanishes."""
    rng = np.random.default_rng(seed)
    design = np.array([np.ones(rows), *rng.standard_normal((3, rows)) * 2])
    positive, total = (rng.random(rows) < rate) * 1.5, np.full(rows, 1.5)
    means, sds = rng.standard_normal((5, 4)) * 3, rng.uniform(0.05, 3, (5, 4))
    modes, hessians = LogisticPosteriors(design, total, positive, means, sds).solve()
    for mode, hessian, mean, sd in zip(modes, hessians, means, sds, strict=True):

        def loss(x, mean=mean, sd=sd):
            z = x @ design
            penalty = (((x - mean) / sd) ** 2).sum() / 2
            return total @ np.logaddexp(0, z) - z @ positive + penalty

        def gradient(x, mean=mean, sd=sd):
            probabilities = 1 / (1 + np.exp(-x @ design))
            return design @ (total * probabilities - positive) + (x - mean) / sd**2

        reference = minimize(loss, mean, jac=gradient, method="BFGS", options={"gtol": 1e-9})
        assert loss(mode) <= loss(reference.x) + 1e-9
        assert np.abs(gradient(mode) * sd).max() < 1e-6
        p = 1 / (1 + np.exp(-mode @ design))
        expected = (design * total * p * (1 - p)) @ design.T * sd[:, None] * sd + np.eye(4)
        assert hessian == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_held_out_scores_are_those_of_refits_without_each_label():
    rng = np.random.default_rng(1)
    design = np.array([np.ones(80), *rng.standard_normal((2, 80))])
    labels = (rng.random(80) < 0.4).astype(float)
    means, sds = rng.standard_normal((3, 3)), rng.uniform(0.3, 2, (3, 3))

    def solved(rows):
        problem = LogisticPosteriors(design[:, rows], np.ones(len(rows)), labels[rows], means, sds)
        modes, hessians = problem.solve()
        return problem, modes, np.linalg.inv(hessians)

    problem, modes, covariances = solved(np.arange(80))
    expected = np.zeros(3)
    for row in range(80):
        _, without, covariance = solved(np.delete(np.arange(80), row))
        x = design[:, row] * sds
        variances = np.einsum("pi,pij,pj->p", x, covariance, x)
        z = (without @ design[:, row]) / np.sqrt(1 + np.pi / 8 * variances)
        expected -= np.logaddexp(0, -z if labels[row] else z)
    found = problem.held_out_scores(modes, covariances)
    assert found == pytest.approx(expected, abs=0.15)
    # The labels were seen by the fit, so its own log likelihood is higher.
    own = -LogisticPosteriors(design, np.ones(80), labels, modes, sds).loss(modes)
    assert (own > found + 0.5).all()


def test_cosines_resolve_the_outer_percent():
    """Between the 99th and the 99.9th percentile they change more than cosines of the rank do."""
    found = _cosines(np.array([0.5, 0.99, 0.999]))
    of_ranks = np.cos(np.pi * np.arange(1, 17)[:, None] * np.array([0.99, 0.999]))
    assert np.abs(found[:, 2] - found[:, 1]).max() > 1
    assert np.abs(of_ranks[:, 1] - of_ranks[:, 0]).max() < 0.2
    # The middle of the population is the middle of the first wave.
    assert found[0, 0] == pytest.approx(0, abs=1e-12)


def test_a_curve_that_levels_off_is_followed():
    """Preference rises with the score up to 0.3 only: no increasing quadratic can follow that."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(40_000)
    truth = 1 / (1 + np.exp(1.5 - 2 * np.minimum(scores, 0.3)))
    labels = (rng.random(len(scores)) < truth).astype(float)
    biased = cr.Gaussian().fit(scores, (rng.random(len(scores)) < 0.2 * truth).astype(float))
    anchored = cr.anchor(biased, scores[:3_000], labels[:3_000], population=scores)
    labels_only = cr.Gaussian().fit(scores[:3_000], labels[:3_000])
    anchored_error = np.abs(anchored.predict(scores) - truth).mean()
    labels_only_error = np.abs(labels_only.predict(scores) - truth).mean()
    assert anchored_error < 0.7 * labels_only_error
    assert (np.diff(anchored.log_odds(np.linspace(-9, 9, 500))) > 0).all()


def test_few_labels_are_right_on_average(world, biased):
    """The posterior mean is not drawn to 0 by 30 labels without a positive."""
    rates, rng = [], np.random.default_rng(7)
    for seed in range(60):
        scores, labels = random_labels(world, 30, 5_000 + seed)
        population = world.scores[rng.permutation(2_000)]
        anchored = cr.anchor(biased, scores, labels, population=population)
        rates.append(anchored.predict(world.scores).mean())
    assert np.mean(rates) == pytest.approx(world.base_rate, rel=0.2)
    assert min(rates) > world.base_rate / 8


def test_a_population_with_almost_one_score_is_accepted(biased):
    population = np.concatenate([np.zeros(10_000), [-1.0, 0.5, 1.0, 2.0]])
    anchored = cr.anchor(biased, [0.0, 0.0, 1.0], [0, 0, 1], population=population)
    assert (np.diff(anchored.predict(np.linspace(-3, 3, 50))) > 0).all()


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_odds_wrong_by_a_factor_of_ten_are_corrected(world, factor):
    correct = cr.Gaussian().fit(world.scores, cr.ips(world.labels, world.propensity))
    wrong = correct.moved(np.log(factor))
    errors = []
    for seed in range(10):
        anchored = cr.anchor(wrong, *random_labels(world, 300, seed))
        errors.append(mean_error(anchored, world))
    # The mean absolute sampling error of a rate over 300 labels.
    limit = 0.8 * np.sqrt(world.base_rate * (1 - world.base_rate) / 300)
    assert np.mean(errors) < 1.6 * limit
    assert mean_error(wrong, world) > 4 * limit


def test_anchoring_beats_fits_on_the_labels_alone(world, biased):
    """In a world where the shape of the biased fit is wrong too."""
    test = world.redraw(99)
    losses = {"anchor": [], "labels only": [], "slope and intercept": []}
    for size in (30, 100, 300, 1_000):
        for seed in range(8):
            scores, labels = random_labels(world, size, 100 * size + seed)
            anchored = cr.anchor(biased, scores, labels, population=world.scores)
            predictions = {"anchor": anchored.predict(test.scores)}
            try:
                labels_only = cr.Platt().fit(scores, labels)
                recalibrated = cr.Platt().fit(biased.log_odds(scores), labels)
                predictions["labels only"] = labels_only.predict(test.scores)
                predictions["slope and intercept"] = recalibrated.predict(
                    biased.log_odds(test.scores)
                )
            except cr.FitError:
                rate = np.full(len(test), (labels.sum() + 0.5) / (size + 1))
                predictions["labels only"] = predictions["slope and intercept"] = rate
            for method, probabilities in predictions.items():
                losses[method].append(cr.LogLoss()(probabilities, test.preferences))
    means = {method: np.mean(values) for method, values in losses.items()}
    assert means["anchor"] < min(means["labels only"], means["slope and intercept"])


def test_intervals_cover_the_truth(world, biased):
    scores = np.quantile(world.scores, [0.1, 0.5, 0.9, 0.98])
    truth, covered = world.probability(scores), []
    for seed in range(120):
        anchored = cr.anchor(biased, *random_labels(world, 400, 1_000 + seed))
        low, high = anchored.interval(scores)
        covered.append((low <= truth) & (truth <= high))
    # The nominal level is 0.95.
    assert np.mean(covered, axis=0).min() > 0.88
    assert np.mean(covered) > 0.92


def test_the_exploration_policy_is_corrected_for(world, biased):
    """High scores were shown 15 times as often: without propensities the rate is too high."""
    fresh, rng = world.redraw(3), np.random.default_rng(3)
    chances = np.where(fresh.scores > np.median(fresh.scores), 0.3, 0.02)
    shown = rng.random(len(fresh)) < chances
    scores, labels = fresh.scores[shown], fresh.preferences[shown]
    anchored = cr.anchor(biased, scores, labels, propensity=chances[shown], population=world.scores)
    assert mean_error(anchored, world) < 0.01
    assert anchored.record.anchoring.effective_labels < len(scores) / 2


@given(
    seed=st.integers(0, 10_000),
    size=st.integers(2, 60),
    rate=st.floats(0.01, 0.99),
    method=st.sampled_from(PARAMETRIC),
)
def test_anchored_maps_strictly_increase(seed, size, rate, method):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal(200)
    labels = (rng.random(200) < 1 / (1 + np.exp(-scores))).astype(float)
    fitted = quiet_fit(method, scores, labels)
    shown = rng.standard_normal(size) * 3
    anchored = cr.anchor(fitted, shown, (rng.random(size) < rate).astype(float))
    assert (np.diff(anchored.log_odds(np.linspace(-12, 12, 200))) > 0).all()
    assert anchored.method == fitted.method


@pytest.mark.parametrize(
    "method", [cr.Gamma(), cr.Isotonic(), cr.Histogram(), cr.Spline(), cr.MinMax()], ids=name
)
def test_any_map_is_a_start(method):
    world = make_world(40_000, scores=GammaScores(), seed=8)
    fitted = method.fit(world.scores, world.labels)
    anchored = cr.anchor(fitted, *random_labels(world, 2_000, 1), population=world.scores)
    assert isinstance(anchored.curve, PiecewiseCurve)
    assert mean_error(anchored, world) < 0.02
    assert mean_error(anchored, world) < mean_error(fitted, world) / 3


@pytest.mark.parametrize(
    "transform", [np.exp, np.arctan, lambda x: 1e6 + x], ids=["exp", "arctan", "shift"]
)
def test_the_scale_of_the_scores_matters_little(world, biased, transform):
    """Base curves and deviations on the scale of ranks follow any increasing transformation."""
    scores, labels = random_labels(world, 1_000, 3)
    plain = cr.anchor(biased, scores, labels, population=world.scores)
    moved_start = cr.Isotonic().fit(transform(world.scores), world.labels)
    moved = cr.anchor(moved_start, transform(scores), labels, population=transform(world.scores))
    assert (
        np.abs(moved.predict(transform(world.scores)) - plain.predict(world.scores)).mean() < 0.01
    )


@pytest.mark.parametrize("method", PARAMETRIC, ids=name)
def test_a_known_rate_is_met_exactly(world, method):
    fitted = quiet_fit(method, world.scores, world.labels)
    for population in (world.scores, cr.Summary.of(world.scores, world.labels)):
        moved = cr.to_base_rate(fitted, 0.123, population)
        assert moved.predict(world.scores).mean() == pytest.approx(0.123, rel=1e-4)
        assert moved.record.base_rate_source == "known rate"


@pytest.mark.parametrize("method", PARAMETRIC, ids=name)
def test_a_known_top_rate_is_met_as_well(world, method):
    fitted = quiet_fit(method, world.scores, world.labels)
    moved = cr.to_base_rate(fitted, 0.123, world.scores, top_rate=0.3)
    top = np.sort(world.scores)[-len(world) // 10 :]
    assert moved.predict(world.scores).mean() == pytest.approx(0.123, rel=1e-6)
    assert moved.predict(top).mean() == pytest.approx(0.3, rel=1e-3)


def test_the_true_base_rate_reduces_the_error(world, biased):
    moved = cr.to_base_rate(biased, world.base_rate, world.scores)
    assert mean_error(moved, world) < mean_error(biased, world) / 2


def test_an_anchored_map_is_saved_and_described(world, biased, tmp_path):
    anchored = cr.anchor(biased, *random_labels(world, 200, 1))
    path = tmp_path / "map.json"
    anchored.save(path)
    assert cr.load(path) == anchored
    described = anchored.record.base_rate_description
    assert "Anchored on 200 randomly shown pairs (effective number 200)" in described


def test_what_only_rescales_scores_is_not_moved_to_a_known_rate(world):
    with pytest.raises(cr.DataError, match="MinMax must not go with terms, another base rate"):
        cr.to_base_rate(cr.MinMax().fit(world.scores, world.labels), 0.1, world.scores)


def test_impossible_rates_are_rejected(world, biased):
    with pytest.raises(cr.DataError, match=r"rate must lie in \[1e-12, 1\), got 1\.2"):
        cr.to_base_rate(biased, 1.2, world.scores)
    with pytest.raises(cr.DataError, match=r"top_rate must lie between 0\.1000 and .*, got 0.05"):
        cr.to_base_rate(biased, 0.1, world.scores, top_rate=0.05)


def test_invalid_labels_propensities_and_populations_are_rejected(biased):
    with pytest.raises(cr.DataError, match="labels must be 0 or 1, got 3"):
        cr.anchor(biased, [1.0, 2.0], [0, 3])
    with pytest.raises(cr.DataError, match=r"propensity must lie in \(0, 1\], got 0"):
        cr.anchor(biased, [1.0, 2.0], [0, 1], propensity=[0.5, 0.0])
    with pytest.raises(cr.DataError, match="population must hold scores that differ, got only one"):
        cr.anchor(biased, [1.0, 1.0], [0, 1], population=[1.0, 1.0, 1.0])


@dataclass(frozen=True)
class SteepStart:
    """A world of known probabilities, and a fit that is twice too steep."""

    scores: np.ndarray
    truth: np.ndarray
    biased: cr.CalibrationMap

    @classmethod
    def make(cls) -> "SteepStart":
        rng = np.random.default_rng(5)
        scores = rng.standard_normal(8_000)
        steep = 1 / (1 + np.exp(3 - 1.6 * scores))
        biased = cr.Platt().fit(scores, (rng.random(len(scores)) < steep).astype(float))
        return cls(scores, 1 / (1 + np.exp(2 - 0.8 * scores)), biased)

    def at(self, factor: float, low: float, high: float) -> cr.CalibrationMap:
        """The start at a multiple of the true rate, with a range relative to that."""
        rate = factor * self.truth.mean()
        return cr.to_base_rate(self.biased, rate, self.scores, rate_range=(low * rate, high * rate))

    def anchored(self, start: cr.CalibrationMap, *counts: int) -> tuple[float, float]:
        """Mean excess log loss and coverage, after anchoring once per count."""
        rows = np.argsort(self.scores)[200:-200:600]
        found = []
        for seed in range(8):
            fitted = start
            rng = np.random.default_rng([seed, *counts])
            for count in counts:
                shown = rng.choice(len(self.scores), count, replace=False)
                labels = (rng.random(count) < self.truth[shown]).astype(float)
                fitted = cr.anchor(
                    fitted, self.scores[shown], labels, population=self.scores[:2_000]
                )
            p, truth = fitted.predict(self.scores), self.truth
            excess = truth * np.log(truth / p) + (1 - truth) * np.log((1 - truth) / (1 - p))
            interval = fitted.interval(self.scores[rows])
            covered = (interval.low <= truth[rows]) & (truth[rows] <= interval.high)
            found.append([excess.mean(), covered.mean()])
        loss, coverage = np.mean(found, axis=0)
        return float(loss), float(coverage)


def test_a_range_of_rates_helps_the_level_and_leaves_the_slope_free():
    world = SteepStart.make()
    for count, factor in ((30, 0.7), (300, 1.0)):
        without, _ = world.anchored(world.biased, count)
        right, coverage = world.anchored(world.at(1.1, 0.8, 1.25), count)
        assert coverage > 0.9
        assert right < factor * without
        vacuous, coverage = world.anchored(world.at(2.0, 0.05, 3.0), count)
        assert coverage > 0.85
        assert vacuous < 1.5 * without
    wrong, coverage = world.anchored(world.at(3.0, 0.8, 1.25), 300)
    assert coverage > 0.85
    assert wrong < 1.5 * without


def test_labels_of_an_earlier_anchoring_are_not_forgotten():
    world = SteepStart.make()
    once, _ = world.anchored(world.biased, 1_000)
    twice, coverage = world.anchored(world.biased, 1_000, 30)
    assert coverage > 0.85
    assert twice < 1.3 * once


def test_a_range_of_rates_is_saved_and_checked(world, biased, tmp_path):
    moved = cr.to_base_rate(biased, 0.1, world.scores, rate_range=(0.05, 0.2))
    moved.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json").record.base_rate_range == (0.05, 0.2)
    anchored = cr.anchor(moved, [0.0, 1.0], [0, 1]).record
    assert anchored.base_rate_range == anchored.anchoring.rate_range
    with pytest.raises(cr.DataError, match=r"must be increasing between 0 and 1, got 0\.2 to 0\.1"):
        cr.to_base_rate(biased, 0.1, world.scores, rate_range=(0.2, 0.1))


def test_impressions_have_the_range_of_their_sampling_error():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        scores = rng.normal(size=2_000)
        shown = rng.random(2_000) < 1 / (1 + np.exp(1 - scores))
        labels = rng.random(2_000) < 1 / (1 + np.exp(2 - scores))
        truth = np.mean(1 / (1 + np.exp(2 - rng.normal(size=100_000))))
        propensity = 1 / (1 + np.exp(1 - scores[shown]))
        evidence = cr.impressions(labels[shown].astype(float), propensity)
        summary = cr.Summary.of(scores[shown], evidence)
        fitted = with_sampling_range(cr.Platt().fit_summary(summary), summary)
        low, high = fitted.record.base_rate_range
        covered += low < truth < high
    assert covered >= 88
    with pytest.raises(cr.DataError, match="evidence must be impressions to have a sampling error"):
        with_sampling_range(fitted, cr.Summary.of([0.0, 1.0], [0, 1]))


def test_the_rate_is_that_of_all_pairs_where_a_ranker_chose_those_of_the_fit():
    """High scores were shown more often: the mean over the log is not that over all pairs."""
    rng = np.random.default_rng(6)
    scores = rng.normal(size=40_000)
    preferred = (rng.random(40_000) < expit(scores - 1.5)).astype(float)
    shown = rng.random(40_000) < expit(3 * scores)
    fitted = cr.Platt().fit(scores[shown], cr.impressions(preferred[shown]))
    # Pairs were labelled with a probability that depends on the score, and is logged.
    chances = 0.02 + 0.08 * expit(-scores)
    labelled = rng.random(40_000) < chances
    pairs = scores[labelled], preferred[labelled]
    record = cr.anchor(fitted, *pairs, propensity=chances[labelled]).record
    found = record.anchoring
    low, high = found.rate_range
    assert low < preferred.mean() < high < low + 0.07
    assert found.start_rate == pytest.approx(preferred[shown].mean(), abs=0.01)
    # What anchoring starts from next time is about pairs like those of the fit.
    low, high = record.base_rate_range
    assert low < preferred[shown].mean() < high
    given = cr.anchor(fitted, *pairs, population=scores[shown]).record.anchoring
    assert given.rate == pytest.approx(preferred[shown].mean(), abs=0.03)
