"""Metrics on small tables computed by hand."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.metrics import (
    MCE,
    NDCG,
    Additive,
    Better,
    Discrimination,
    EqualMass,
    Miscalibration,
    Recall,
    ReleasedECE,
    ReleasedMCE,
)
from calibrank.metrics.lists import rank_by_user
from calibrank.metrics.metric import require_users
from calibrank.metrics.ranking import _discounted_gain
from tests.metrics.sums import cluster_sums


def test_ece_and_mce_by_hand() -> None:
    # Two bins: [0.1, 0.3] with 1 of 2 positive, [0.6, 0.8, 1.0] with 2 of 3 positive.
    probabilities = [0.1, 0.3, 0.6, 0.8, 1.0]
    labels = [1, 0, 1, 0, 1]
    ece = cr.ECE(bins=2)(probabilities, labels)
    assert ece == pytest.approx((abs(1 - 0.4) + abs(2 - 2.4)) / 5)
    assert MCE(bins=2)(probabilities, labels) == pytest.approx(max(0.6 / 2, 0.4 / 3))


def test_ece_is_linear_in_the_evidence() -> None:
    # One row with inverse propensity 4 and probability 0.5: |4 - 0.5|.
    assert cr.ECE(bins=1)([0.5], cr.ips([1], [0.25])) == pytest.approx(3.5)


def test_released_variants_differ_only_in_the_bin_around_one_half() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(5_000)
    labels = (rng.random(5_000) < p).astype(float)
    outside = (p < 7 / 15) | (p >= 8 / 15)
    expected = cr.ECE()(p[outside], labels[outside])
    assert ReleasedECE()(p[outside], labels[outside]) == pytest.approx(expected)
    assert ReleasedECE()(p, labels) != pytest.approx(cr.ECE()(p, labels), abs=1e-6)
    # By hand: 0.48 is correct for a negative (confidence 0.52), 0.52 is wrong for one.
    released = ReleasedECE(bins=15)([0.48, 0.52], [0, 0])
    assert released == pytest.approx(abs(1 - 1.04) / 2)


def test_released_mce_ignores_nearly_empty_bins() -> None:
    p = np.concatenate([np.full(20_000, 0.1), [0.95]])
    labels = np.concatenate([np.arange(20_000) % 10 == 0, [0]]).astype(float)
    assert MCE()(p, labels) == pytest.approx(0.95)
    assert ReleasedMCE()(p, labels) == pytest.approx(0, abs=1e-9)


def test_equal_mass_bins_have_equal_mass() -> None:
    p = np.random.default_rng(0).random(1_000) ** 3
    bins = EqualMass(10).bin_indices(p, cr.naive(np.zeros(1_000)))
    np.testing.assert_array_equal(np.bincount(bins), np.full(10, 100))


@pytest.mark.parametrize("decimals", [0, 1, 17])
@pytest.mark.parametrize("weights", [np.ones(500), 2.0 + np.arange(500) % 7])
def test_the_middle_of_its_mass_decides_the_bin_of_a_tie(
    weights: np.ndarray, decimals: int
) -> None:
    p = np.random.default_rng(0).random(500).round(decimals)
    evidence = cr.naive(np.zeros(500), weights=weights)
    below = np.array([weights[p < value].sum() for value in p])
    tied = np.array([weights[p == value].sum() for value in p])
    expected = ((below + tied / 2) / weights.sum() * 7).astype(int)
    np.testing.assert_array_equal(EqualMass(7).bin_indices(p, evidence), expected)


def test_log_loss_without_clipping_is_infinite_for_an_impossible_label() -> None:
    assert cr.LogLoss(clip=0)([0.0, 1.0], [1, 1]) == np.inf
    assert cr.LogLoss(clip=0)([0.0, 1.0], [0, 1]) == 0
    assert cr.LogLoss()([0.0], [1]) == pytest.approx(-np.log(1e-12))


def test_a_constant_at_the_base_rate_has_a_low_ece_but_a_high_log_loss() -> None:
    """The reason to report a proper score beside ECE."""
    rng = np.random.default_rng(1)
    truth = rng.random(10_000)
    labels = (rng.random(10_000) < truth).astype(float)
    constant = np.full(10_000, labels.mean())
    assert cr.ECE()(constant, labels) < cr.ECE()(truth, labels)
    assert cr.LogLoss()(constant, labels) > cr.LogLoss()(truth, labels) + 0.1


def test_ndcg_and_recall_by_hand() -> None:
    p = [0.9, 0.8, 0.1, 0.7, 0.6]
    labels = [0, 1, 1, 1, 0]
    users = [1, 1, 1, 2, 2]
    first_user = (1 / np.log2(3)) / (1 + 1 / np.log2(3))
    assert NDCG(2)(p, labels, users) == pytest.approx((first_user + 1) / 2)
    assert Recall(2)(p, labels, users) == pytest.approx((0.5 + 1) / 2)


def test_gains_are_discounted_by_rank_and_ties_share_their_ranks() -> None:
    """User 0 has ranks 0, and 1 and 2 tied; user 1 has one row."""
    values, users = np.array([0.2, 0.9, 0.2, 0.5]), np.array([0, 0, 0, 1])
    gains = np.array([1.0, 0.5, 3.0, 2.0])
    ranking = rank_by_user(values, users)
    discounts = 1 / np.log2([2, 3, 4])
    shared = (discounts[1] + discounts[2]) / 2
    assert _discounted_gain(ranking, gains, 9) == pytest.approx([0.5 + 4 * shared, 2.0])
    assert _discounted_gain(ranking, gains, 2) == pytest.approx([0.5 + 2 * discounts[1], 2.0])
    assert _discounted_gain(ranking, gains, 1) == pytest.approx([0.5, 2.0])


def test_tied_rows_share_ranks() -> None:
    assert Recall(1)([0.5, 0.5], [1, 0], users=[1, 1]) == pytest.approx(0.5)
    assert NDCG(1)([0.5, 0.5], [1, 0], users=[1, 1]) == pytest.approx(0.5)


def test_users_without_positives_are_left_out_of_ranking_metrics() -> None:
    assert NDCG(1)([0.9, 0.1, 0.5], [1, 0, 0], users=["a", "a", "b"]) == 1


def test_top_n_evaluates_only_the_top_of_each_list() -> None:
    p = [0.9, 0.5, 0.1, 0.8, 0.2]
    labels = [0, 1, 0, 1, 0]
    users = [1, 1, 1, 2, 2]
    assert (cr.Brier() @ 1)(p, labels, users) == pytest.approx((0.81 + 0.04) / 2)
    assert (cr.Brier() @ 5)(p, labels, users) == pytest.approx(cr.Brier()(p, labels))


def test_corp_by_hand() -> None:
    # 0.2 twice (both negative) and 0.8 twice (one positive): recalibrated to 0 and 0.5.
    p, labels = [0.2, 0.2, 0.8, 0.8], [0, 0, 0, 1]
    score = (0.04 + 0.04 + 0.64 + 0.04) / 4
    assert Miscalibration()(p, labels) == pytest.approx(score - 0.125)
    assert Discrimination()(p, labels) == pytest.approx(0.1875 - 0.125)


@pytest.mark.parametrize("metric", [Miscalibration(), Discrimination()], ids=repr)
def test_log_odds_bins_are_fine_enough_for_the_decomposition(metric: Additive) -> None:
    rng = np.random.default_rng(3)
    p = rng.beta(1, 8, 20_000)
    labels = (rng.random(20_000) < 0.8 * p).astype(float)
    evidence = cr.naive(labels)
    sums = cluster_sums(metric, p, evidence, np.zeros(20_000, dtype=np.intp), 1)[0]
    assert metric.compute(sums) == pytest.approx(metric(p, labels), rel=0.1)


def test_a_missing_user_column_is_an_error_that_names_the_metric() -> None:
    with pytest.raises(cr.DataError, match=r"users must be given for NDCG@5.*Pass users="):
        require_users(NDCG(5), None)


def test_top_n_explains_the_metric_it_wraps() -> None:
    top = cr.ECE() @ 7
    assert top.explanation.startswith(cr.ECE().explanation)
    assert "7 best items" in top.explanation
    assert top.better is Better.LOWER


def test_released_mce_ignores_bins_with_too_few_rows_not_too_little_confidence() -> None:
    # 0.7 of 10,000.7 rows is under 0.01% of them, though over 0.01% of their confidence.
    evidence = cr.naive([1, 0, 0], weights=[5_000, 5_000, 0.7])
    assert ReleasedMCE()([0.5, 0.5, 0.9], evidence) == pytest.approx(0, abs=1e-12)
    evidence = cr.naive([1, 0, 0], weights=[5_000, 5_000, 1.1])
    assert ReleasedMCE()([0.5, 0.5, 0.9], evidence) == pytest.approx(0.9)


def test_better_orders_values_as_losses() -> None:
    assert Better.LOWER.loss(0.1) < Better.LOWER.loss(0.2)
    assert Better.HIGHER.loss(0.2) < Better.HIGHER.loss(0.1)
    assert Better.NEAR_ONE.loss(1.1) < Better.NEAR_ONE.loss(0.5)
    assert Better.NEAR_ONE.loss(2.0) == pytest.approx(Better.NEAR_ONE.loss(0.5))
