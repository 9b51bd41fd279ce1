"""Laws that every metric obeys."""

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import calibrank as cr
from calibrank.metrics import (
    Additive,
    Better,
    CalibrationInTheLarge,
    Discrimination,
    EqualMassECE,
    Metric,
    Miscalibration,
    clustered_bootstrap,
)
from calibrank.metrics.pooled import Pooled
from calibrank.registry import METRICS as REGISTERED
from tests.members import METRICS, Table, name, tables

# The number of rows behind a mass decides how much of an error is chance.
WEIGHTS_ARE_COUNTS = [metric for metric in METRICS if metric.weight_is_repetition]

every = pytest.mark.parametrize("metric", METRICS, ids=name)


def predictions(table: Table) -> np.ndarray:
    """Probabilities with ties that increase with the score."""
    standardized = (table.scores - table.scores.mean()) / table.scores.std()
    return np.round(1 / (1 + np.exp(-standardized)), 2)


@every
@given(table=tables())
def test_the_order_of_rows_does_not_matter(metric: Metric, table: Table) -> None:
    shuffled = np.random.default_rng(1).permutation(len(table.scores))
    p = predictions(table)
    evidence = cr.ips(table.labels, table.propensity)
    try:
        first = metric(p, evidence, table.users)
    except cr.DataError:
        # Debiased negatives can have a mass below 0, e.g. of every user.
        reject()
    again = metric(p[shuffled], evidence.rows(shuffled), table.users[shuffled])
    # Not closer: a regression is as accurate as its solver.
    assert again == pytest.approx(first, abs=1e-9)


# Repeating a row makes a list longer, so metrics of lists obey the next law instead.
@pytest.mark.parametrize("metric", [m for m in WEIGHTS_ARE_COUNTS if not m.needs_users], ids=name)
@given(table=tables(), copies=st.integers(2, 4))
def test_a_row_of_weight_k_equals_k_rows(metric: Metric, table: Table, copies: int) -> None:
    weights = np.where(np.arange(len(table.scores)) % 3 == 0, copies, 1)
    repeated = np.repeat(np.arange(len(table.scores)), weights)
    p = predictions(table)
    weighted = metric(p, cr.ips(table.labels, table.propensity, weights=weights))
    evidence = cr.ips(table.labels[repeated], table.propensity[repeated])
    assert metric(p[repeated], evidence) == pytest.approx(weighted, abs=1e-9)


@pytest.mark.parametrize("metric", WEIGHTS_ARE_COUNTS, ids=name)
@given(table=tables(), copies=st.integers(2, 4))
def test_a_user_of_weight_k_equals_k_users(metric: Metric, table: Table, copies: int) -> None:
    chosen = table.users == 0
    p = predictions(table)
    weights = np.where(chosen, copies, 1)
    weighted = metric(p, cr.naive(table.labels, weights=weights), table.users)
    more_p = [p]
    more_labels = [table.labels]
    more_users = [table.users]
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
    other = metric(predictions(table), table.labels, table.users)
    assert metric.better.loss(perfect) <= metric.better.loss(other) + 1e-9


@pytest.mark.parametrize("metric", [*METRICS, *REGISTERED.values()], ids=name)
def test_every_metric_states_its_direction_and_explains_itself(metric: Metric) -> None:
    assert isinstance(metric.better, Better)
    assert metric.explanation.endswith(".")
    assert 40 < len(metric.explanation) < 400
    # The direction is a fact of its own: a copy in the text could contradict it.
    assert "is better" not in metric.explanation


def test_no_two_metrics_share_an_explanation() -> None:
    explanations = {metric.explanation for metric in REGISTERED.values()}
    assert len(explanations) == len(REGISTERED)


@every
@given(table=tables())
def test_a_bootstrap_interval_contains_the_value(metric: Metric, table: Table) -> None:
    p = predictions(table)
    estimate = cr.bootstrap(metric, p, table.labels, table.users, resamples=20)
    assert estimate.value == pytest.approx(metric(p, table.labels, table.users))
    if isinstance(metric, CalibrationInTheLarge) and np.isnan(estimate.low):
        return  # a resample without positives makes the ratio infinite: there is no interval
    assert estimate.low <= estimate.value <= estimate.high


# The bootstrap keeps bins of equal mass where all rows put them, and pools others by log odds.
@pytest.mark.parametrize(
    "metric",
    [
        m
        for m in WEIGHTS_ARE_COUNTS
        if isinstance(m, Additive) and not isinstance(m, EqualMassECE | Pooled)
    ],
    ids=name,
)
@given(table=tables())
def test_resampling_sums_equals_weighting_rows(metric: Additive, table: Table) -> None:
    p = predictions(table)
    evidence = cr.ips(table.labels, table.propensity)
    codes = np.unique(table.users, return_inverse=True)[1]
    counts = np.random.default_rng(0).integers(1, 4, codes.max() + 1)
    terms = clustered_bootstrap.sums_of_rows(metric, p, evidence, codes, codes.max() + 1)
    fast = metric.resampled(np.array([[counts @ term for term in terms]]))
    slow = list(clustered_bootstrap._reweighted(metric, p, evidence, codes, counts[None]))
    assert fast == pytest.approx(slow, abs=1e-9, nan_ok=True)


@given(table=tables())
def test_the_parts_of_the_decomposition_add_up(table: Table) -> None:
    evidence = cr.ips(table.labels, table.propensity)
    p = predictions(table)
    miscalibration = Miscalibration()(p, evidence)
    discrimination = Discrimination()(p, evidence)
    rate = np.full_like(p, min(evidence.positive.sum() / evidence.total.sum(), 1))
    uncertainty = cr.Brier()(rate, evidence)
    total = miscalibration - discrimination + uncertainty
    assert total == pytest.approx(cr.Brier()(p, evidence), abs=1e-9)
    assert min(miscalibration, discrimination) >= -1e-12


@given(table=tables())
def test_proper_scores_are_lowest_at_the_true_probabilities(table: Table) -> None:
    truth = np.clip(predictions(table), 0.05, 0.95)
    expected_labels = cr.Evidence(truth, np.ones_like(truth))
    for score in (cr.LogLoss(), cr.Brier()):
        for wrong in (truth * 0.9, truth**0.8, np.full_like(truth, truth.mean())):
            assert score(truth, expected_labels) <= score(wrong, expected_labels) + 1e-12
