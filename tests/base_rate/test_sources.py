"""Doors in the synthetic world: intervals cover as they claim, the band covers the truth, samples are corrected for."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.data.score_world import GammaScores, GaussianScores, make_world
from calibrank.propensity import Popularity
from calibrank.registry import CALIBRATORS

_SHARES = np.linspace(0.01, 0.99, 40)


def _exposure(world):
    return (
        Popularity(power=1, clip=1e-4).fit(world.interactions()).predict(world.users, world.items)
    )


def _covers(interval, truth):
    return float(np.mean((interval.low <= truth) & (truth <= interval.high)))


def _covered(door, pairs, worlds=30):
    shares = []
    for seed in range(worlds):
        world = make_world(pairs, seed=seed)
        where = np.quantile(world.scores, _SHARES)
        shares.append(_covers(door(world).interval(where), world.probability(where)))
    return np.mean(shares)


def _biased(world):
    return cr.Gaussian().fit(world.scores, cr.ips(world.labels, world.propensity))


def _at_its_rate(world):
    return cr.to_base_rate(_biased(world), world.probability(world.scores).mean(), world.scores)


def _at_both_rates(world):
    truth = world.probability(world.scores)
    top = truth[np.argsort(-world.scores)[: len(truth) // 10]].mean()
    return cr.to_base_rate(_biased(world), truth.mean(), world.scores, top_rate=top)


def _by_impressions(world):
    shown = world.exposures == 1
    return cr.Gaussian().fit(
        world.scores[shown], cr.impressions(world.preferences[shown], world.propensity[shown])
    )


@pytest.mark.parametrize(
    ("door", "pairs"),
    [(_biased, 8_000), (_at_its_rate, 8_000), (_at_both_rates, 40_000), (_by_impressions, 8_000)],
)
def test_intervals_cover_as_they_claim(door, pairs):
    assert 0.9 < _covered(door, pairs=pairs) < 0.99


def test_a_known_rate_makes_intervals_narrower_where_it_speaks():
    world = make_world(8_000, seed=1)
    middle = np.quantile(world.scores, [0.5, 0.9])
    widths = [
        np.diff(door(world).interval(middle), axis=0)[0]
        for door in (_biased, _at_its_rate, _at_both_rates)
    ]
    assert (widths[1] < widths[0]).all()
    assert (widths[2] < widths[0]).all()


@pytest.mark.parametrize(
    ("scores", "method"), [(GaussianScores(), cr.Gaussian()), (GammaScores(), cr.Gamma())]
)
def test_the_band_covers_the_truth(scores, method):
    for seed in range(5):
        world = make_world(30_000, scores, seed)
        fitted = cr.fit_with_sensitivity(method, world.scores, world.labels, _exposure(world))
        where = np.quantile(world.scores, _SHARES)
        assert _covers(fitted.band(where), world.probability(where)) == 1
        assert (
            fitted.record.sensitivity.low_rate
            < world.base_rate
            < fitted.record.sensitivity.high_rate
        )


def test_the_band_covers_a_world_seen_a_tenth_as_often():
    """Relative propensities cannot tell that everything was shown less: the band must hold both worlds."""
    world = make_world(100_000, seed=2)
    rng = np.random.default_rng(0)
    labels = world.labels * (rng.random(len(world)) < 0.3)
    fitted = cr.fit_with_sensitivity(cr.Gaussian(), world.scores, labels, _exposure(world))
    where = np.quantile(world.scores, _SHARES)
    assert fitted.predict(where).mean() < 0.5 * world.probability(where).mean()
    assert _covers(fitted.band(where), world.probability(where)) > 0.95


@pytest.mark.filterwarnings(
    "ignore::calibrank.FlatMapWarning"
)  # Temperature's even odds do not suit this world
@pytest.mark.parametrize("method", CALIBRATORS.values(), ids=lambda method: method.name)
def test_every_map_carries_its_band_through_a_file(method, tmp_path):
    world = make_world(3_000, seed=4)
    scores = 1 / (1 + np.exp(-world.scores))
    fitted = cr.fit_with_sensitivity(method, scores, world.labels, _exposure(world))
    fitted.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json") == fitted
    if not method.learns:
        assert fitted.record.sensitivity is None
        return
    asked = np.concatenate([scores, [-5.0, 5.0]])
    low, high = fitted.band(asked)
    assert (low <= fitted.predict(asked)).all()
    assert (fitted.predict(asked) <= high).all()


def test_known_propensities_leave_only_negatives_and_clip_open():
    world = make_world(20_000, seed=6)
    setting = cr.PropensityModel(power=1, clip=0)
    fitted = cr.fit_with_sensitivity(
        cr.Gaussian(), world.scores, world.labels, world.propensity, setting, scale_known=True
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


def test_a_map_without_choices_has_no_band():
    with pytest.raises(
        cr.DataError, match="a sensitivity band must come from alternative propensity models"
    ):
        cr.Platt().fit([0.0, 1, 2, 3], [0, 1, 0, 1]).band([0.5])


def test_anchoring_closes_the_band():
    world = make_world(5_000, seed=7)
    fitted = cr.fit_with_sensitivity(cr.Gaussian(), world.scores, world.labels, _exposure(world))
    anchored = cr.anchor(fitted, world.scores[:300], world.preferences[:300])
    assert anchored.record.sensitivity is None
    assert anchored.record.base_rate_source == "random labels"


def test_sampled_negatives_weigh_as_many_as_they_stand_for():
    world = make_world(60_000, seed=8)
    kept = (world.labels == 1) | (np.random.default_rng(1).random(len(world)) < 0.1)
    where = np.quantile(world.scores, np.linspace(0.2, 0.99, 20))
    labels, propensity = world.labels[kept], world.propensity[kept]
    weights = cr.undersampling_weights(labels, kept=0.1)
    whole = _biased(world).log_odds(where)
    sampled = (
        cr.Gaussian()
        .fit(world.scores[kept], cr.ips(labels, propensity, weights=weights))
        .log_odds(where)
    )
    assert np.abs(sampled - whole).max() < 0.15
    plain = cr.Gaussian().fit(world.scores[kept], cr.naive(labels))
    naive = cr.Gaussian().fit(world.scores, cr.naive(world.labels)).log_odds(where)
    assert np.abs(cr.undo_undersampling(plain, 0.1).log_odds(where) - naive).max() < 0.25
    assert np.abs(plain.log_odds(where) - naive).min() > 1.5


def test_sampling_corrections_say_what_they_need():
    fitted = cr.Platt().fit([0.0, 1, 2, 3, 4, 5], cr.ips([0, 0, 1, 0, 1, 0], np.full(6, 0.9)))
    with pytest.raises(cr.DataError, match="fitted by naive evidence, got ips"):
        cr.undo_undersampling(fitted, 0.1)
    for wrong in (0, 1.5, -1):
        with pytest.raises(cr.DataError, match="kept must lie in"):
            cr.undersampling_weights([0, 1], wrong)
        with pytest.raises(cr.DataError, match="kept must lie in"):
            cr.undo_undersampling(fitted, wrong)


def test_impressions_need_propensities_only_up_to_a_factor():
    world = make_world(20_000, seed=9)
    shown = world.exposures == 1
    scores, labels, propensity = (
        world.scores[shown],
        world.preferences[shown],
        world.propensity[shown],
    )
    one = cr.Gaussian().fit(scores, cr.impressions(labels, propensity))
    other = cr.Gaussian().fit(scores, cr.impressions(labels, propensity / 10))
    assert one.predict(scores) == pytest.approx(other.predict(scores), rel=1e-6)
    alike = cr.impressions(labels)
    assert (alike.positive == labels).all()
    assert (alike.total == 1).all()


def test_a_plan_needs_a_band_and_falls_with_labels():
    world = make_world(20_000, seed=10)
    with pytest.raises(cr.DataError, match="must know what its log leaves open"):
        cr.plan_labels(_biased(world), world.scores)
    fitted = cr.fit_with_sensitivity(cr.Gaussian(), world.scores, world.labels, _exposure(world))
    errors = [step.error for step in cr.plan_labels(fitted, world.scores, sizes=(0, 100, 1_000))]
    assert errors[0] > errors[1] > errors[2]
    rate = world.base_rate
    assert errors[2] > 0.5 * np.sqrt(rate * (1 - rate) / 1_000)


def test_choices_without_a_fit_still_count_by_their_level():
    rng = np.random.default_rng(0)
    scores, exposure = rng.normal(size=400), rng.uniform(0.02, 1, 400)
    labels = rng.random(400) < 0.8 * exposure**0.5 / (1 + np.exp(-3 * scores))
    found = cr.fit_with_sensitivity(cr.Platt(), scores, labels, exposure).record.sensitivity
    lost = [choice for choice in found.alternatives if choice.top_rate is None]
    assert lost
    assert all(choice.rate <= 1 for choice in found.alternatives)
    assert found.low_rate <= found.high_rate <= 1
    assert found.high_rate >= max(choice.rate for choice in lost)


def test_exposure_of_items_nobody_liked_may_be_zero():
    world = make_world(3_000, seed=3)
    counts = np.bincount(world.items, world.labels, world.items.max() + 1)
    exposure = (counts / counts.max())[world.items]
    assert (exposure == 0).any()
    assert (
        cr.fit_with_sensitivity(cr.Platt(), world.scores, world.labels, exposure).record.sensitivity
        is not None
    )
    with pytest.raises(cr.DataError, match="exposure must be above 0 where a pair is liked"):
        cr.fit_with_sensitivity(
            cr.Platt(), [0.0, 1, 2], [0, 1, 1], [0.5, 0.0, 1.0], cr.PropensityModel(power=1, clip=0)
        )


def test_sampling_is_undone_before_a_door_not_after():
    world = make_world(3_000, seed=3)
    moved = cr.to_base_rate(cr.Platt().fit(world.scores, world.preferences), 0.1, world.scores)
    with pytest.raises(
        cr.DataError,
        match="must come straight from a fit, got one whose base rate comes from known rate",
    ):
        cr.undo_undersampling(moved, 0.5)
    with pytest.raises(cr.DataError, match="population must hold scores that differ"):
        cr.to_base_rate(moved, 0.1, np.ones(10), top_rate=0.2)


def test_a_plan_that_makes_no_sense_is_refused():
    world = make_world(3_000, seed=3)
    fitted = cr.fit_with_sensitivity(cr.Platt(), world.scores, world.labels, _exposure(world))
    for wrong in ({"draws": 0}, {"sizes": (-1,)}):
        with pytest.raises(cr.DataError, match="a plan must have one draw or more"):
            cr.plan_labels(fitted, world.scores, **wrong)
