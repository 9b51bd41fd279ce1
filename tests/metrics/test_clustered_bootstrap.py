"""Bootstrap intervals over users: the engine, and each way it computes replicates."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.evidence import naive
from calibrank.metrics import (
    NDCG,
    CalibrationInTheLarge,
    Discrimination,
    Estimate,
    Metric,
    Miscalibration,
    Recall,
)
from calibrank.metrics import clustered_bootstrap as engine
from calibrank.metrics.cluster_rates import Clusters
from calibrank.metrics.clustered_bootstrap import bootstrap_sums
from calibrank.metrics.panel import RANKING, ClusterSums
from tests.metrics.sums import cluster_sums


def test_the_interval_reflects_the_quantiles_and_stops_at_zero() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(60) ** 2
    users = np.arange(60) // 3
    labels = (rng.random(60) < p).astype(float)
    draws = engine.draw_matrix(20, 100, np.random.default_rng(0))
    replicates = list(engine._reweighted(cr.Brier(), p, cr.naive(labels), users, draws))
    value = cr.Brier()(p, labels)
    low, high = np.quantile(replicates, [0.05, 0.95]) - value
    factor = engine.few_clusters_factor(20, 0.9)
    estimate = cr.bootstrap(cr.Brier(), p, labels, users, resamples=100, level=0.9)
    assert estimate == pytest.approx((value, value - factor * high, value - factor * low))
    labels = (np.arange(60) % 10 < 3).astype(float)
    constant = np.full(60, 0.3)
    assert cr.bootstrap(cr.ECE(), constant, labels, np.arange(60), resamples=50).low == 0


def test_an_interval_stays_below_the_maximum_of_the_metric() -> None:
    p = [0.9, 0.1] * 3 + [0.1, 0.9]
    users = [1, 1, 2, 2, 3, 3, 4, 4]
    estimate = cr.bootstrap(NDCG(1), p, [1, 0] * 4, users)
    assert (estimate.value, estimate.high) == (0.75, 1.0)


def test_there_is_no_interval_where_a_replicate_is_infinite() -> None:
    metric = CalibrationInTheLarge()
    estimate = cr.bootstrap(metric, [0.5, 0.5, 0.5], [1, 0, 0], users=[1, 2, 3])
    assert estimate.value == 1.5
    assert np.isnan([estimate.low, estimate.high]).all()


def test_a_seed_and_its_generator_give_the_same_interval() -> None:
    p = np.linspace(0.05, 0.95, 40)
    labels = (np.arange(40) % 3 == 0).astype(float)
    users = np.arange(40)
    first = cr.bootstrap(cr.Brier(), p, labels, users, seed=7)
    assert first == cr.bootstrap(cr.Brier(), p, labels, users, seed=np.random.default_rng(7))
    assert first != cr.bootstrap(cr.Brier(), p, labels, users, seed=8)


def test_one_resample_is_enough_for_an_interval() -> None:
    """Its quantiles are the one replicate: the value and the reflected replicate are the ends."""
    p, labels, users = [0.1, 0.8, 0.6], [0, 1, 0], [1, 2, 3]
    estimate = cr.bootstrap(cr.Brier(), p, labels, users, resamples=1, seed=2)
    counts = engine.draw_matrix(3, 1, seed=2)[0]
    replicate = float(counts @ [0.01, 0.04, 0.36]) / 3
    value = 0.41 / 3
    assert replicate != pytest.approx(value)
    ends = sorted([value, value - engine.few_clusters_factor(3) * (replicate - value)])
    assert estimate == pytest.approx((value, max(ends[0], 0.0), ends[1]))


@pytest.mark.parametrize(("resamples", "level"), [(0, 0.95), (10, 0.0), (10, 1.0)])
def test_bad_settings_are_refused(resamples: int, level: float) -> None:
    with pytest.raises(cr.DataError, match=r"level must lie in|resamples must be a whole number"):
        cr.bootstrap(cr.Brier(), [0.1, 0.2], [0, 1], users=[1, 2], resamples=resamples, level=level)


@pytest.mark.parametrize("metric", [cr.Brier(), cr.SmoothECE(), NDCG(2)], ids=repr)
def test_rows_of_weight_zero_change_nothing(metric: Metric) -> None:
    rng = np.random.default_rng(3)
    p = rng.random(30)
    users = np.arange(30) // 3
    labels = rng.integers(0, 2, 30).astype(float)
    more = np.append(p, [0.2, 0.9])
    weights = np.append(np.ones(30), [0.0, 0.0])
    evidence = cr.naive(np.append(labels, [1, 0]), weights=weights)
    # One of the rows is the only one of its user.
    found = cr.bootstrap(metric, more, evidence, np.append(users, [0, 99]), resamples=20)
    assert found == pytest.approx(cr.bootstrap(metric, p, labels, users, resamples=20))


def test_resamples_without_a_value_are_left_out() -> None:
    """With two users of whom one has a positive, a quarter of the resamples have none."""
    estimate = cr.bootstrap(NDCG(1), [0.9, 0.1, 0.5], [0, 1, 0], users=[1, 1, 2])
    assert estimate == (0.0, 0.0, 0.0)
    draws = np.array([[0.0, 2.0], [1.0, 1.0]])
    each = NDCG(1).per_user(np.array([0.9, 0.1, 0.5]), cr.naive([1, 0, 0]), np.array([0, 0, 1]))
    np.testing.assert_array_equal(each.means(draws), [np.nan, 1.0])


def test_the_top_of_lists_is_resampled_by_user() -> None:
    rng = np.random.default_rng(5)
    p = rng.random(40)
    users = np.arange(40) // 4
    evidence = cr.naive(rng.integers(0, 2, 40).astype(float))
    top = [n for user in range(10) for n in 4 * user + np.argsort(-p[4 * user : 4 * user + 4])[:2]]
    for metric in (cr.ECE(), cr.Brier()):
        found = cr.bootstrap(metric @ 2, p, evidence, users)
        expected = cr.bootstrap(metric, p[top], evidence.rows(np.array(top)), users[top])
        assert found == pytest.approx(expected)


def test_an_interval_of_sums_is_that_of_drawn_clusters() -> None:
    sums = np.arange(24.0).reshape(4, 2, 3) + 1
    drawn = engine.draw_matrix(4, 70, seed=5)
    assert drawn.shape == (70, 4)
    assert (drawn.sum(axis=1) == 4).all()
    found = bootstrap_sums(cr.Brier(), sums)
    resampled = np.einsum("rc,ctb->rt", engine.draw_matrix(4), sums)
    value = sums[:, 0].sum() / sums[:, 1].sum()
    replicates = resampled[:, 0] / resampled[:, 1]
    masses = sums[:, 1].sum(axis=1)
    clusters = masses.sum() ** 2 / (masses**2).sum()
    assert 3 < clusters < 4
    assert found == engine.basic_interval(cr.Brier(), value, replicates, clusters=clusters)


def test_empty_clusters_and_bins_are_dropped() -> None:
    sums = np.zeros((3, 2, 3))
    sums[[0, 2], :, 1] = 1.0
    sums[2, 1, 2] = 5.0
    np.testing.assert_array_equal(engine.nonempty(sums), sums[[0, 2]][:, :, 1:])


def test_a_negative_value_is_not_cut_at_the_minimum() -> None:
    """Weighted losses may be negative; the interval then ends where the quantiles say."""
    assert engine.basic_interval(cr.Brier(), -0.2, [-0.3, -0.2, -0.1], 0.9).low < -0.2
    assert engine.basic_interval(cr.Brier(), 0.0, [0.3, 0.2, 0.1], 0.9).low == 0
    none = engine.basic_interval(cr.Brier(), 0.5, [np.nan, np.nan])
    assert np.isnan([none.low, none.high]).all()


def test_one_user_has_no_interval() -> None:
    with pytest.raises(cr.DataError, match="users must hold at least 2 distinct ids"):
        cr.bootstrap(cr.Brier(), [0.1, 0.2], [0, 1], users=[1, 1])


def test_ranking_metrics_take_raw_scores() -> None:
    scores = np.array([3.0, -1.0, 12.0, 0.5])
    estimate = cr.bootstrap(NDCG(1), scores, [1, 0, 0, 1], users=[1, 1, 2, 2])
    assert estimate.value == 0.5


@pytest.mark.parametrize("metric", [NDCG(3), Recall(2)], ids=repr)
def test_resampling_lists_equals_weighting_users(metric: Metric) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(60)
    users = np.arange(60) // 6
    evidence = cr.naive(rng.integers(0, 2, 60).astype(float))
    counts = rng.integers(1, 4, 10)
    fast = metric.per_user(p, evidence, users).means(counts[None].astype(float))
    slow = list(engine._reweighted(metric, p, evidence, users, counts[None]))
    assert fast == pytest.approx(slow)


def test_sums_per_user_give_the_interval_of_the_rows() -> None:
    """With one cluster per user, `bootstrap_sums` and `bootstrap` draw the same resamples."""
    rng = np.random.default_rng(2)
    p = rng.random(200)
    users = np.arange(200) // 4
    evidence = cr.naive((rng.random(200) < p).astype(float))
    for metric in (cr.LogLoss(), cr.ECE(), CalibrationInTheLarge()):
        sums = cluster_sums(metric, p, evidence, users, 50)
        expected = cr.bootstrap(metric, p, evidence, users)
        assert bootstrap_sums(metric, sums) == pytest.approx(expected)


def test_sums_of_batches_equal_the_sums_of_all_rows() -> None:
    rng = np.random.default_rng(4)
    p = rng.random(90)
    clusters = rng.integers(0, 5, 90)
    evidence = cr.naive(rng.integers(0, 2, 90).astype(float))
    sums = ClusterSums(cr.ECE(), 5)
    for batch in (slice(0, 30), slice(30, 90)):
        sums.add(p[batch], evidence.rows(batch), clusters[batch])
    np.testing.assert_allclose(sums.result(), cluster_sums(cr.ECE(), p, evidence, clusters, 5))


def test_one_cluster_has_a_value_but_no_interval() -> None:
    estimate = bootstrap_sums(cr.Brier(), np.array([[[1.0], [4.0]], [[0.0], [0.0]]]))
    assert estimate.value == 0.25
    assert np.isnan([estimate.low, estimate.high]).all()


def test_an_exact_value_widens_an_interval_but_does_not_invent_one() -> None:
    assert Estimate(0.5, 0.4, 0.6).with_value(0.7) == (0.7, 0.4, 0.7)
    assert np.isnan(Estimate(0.5, np.nan, np.nan).with_value(0.7).low)


def test_intervals_of_the_decomposition_contain_the_truth() -> None:
    rng = np.random.default_rng(1)
    rows = 1_000
    covered = []
    for _ in range(12):
        log_odds = rng.normal(-2, 1, rows)
        truth = 1 / (1 + np.exp(-log_odds))
        predicted = 1 / (1 + np.exp(-(1.4 * log_odds + 0.4)))
        evidence = naive((rng.random(rows) < truth).astype(float))
        expected = {
            Miscalibration(): np.square(predicted - truth).mean(),
            Discrimination(): truth.var(),
        }
        for metric, true_value in expected.items():
            sums = cluster_sums(metric, predicted, evidence, np.arange(rows), rows)
            coarse = bootstrap_sums(metric, sums)
            estimate = coarse.with_value(metric(predicted, evidence))
            covered.append(estimate.low <= true_value <= estimate.high)
    assert sum(covered) >= 20


@pytest.fixture
def dependent_labels() -> np.ndarray:
    """3,000 labels of 60 users, each of whom likes everything or nothing."""
    return np.repeat(np.random.default_rng(0).integers(0, 2, 60), 50).astype(float)


def rate(clusters: Clusters, labels: np.ndarray, offset: float = 0.0) -> tuple[float, float, float]:
    """The ratio of positive to all rows in a single bin, with its interval."""
    bins = np.zeros(len(labels), dtype=np.intp)
    positive = clusters.sums(bins, labels, 1)
    total = clusters.sums(bins, np.ones(len(labels)), 1)
    rows = np.array([float(len(labels))])
    ratios = clusters.ratios(positive, total, rows, offset * total)
    return float(ratios.value[0]), float(ratios.low[0]), float(ratios.high[0])


def test_ratios_resample_users_and_not_rows(dependent_labels: np.ndarray) -> None:
    rows = np.arange(3000)
    _, low, high = rate(Clusters.of(rows % 1000), dependent_labels)
    _, user_low, user_high = rate(Clusters.of(rows // 50), dependent_labels)
    assert user_high - user_low > 4 * (high - low)


def test_an_offset_moves_a_ratio_and_its_interval(dependent_labels: np.ndarray) -> None:
    clusters = Clusters.of(np.arange(3000) // 50)
    plain = np.array(rate(clusters, dependent_labels))
    moved = np.array(rate(clusters, dependent_labels, offset=0.2))
    assert moved == pytest.approx(plain - 0.2)


def test_a_rate_without_positives_is_not_certain() -> None:
    value, low, high = rate(Clusters.of(np.arange(3000) // 50), np.zeros(3000))
    assert low == value == 0
    assert 0 < high < 0.01


def test_few_clusters_get_wilsons_interval() -> None:
    # 4 users of whom 2 like everything: Wilson's interval for 2 of 4 is 0.15 to 0.85.
    labels = np.repeat([1.0, 0.0, 1.0, 0.0], 25)
    _, low, high = rate(Clusters.of(np.arange(100) // 25), labels)
    assert low <= 0.1501
    assert high >= 0.8499


def test_an_empty_bin_has_no_ratio() -> None:
    clusters = Clusters.of(np.array([0, 1]))
    total = np.array([[1.0, 0.0], [1.0, 0.0]])
    found = clusters.ratios(total / 2, total, np.array([2.0, 0.0]))
    assert found.value[0] == 0.5
    assert np.isnan(found.value[1])


def test_metrics_that_share_resamples_have_the_intervals_they_have_alone() -> None:
    rng = np.random.default_rng(5)
    users = rng.integers(40, size=600)
    probabilities = np.round(rng.random(600), 2)  # with ties
    evidence = naive(rng.random(600) < probabilities, weights=rng.integers(0, 3, 600))
    metrics = (cr.ECE() @ 3, cr.LogLoss(), *RANKING)
    found = engine.bootstrap_all(metrics, probabilities, evidence, users)
    for metric, estimate in zip(metrics, found, strict=True):
        np.testing.assert_allclose(
            estimate, engine.bootstrap(metric, probabilities, evidence, users)
        )


def test_many_users_are_resampled_in_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    users = rng.integers(300, size=3_000)
    p = rng.random(3_000)
    labels = (rng.random(3_000) < p).astype(float)
    metrics = (cr.ECE() @ 3, cr.LogLoss(), NDCG(3))
    every = engine.bootstrap_all(metrics, p, labels, users)
    monkeypatch.setattr(engine, "CLUSTERS", 100)
    for all_users, clusters in zip(
        every, engine.bootstrap_all(metrics, p, labels, users), strict=True
    ):
        assert clusters.value == all_users.value
        width = all_users.high - all_users.low
        assert clusters == pytest.approx(all_users, abs=0.3 * width)
        assert clusters != all_users


def test_a_giant_among_the_users_leaves_few_of_them() -> None:
    """Pareto activity: counting users, 70% of intervals of 20 users held the truth."""
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(200):
        rows = np.minimum(2 + 3 * rng.pareto(1.1, 20), 150).astype(int)
        users = np.repeat(np.arange(20), rows)
        rates = rng.uniform(0, 1, 20)[users]
        labels = rng.random(len(users)) < rates
        found = cr.bootstrap(cr.Brier(), np.full(len(users), 0.2), labels, users, resamples=200)
        # The Brier score of 0.2 where half of the pairs are liked.
        held += found.low <= (0.2**2 + 0.8**2) / 2 <= found.high
    assert held / 200 > 0.8


def test_users_of_whom_a_metric_says_nothing_do_not_count() -> None:
    values = np.arange(60.0)
    users = np.repeat(np.arange(12), 5)
    labels = np.tile([0, 1, 0, 0, 1], 12) * (users < 4) * (users != values % 7)
    some = cr.bootstrap(NDCG(5), values, labels, users)
    drawn = engine.rank_by_user(values, users)
    lists = NDCG(5).of_lists(values, cr.naive(labels), users, drawn)
    found = lists.means(engine.draw_matrix(12))
    assert some == engine.basic_interval(NDCG(5), lists.mean(), found, clusters=4)


def test_the_interval_of_a_ratio_is_that_of_its_logarithm() -> None:
    """With few positives a reflected interval of predicted / observed held the truth in 85%."""
    metric = CalibrationInTheLarge()
    found = engine.basic_interval(metric, 1.0, [0.5, 0.5, 4.0, 4.0])
    assert found == pytest.approx((1.0, 0.25, 2.0))
    few = engine.basic_interval(metric, 2.0, [1.0, 1.0, 8.0, 8.0], clusters=5)
    factor = engine.few_clusters_factor(5)
    assert few == pytest.approx((2.0, 2 * 0.25**factor, 2 * 2**factor))
    # Without a positive in some resample there is no interval, and a ratio of 0 has no logarithm.
    assert np.isnan(engine.basic_interval(metric, 1.0, [0.5, np.inf]).low)
    assert engine.basic_interval(metric, 0.0, [0.0, 0.0]) == (0.0, 0.0, 0.0)
