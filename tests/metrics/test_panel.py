"""The panel: the same values as the metrics themselves, from sums per cluster."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.data.score_world import make_world
from calibrank.metrics.panel import ADDITIVE, BINNED, PANEL, PER_LIST, PanelSums, list_estimates
from calibrank.registry import METRICS
from calibrank.summary import Summary


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, cr.Evidence, np.ndarray]:
    world = make_world(4_000, seed=8)
    fitted = cr.Platt().fit(world.scores, world.preferences)
    return fitted.predict(world.scores), cr.naive(world.preferences), world.users


def test_every_metric_of_the_panel_is_registered() -> None:
    assert [metric for metric in PANEL if METRICS.get(metric.name) != metric] == []


def test_sums_in_batches_give_the_metrics_of_all_rows(
    rows: tuple[np.ndarray, cr.Evidence, np.ndarray],
) -> None:
    p, evidence, users = rows
    clusters = np.unique(users, return_inverse=True)[1]
    sums = PanelSums(clusters.max() + 1)
    for batch in (slice(0, 1_000), slice(1_000, None)):
        sums.add(p[batch], evidence.rows(batch), clusters[batch])
    estimates = sums.estimates(Summary.of(p, evidence))
    needs_no_lists = (*ADDITIVE, *BINNED)
    assert list(estimates) == [metric.name for metric in needs_no_lists]
    for metric in needs_no_lists:
        found = estimates[metric.name]
        assert found.value == pytest.approx(metric(p, evidence, users))
        # Additive metrics draw the same resamples as `bootstrap`; the others are binned first.
        expected = cr.bootstrap(metric, p, evidence, users)
        tolerance = 1e-9 if metric in ADDITIVE else 0.06 * (expected.high - expected.low)
        assert found == pytest.approx(expected, abs=tolerance)


def test_metrics_of_lists_are_the_bootstrap_over_users(
    rows: tuple[np.ndarray, cr.Evidence, np.ndarray],
) -> None:
    p, evidence, users = rows
    for metric in PER_LIST:
        expected = cr.bootstrap(metric, p, evidence, users)
        assert list_estimates(p, evidence, users)[metric.name] == expected
