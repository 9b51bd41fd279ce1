"""The alarms: rare without a change, and soon after one, by simulation."""

from collections.abc import Callable

import numpy as np
import pytest

from calibrank.monitor.day import SHIFTS
from calibrank.monitor.e_process import LOG_THRESHOLD, evidence_of, log_evidence
from tests.monitor.worlds import halved, make_day, make_map, year_of_sums

Change = Callable[[np.ndarray], np.ndarray]
"""From the map's log odds to the true ones."""

LABELS = 50
YEARS = 40
WORLDS = 15


@pytest.mark.parametrize(
    ("shift", "n_users", "within"),
    [(-1.0, 0, 0.0), (-3.5, 0, 0.0), (-1.0, 300, 0.3)],
    ids=["independent", "rare positives", "users that come back"],
)
def test_at_most_5_percent_of_years_without_change_raise_an_alarm(
    shift: float, n_users: int, within: float
) -> None:
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(YEARS):
        year = year_of_sums(rng, labels=LABELS, shift=shift, n_users=n_users, within=within)
        alarms += log_evidence(year).max() >= LOG_THRESHOLD
    assert alarms <= 0.05 * YEARS


def labels_until_alarm(
    change: Change, begins: int, process: int, days: int, shift: float = -1.0
) -> np.ndarray:
    """Labels after the change until the alarm of level (0) or slope (1), in order."""

    def changed(log_odds: np.ndarray, day: np.ndarray) -> np.ndarray:
        return np.where(day >= begins, change(log_odds), log_odds)

    rng = np.random.default_rng(1)
    needed = []
    for _ in range(WORLDS):
        year = year_of_sums(rng, begins + days, LABELS, shift=shift, change=changed)
        alarms = np.flatnonzero(log_evidence(year)[:, process] >= LOG_THRESHOLD)
        needed.append((alarms[0] - begins + 1) * LABELS if len(alarms) else np.inf)
    return np.sort(needed)


@pytest.mark.parametrize("shift", [-2.0, -1.0, 0.0], ids=["17%", "31%", "50%"])
@pytest.mark.parametrize("begins", [0, 30, 180])
def test_a_halved_base_rate_is_caught_within_500_labels(begins: int, shift: float) -> None:
    needed = labels_until_alarm(halved, begins, process=0, days=15, shift=shift)
    assert needed[0] > 0
    # At 17%, 500 labels hold 42 positives instead of 85: one world in 15 may take longer.
    assert needed[-2 if shift == -2.0 else -1] <= 500


@pytest.mark.parametrize("begins", [0, 30, 180])
@pytest.mark.parametrize("slope", [0.75, 1.25])
def test_a_slope_change_of_a_quarter_is_caught_within_5000_labels(
    begins: int, slope: float
) -> None:
    needed = labels_until_alarm(lambda x: slope * x, begins, process=1, days=110)
    assert needed[0] > 0
    # By chance one world in 15 may take longer.
    assert needed[-2] <= 5_000


def test_what_came_before_a_change_does_not_dilute_it() -> None:
    late = labels_until_alarm(halved, 180, process=0, days=15)
    early = labels_until_alarm(halved, 0, process=0, days=15)
    assert np.median(late) < np.median(early) + 200


def test_the_evidence_is_the_average_over_the_days_of_a_change() -> None:
    """As computed one beginning at a time, with its definition."""
    rng = np.random.default_rng(4)
    year = year_of_sums(rng, days=12, labels=40, n_users=30, within=0.3)
    found = np.exp(log_evidence(year)[-1, 0])
    expected = 1.0
    for begin in range(12):
        weight = 0.25 if begin == 0 else 0.75 / 363
        by_cluster = year.sums[begin:, :, 0].sum(axis=0)
        model = year.variances[begin:, 0].sum()
        variance = max(model, len(by_cluster) * np.var(by_cluster))
        s = by_cluster.sum()
        ratio = 0.4 * np.exp(0.25 * s**2 / (2 * (1 + 0.25 * variance)))
        ratio /= np.sqrt(1 + 0.25 * variance)
        for shift, cumulant in zip(SHIFTS, year.cumulants[begin:].sum(axis=0), strict=True):
            ratio += 0.3 * np.exp((shift * s - cumulant) * model / variance)
        expected += weight * (ratio - 1)
    assert found == pytest.approx(expected)


def test_ignoring_that_users_depend_on_themselves_would_raise_false_alarms() -> None:
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(15):
        year = year_of_sums(rng, n_users=300, within=0.5)
        # With one cluster for all users only the variance of independent labels is left.
        alone = year._replace(sums=year.sums.sum(axis=1, keepdims=True))
        alarms += log_evidence(alone).max() >= LOG_THRESHOLD
    assert alarms >= 4


def test_the_processes_start_again_every_year_and_allow_for_missing_days() -> None:
    fitted = make_map()
    rng = np.random.default_rng(3)
    days = [make_day(fitted, day, rng, 100, level=-1.5) for day in (0, 1, 9, 30, 364, 370)]
    level, slope = evidence_of(days)
    assert level[3] > LOG_THRESHOLD
    assert slope[3] < LOG_THRESHOLD
    # The second year knows nothing of the first one's labels.
    assert level[4] == pytest.approx(evidence_of(days[4:5]).level[0])
