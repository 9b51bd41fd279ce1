"""The alarms: rare without a change, and soon after one, by simulation."""

import numpy as np
import pytest

from calibrank.monitor.e_process import LOG_THRESHOLD, evidence_of, log_evidence
from tests.monitor.worlds import Change, halved, make_day, make_map, year_of_sums

LABELS = 50
YEARS = 60


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
        world = year_of_sums(rng, labels=LABELS, shift=shift, n_users=n_users, within=within)
        alarms += log_evidence(*world).max() >= LOG_THRESHOLD
    assert alarms <= 0.05 * YEARS


def labels_until_alarm(change: Change, begins: int, process: int) -> np.ndarray:
    """Labels after the change until the alarm of level (0) or slope (1), of 15 worlds."""
    rng = np.random.default_rng(1)
    needed = []
    for _ in range(15):
        world = year_of_sums(rng, begins + 110, LABELS, change=change)
        alarms = np.flatnonzero(log_evidence(*world)[:, process] >= LOG_THRESHOLD)
        needed.append((alarms[0] - begins + 1) * LABELS if len(alarms) else np.inf)
    return np.array(needed)


@pytest.mark.parametrize("begins", [0, 150])
def test_a_halved_base_rate_is_caught_within_500_labels(begins: int) -> None:
    def change(log_odds: np.ndarray, day: np.ndarray) -> np.ndarray:
        return np.where(day >= begins, halved(log_odds), log_odds)

    needed = labels_until_alarm(change, begins, process=0)
    assert needed.min() > 0
    assert needed.max() <= 500


@pytest.mark.parametrize("begins", [0, 150])
@pytest.mark.parametrize("slope", [0.75, 1.25])
def test_a_slope_change_of_a_quarter_is_caught_within_5000_labels(
    begins: int, slope: float
) -> None:
    def change(log_odds: np.ndarray, day: np.ndarray) -> np.ndarray:
        return np.where(day >= begins, slope * log_odds, log_odds)

    needed = labels_until_alarm(change, begins, process=1)
    assert needed.min() > 0
    # By chance one world in 15 may take longer to raise a slope of 1.25, which labels show less.
    assert np.sort(needed)[-2] <= 5_000


def test_ignoring_that_users_depend_on_themselves_would_raise_false_alarms() -> None:
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(20):
        sums, variances, weeks = year_of_sums(rng, n_users=300, within=0.3)
        # With one cluster for all users only the variance of independent labels is left.
        alone = sums.sum(axis=1, keepdims=True)
        alarms += log_evidence(alone, variances, weeks).max() >= LOG_THRESHOLD
    assert alarms >= 5


def test_the_processes_start_again_every_year_and_allow_for_missing_days() -> None:
    fitted = make_map()
    rng = np.random.default_rng(3)
    days = [make_day(fitted, day, rng, 100, level=-1.5) for day in (0, 1, 9, 30, 364, 370)]
    level, slope = evidence_of(days)
    assert level[3] > LOG_THRESHOLD
    assert slope[3] < LOG_THRESHOLD
    # The second year knows nothing of the first one's labels.
    assert level[4] == pytest.approx(evidence_of(days[4:5]).level[0])
