"""Laws that hold for every calibrator, on tables drawn by Hypothesis."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import calibrank as cr
from calibrank.curves import Calibrator, Parametric
from calibrank.data.score_world import GaussianScores, make_world
from calibrank.errors import FlatMapWarning
from tests.checks import CALIBRATOR_LAWS, INCREASING_LAWS, MAP_LAWS, Rows
from tests.members import CALIBRATORS, PARAMETRIC, Table, fit, name, probe, tables

every = pytest.mark.parametrize("member", CALIBRATORS, ids=name)
LAWS_OF_FITS = [law for law in CALIBRATOR_LAWS if law not in MAP_LAWS | INCREASING_LAWS]

# Sigmoid, Temperature, Beta and BBQ depend on the scale of the scores by definition; an edge of
# Histogram may round to the other side of a score.
SCALE_FREE = [
    member
    for member in CALIBRATORS
    if member.name not in {"Sigmoid", "Temperature", "Beta", "BBQ", "Histogram"}
]


def assert_same(
    first: cr.CalibrationMap, second: cr.CalibrationMap, scores: np.ndarray, tolerance: float = 1e-7
) -> None:
    np.testing.assert_allclose(
        first.predict(scores), second.predict(scores), rtol=0, atol=tolerance
    )


@every
@pytest.mark.parametrize("law", LAWS_OF_FITS)
@given(table=tables())
def test_public_laws_of_fits_hold(member: Calibrator, law: str, table: Table) -> None:
    try:
        CALIBRATOR_LAWS[law](member, table)
    except cr.FitError:
        reject()


@every
@given(table=tables())
def test_public_laws_of_maps_hold(member: Calibrator, table: Table) -> None:
    """The laws of `CALIBRATOR_LAWS` that look at one map: one fit serves all of them."""
    fitted = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    rows = Rows(table.probe())
    for law in MAP_LAWS.values():
        law(fitted, rows)
    if member.meets.increasing:
        for law in INCREASING_LAWS.values():
            law(fitted, rows)


@pytest.mark.parametrize("member", PARAMETRIC, ids=name)
@given(table=tables())
def test_log_odds_of_parametric_maps_strictly_increase(member: Parametric, table: Table) -> None:
    fitted = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    assert (np.diff(fitted.log_odds(probe(table.scores))) > 0).all()


@pytest.mark.parametrize("member", [cr.Histogram(bins=7), cr.BBQ(bins=(3, 8))], ids=name)
def test_methods_that_are_not_declared_increasing_can_decrease(member: Calibrator) -> None:
    scores = np.repeat(np.arange(8.0), 30)
    positives = np.repeat([2, 20, 4, 22, 6, 24, 8, 26], 30)
    labels = (np.tile(np.arange(30), 8) < positives).astype(float)
    assert not member.meets.increasing
    assert (np.diff(member.fit(scores, labels).predict(np.arange(8.0))) < 0).any()


@every
def test_expressive_maps_follow_both_curvatures_without_ties(member: Calibrator) -> None:
    scores = np.linspace(-2, 2, 401)
    finer = np.linspace(-2, 2, 4001)
    log_ratios = []
    for curvature in (-0.3, 0.3):
        rates = 1 / (1 + np.exp(-(curvature * scores**2 + 2 * scores)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FlatMapWarning)
            fitted = member.fit(scores, cr.Evidence(rates, np.ones_like(rates)))
        rises = np.diff(fitted.log_odds(np.array([-1.9, -1.8, 1.8, 1.9])))
        has_ties = np.unique(fitted.predict(finer)).size < finer.size
        log_ratios.append(np.nan if has_ties else np.log(rises[2] / rises[0]))
    follows_both = bool(log_ratios[0] < -0.1 and log_ratios[1] > 0.1)
    assert member.meets.expressive == follows_both


@every
@given(table=tables(), copies=st.integers(2, 4))
def test_any_integer_weight_equals_repeated_rows(
    member: Calibrator, table: Table, copies: int
) -> None:
    weights = np.where(np.arange(len(table.scores)) % 3 == 0, copies, 1)
    weighted = fit(member, table.scores, cr.ips(table.labels, table.propensity, weights=weights))
    repeated_table = table.take(np.repeat(np.arange(len(table.scores)), weights))
    evidence = cr.ips(repeated_table.labels, repeated_table.propensity)
    repeated = fit(member, repeated_table.scores, evidence)
    # Beta sees the sigmoid of scores: where all are saturated, its loss is flat around the optimum.
    is_saturated = isinstance(member, cr.Beta) and np.abs(table.scores).max() > 20
    # The smoothness of a spline is chosen by an optimisation of its own.
    usual = 1e-6 if isinstance(member, cr.Spline) else 1e-7
    tolerance = 1e-4 if is_saturated else usual
    assert_same(weighted, repeated, probe(table.scores), tolerance)


@every
@given(table=tables(), cuts=st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_merged_shards_of_any_size_fit_the_same(
    member: Calibrator, table: Table, cuts: list[float]
) -> None:
    whole = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    rows = len(table.scores)
    inner = {round(cut * rows) for cut in cuts} - {0, rows}
    summaries = []
    for start, stop in pairwise([0, *sorted(inner), rows]):
        shard = table.take(slice(start, stop))
        evidence = cr.ips(shard.labels, shard.propensity)
        summaries.append(cr.Summary.of(shard.scores, evidence))
    merged = summaries[-1]
    for summary in summaries[:-1]:
        merged = merged + summary
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        assert_same(whole, member.fit_summary(merged), probe(table.scores))


@pytest.mark.parametrize("member", SCALE_FREE, ids=name)
@given(
    table=tables(spread=0.0),
    scale=st.sampled_from([1e-3, 7.0, 1e4]),
    offset=st.sampled_from([0.0, -5.0, 100.0]),
)
def test_scale_and_offset_of_the_scores_do_not_matter(
    member: Calibrator, table: Table, scale: float, offset: float
) -> None:
    original = fit(member, table.scores, table.labels)
    rescaled = fit(member, table.scores * scale + offset, table.labels)
    scores = probe(table.scores)
    scores = scores[(scores >= table.scores.min()) & (scores <= table.scores.max())]
    if isinstance(member, cr.Isotonic):
        # Edges lie halfway between scores, where rounding may go either way.
        scores = np.unique(table.scores)
    difference = rescaled.predict(scores * scale + offset) - original.predict(scores)
    assert np.abs(difference).max() < 1e-6


@pytest.mark.parametrize("member", PARAMETRIC, ids=name)
@given(table=tables())
def test_optimality_is_certified(member: Parametric, table: Table) -> None:
    fitted = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    assert fitted.record.residual is not None
    assert fitted.record.residual <= 1e-8


@pytest.mark.parametrize("member", PARAMETRIC, ids=name)
def test_log_odds_increase_where_probabilities_round_to_0_or_1(member: Parametric) -> None:
    world = make_world(2_000, GaussianScores(), seed=3)
    fitted = member.fit(world.scores, world.preferences)
    far = world.scores.max() * np.array([1e3, 1e4, 1e5, 1e6])
    assert (np.diff(fitted.log_odds(far)) > 0).all()
    assert (np.diff(fitted.log_odds(-far)) < 0).all()
