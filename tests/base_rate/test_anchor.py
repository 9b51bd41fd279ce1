"""Doors to the base rate: randomly shown labels, a known rate, and what each map says of itself."""

import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import calibrank as cr
from calibrank.base_rate.posterior import Labels, _Priors, curve
from calibrank.data.score_world import GammaScores, make_world
from calibrank.maps import LogisticMap
from tests.members import PARAMETRIC, name


@pytest.fixture(scope="module")
def world():
    return make_world(60_000, seed=5)


@pytest.fixture(scope="module")
def biased(world):
    """Taken at the log's word: too low by a factor of about ten at the popular end, and of another shape."""
    return cr.Gaussian().fit(world.scores, world.labels)


def random_labels(world, k, seed):
    fresh = world.redraw(seed)
    rows = np.random.default_rng(seed).permutation(len(fresh))[:k]
    return fresh.scores[rows], fresh.preferences[rows]


def error(fitted, world):
    """Mean distance from the truth over the population."""
    return np.abs(fitted.predict(world.scores) - world.probability(world.scores)).mean()


def test_few_labels_move_little_and_many_decide(world, biased):
    one = cr.anchor(biased, *random_labels(world, 1, 1), population=world.scores)
    assert np.abs(one.log_odds(world.scores) - biased.log_odds(world.scores)).mean() < 1.5
    assert one.record.anchoring.intercept < 0.6
    scores, labels = random_labels(world, 50_000, 2)
    many, alone = cr.anchor(biased, scores, labels), cr.Gaussian().fit(scores, labels)
    assert many.record.anchoring.intercept > 0.99
    assert np.abs(many.predict(world.scores) - alone.predict(world.scores)).mean() < 0.002
    assert error(many, world) < 0.003


