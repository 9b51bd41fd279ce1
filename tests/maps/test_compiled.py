"""The C loops of maps: the same probabilities as NumPy's, for every kind of map and of score."""

from collections.abc import Iterator

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import native
from calibrank._internal.logit import expit, logit
from calibrank.export import hard_scores
from calibrank.maps import PiecewiseCurve, StepCurve
from calibrank.maps.basis import Basis, Linear, Log, LogQuadratic, Quadratic, Softplus
from tests.maps.samples import logistic_map, map_of
from tests.members import CALIBRATORS, name

pytestmark = pytest.mark.skipif(
    not native.READY, reason="calibrank was installed without a C compiler"
)

BASES = [Linear(), Quadratic(), Softplus(), Log(0.1), Log(3.0), LogQuadratic(0.1)]


def by_numpy(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "READY", False)
        return fitted.predict(scores)


def assert_compiled(fitted: cr.CalibrationMap, scores: np.ndarray) -> None:
    """The loop computed the scores, with an error of a few units in the last digit.

    A relative error of 1e-16 in large log odds, or in their terms, is a larger one in the
    probability.
    """
    compiled = native.probabilities(scores, fitted.curve.program)
    assert compiled is not None
    np.testing.assert_array_equal(fitted.predict(scores), compiled)
    expected = by_numpy(fitted, scores).astype(np.float64)
    with np.errstate(divide="ignore"):
        log_odds = np.abs(logit(expected))
    largest = log_odds.clip(max(1.0, fitted.largest_term), 800)
    difference = np.abs(compiled - expected)
    limits = np.finfo(scores.dtype)
    assert np.max(difference / np.maximum(expected, 2 * limits.tiny) / largest) < 8 * limits.eps


def fitted_by(calibrator: cr.Calibrator) -> cr.CalibrationMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2_000)
    return calibrator.fit(scores, rng.random(2_000) < expit(2 * scores - 1))


@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_every_method_is_compiled_and_agrees_with_numpy(member: cr.Calibrator) -> None:
    fitted = fitted_by(member)
    rng = np.random.default_rng(1)
    scores = np.concatenate(
        [rng.normal(0, 2, 3_001), hard_scores(fitted), fitted.curve.breakpoints]
    )
    assert_compiled(fitted, scores)
    # 1e30 as a float32 is larger than the limit, and then left to NumPy.
    within = scores[np.abs(scores) < 1e29]
    assert_compiled(fitted, within.astype(np.float32))


@pytest.fixture(params=[0, 1, 2], ids=["any processor", "AVX2", "AVX-512"])
def processor(request: pytest.FixtureRequest) -> Iterator[None]:
    """The loops as they are compiled for an older processor."""
    library = native.loops
    assert library is not None
    if library.choose_processor(request.param) < request.param:
        pytest.skip("this processor has no such instructions")
    yield
    library.choose_processor(2)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_older_processors_agree_with_numpy_and_one_score_with_many(member: cr.Calibrator) -> None:
    fitted = fitted_by(member)
    scores = np.random.default_rng(1).normal(0, 2, 1_001)
    assert_compiled(fitted, scores)
    probability = fitted.scalar()
    expected = [probability(score) for score in scores.tolist()]
    np.testing.assert_array_equal(fitted.predict(scores), expected)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_compiled_log_odds_agree_with_numpy(member: cr.Calibrator) -> None:
    fitted = fitted_by(member)
    scores = np.random.default_rng(1).normal(0, 2, 1_001)
    found = native.probabilities(scores, fitted.curve.log_odds_program)
    if fitted.curve.kind in {"step", "rescale"}:
        assert found is None
        return
    assert found is not None
    size = max(1.0, fitted.largest_term)
    np.testing.assert_allclose(found, fitted.log_odds(scores), rtol=1e-14, atol=1e-14 * size)


@pytest.mark.parametrize("basis", BASES, ids=repr)
@pytest.mark.parametrize("width", [1e-6, 1.0, 1e6])
def test_logistic_maps_of_any_scale_agree_with_numpy(basis: Basis, width: float) -> None:
    fitted = logistic_map(basis, -width, 2 * width)
    scores = np.random.default_rng(0).normal(0, 3 * width, 10_001)
    assert_compiled(fitted, scores)


