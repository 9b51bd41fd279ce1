"""Evidence and its constructors."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.evidence import as_evidence, evidence_function, nonzero_evidence, soft_evidence
from calibrank.metrics import GAUC, NDCG

LABELS = [1, 0, 1, 0]
PROPENSITY = [0.5, 0.5, 0.25, 0.1]
WEIGHTS = [1.0, 2.0, 3.0, 0.0]


def masses(evidence: cr.Evidence) -> tuple[list[float], list[float]]:
    return evidence.positive.tolist(), evidence.total.tolist()


def test_masses_of_each_constructor() -> None:
    assert masses(cr.naive(LABELS)) == ([1, 0, 1, 0], [1, 1, 1, 1])
    assert masses(cr.ips(LABELS, PROPENSITY)) == ([2, 0, 4, 0], [1, 1, 1, 1])
    assert masses(cr.positive_ips(LABELS, PROPENSITY)) == ([2, 0, 4, 0], [2, 1, 4, 1])
    assert masses(cr.impressions(LABELS)) == ([1, 0, 1, 0], [1, 1, 1, 1])
    assert masses(cr.impressions(LABELS, PROPENSITY)) == ([2, 0, 4, 0], [2, 2, 4, 10])


@pytest.mark.parametrize("constructor", [cr.naive, cr.ips, cr.positive_ips, cr.impressions])
def test_weights_multiply_both_masses(constructor: Any) -> None:
    arguments = [LABELS] if constructor is cr.naive else [LABELS, PROPENSITY]
    plain = constructor(*arguments)
    weighted = constructor(*arguments, weights=WEIGHTS)
    np.testing.assert_array_equal(weighted.positive, plain.positive * WEIGHTS)
    np.testing.assert_array_equal(weighted.total, plain.total * WEIGHTS)
    assert weighted.kind == plain.kind == constructor.__name__


def test_doubly_robust_evidence_is_unbiased_and_fits_everything() -> None:
    """With a wrong outcome model and right propensities: the mean is that of all labels."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=60_000)
    truth = 1 / (1 + np.exp(1 - scores))
    liked = (rng.random(60_000) < truth).astype(float)
    propensity = np.clip(1 / (1 + np.exp(-scores)), 0.1, 1)
    shown = np.where(rng.random(60_000) < propensity, liked, np.nan)
    outcome = np.full(60_000, 0.5)
    evidence = cr.doubly_robust(shown, propensity, outcome)
    assert evidence.positive.min() < 0
    assert evidence.positive.mean() == pytest.approx(truth.mean(), abs=0.01)
    for calibrator in (cr.Platt(), cr.Gaussian(), cr.Spline(), cr.Isotonic()):
        fitted = calibrator.fit(scores, evidence)
        assert np.abs(fitted.predict(scores) - truth).mean() < 0.03
    summary = cr.Summary.of(scores, evidence)
    platt = cr.Platt().fit_summary(summary)
    np.testing.assert_allclose(
        platt.predict(scores), cr.Platt().fit(scores, evidence).predict(scores)
    )
    anchored = cr.anchor(platt, scores[:3_000], liked[:3_000])
    assert np.abs(anchored.predict(scores) - truth).mean() < 0.03
    # With right outcomes, propensities may be wrong.
    right = cr.doubly_robust(shown, np.full(60_000, 0.5), truth)
    assert right.positive.mean() == pytest.approx(truth.mean(), abs=0.01)


def test_doubly_robust_evidence_has_terms_and_metrics_and_no_files_or_lists(tmp_path: Path) -> None:
    """Sums of many rows are right; a file or the list of one user would have negative masses."""
    rng = np.random.default_rng(1)
    scores, x = rng.normal(size=(2, 40_000))
    country = rng.choice(["a", "b", "c"], 40_000)
    truth = 1 / (1 + np.exp(1 - scores - (country == "a")))
    liked = (rng.random(40_000) < truth).astype(float)
    propensity = np.clip(1 / (1 + np.exp(-scores)), 0.2, 1)
    shown = np.where(rng.random(40_000) < propensity, liked, np.nan)
    evidence = cr.doubly_robust(shown, propensity, np.full(40_000, 0.4))
    columns = {"country": country, "x": x}
    level = cr.Platt() + cr.Level("country")
    for model in (level, level + cr.Smooth("x")):
        fitted = model.fit(scores, evidence, columns)
        assert np.abs(fitted.predict(scores, columns) - truth).mean() < 0.03
    for metric in (cr.LogLoss(), cr.Brier(), cr.ECE()):
        assert metric(truth, evidence) == pytest.approx(metric(truth, liked), abs=0.02)
    for saved in (cr.Summary.of(scores, evidence), level.sums(scores, evidence, columns)):
        with pytest.raises(cr.DataError, match="doubly_robust must not go with a saved summary"):
            saved.save(tmp_path / "sums.npz")
    for metric in (NDCG(5), GAUC()):
        with pytest.raises(cr.DataError, match="doubly_robust must not go with metrics of each"):
            metric(truth, evidence, users=np.arange(40_000) % 100)


