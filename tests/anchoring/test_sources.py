"""Base-rate sources in the synthetic world: coverage, sensitivity bands, sampled negatives."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.anchoring import PropensityModel, undo_undersampling
from calibrank.data.score_world import GammaScores, GaussianScores, make_world
from calibrank.propensity import Popularity
from calibrank.registry import CALIBRATORS

# The true slopes of these worlds are steeper than is typical of real rankers.

LEVELS = np.linspace(0.01, 0.99, 40)


def relative_exposure(world):
    popularity = Popularity(power=1, clip=1e-4)
    return popularity.fit(world.interactions()).predict(world.users, world.items)


def coverage(interval, truth):
    return float(np.mean((interval.low <= truth) & (truth <= interval.high)))


def fit_ips(world):
    return cr.Gaussian().fit(world.scores, cr.ips(world.labels, world.propensity))


def fit_to_base_rate(world):
    rate = world.probability(world.scores).mean()
    return cr.to_base_rate(fit_ips(world), rate, world.scores)


def fit_to_both_rates(world):
    truth = world.probability(world.scores)
    top_rate = truth[np.argsort(-world.scores)[: len(truth) // 10]].mean()
    return cr.to_base_rate(fit_ips(world), truth.mean(), world.scores, top_rate=top_rate)


def fit_impressions(world):
    shown = world.exposures == 1
    evidence = cr.impressions(world.preferences[shown], world.propensity[shown])
    return cr.Gaussian().fit(world.scores[shown], evidence)


@pytest.mark.parametrize(
    ("fit", "pairs"),
    [
        (fit_ips, 8_000),
        (fit_to_base_rate, 8_000),
        (fit_to_both_rates, 40_000),
        (fit_impressions, 8_000),
    ],
)
def test_95_percent_intervals_cover_the_truth(fit, pairs):
    coverages = []
    for seed in range(30):
        world = make_world(pairs, seed=seed)
        scores = np.quantile(world.scores, LEVELS)
        coverages.append(coverage(fit(world).sampling_interval(scores), world.probability(scores)))
    # They allow for a truth of another family, and are wider than needed where it is this one.
    assert np.mean(coverages) > 0.9


def test_a_known_rate_makes_intervals_narrower():
    world = make_world(8_000, seed=1)
    scores = np.quantile(world.scores, [0.5, 0.9])

    def widths(fitted):
        low, high = fitted.sampling_interval(scores)
        return high - low

    unknown = widths(fit_ips(world))
    assert (widths(fit_to_base_rate(world)) < unknown).all()
    assert (widths(fit_to_both_rates(world)) < unknown).all()


@pytest.mark.parametrize(
    ("shape", "method"), [(GaussianScores(), cr.Gaussian()), (GammaScores(), cr.Gamma())]
)
def test_the_sensitivity_band_covers_the_truth(shape, method):
    for seed in range(5):
        world = make_world(30_000, shape, seed)
        fitted = cr.fit_with_sensitivity(
            method, world.scores, world.labels, relative_exposure(world)
        )
        scores = np.quantile(world.scores, LEVELS)
        sensitivity = fitted.record.sensitivity
        assert coverage(fitted.band(scores), world.probability(scores)) == 1
        assert sensitivity.low_rate < world.base_rate < sensitivity.high_rate


def test_the_band_covers_a_world_that_is_observed_less():
    """Relative propensities cannot show that everything was observed less often."""
    world = make_world(100_000, seed=2)
    rng = np.random.default_rng(0)
    labels = world.labels * (rng.random(len(world)) < 0.3)
    exposure = relative_exposure(world)
    fitted = cr.fit_with_sensitivity(cr.Gaussian(), world.scores, labels, exposure)
    scores = np.quantile(world.scores, LEVELS)
    assert fitted.predict(scores).mean() < 0.5 * world.probability(scores).mean()
    assert coverage(fitted.band(scores), world.probability(scores)) > 0.95


@pytest.mark.parametrize("slope", [0.3, 1.6])
def test_the_band_at_a_known_rate_covers_a_slope_that_exposure_biased(slope):
    """Liked pairs of high scores are shown more often, or less: no propensity model has that."""
    rng = np.random.default_rng(3)
    scores = rng.standard_normal(40_000)
    truth = 1 / (1 + np.exp(2 - slope * scores))
    seen = 1 / (1 + np.exp(3 - scores))
    exposure = rng.uniform(0.5, 1, len(scores))
    labels = (rng.random(len(scores)) < seen * exposure).astype(float)
    propensity_model = PropensityModel(power=1, clip=0)
    given = (cr.Platt(), scores, labels, exposure, propensity_model)
    fitted = cr.to_base_rate(cr.fit_with_sensitivity(*given), truth.mean(), scores)
    places = np.argsort(scores)[400:-400:1000]
    assert coverage(fitted.band(scores[places]), truth[places]) == 1
    low, high = fitted.band(scores)
    assert 0.01 < (high - low).mean() < 0.3
    # Known propensities leave the slope to the sampling error.
    logged = cr.fit_with_sensitivity(*given, scale_known=True)
    logged = cr.to_base_rate(logged, truth.mean(), scores)
    assert coverage(logged.band(scores[places]), truth[places]) < 0.5


# Even odds at score 0 do not suit this world, so Temperature is flat.
@pytest.mark.filterwarnings("ignore::calibrank.errors.FlatMapWarning")
@pytest.mark.parametrize("method", CALIBRATORS.values(), ids=lambda method: method.name)
def test_every_map_is_saved_with_its_band(method, tmp_path):
    world = make_world(3_000, seed=4)
    scores = 1 / (1 + np.exp(-world.scores))
    fitted = cr.fit_with_sensitivity(method, scores, world.labels, relative_exposure(world))
    fitted.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json") == fitted
    if not method.learns:
        assert fitted.record.sensitivity is None
        return
    asked = np.concatenate([scores, [-5.0, 5.0]])
    low, high = fitted.band(asked)
    assert (low <= fitted.predict(asked) + 1e-12).all()
    assert (fitted.predict(asked) - 1e-12 <= high).all()


def test_known_propensities_leave_only_clip_and_negatives_undetermined():
    world = make_world(20_000, seed=6)
    fitted = cr.fit_with_sensitivity(
        cr.Gaussian(),
        world.scores,
        world.labels,
        world.propensity,
        PropensityModel(power=1, clip=0),
        scale_known=True,
    )
    names = [choice.name for choice in fitted.record.sensitivity.alternatives]
    assert names == [
        "as chosen",
        "clip 0.05",
        "clip 0.1",
        "half the negatives",
        "twice the negatives",
    ]
    assert fitted.record.sensitivity.high_rate < 0.25


def test_a_map_fitted_without_alternatives_has_no_band():
    with pytest.raises(cr.DataError, match="band must come from"):
        cr.Platt().fit([0.0, 1, 2, 3], [0, 1, 0, 1]).band([0.5])


def test_anchoring_removes_the_band():
    world = make_world(5_000, seed=7)
    exposure = relative_exposure(world)
    fitted = cr.fit_with_sensitivity(cr.Gaussian(), world.scores, world.labels, exposure)
    anchored = cr.anchor(fitted, world.scores[:300], world.preferences[:300])
    assert anchored.record.sensitivity is None
    assert anchored.record.base_rate_source == "random labels"


@pytest.fixture(scope="module")
def sampled():
    """A world and its rows after nine in ten rows without a positive were dropped."""
    world = make_world(60_000, seed=8)
    kept = (world.labels == 1) | (np.random.default_rng(1).random(len(world)) < 0.1)
    return world, kept


def test_undersampling_weights_restore_the_fit_on_all_rows(sampled):
    world, kept = sampled
    scores = np.quantile(world.scores, np.linspace(0.2, 0.99, 20))
    labels, propensity = world.labels[kept], world.propensity[kept]
    weights = cr.undersampling_weights(labels, kept=0.1)
    evidence = cr.ips(labels, propensity, weights=weights)
    weighted = cr.Gaussian().fit(world.scores[kept], evidence)
    difference = weighted.log_odds(scores) - fit_ips(world).log_odds(scores)
    assert np.abs(difference).max() < 0.15


def test_undoing_undersampling_restores_the_naive_fit_on_all_rows(sampled):
    world, kept = sampled
    scores = np.quantile(world.scores, np.linspace(0.2, 0.99, 20))
    complete = cr.Gaussian().fit(world.scores, cr.naive(world.labels)).log_odds(scores)
    undersampled = cr.Gaussian().fit(world.scores[kept], cr.naive(world.labels[kept]))
    restored = undo_undersampling(undersampled, 0.1)
    assert np.abs(restored.log_odds(scores) - complete).max() < 0.25
    assert np.abs(undersampled.log_odds(scores) - complete).min() > 1.5


@pytest.mark.parametrize("kept", [0, 1.5, -1])
def test_the_kept_fraction_must_lie_in_0_1(kept):
    fitted = cr.Platt().fit([0.0, 1, 2, 3, 4, 5], [0, 0, 1, 0, 1, 0])
    with pytest.raises(cr.DataError, match="kept must lie in"):
        cr.undersampling_weights([0, 1], kept)
    with pytest.raises(cr.DataError, match="kept must lie in"):
        undo_undersampling(fitted, kept)


def test_undersampling_is_undone_for_naive_evidence_only():
    fitted = cr.Platt().fit([0.0, 1, 2, 3, 4, 5], cr.ips([0, 0, 1, 0, 1, 0], np.full(6, 0.9)))
    with pytest.raises(cr.DataError, match=r"fitted on naive evidence.*got ips"):
        undo_undersampling(fitted, 0.1)


def test_undersampling_is_undone_before_moving_to_a_base_rate():
    world = make_world(3_000, seed=3)
    moved = cr.to_base_rate(cr.Platt().fit(world.scores, world.preferences), 0.1, world.scores)
    message = "must come straight from a fit, got a rate of known rate"
    with pytest.raises(cr.DataError, match=message):
        undo_undersampling(moved, 0.5)


def test_a_top_rate_needs_scores_that_differ():
    fitted = cr.Platt().fit([0.0, 1, 2, 3, 4, 5], [0, 0, 1, 0, 1, 0])
    with pytest.raises(cr.DataError, match="population must hold scores that differ"):
        cr.to_base_rate(fitted, 0.1, np.ones(10), top_rate=0.2)


def test_impressions_need_propensities_only_up_to_a_factor():
    world = make_world(20_000, seed=9)
    shown = world.exposures == 1
    scores, labels = world.scores[shown], world.preferences[shown]
    propensity = world.propensity[shown]
    fitted = cr.Gaussian().fit(scores, cr.impressions(labels, propensity))
    scaled = cr.Gaussian().fit(scores, cr.impressions(labels, propensity / 10))
    assert fitted.predict(scores) == pytest.approx(scaled.predict(scores), rel=1e-6)


def test_impressions_without_propensities_have_unit_weights():
    evidence = cr.impressions([1, 0, 1])
    np.testing.assert_array_equal(evidence.positive, [1, 0, 1])
    np.testing.assert_array_equal(evidence.total, [1, 1, 1])


def test_the_planned_error_falls_with_the_number_of_labels():
    world = make_world(20_000, seed=10)
    exposure = relative_exposure(world)
    fitted = cr.fit_with_sensitivity(cr.Gaussian(), world.scores, world.labels, exposure)
    plan = cr.plan_labels(fitted, world.scores, sizes=(0, 100, 1_000))
    errors = [step.error for step in plan]
    assert errors[0] > errors[1] > errors[2]
    rate = world.base_rate
    assert errors[2] > 0.5 * np.sqrt(rate * (1 - rate) / 1_000)


def test_a_plan_is_determined_by_its_seed():
    world = make_world(3_000, seed=3)
    exposure = relative_exposure(world)
    fitted = cr.fit_with_sensitivity(cr.Platt(), world.scores, world.labels, exposure)

    def plan(seed):
        return cr.plan_labels(fitted, world.scores, sizes=(30,), draws=2, seed=seed)

    assert plan(5) == plan(np.random.default_rng(5))
    assert plan(5) != plan(6)


def test_a_plan_needs_a_sensitivity_band():
    world = make_world(3_000, seed=10)
    with pytest.raises(cr.DataError, match="must carry a sensitivity band, got a Gaussian without"):
        cr.plan_labels(fit_ips(world), world.scores)


@pytest.mark.parametrize("options", [{"draws": 0}, {"sizes": (-1,)}])
def test_a_plan_without_draws_or_with_negative_sizes_is_rejected(options):
    world = make_world(3_000, seed=3)
    exposure = relative_exposure(world)
    fitted = cr.fit_with_sensitivity(cr.Platt(), world.scores, world.labels, exposure)
    with pytest.raises(cr.DataError, match=r"draws must be|sizes must be"):
        cr.plan_labels(fitted, world.scores, **options)


def test_alternatives_without_a_finite_fit_count_by_their_base_rate():
    rng = np.random.default_rng(0)
    scores, exposure = rng.normal(size=400), rng.uniform(0.02, 1, 400)
    labels = rng.random(400) < 0.8 * exposure**0.5 / (1 + np.exp(-3 * scores))
    fitted = cr.fit_with_sensitivity(cr.Platt(), scores, labels, exposure)
    sensitivity = fitted.record.sensitivity
    without_fit = [choice for choice in sensitivity.alternatives if choice.top_rate is None]
    assert without_fit
    assert all(choice.rate <= 1 for choice in sensitivity.alternatives)
    assert sensitivity.low_rate <= sensitivity.high_rate <= 1
    assert sensitivity.high_rate >= max(choice.rate for choice in without_fit)


def test_items_without_positives_may_have_exposure_0():
    world = make_world(3_000, seed=3)
    counts = np.bincount(world.items, world.labels, world.items.max() + 1)
    exposure = Popularity.exposure(counts, counts.max())[world.items]
    assert (exposure == 0).any()
    fitted = cr.fit_with_sensitivity(cr.Platt(), world.scores, world.labels, exposure)
    assert fitted.record.sensitivity is not None


def test_positives_must_have_exposure_above_0_unless_it_is_clipped():
    unclipped = PropensityModel(power=1, clip=0)
    with pytest.raises(cr.DataError, match="exposure must be above 0 where the label is 1"):
        cr.fit_with_sensitivity(cr.Platt(), [0.0, 1, 2], [0, 1, 1], [0.5, 0.0, 1.0], unclipped)


@pytest.mark.parametrize("options", [{"power": -1}, {"clip": 2}, {"negatives": 0}])
def test_impossible_propensity_models_are_rejected(options):
    with pytest.raises(cr.DataError, match=r"power must be|clip must lie|negatives must be"):
        PropensityModel(**options)


def test_a_propensity_whose_inverse_overflows_is_refused_by_its_own_rule():
    start = cr.Sigmoid().fit([0.0, 1.0], [0, 1])
    with pytest.raises(cr.DataError, match="propensity must be at least 1e-30, got 5e-324"):
        cr.anchor(start, [0.0, 1.0], [0, 1], propensity=[5e-324, 0.5])
