"""Metrics by hand."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.evidence import naive
from calibrank.metrics import (
    Discrimination,
    EqualMass,
    Miscalibration,
    OnCells,
    about,
    bootstrap_sums,
    group_sums,
)


def test_ece_by_hand() -> None:
    # bins of 0.5: [0.1, 0.3] with 1 of 2 liked, [0.6, 0.8, 1.0] with 2 of 3 liked
    p, labels = [0.1, 0.3, 0.6, 0.8, 1.0], [1, 0, 1, 0, 1]
    assert cr.ECE(bins=2)(p, labels) == pytest.approx((abs(1 - 0.4) + abs(2 - 2.4)) / 5)
    assert cr.MCE(bins=2)(p, labels) == pytest.approx(max(0.6 / 2, 0.4 / 3))


def test_ece_is_linear_in_evidence() -> None:
    # one row of inverse propensity 4 at 0.5: |4 - 0.5|
    assert cr.ECE(bins=1)([0.5], cr.ips([1], [0.25])) == pytest.approx(3.5)


def test_released_variants_differ_only_around_one_half() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(5_000)
    labels = (rng.random(5_000) < p).astype(float)
    outside = (p < 7 / 15) | (p >= 8 / 15)
    assert cr.ReleasedECE()(p[outside], labels[outside]) == pytest.approx(
        cr.ECE()(p[outside], labels[outside])
    )
    assert cr.ReleasedECE()(p, labels) != pytest.approx(cr.ECE()(p, labels), abs=1e-6)
    # by hand, in the one bin around one half: 0.48 is right when negative, 0.52 when positive
    assert cr.ReleasedECE(bins=15)([0.48, 0.52], [0, 0]) == pytest.approx(abs(1 - 1.04) / 2)


def test_released_mce_passes_over_nearly_empty_bins() -> None:
    p = np.concatenate([np.full(20_000, 0.1), [0.95]])
    labels = np.concatenate([np.arange(20_000) % 10 == 0, [0]]).astype(float)
    assert cr.MCE()(p, labels) == pytest.approx(0.95)
    assert cr.ReleasedMCE()(p, labels) == pytest.approx(0, abs=1e-9)


def test_equal_mass_bins_hold_equal_mass() -> None:
    p = np.random.default_rng(0).random(1_000) ** 3
    cells = EqualMass(10).cells(p, cr.naive(np.zeros(1_000)))
    np.testing.assert_array_equal(np.bincount(cells), np.full(10, 100))


def test_log_loss_without_clip_is_honest() -> None:
    assert cr.LogLoss(clip=0)([0.0, 1.0], [1, 1]) == np.inf
    assert cr.LogLoss(clip=0)([0.0, 1.0], [0, 1]) == 0
    assert cr.LogLoss()([0.0], [1]) == pytest.approx(-np.log(1e-12))


def test_a_constant_at_the_base_rate_has_no_ece_but_a_bad_score() -> None:
    """Why a proper score must stand beside ECE."""
    rng = np.random.default_rng(1)
    truth = rng.random(10_000)
    labels = (rng.random(10_000) < truth).astype(float)
    flat = np.full(10_000, labels.mean())
    assert cr.ECE()(flat, labels) < cr.ECE()(truth, labels)
    assert cr.LogLoss()(flat, labels) > cr.LogLoss()(truth, labels) + 0.1


def test_ranking_by_hand() -> None:
    p, labels, users = [0.9, 0.8, 0.1, 0.7, 0.6], [0, 1, 1, 1, 0], [1, 1, 1, 2, 2]
    first = (1 / np.log2(3)) / (1 + 1 / np.log2(3))
    assert cr.NDCG(2)(p, labels, users) == pytest.approx((first + 1) / 2)
    assert cr.Recall(2)(p, labels, users) == pytest.approx((0.5 + 1) / 2)


def test_ties_share_places() -> None:
    assert cr.Recall(1)([0.5, 0.5], [1, 0], users=[1, 1]) == pytest.approx(0.5)
    assert cr.NDCG(1)([0.5, 0.5], [1, 0], users=[1, 1]) == pytest.approx(0.5)


def test_users_who_like_nothing_are_left_out() -> None:
    assert cr.NDCG(1)([0.9, 0.1, 0.5], [1, 0, 0], users=["a", "a", "b"]) == 1


def test_top_n_looks_at_what_is_shown() -> None:
    p, labels, users = [0.9, 0.5, 0.1, 0.8, 0.2], [0, 1, 0, 1, 0], [1, 1, 1, 2, 2]
    assert cr.TopN(cr.Brier(), 1)(p, labels, users) == pytest.approx((0.81 + 0.04) / 2)
    assert cr.TopN(cr.Brier(), 5)(p, labels, users) == pytest.approx(cr.Brier()(p, labels))


def test_corp_by_hand() -> None:
    # 0.2 twice (both 0), 0.8 twice (one 1): recalibrated to 0 and 0.5
    parts = cr.corp([0.2, 0.2, 0.8, 0.8], [0, 0, 0, 1])
    assert parts.score == pytest.approx((0.04 + 0.04 + 0.64 + 0.04) / 4)
    assert parts.miscalibration == pytest.approx(parts.score - 0.125)
    assert parts.discrimination == pytest.approx(0.1875 - 0.125)


def test_intervals_of_the_decomposition_hold_the_truth() -> None:
    rng, rows, held = np.random.default_rng(1), 3_000, []
    for _ in range(12):
        log_odds = rng.normal(-2, 1, rows)
        truth = 1 / (1 + np.exp(-log_odds))
        said = 1 / (1 + np.exp(-(1.4 * log_odds + 0.4)))
        evidence = naive((rng.random(rows) < truth).astype(float))
        for metric, true in (
            (Miscalibration(), np.square(said - truth).mean()),
            (Discrimination(), truth.var()),
        ):
            sums = group_sums(OnCells(metric), said, evidence, np.arange(rows), rows)
            found = about(
                metric(said, evidence), bootstrap_sums(OnCells(metric), sums, resamples=200)
            )
            held.append(found.low <= true <= found.high)
    assert sum(held) >= 20