def test_doubly_robust_evidence_of_a_log_of_positives_is_ips() -> None:
    """m + (Y - w m) / w = Y / w: an unseen pair has Y = 0 and was seen with probability w m."""
    labels, w, m = np.array([1.0, 0, 0]), np.array([0.5, 0.5, 0.1]), np.array([0.4, 0.2, 0.3])
    np.testing.assert_allclose(m + (labels - w * m) / w, cr.ips(labels, w).positive)


def test_doubly_robust_evidence_is_refused_where_it_has_no_positive_mass() -> None:
    with pytest.raises(cr.DataError, match=r"doubly robust evidence must have a positive mass"):
        cr.doubly_robust([0, 0], [0.1, 0.1], [0.9, 0.9])
    with pytest.raises(cr.DataError, match="outcome must"):
        cr.doubly_robust([0, 1], [0.1, 0.1], [0.9, 1.9])


def test_impressions_without_propensity_accept_weights() -> None:
    assert masses(cr.impressions(LABELS, weights=WEIGHTS)) == ([1, 0, 3, 0], WEIGHTS)


def test_unit_weights_are_flagged_where_every_total_is_one() -> None:
    assert cr.naive(LABELS).unit_weights
    assert cr.ips(LABELS, PROPENSITY).unit_weights
    assert cr.impressions(LABELS).unit_weights
    assert not cr.positive_ips(LABELS, PROPENSITY).unit_weights
    assert not cr.impressions(LABELS, PROPENSITY).unit_weights
    assert not cr.naive(LABELS, weights=WEIGHTS).unit_weights
    assert not cr.ips(LABELS, PROPENSITY, weights=WEIGHTS).unit_weights
    assert not cr.Evidence([1.0], [1.0]).unit_weights


def test_a_broadcast_total_is_not_taken_for_unit_weights() -> None:
    ones = np.broadcast_to(np.float64(1), 4)
    assert not cr.Evidence(np.zeros(4), ones).unit_weights
    assert not cr.Evidence.trusted(np.zeros(4), ones, "given").unit_weights


@pytest.mark.parametrize(
    "rows", [slice(1, 3), np.array([False, True, True, False]), np.array([1, 2])]
)
def test_selected_rows_keep_kind_and_flag(rows: Any) -> None:
    evidence = cr.ips(LABELS, PROPENSITY).rows(rows)
    assert masses(evidence) == ([0, 4], [1, 1])
    assert (evidence.kind, evidence.unit_weights) == ("ips", True)


def test_float32_weights_are_converted_to_float64() -> None:
    weights = np.array(WEIGHTS, dtype=np.float32)
    assert cr.naive(LABELS, weights=weights).total.dtype == np.float64


def test_the_weights_of_evidence_are_a_copy() -> None:
    weights = np.array(WEIGHTS)
    evidence = cr.naive(LABELS, weights=weights)
    weights[:] = 7
    assert evidence.total.tolist() == WEIGHTS


@pytest.mark.parametrize(
    ("propensity", "message"),
    [
        ([0.5, 0.0, 0.5, 0.5], r"propensity must lie in (0, 1], got 0.0 at row 1. Clip"),
        ([0.5, 0.5, 1.5, 0.5], "got 1.5 at row 2"),
        ([0.5, 0.5, np.nan, 0.5], "got nan at row 2"),
        (np.array([0.5, 0.0, 0.5, 0.5], dtype=np.float32), "got 0.0 at row 1"),
        ([0.5, 0.5], "propensity must have one value per row, got 2 values for 4 rows"),
    ],
)
@pytest.mark.parametrize("constructor", [cr.ips, cr.positive_ips, cr.impressions])
def test_invalid_propensities_are_refused(constructor: Any, propensity: Any, message: str) -> None:
    with pytest.raises(cr.DataError, match=re.escape(message)):
        constructor(LABELS, propensity)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([-1, 1, 1, 1], "weights must be finite and not negative, got -1.0 at row 0. Drop the row"),
        ([1, np.inf, 1, 1], "got inf at row 1"),
        (np.array([1, np.inf, 1, 1], dtype=np.float32), "got inf at row 1"),
        ([1, 1], "weights must have one value per row, got 2 values for 4 rows"),
    ],
)
def test_invalid_weights_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(cr.DataError, match=re.escape(message)):
        cr.naive(LABELS, weights=weights)