def test_extreme_log_odds_give_0_and_1_without_a_jump() -> None:
    fitted = logistic_map(Quadratic(), 0.0, 1.0)
    compiled = fitted.predict(np.linspace(-3_000, 3_000, 2_001))
    assert compiled[0] == 0
    assert compiled[-1] == 1
    assert np.all(np.diff(compiled) >= 0)


def table_edges() -> dict[str, np.ndarray]:
    """Edges that buckets of equal width separate, or do not."""
    rng = np.random.default_rng(2)
    return {
        "equal": np.linspace(-1, 1, 200),
        "one": np.array([0.3]),
        "neighbours": np.array([1.0, np.nextafter(1.0, 2.0), np.nextafter(np.nextafter(1, 2), 2)]),
        "many": np.unique(rng.normal(size=20_000)),
        "an outlier": np.concatenate([rng.normal(size=50), [1e12]]),
        "huge": np.array([-1e30, -1.0, 0.0, 1.0, 1e30]),
        "tiny": np.array([0.0, 1e-310, 2e-310]),
    }


@pytest.mark.parametrize("case", table_edges())
def test_steps_are_found_exactly(case: str) -> None:
    edges = np.unique(table_edges()[case])
    rng = np.random.default_rng(3)
    values = np.sort(rng.random(len(edges) + 1))
    steps = StepCurve(tuple(edges.tolist()), tuple(values.tolist()), (1.0,) * len(values))
    fitted = map_of(steps)
    around = [np.nextafter(edges, -np.inf), edges, np.nextafter(edges, np.inf)]
    scores = np.concatenate([*around, rng.normal(size=5_003), [-1e30, 1e30]]).clip(-1e30, 1e30)
    expected = values[np.searchsorted(edges, scores, side="right")]
    np.testing.assert_array_equal(fitted.predict(scores), expected)


@pytest.mark.parametrize("case", ["equal", "one", "neighbours", "an outlier", "huge"])
def test_lines_agree_with_numpy(case: str) -> None:
    knots = np.unique(table_edges()[case])
    rng = np.random.default_rng(4)
    values = np.cumsum(rng.random(len(knots))) - len(knots) / 4
    errors = (0.0,) * len(knots)
    lines = (tuple(knots.tolist()), tuple(values.tolist()), (0.5, 2.0))
    fitted = map_of(PiecewiseCurve(*lines, errors, (0.0, 0.0)))
    scores = np.concatenate([knots, rng.normal(size=1_001), [-1e30, 1e30]])
    np.testing.assert_allclose(fitted.predict(scores), by_numpy(fitted, scores), rtol=1e-13)


@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 1_000, 1_025, 9_000])
def test_an_invalid_score_is_reported_wherever_it_is(member: cr.Calibrator, rows: int) -> None:
    fitted = fitted_by(member)
    for row in {0, rows // 2, rows - 1}:
        for invalid in (np.nan, np.inf, -np.inf, 1.1e30):
            scores = np.zeros(rows)
            scores[row] = invalid
            with pytest.raises(cr.DataError, match=rf"scores must be finite.* at row {row}\b"):
                fitted.predict(scores)


@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_probabilities_do_not_depend_on_the_rows_around_them(member: cr.Calibrator) -> None:
    fitted = fitted_by(member)
    scores = np.random.default_rng(5).normal(size=9_001)
    whole = fitted.predict(scores)
    for rows in (slice(3, 5), slice(1, 1_002), slice(17, 9_001), slice(None, None, 3)):
        np.testing.assert_array_equal(fitted.predict(scores[rows]), whole[rows])


def test_a_prediction_leaves_the_scores_as_they_were() -> None:
    scores = np.random.default_rng(6).normal(size=1_000)
    before = scores.copy()
    fitted_by(cr.Gaussian()).predict(scores)
    np.testing.assert_array_equal(scores, before)
