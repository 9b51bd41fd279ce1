"""Laws over every metric."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrank as cr
from calibrank.metrics import Additive, Better, Metric
from tests.members import METRICS, Table, name, tables

every = pytest.mark.parametrize("metric", METRICS, ids=name)
per_user = ("NDCG@3", "Recall@2", "ECE of top 2")


def guesses(table: Table) -> np.ndarray:
    return np.round(1 / (1 + np.exp(-(table.scores - table.scores.mean()) / table.scores.std())), 2)


@every
@given(table=tables())
def test_order_of_rows_does_not_matter(metric: Metric, table: Table) -> None:
    shuffled = np.random.default_rng(1).permutation(len(table.scores))
    p, evidence = guesses(table), cr.ips(table.labels, table.propensity)
    again = cr.ips(table.labels[shuffled], table.propensity[shuffled])
    first = metric(p, evidence, table.users)
    assert metric(p[shuffled], again, table.users[shuffled]) == pytest.approx(first, abs=1e-12)


# Repeating a row lengthens a list: the law of metrics over lists is the next one.
@pytest.mark.parametrize("metric", [m for m in METRICS if m.name not in per_user], ids=name)
@given(table=tables(), copies=st.integers(2, 4))
def test_weight_k_is_k_rows(metric: Metric, table: Table, copies: int) -> None:
    weights = np.where(np.arange(len(table.scores)) % 3 == 0, copies, 1)
    again = np.repeat(np.arange(len(table.scores)), weights)
    p = guesses(table)
    weighted = metric(p, cr.ips(table.labels, table.propensity, weights=weights))
    assert metric(p[again], cr.ips(table.labels[again], table.propensity[again])) == pytest.approx(
        weighted, abs=1e-9
    )


@every
@given(table=tables(), copies=st.integers(2, 4))
def test_a_user_of_weight_k_is_k_such_users(metric: Metric, table: Table, copies: int) -> None:
    chosen = table.users == 0
    p, users = guesses(table), table.users
    weighted = metric(p, cr.naive(table.labels, weights=np.where(chosen, copies, 1)), users)
    more_p, more_labels, more_users = [p], [table.labels], [users]
    for copy in range(1, copies):
        more_p.append(p[chosen])
        more_labels.append(table.labels[chosen])
        more_users.append(np.full(chosen.sum(), 100 + copy))
    repeated = metric(
        np.concatenate(more_p), np.concatenate(more_labels), np.concatenate(more_users)
    )
    assert repeated == pytest.approx(weighted, abs=1e-9)


@every
@given(table=tables())
def test_perfect_predictions_are_best(metric: Metric, table: Table) -> None:
    perfect = metric(table.labels, table.labels, table.users)
    other = metric(guesses(table), table.labels, table.users)
    assert metric.better.loss(perfect) <= metric.better.loss(other) + 1e-9


@every
@given(table=tables())
def test_bootstrap_interval_holds_the_value(metric: Metric, table: Table) -> None:
    estimate = cr.bootstrap(metric, guesses(table), table.labels, table.users, resamples=20)
    if isinstance(metric, cr.CalibrationInTheLarge) and np.isnan(estimate.low):
        return  # a resample without a positive makes the ratio infinite: no interval
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.value == pytest.approx(metric(guesses(table), table.labels, table.users))


# Bins of equal mass stay where the full sample puts them, so EqualMassECE is not in it.
@pytest.mark.parametrize(
    "metric",
    [m for m in METRICS if isinstance(m, Additive) and not isinstance(m, cr.EqualMassECE)],
    ids=name,
)
@given(table=tables())
def test_fast_resampling_equals_weighing_rows(metric: Additive, table: Table) -> None:
    """The bootstrap's sums by user and cell must give what reweighted rows give."""
    from calibrank.metrics import resample

    p, evidence = guesses(table), cr.ips(table.labels, table.propensity)
    codes = np.unique(table.users, return_inverse=True)[1]
    counts = np.random.default_rng(0).integers(1, 4, codes.max() + 1)
    fast = list(resample._additive(metric, p, evidence, codes, iter([counts])))
    slow = list(resample._reweighted(metric, p, evidence, codes, iter([counts])))
    assert fast == pytest.approx(slow, abs=1e-12)


@given(table=tables())
def test_corp_adds_up(table: Table) -> None:
    parts = cr.corp(guesses(table), cr.ips(table.labels, table.propensity), cr.Brier())
    total = parts.miscalibration - parts.discrimination + parts.uncertainty
    assert total == pytest.approx(parts.score, abs=1e-9)
    assert min(parts.miscalibration, parts.discrimination) >= -1e-12


@given(table=tables())
def test_proper_scores_are_least_at_the_truth(table: Table) -> None:
    truth = np.clip(guesses(table), 0.05, 0.95)
    world = cr.Evidence(truth, np.ones_like(truth))
    for score in (cr.LogLoss(), cr.Brier()):
        for wrong in (truth * 0.9, truth**0.8, np.full_like(truth, truth.mean())):
            assert score(truth, world) <= score(wrong, world) + 1e-12


def test_directions() -> None:
    assert Better.LOWER.loss(0.1) < Better.LOWER.loss(0.2)
    assert Better.HIGHER.loss(0.2) < Better.HIGHER.loss(0.1)
    assert Better.NEAR_ONE.loss(1.1) < Better.NEAR_ONE.loss(0.5)
    assert Better.NEAR_ONE.loss(2.0) == pytest.approx(Better.NEAR_ONE.loss(0.5))