@pytest.mark.parametrize(
    ("positive", "total", "message"),
    [
        ([-1.0], [1.0], "positive must be finite and not negative, got -1.0 at row 0. Drop the"),
        ([1.0], [np.inf], "total must be finite and not negative, got inf at row 0"),
        ([0.0, 1.0], [0.0, 0.0], "total must be above 0 where positive is, got 0.0 at row 1"),
        ([1.0, 2.0], [1.0], "total must have one value per row, got 1 values for 2 rows"),
    ],
)
def test_invalid_masses_are_refused(positive: Any, total: Any, message: str) -> None:
    with pytest.raises(cr.DataError, match=re.escape(message)):
        cr.Evidence(positive, total)


def test_a_row_without_any_mass_is_valid() -> None:
    assert len(cr.Evidence([0.0, 1.0], [0.0, 1.0])) == 2


def test_undersampling_weights_stand_for_the_dropped_negatives() -> None:
    np.testing.assert_allclose(cr.undersampling_weights(LABELS, 0.25), [1, 4, 1, 4])
    for kept in (0, -1, 1.5, float("nan")):
        with pytest.raises(cr.DataError, match=r"kept must lie in \[1e-12, 1\], got"):
            cr.undersampling_weights(LABELS, kept)


def test_labels_become_naive_evidence_and_evidence_stays() -> None:
    evidence = cr.ips(LABELS, PROPENSITY)
    assert as_evidence(evidence, 4) is evidence
    assert as_evidence(LABELS, 4).kind == "naive"
    expected = "labels must have one value per row, got 4 values for 5 rows"
    with pytest.raises(cr.DataError, match=expected):
        as_evidence(LABELS, 5)


def test_evidence_without_weight_is_refused_where_a_mean_is_needed() -> None:
    assert nonzero_evidence(LABELS, 4).total.sum() == 4
    expected = r"evidence must have a total weight above 0, got 0\."
    with pytest.raises(cr.DataError, match=expected):
        nonzero_evidence(cr.naive(LABELS, weights=[0, 0, 0, 0]), 4)


@pytest.mark.parametrize("function", [cr.naive, cr.ips, cr.positive_ips, cr.impressions])
def test_soft_labels_are_mixtures_of_both_classes(function: object) -> None:
    propensity = np.array([0.5, 0.25, 1.0])
    weights = np.array([2.0, 3.0, 5.0])
    shares = np.array([0.25, 0.5, 1.0])
    found = soft_evidence(function, shares, propensity, weights)
    for row in range(3):
        given = [propensity[row : row + 1]] if function is not cr.naive else []
        one = function([1], *given, weights=weights[row : row + 1])
        zero = function([0], *given, weights=weights[row : row + 1])
        total = shares[row] * one.total[0] + (1 - shares[row]) * zero.total[0]
        assert found.positive[row] == pytest.approx(shares[row] * one.positive[0])
        assert found.total[row] == pytest.approx(total)
    assert found.kind == one.kind
    with pytest.raises(cr.DataError, match="labels must be a probability"):
        soft_evidence(function, [0.5, 1.1, 0.0], propensity, weights)


def test_the_default_evidence_follows_from_propensities() -> None:
    assert evidence_function(None, None) is cr.naive
    assert evidence_function(None, "p") is cr.ips
    assert evidence_function(cr.impressions, None) is cr.impressions
    assert evidence_function(cr.naive, None) is cr.naive
    for given in (cr.ips, cr.positive_ips):
        assert evidence_function(given, "p") is given
        with pytest.raises(cr.DataError, match=f"{given.__name__} evidence must have propensities"):
            evidence_function(given, None)
    for given in ("ips", cr.Evidence):
        with pytest.raises(cr.DataError, match="evidence must be a function: naive, ips"):
            evidence_function(given, "p")
