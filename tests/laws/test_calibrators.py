"""Laws over every calibrator."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrank as cr
from calibrank.calibrators import Calibrator, Parametric
from calibrank.data.score_world import GaussianScores, make_world
from tests.members import CALIBRATORS, PARAMETRIC, Table, fit, name, probe, tables

every = pytest.mark.parametrize("member", CALIBRATORS, ids=name)


def same(
    first: cr.CalibrationMap, second: cr.CalibrationMap, scores: np.ndarray, tolerance: float = 1e-7
) -> None:
    np.testing.assert_allclose(
        first.predict(scores), second.predict(scores), rtol=0, atol=tolerance
    )


@every
@given(table=tables())
def test_probabilities_lie_in_0_1_and_keep_shape_and_type(member: Calibrator, table: Table) -> None:
    fitted = fit(member, table.scores, table.labels)
    for dtype in (np.float32, np.float64):
        asked = probe(table.scores)[:118].astype(dtype).reshape(2, 59)
        probabilities = fitted.predict(asked)
        assert probabilities.shape == asked.shape
        assert probabilities.dtype == dtype
        assert ((probabilities >= 0) & (probabilities <= 1)).all()


@pytest.mark.parametrize("member", [m for m in CALIBRATORS if m.meets.increasing], ids=name)
@given(table=tables())
def test_order_is_kept(member: Calibrator, table: Table) -> None:
    fitted = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    asked = probe(table.scores)
    assert (np.diff(fitted.predict(asked)) >= 0).all()
    if isinstance(member, Parametric):
        assert (np.diff(fitted.log_odds(asked)) > 0).all()


@pytest.mark.parametrize("member", [cr.Histogram(bins=7), cr.BBQ(bins=(3, 8))], ids=name)
def test_methods_that_do_not_claim_order_do_break_it(member: Calibrator) -> None:
    scores = np.repeat(np.arange(8.0), 30)
    labels = (np.tile(np.arange(30), 8) < np.repeat([2, 20, 4, 22, 6, 24, 8, 26], 30)).astype(float)
    assert not member.meets.increasing
    assert (np.diff(member.fit(scores, labels).predict(np.arange(8.0))) < 0).any()


@every
def test_expressive_means_bending_both_ways_and_telling_scores_apart(member: Calibrator) -> None:
    scores = np.linspace(-2, 2, 401)
    ratios = []
    for bend in (-0.3, 0.3):
        share = 1 / (1 + np.exp(-(bend * scores**2 + 2 * scores)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cr.FlatMapWarning)
            fitted = member.fit(scores, cr.Evidence(share, np.ones_like(share)))
        inner = fitted.log_odds(np.array([-1.9, -1.8, 1.8, 1.9]))
        finer = np.linspace(-2, 2, 4001)
        ties = np.unique(fitted.predict(finer)).size < finer.size
        rise = np.diff(inner)
        ratios.append(np.nan if ties else np.log(rise[2] / rise[0]))
    assert member.meets.expressive == bool(ratios[0] < -0.1 and ratios[1] > 0.1)


@every
@given(table=tables(), copies=st.integers(2, 4))
def test_weight_k_is_k_rows(member: Calibrator, table: Table, copies: int) -> None:
    weights = np.where(np.arange(len(table.scores)) % 3 == 0, copies, 1)
    weighted = fit(member, table.scores, cr.ips(table.labels, table.propensity, weights=weights))
    again = np.repeat(np.arange(len(table.scores)), weights)
    repeated = fit(
        member, table.scores[again], cr.ips(table.labels[again], table.propensity[again])
    )
    same(weighted, repeated, probe(table.scores))


@every
@given(table=tables())
def test_weight_0_is_no_row(member: Calibrator, table: Table) -> None:
    weights = np.where(np.arange(len(table.scores)) % 5 == 4, 0.0, 1.0)
    kept = weights > 0
    weighted = fit(member, table.scores, cr.naive(table.labels, weights=weights))
    same(weighted, fit(member, table.scores[kept], table.labels[kept]), probe(table.scores))


@every
@given(table=tables())
def test_order_of_rows_does_not_matter(member: Calibrator, table: Table) -> None:
    evidence = cr.ips(table.labels, table.propensity)
    backwards = cr.ips(table.labels[::-1], table.propensity[::-1])
    same(
        fit(member, table.scores, evidence),
        fit(member, table.scores[::-1], backwards),
        probe(table.scores),
    )


@every
@given(table=tables())
def test_full_exposure_is_naive(member: Calibrator, table: Table) -> None:
    full = np.ones_like(table.labels)
    plain = fit(member, table.scores, table.labels)
    for evidence in (
        cr.ips(table.labels, full),
        cr.positive_ips(table.labels, full),
        cr.naive(table.labels),
    ):
        same(plain, fit(member, table.scores, evidence), probe(table.scores), 1e-12)


@every
@given(table=tables(), cuts=st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_merged_shards_fit_the_same(member: Calibrator, table: Table, cuts: list[float]) -> None:
    whole = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    edges = [
        0,
        *sorted({round(cut * len(table.scores)) for cut in cuts} - {0, len(table.scores)}),
        len(table.scores),
    ]
    shards = [slice(*pair) for pair in pairwise(edges)]
    summaries = [
        cr.Summary.of(table.scores[s], cr.ips(table.labels[s], table.propensity[s])) for s in shards
    ]
    merged = summaries[-1]
    for summary in summaries[:-1]:
        merged = merged + summary
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        same(whole, member.fit_summary(merged), probe(table.scores))


@every
@given(table=tables())
def test_interval_holds_the_probability_and_grows_with_the_level(
    member: Calibrator, table: Table
) -> None:
    fitted = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    asked = probe(table.scores)
    narrow, wide = fitted.interval(asked, 0.5), fitted.interval(asked, 0.99)
    middle = fitted.predict(asked)
    assert (wide.low <= narrow.low + 1e-12).all()
    assert (narrow.low <= middle + 1e-12).all()
    assert (middle <= narrow.high + 1e-12).all()
    assert (narrow.high <= wide.high + 1e-12).all()


@every
@given(table=tables())
def test_saved_maps_come_back_the_same(
    member: Calibrator, table: Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fitted = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    path = tmp_path_factory.mktemp("maps") / "map.json"
    fitted.save(path)
    loaded = cr.load(path)
    assert loaded == fitted
    asked = probe(table.scores)
    np.testing.assert_array_equal(loaded.predict(asked), fitted.predict(asked))
    np.testing.assert_array_equal(loaded.interval(asked).low, fitted.interval(asked).low)


@pytest.mark.parametrize(
    "member",
    [
        m
        for m in CALIBRATORS
        if m.name not in ("Sigmoid", "Temperature", "Beta", "BBQ", "Histogram")
    ],
    ids=name,
)
@given(
    table=tables(spread=0.0),
    scale=st.sampled_from([1e-3, 7.0, 1e4]),
    offset=st.sampled_from([0.0, -5.0, 100.0]),
)
def test_units_of_the_score_do_not_matter(
    member: Calibrator, table: Table, scale: float, offset: float
) -> None:
    asked = probe(table.scores)
    plain = fit(member, table.scores, table.labels)
    moved = fit(member, table.scores * scale + offset, table.labels)
    inside = (asked >= table.scores.min()) & (asked <= table.scores.max())
    if isinstance(
        member, cr.Isotonic
    ):  # borders lie halfway between scores, where rounding may tip either way
        asked, inside = np.unique(table.scores), slice(None)
    difference = np.abs(moved.predict(asked * scale + offset) - plain.predict(asked))[inside]
    assert difference.max() < 1e-6


@pytest.mark.parametrize("member", PARAMETRIC, ids=name)
@given(table=tables())
def test_optimality_is_certified(member: Parametric, table: Table) -> None:
    fitted = fit(member, table.scores, cr.ips(table.labels, table.propensity))
    assert fitted.record.residual is not None
    assert fitted.record.residual <= 1e-8


@pytest.mark.parametrize("member", PARAMETRIC, ids=name)
def test_log_odds_keep_order_where_probabilities_round(member: Parametric) -> None:
    world = make_world(2_000, GaussianScores(), seed=3)
    fitted = member.fit(world.scores, world.preferences)
    far = world.scores.max() * np.array([1e3, 1e4, 1e5, 1e6])
    assert (np.diff(fitted.log_odds(far)) > 0).all()
    assert (np.diff(fitted.log_odds(-far)) < 0).all()