@pytest.mark.parametrize("method", PARAMETRIC, ids=name)
def test_no_labels_leave_the_biased_fit(world, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        fitted = method.fit(world.scores, world.labels)
    nothing = Labels(world.scores[:1], np.array([1e-9]), np.zeros(1))
    found = curve(fitted, nothing, np.sort(world.scores))
    expected = fitted.predict(found.scores)
    assert found.probabilities.mean() == pytest.approx(expected.mean(), rel=1e-6)
    assert (
        np.abs(found.probabilities - expected).mean() < 0.3 * expected.mean()
    )  # slopes tried are not all one
    assert max(found.intercept, found.slope, found.curvature) < 1e-6


@given(seed=st.integers(0, 10_000), k=st.integers(1, 300), rate=st.floats(0, 1))
def test_many_priors_at_once_are_solved_as_one_by_one(seed, k, rate):
    """Against scipy: nothing lower is found, and nothing slopes there."""
    rng = np.random.default_rng(seed)
    design = np.array([np.ones(k), *rng.standard_normal((3, k)) * 2])
    liked, total = (rng.random(k) < rate) * 1.5, np.full(k, 1.5)
    centres, widths = rng.standard_normal((5, 4)) * 3, rng.uniform(0.05, 3, (5, 4))
    solutions, curvatures = _Priors(design, total, liked, centres, widths).solve()
    for solution, curvature, centre, width in zip(
        solutions, curvatures, centres, widths, strict=True
    ):

        def loss(x, centre=centre, width=width):
            z = x @ design
            return total @ np.logaddexp(0, z) - z @ liked + (((x - centre) / width) ** 2).sum() / 2

        def slope(x, centre=centre, width=width):
            return design @ (total / (1 + np.exp(-x @ design)) - liked) + (x - centre) / width**2

        found = minimize(loss, centre, jac=slope, method="BFGS", options={"gtol": 1e-9}).x
        assert loss(solution) <= loss(found) + 1e-9
        assert np.abs(slope(solution) * width).max() < 1e-6
        p = 1 / (1 + np.exp(-solution @ design))
        expected = (design * total * p * (1 - p)) @ design.T * width[:, None] * width + np.eye(4)
        assert curvature == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_what_levels_off_is_followed_until_there():
    """Preference rises with the score and then does not: no quadratic that rises throughout can say so."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(40_000)
    truth = 1 / (1 + np.exp(1.5 - 2 * np.minimum(scores, 0.3)))
    labels = (rng.random(len(scores)) < truth).astype(float)
    biased = cr.Gaussian().fit(scores, (rng.random(len(scores)) < 0.2 * truth).astype(float))
    anchored = cr.anchor(biased, scores[:3_000], labels[:3_000], population=scores)
    alone = cr.Gaussian().fit(scores[:3_000], labels[:3_000])
    off, off_alone = (np.abs(fitted.predict(scores) - truth).mean() for fitted in (anchored, alone))
    assert off < 0.7 * off_alone
    assert (np.diff(anchored.log_odds(np.linspace(-9, 9, 500))) > 0).all()


def test_few_labels_without_a_like_do_not_mean_never(world, biased):
    """The mean probability of all that 30 labels leave likely, not the most likely: right on average."""
    rates, shown = [], np.random.default_rng(7)
    for seed in range(60):
        scores, labels = random_labels(world, 30, 5_000 + seed)
        anchored = cr.anchor(
            biased, scores, labels, population=world.scores[shown.permutation(2_000)]
        )
        rates.append(anchored.predict(world.scores).mean())
    assert np.mean(rates) == pytest.approx(world.base_rate, rel=0.2)
    assert min(rates) > world.base_rate / 8


def test_a_population_of_almost_one_score(biased):
    population = np.concatenate([np.zeros(10_000), [-1.0, 0.5, 1.0, 2.0]])
    anchored = cr.anchor(biased, [0.0, 0.0, 1.0], [0, 0, 1], population=population)
    assert (np.diff(anchored.predict(np.linspace(-3, 3, 50))) > 0).all()


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_fit_wrong_by_a_factor_of_ten_is_put_right(world, factor):
    right = cr.Gaussian().fit(world.scores, cr.ips(world.labels, world.propensity))
    wrong = replace(right, intercept=right.intercept + np.log(factor))
    errors = [
        error(cr.anchor(wrong, *random_labels(world, 300, seed)), world) for seed in range(10)
    ]
    limit = 0.8 * np.sqrt(world.base_rate * (1 - world.base_rate) / 300)
    assert np.mean(errors) < 1.6 * limit
    assert error(wrong, world) > 4 * limit


def test_it_beats_labels_alone_and_slope_and_intercept(world, biased):
    """Over the whole curve, in a world where the biased shape is wrong too."""
    losses = {"anchor": [], "alone": [], "slope": []}
    test = world.redraw(99)
    for k in (30, 100, 300, 1_000):
        for seed in range(8):
            scores, labels = random_labels(world, k, 100 * k + seed)
            anchored = cr.anchor(biased, scores, labels, population=world.scores)
            losses["anchor"].append(cr.LogLoss()(anchored.predict(test.scores), test.preferences))
            try:
                alone = cr.Platt().fit(scores, labels).predict(test.scores)
                slope = (
                    cr.Platt()
                    .fit(biased.log_odds(scores), labels)
                    .predict(biased.log_odds(test.scores))
                )
            except cr.FitError:
                alone = slope = np.full(len(test), (labels.sum() + 0.5) / (k + 1))
            losses["alone"].append(cr.LogLoss()(alone, test.preferences))
            losses["slope"].append(cr.LogLoss()(slope, test.preferences))
    assert np.mean(losses["anchor"]) < min(np.mean(losses["alone"]), np.mean(losses["slope"]))


def test_intervals_cover_the_truth(world, biased):
    grid = np.quantile(world.scores, [0.1, 0.5, 0.9, 0.98])
    truth, covered = world.probability(grid), []
    for seed in range(120):
        low, high = cr.anchor(biased, *random_labels(world, 400, 1_000 + seed)).interval(grid)
        covered.append((low <= truth) & (truth <= high))
    assert np.mean(covered, axis=0).min() > 0.88  # nominal: 0.95
    assert np.mean(covered) > 0.92


def test_the_policy_of_exploration_is_undone(world, biased):
    """Liked pairs were shown three times as often: without propensities the level comes out too high."""
    fresh, rng = world.redraw(3), np.random.default_rng(3)
    chance = np.where(fresh.scores > np.median(fresh.scores), 0.3, 0.02)
    shown = rng.random(len(fresh)) < chance
    scores, labels, chance = fresh.scores[shown], fresh.preferences[shown], chance[shown]
    informed = cr.anchor(biased, scores, labels, propensity=chance, population=world.scores)
    assert error(informed, world) < 0.01
    assert informed.record.anchoring.effective_labels < len(scores) / 2


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(2, 60),
    rate=st.floats(0.01, 0.99),
    method=st.sampled_from(PARAMETRIC),
)
def test_an_anchored_map_always_rises(seed, k, rate, method):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal(200)
    labels = (rng.random(200) < 1 / (1 + np.exp(-scores))).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        fitted = method.fit(scores, labels)
    shown = rng.standard_normal(k) * 3
    anchored = cr.anchor(fitted, shown, (rng.random(k) < rate).astype(float))
    grid = np.linspace(-12, 12, 200)
    assert (np.diff(anchored.log_odds(grid)) > 0).all()
    assert anchored.method == fitted.method


@pytest.mark.parametrize("method", PARAMETRIC, ids=name)
def test_a_known_rate_is_met_exactly(world, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        fitted = method.fit(world.scores, world.labels)
    for population in (world.scores, cr.Summary.of(world.scores, world.labels)):
        moved = cr.to_base_rate(fitted, 0.123, population)
        assert moved.predict(world.scores).mean() == pytest.approx(0.123, rel=1e-4)
        assert moved.record.base_rate_source == "known rate"
    top = np.sort(world.scores)[-len(world) // 10 :]
    both = cr.to_base_rate(fitted, 0.123, world.scores, top_rate=0.3)
    assert both.predict(world.scores).mean() == pytest.approx(0.123, rel=1e-6)
    assert both.predict(top).mean() == pytest.approx(0.3, rel=1e-3)


def test_a_rate_that_is_right_mends_the_level(world, biased):
    moved = cr.to_base_rate(biased, world.base_rate, world.scores)
    assert error(moved, world) < error(biased, world) / 2


def test_doors_are_saved_and_shown(world, biased, tmp_path):
    anchored = cr.anchor(biased, *random_labels(world, 200, 1))
    assert isinstance(anchored, LogisticMap)
    anchored.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json") == anchored
    said = subprocess.run(
        [sys.executable, "-m", "calibrank", "inspect", str(tmp_path / "map.json")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Anchored on 200 randomly shown pairs (effective number 200)" in " ".join(said.split())


def test_the_command_line_takes_both_doors(world, tmp_path):
    log = pa.table(
        {"score": world.scores, "label": world.labels.astype("int8"), "w": world.propensity}
    )
    scores, labels = random_labels(world, 500, 4)
    pq.write_table(log, tmp_path / "log.parquet")
    pq.write_table(pa.table({"score": scores, "label": labels}), tmp_path / "random.parquet")

    def fit(*more, check=True):
        command = [
            sys.executable,
            "-m",
            "calibrank",
            "fit",
            str(tmp_path / "log.parquet"),
            "--loss",
            "naive",
            "-o",
            str(tmp_path / "map.json"),
            *more,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    said = " ".join(fit("--anchor", str(tmp_path / "random.parquet")).stdout.split())
    assert "Anchored on 500 randomly shown pairs" in said
    assert error(cr.load(tmp_path / "map.json"), world) < 0.03
    assert "Moved to a base rate" in " ".join(fit("--base-rate", "0.2").stdout.split())
    assert cr.load(tmp_path / "map.json").predict(world.scores).mean() == pytest.approx(
        0.2, rel=1e-3
    )
    refused = fit("--base-rate", "0.2", "--anchor", "x.parquet", check=False)
    assert refused.returncode == 2
    assert "must not both be given" in refused.stderr


def test_what_makes_no_sense_is_said(world, biased):
    isotonic = cr.Isotonic().fit(world.scores, world.labels)
    with pytest.raises(cr.DataError, match=r"must be a parametric one .* got Isotonic"):
        cr.anchor(isotonic, [1.0, 2.0], [0, 1])
    with pytest.raises(cr.DataError, match=r"must be a parametric one .* got Isotonic"):
        cr.to_base_rate(isotonic, 0.1, world.scores)
    with pytest.raises(cr.DataError, match=r"base rate must lie between 0 and 1, got 1\.2"):
        cr.to_base_rate(biased, 1.2, world.scores)
    with pytest.raises(cr.DataError, match=r"top_rate must lie between 0\.1000 and .*, got 0.05"):
        cr.to_base_rate(biased, 0.1, world.scores, top_rate=0.05)
    with pytest.raises(cr.DataError, match="labels must be 0 or 1, got 3"):
        cr.anchor(biased, [1.0, 2.0], [0, 3])
    with pytest.raises(cr.DataError, match=r"propensity must lie in \(0, 1\], got 0"):
        cr.anchor(biased, [1.0, 2.0], [0, 1], propensity=[0.5, 0.0])
    with pytest.raises(cr.DataError, match="population must hold 3 scores or more that differ"):
        cr.anchor(biased, [1.0, 1.0], [0, 1], population=[1.0, 1.0, 2.0])


def test_other_families_are_anchored_in_their_own_shape():
    world = make_world(40_000, scores=GammaScores(), seed=8)
    fitted = cr.Gamma().fit(world.scores, world.labels)
    anchored = cr.anchor(fitted, *random_labels(world, 2_000, 1))
    assert error(anchored, world) < error(fitted, world) / 3
