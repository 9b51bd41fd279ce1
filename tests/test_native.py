"""The compiled library: loading it, and probabilities of millions of float32 scores."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import native

pytestmark = pytest.mark.skipif(
    not native.READY, reason="calibrank was installed without a C compiler"
)


def test_the_built_library_is_loaded() -> None:
    assert native.load_library() is not None


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        ("SOURCE", "native.c"),
        ("LIBRARY", "not_a_library.txt"),
        ("LIBRARY", "missing.so"),
    ],
)
def test_a_stale_damaged_or_missing_library_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, replacement: str
) -> None:
    (tmp_path / "native.c").write_text("a newer version of the source")
    (tmp_path / "not_a_library.txt").write_text("text")
    monkeypatch.setattr(native, name, tmp_path / replacement)
    assert native.load_library() is None


def test_a_library_is_stale_if_an_included_file_has_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for file in native.SOURCE.parent.glob("native*.[ch]"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(native, "SOURCE", tmp_path / "native.c")
    assert native.load_library() is not None
    with (tmp_path / "native_maps.h").open("a") as header:
        header.write("a change")
    assert native.load_library() is None


def predicted(fitted: cr.CalibrationMap, scores: np.ndarray, rows: slice) -> np.ndarray:
    """Probabilities of some rows as they come out of a prediction for all rows."""
    return fitted.predict(scores)[rows]


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    """Enough float32 scores for the compiled loop, two of them far outside the fitted range."""
    scores = np.random.default_rng(0).normal(0, 2, 3_100_000).astype(np.float32)
    scores[:2] = [-40, 40]
    return scores


@pytest.mark.parametrize("calibrator", [cr.Gaussian(), cr.Platt()], ids=repr)
def test_compiled_probabilities_are_accurate_to_float32(
    calibrator: cr.Calibrator, scores: np.ndarray
) -> None:
    grid = np.arange(-5.0, 5.0, 0.01)
    labels = (np.arange(1000) % 10 < np.arange(1000) / 100).astype(float)
    fitted = calibrator.fit(grid, labels)
    some = slice(0, 20_000)
    ratio = predicted(fitted, scores, some) / fitted.predict(scores[some])
    assert np.abs(ratio - 1).max() < 3e-6


def test_compiled_probabilities_are_accurate_with_an_outlying_fitted_score(
    scores: np.ndarray,
) -> None:
    fitted = cr.Platt().fit(
        np.r_[-1e5, scores[:5_000]],
        np.r_[0, np.arange(5_000) % 3 == 0],
    )
    some = slice(0, 20_000)
    ratio = predicted(fitted, scores, some) / fitted.predict(scores[some].astype(float))
    assert np.abs(ratio - 1).max() < 3e-6


@pytest.mark.parametrize("invalid", [np.nan, np.inf, -np.inf, -3.4e38])
def test_an_invalid_score_among_millions_is_reported(scores: np.ndarray, invalid: float) -> None:
    fitted = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    damaged = scores.copy()
    damaged[7] = invalid
    with pytest.raises(cr.DataError, match=r"got .* at row 7"):
        fitted.predict(damaged)
