"""`scalar`: a function of one float that gives the digits of `predict`, for every kind of map."""

import math

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import native
from calibrank._internal.logit import expit
from calibrank.export import hard_scores
from calibrank.maps import StepCurve
from calibrank.maps.basis import Linear, Quadratic
from tests.maps.samples import (
    gaussian_map,
    level_term,
    logistic_map,
    map_of,
    position_term,
    smooth_term,
)
from tests.members import CALIBRATORS, name


def fitted_by(calibrator: cr.Calibrator) -> cr.CalibrationMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=500)
    labels = rng.random(500) < expit(2 * scores - 1)
    return calibrator.fit(scores, labels)


def scores_for(fitted: cr.CalibrationMap) -> np.ndarray:
    """Thousands of scores inside and outside the range, and those that are difficult."""
    rng = np.random.default_rng(1)
    return np.concatenate([rng.normal(0, 2, 3_000), hard_scores(fitted), fitted.curve.breakpoints])


@pytest.mark.parametrize("without_library", [False, True])
@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_scalar_gives_the_digits_of_predict(
    member: cr.Calibrator, without_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without_library:
        monkeypatch.setattr(native, "READY", False)
    fitted = fitted_by(member)
    probability = fitted.scalar()
    scores = scores_for(fitted)
    found = [probability(score) for score in scores.tolist()]
    assert {type(value) for value in found} == {float}
    np.testing.assert_array_equal(found, fitted.predict(scores))


def test_scalar_of_an_anchored_map_gives_the_digits_of_predict() -> None:
    fitted = cr.anchor(fitted_by(cr.Gaussian()), [-1.0, 0.0, 1.0, 2.0], [0, 0, 1, 1])
    scores = scores_for(fitted)
    probability = fitted.scalar()
    found = [probability(score) for score in scores.tolist()]
    np.testing.assert_array_equal(found, fitted.predict(scores))


def test_scalar_of_a_map_with_terms_takes_the_row() -> None:
    terms = (level_term("country", "city"), smooth_term("x"), position_term("rank"))
    fitted = map_of(gaussian_map().curve, *terms)
    probability = fitted.scalar()
    for place, score in enumerate(np.linspace(-5, 5, 60).tolist()):
        row = {}
        for term in terms:
            row |= term.example(place)
        expected = fitted.predict(score, row)
        assert probability(score, row) == pytest.approx(expected, rel=1e-12)
    for missing in fitted.columns:
        rest = {name: value for name, value in row.items() if name != missing}
        with pytest.raises(cr.DataError, match=f"column '{missing}'"):
            probability(0.0, rest)
    with pytest.raises(cr.DataError, match="must not be missing"):
        probability(0.0, {**row, "city": None})


def test_scalar_of_a_map_without_edges() -> None:
    assert map_of(StepCurve((), (0.25,), (4.0,))).scalar()(3.0) == 0.25


@pytest.mark.parametrize("without_library", [False, True])
def test_scalar_takes_small_floats_of_numpy(
    without_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without_library:
        monkeypatch.setattr(native, "READY", False)
    fitted = fitted_by(cr.Platt())
    assert fitted.scalar()(np.float16(1.5)) == fitted.predict(1.5)
    with pytest.raises(cr.DataError, match="scores must be finite"):
        fitted.scalar()(np.float16("inf"))


@pytest.mark.parametrize("member", [cr.Platt(), cr.Beta(), cr.Isotonic()], ids=name)
@pytest.mark.parametrize("invalid", [math.nan, math.inf, -math.inf, 1.1e30])
def test_scalar_refuses_what_predict_refuses(member: cr.Calibrator, invalid: float) -> None:
    with pytest.raises(cr.DataError, match="scores must be finite"):
        fitted_by(member).scalar()(invalid)


@pytest.mark.skipif(not native.READY, reason="calibrank was installed without a C compiler")
@pytest.mark.parametrize("basis", [Linear(), Quadratic()], ids=repr)
@pytest.mark.parametrize("width", [1e-6, 1.0, 1e6])
def test_compiled_probabilities_of_any_size_are_accurate(
    basis: Linear | Quadratic, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = logistic_map(basis, -width, 2 * width)
    scores = np.random.default_rng(0).normal(0, 3 * width, 10_001)
    compiled = fitted.predict(scores)
    in_float32 = fitted.predict(scores.astype(np.float32))
    monkeypatch.setattr(native, "READY", False)
    np.testing.assert_allclose(compiled, fitted.predict(scores), rtol=2e-15)
    expected = fitted.predict(scores.astype(np.float32))
    np.testing.assert_allclose(in_float32, expected, rtol=2e-7)


@pytest.mark.skipif(not native.READY, reason="calibrank was installed without a C compiler")
def test_compiled_probabilities_of_extreme_log_odds(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = logistic_map(Quadratic(), 0.0, 1.0)
    scores = np.linspace(-3_000, 3_000, 2_001)
    compiled = fitted.predict(scores)
    monkeypatch.setattr(native, "READY", False)
    np.testing.assert_allclose(compiled, fitted.predict(scores), rtol=1e-12, atol=1e-300)
    assert np.all(np.diff(compiled) >= 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_layout_of_scores_gives_the_same_probabilities(dtype: type) -> None:
    fitted = fitted_by(cr.Gaussian())
    scores = np.random.default_rng(0).normal(size=(30, 40)).astype(dtype)
    expected = fitted.predict(scores.ravel()).reshape(30, 40)
    read_only = scores.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + scores.tobytes(), np.uint8)[1:].view(dtype).reshape(30, 40)
    for given in (scores, read_only, unaligned, np.asfortranarray(scores)):
        np.testing.assert_array_equal(fitted.predict(given), expected)
    np.testing.assert_array_equal(fitted.predict(scores.T), expected.T)
    np.testing.assert_array_equal(fitted.predict(scores[:, ::3]), expected[:, ::3])
    swapped = scores.astype(scores.dtype.newbyteorder())
    np.testing.assert_allclose(fitted.predict(swapped), expected, rtol=2e-7)
    assert fitted.predict(scores[:0]).shape == (0, 40)


def test_a_range_too_narrow_for_the_compiled_loop_is_computed_by_numpy() -> None:
    fitted = logistic_map(Linear(), 0.0, 1e-300)
    assert fitted.curve.program == b""
    assert fitted.scalar()(1e-300) == fitted.predict(1e-300)
