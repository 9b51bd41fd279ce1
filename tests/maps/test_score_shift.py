"""Comparison of new scores with the quantiles of the fit."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

import calibrank as cr
from calibrank.errors import ScoreShiftWarning
from calibrank.maps import FitRecord
from calibrank.maps.score_shift import ScoreComparison


def record_of(scores: np.ndarray) -> FitRecord:
    return cr.MinMax().fit(scores, np.arange(len(scores)) % 2).record


def compared(record: FitRecord, scores: np.ndarray) -> ScoreComparison:
    comparison = ScoreComparison(record)
    for batch in np.array_split(scores, 3):
        comparison.add(batch)
    return comparison


@pytest.mark.parametrize("size", [2_003, 100_003])
def test_a_map_keeps_the_quantiles_of_its_scores(size: int) -> None:
    scores = np.random.default_rng(0).normal(size=size)
    quantiles = record_of(scores).score_quantiles
    assert quantiles is not None
    assert (quantiles[0], quantiles[-1]) == (scores.min(), scores.max())
    expected = np.quantile(scores, np.linspace(0, 1, 201), method="inverted_cdf")
    np.testing.assert_allclose(quantiles, expected, atol=1e-3)


@pytest.mark.parametrize("shift", [-3, -0.5, 0, 0.2, 1, 10])
@pytest.mark.parametrize("digits", [None, 0])
def test_the_distance_is_that_of_all_scores_up_to_the_quantiles(
    shift: float, digits: int | None
) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=5_000)
    new = rng.normal(shift, 1.3, size=3_000)
    if digits is not None:  # many ties
        scores, new = scores.round(digits), new.round(digits)
    comparison = compared(record_of(scores), new)
    exact = ks_2samp(scores, new).statistic
    assert exact - 0.051 <= comparison.distance <= exact + 1e-9
    outside = np.mean((new < scores.min()) | (new > scores.max()))
    assert comparison.outside == pytest.approx(outside)


def test_of_long_batches_a_random_sample_is_compared() -> None:
    rng = np.random.default_rng(5)
    record = record_of(rng.normal(size=5_000))
    # Lists of ten, sorted: every tenth row would be the top of a list. Batches differ in length.
    lists = np.sort(rng.normal(0.5, 1, size=(50_000, 10)), axis=1)
    comparison = ScoreComparison(record)
    for batch in np.split(lists.ravel(), [300_000, 310_000]):
        comparison.add(batch)
    assert comparison.rows == 500_000
    # The distance of normal distributions half a standard deviation apart is 0.197.
    assert comparison.distance == pytest.approx(0.197, abs=0.06)
    assert record.score_quantiles is not None
    low, high = record.score_quantiles[0], record.score_quantiles[-1]
    beyond = np.mean((lists < low) | (lists > high))
    assert comparison.outside == pytest.approx(beyond, abs=0.002)


def warn_if_shifted(record: FitRecord, scores: np.ndarray) -> None:
    comparison = ScoreComparison(record)
    comparison.add(scores)
    comparison.warn(stacklevel=3)


@pytest.mark.parametrize("rows", [1, 5, 30, 200, 5_000])
def test_samples_of_the_fit_give_no_warning(rows: int) -> None:
    rng = np.random.default_rng(2)
    record = record_of(rng.normal(size=2_000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(50):
            warn_if_shifted(record, rng.normal(size=rows))


def test_a_warning_names_the_distance_the_range_and_the_model() -> None:
    record = record_of(np.arange(1_001.0))
    message = (
        r"those of the map's fit: Kolmogorov-Smirnov distance 0\.40, 40% of 1,001 scores outside "
        r"\[0, 1000\]\. If the model changed, fit a new map"
    )
    with pytest.warns(ScoreShiftWarning, match=message) as found:
        warn_if_shifted(record, np.arange(1_001.0) + 400)
    assert found[0].filename == __file__
    record = replace(record, model_name="two towers", date="2026-01-31")
    with pytest.warns(ScoreShiftWarning, match=r"fit \(two towers, 2026-01-31\):"):
        warn_if_shifted(record, np.arange(1_001.0) + 400)


def test_scores_outside_the_range_alone_give_a_warning() -> None:
    record = record_of(np.arange(1_001.0))
    scores = np.arange(1_001.0)
    scores[-250:] += 1_000
    with pytest.warns(ScoreShiftWarning, match="distance 0.25, 25% of 1,001 scores outside"):
        warn_if_shifted(record, scores)


def test_maps_without_quantiles_and_tables_without_rows_give_no_warning() -> None:
    record = record_of(np.arange(1_001.0))
    warn_if_shifted(record, np.empty(0))
    warn_if_shifted(replace(record, score_quantiles=None), np.arange(1_001.0) + 5_000)


def test_a_saved_record_keeps_quantiles_and_model(tmp_path) -> None:
    fitted = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    fitted = replace(fitted, record=replace(fitted.record, model_name="m", date="2026-01-31"))
    fitted.save(tmp_path / "map.json")
    assert cr.load(tmp_path / "map.json") == fitted
