"""The alarms: rare without a change, and soon after one, by simulation."""

import numpy as np
import pytest
from benchmarks.monitor_claims import slow_effects
from scipy.stats import multivariate_normal

from calibrank.monitor import Day
from calibrank.monitor.changes import LEAST_ERROR, LOG_THRESHOLD, find_changes
from calibrank.monitor.e_process import Unchanged
from calibrank.monitor.series import LEVEL_SIZES, DaySums, Series, series_of
from tests.monitor.worlds import date_of, days_of_users, halved, make_map, simulate

YEARS = 20
WORLDS = 12


def level_alarms(years: np.ndarray, series: Series, error: float = LEAST_ERROR) -> np.ndarray:
    """Whether there is an alarm, years x days."""
    model = Unchanged(series, error)
    logs = [model.log_evidence(sums) for sums in years]
    return np.array(logs) >= LOG_THRESHOLD


def log_start(series: Series, sums: np.ndarray, noise: np.ndarray, error: float) -> float:
    """The evidence that a map is off, by its definition; of several `sums`, by the mean logs."""
    gaps = np.abs(series.ages[:, None] - series.ages)

    def density(offset: float) -> float:
        total = 0.0
        for day, persistence, day_weight in (
            (0, 0.8, 0.2425),
            (0.07, 0.8, 0.291),
            (0.15, 0.8, 0.3395),
            (0.4, 0.8, 0.097),
            (0.12, 0.95, 0.03),
        ):
            for weekday, weekday_weight in ((0, 0.7), (0.2, 0.3)):
                spread = day**2 * persistence**gaps + weekday**2 * (gaps % 7 == 0) + offset**2
                shared = spread * np.outer(series.information, series.information)
                logs = multivariate_normal(cov=np.diag(noise) + shared).logpdf(sums)
                total += day_weight * weekday_weight * np.exp(np.mean(logs))
        return total

    return float(np.log(density(1.0) / density(error) / 8))


def test_the_null_is_the_normal_distribution_of_its_definition() -> None:
    """The evidence for a map that is off is a ratio of two mixtures, here one day at a time."""
    rng = np.random.default_rng(1)
    n_days = 9
    information = rng.uniform(3, 9, n_days)
    noise = 1.3 * information
    sums = rng.normal(size=n_days) * np.sqrt(noise)
    ages = np.array([0, 1, 2, 3, 5, 7, 8, 14, 15])
    ones = np.ones((2, n_days))
    series = Series(sums, information, noise, ones[0], 0 * ones[0], ages, ones, 0.0, LEVEL_SIZES)
    found = Unchanged(series, 0.1).log_start()[-1]
    assert found == pytest.approx(log_start(series, sums, noise, 0.1))


def test_many_labels_have_the_log_likelihood_expected_of_a_choice_of_400() -> None:
    rng = np.random.default_rng(3)
    series = simulate(rng, 1, 3, labels=5_000).series[0]._replace(ages=np.array([0, 2, 7]))
    sums = np.array([1.0, -2.0, 3.0]) * np.sqrt(series.noise)
    counted = series.information**2 / 85
    # A choice of labels adds noise, here drawn 20,000 times.
    drawn = sums + np.sqrt(counted - series.noise) * rng.normal(size=(20_000, 3))
    found = Unchanged(series, 0.1).log_start(sums)[-1]
    assert found == pytest.approx(log_start(series, drawn, counted, 0.1), abs=0.01)


def test_the_evidence_of_a_change_has_the_expectation_of_its_share_without_one() -> None:
    """Over years whose effects and offset are drawn as they are without a change."""
    rng = np.random.default_rng(2)
    years, n_days, error = 3_000, 12, 0.3
    (series, _) = simulate(rng, 1, days=n_days, labels=200).series
    series = series._replace(skewness=np.ones((2, n_days)))
    ages = np.arange(n_days)
    day = rng.choice([0, 0.07, 0.15, 0.4], (years, 1), p=[0.25, 0.3, 0.35, 0.1])
    weekday = rng.choice([0, 0.2], (years, 1), p=[0.7, 0.3])
    offset = rng.choice([error, 1.0], (years, 1), p=[0.7, 0.3])
    root = np.linalg.cholesky(0.8 ** np.abs(ages[:, None] - ages))
    effects = day * (rng.normal(size=(years, n_days)) @ root.T)
    effects += weekday * rng.normal(size=(years, 7))[:, ages % 7]
    effects += offset * rng.normal(size=(years, 1))
    noise = np.sqrt(series.noise) * rng.normal(size=(years, n_days))
    model = Unchanged(series, error)
    logs = [model.log_evidence(sums)[-1] for sums in series.information * effects + noise]
    assert np.exp(logs).mean() == pytest.approx(LEVEL_SIZES.share, rel=0.03)


@pytest.mark.parametrize("labels", [50, 400])
@pytest.mark.parametrize("error", [0.02, 0.15])
def test_an_error_of_the_map_is_no_change(labels: int, error: float) -> None:
    rng = np.random.default_rng(0)
    years = simulate(rng, 3 * YEARS, labels=labels, level_error=error)
    series = years.series[0]
    assert level_alarms(years.level, series, max(error, LEAST_ERROR)).any(axis=1).mean() <= 0.05
    # Nor is it where the map is worse than it should be.
    assert level_alarms(years.level, series).any(axis=1).mean() <= 0.05
    model = Unchanged(series, max(error, LEAST_ERROR))
    starts = [model.log_start(sums).max() >= LOG_THRESHOLD for sums in years.level]
    assert np.mean(starts) <= 0.05


@pytest.mark.parametrize("labels", [400, 5_000])
@pytest.mark.parametrize("persistence", [1, 7], ids=["days", "weeks"])
def test_days_and_weeks_that_differ_are_no_change(persistence: int, labels: int) -> None:
    rng = np.random.default_rng(1)
    effects = np.repeat(0.07 * rng.normal(size=(YEARS, 364 // persistence)), persistence, axis=1)
    years = simulate(rng, YEARS, labels=labels, effects=effects)
    assert level_alarms(years.level, years.series[0]).any(axis=1).sum() <= 1


def test_effects_that_go_on_for_weeks_are_mostly_no_change() -> None:
    """With a correlation of 0.9, 37% of years had an alarm, and now 10%."""
    effects = slow_effects(np.random.default_rng(12), 40)
    years = simulate(np.random.default_rng(13), 40, labels=400, effects=effects)
    assert level_alarms(years.level, years.series[0]).any(axis=1).mean() <= 0.2


def test_a_weekday_pattern_is_no_change() -> None:
    rng = np.random.default_rng(2)
    effects = 0.2 * rng.normal(size=(YEARS, 7))[:, np.arange(364) % 7]
    years = simulate(rng, YEARS, labels=400, effects=effects)
    assert level_alarms(years.level, years.series[0]).any(axis=1).sum() <= 1


def test_a_weekday_pattern_does_not_hide_a_change() -> None:
    rng = np.random.default_rng(5)
    effects = 0.3 * rng.normal(size=(5, 7))[:, np.arange(80) % 7]
    options = {"change": lambda log_odds: log_odds - 0.4, "begins": 60}
    years = simulate(rng, 5, days=80, labels=400, effects=effects, **options)
    found = level_alarms(years.level, years.series[0])
    assert not found[:, :60].any()
    assert found.any(axis=1).all()


@pytest.mark.parametrize(
    ("mean", "most"), [(-3.6, 2_200), (-1.0, 400)], ids=["rate of 5%", "rate of 31%"]
)
@pytest.mark.parametrize("begins", [30, 180])
def test_a_halved_rate_is_found(begins: int, mean: float, most: int) -> None:
    rng = np.random.default_rng(3)
    options = {"mean": mean, "change": halved, "begins": begins}
    years = simulate(rng, WORLDS, days=begins + 60, **options)
    found = level_alarms(years.level, years.series[0])
    assert not found[:, :begins].any()
    assert found[:, begins:].any(axis=1).sum() >= WORLDS - 1
    labels = 50 * (np.argmax(found[:, begins:], axis=1) + 1)
    assert np.median(labels) <= most


@pytest.mark.parametrize(("size", "labels", "most"), [(0.25, 400, 6.5), (0.5, 50, 13.0)])
def test_a_late_change_is_found_soon(size: float, labels: int, most: float) -> None:
    """CUSUM, which knows its size and that days do not vary, needs 4.4 and 8.4 days."""
    rng = np.random.default_rng(8)
    options = {"labels": labels, "change": lambda x: x - size, "begins": 180}
    years = simulate(rng, 60, days=260, **options)
    found = level_alarms(years.level, years.series[0])[:, 180:]
    assert np.mean(np.argmax(found, axis=1) + 1) <= most


def test_a_change_of_slope_is_found() -> None:
    rng = np.random.default_rng(4)
    years = simulate(rng, WORLDS, days=130, change=lambda x: 0.75 * x, begins=30)
    found = level_alarms(years.slope, years.series[1])
    assert not found[:, :30].any()
    assert found.any(axis=1).sum() >= WORLDS - 2


def reduced(days: list[Day]) -> list[DaySums]:
    return [DaySums.of(make_map(), day) for day in days]


def find(days: list[Day], *, error: float = LEAST_ERROR) -> list:
    ages = np.arange(len(days))
    sums = reduced(days)
    processes = series_of(sums, ages)
    errors = [np.hypot(error, series.user_error) for series in processes]
    return find_changes(processes, errors)[0]


def test_users_who_return_are_no_change_and_do_not_make_a_map_wrong() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(6):
        days = days_of_users(rng, 120, 100, n_users=60, within=0.2)
        found += find(days)
        assert series_of(reduced(days), np.arange(120))[0].user_error > 0.05
    assert len(found) <= 1


def test_weights_change_nothing_if_they_are_all_the_same() -> None:
    rng = np.random.default_rng(6)
    fitted = make_map()
    rows = [(rng.normal(size=100), rng.integers(2, size=100)) for _ in range(5)]
    found = []
    for weights in (None, np.full(100, 3.0)):
        days = [Day.of(fitted, *each, weights=weights, date=date_of(0)) for each in rows]
        found.append(series_of(reduced(days), np.arange(5))[0])
    once, weighted = found
    assert weighted.sums == pytest.approx(once.sums)
    assert weighted.information == pytest.approx(once.information)
    assert weighted.skewness == pytest.approx(once.skewness)


def test_information_is_what_an_offset_adds_to_residuals_whatever_the_weights() -> None:
    """A change is looked for at its true size also where weights differ a lot."""
    rng = np.random.default_rng(9)
    fitted = make_map()
    scores = rng.normal(size=500)
    weights = np.exp(2 * rng.normal(size=500))
    log_odds = fitted.log_odds(scores)
    found = []
    for truth in (log_odds, log_odds + 0.001, 1.001 * log_odds):
        p = 1 / (1 + np.exp(-truth))
        rows = (np.tile(scores, 2), np.repeat([1, 0], 500))
        day = Day.of(
            fitted, *rows, weights=np.append(weights * p, weights * (1 - p)), date=date_of(0)
        )
        found.append(series_of(reduced([day]), np.zeros(1)))
    as_predicted, higher, steeper = found
    for process, changed in enumerate((higher, steeper)):
        added = changed[process].sums - as_predicted[process].sums
        assert added == pytest.approx(0.001 * as_predicted[process].information, rel=0.01)


def test_moved_scores_are_no_change_where_the_slope_of_the_map_has_an_error() -> None:
    """A map of 300 labels; where all scores rise, the error of its slope is one of its level."""
    rng = np.random.default_rng(10)
    fitted = make_map()
    found = []
    for slope in (0.82, 1.18):
        days = []
        for day in range(90):
            scores = rng.normal(1.2 * (day >= 45), 1, 400)
            labels = rng.random(400) < 1 / (1 + np.exp(-slope * fitted.log_odds(scores)))
            days.append(Day.of(fitted, scores, labels, date=date_of(day)))
        found.append([len(find(days, error=error)) for error in (0.001, 0.13)])
    of_exact_map, of_few_labels = zip(*found, strict=True)
    assert sum(of_exact_map) > 0
    assert sum(of_few_labels) == 0


def test_days_are_searched_without_end_and_compared_with_half_a_year() -> None:
    rng = np.random.default_rng(7)
    years = simulate(rng, 1, days=800, labels=200, change=lambda x: x - 0.4, begins=700)
    series = years.series[0]._replace(sums=years.level[0])
    found, evidence = find_changes([series], [LEAST_ERROR])
    assert len(evidence) == 800
    assert evidence[:700].max() < LOG_THRESHOLD
    (change,) = found
    assert abs(change.begin - 700) <= 2
    assert 700 <= change.alarm <= 715


def test_after_the_first_year_an_alarm_needs_half_as_much_evidence_again() -> None:
    """Changes may have begun on more days: without this, up to 6% of later years had an alarm."""
    years = simulate(np.random.default_rng(8), 1, days=500)
    series = years.series[0]._replace(sums=years.level[0])
    _, evidence = find_changes([series], [LEAST_ERROR])
    first = Unchanged(series.part(0, 364), LEAST_ERROR).log_evidence()
    later = Unchanged(series.part(182, 500), None).log_evidence()
    assert evidence[:364, 0] == pytest.approx(first)
    assert evidence[364:, 0] == pytest.approx(later[182:] - np.log(1.5))


def test_a_week_that_is_off_says_hardly_more_with_many_labels_than_with_400_a_day() -> None:
    """What weeks share does not shrink with the number of labels, unlike chance."""
    evidence = []
    for labels in (400, 10_000):
        series = simulate(np.random.default_rng(0), 1, 180, labels=labels).series[0]
        sums = np.random.default_rng(1).normal(size=180) * np.sqrt(series.noise)
        sums[-7:] += 0.2 * series.information[-7:]
        evidence.append(Unchanged(series, LEAST_ERROR).log_evidence(sums)[-1])
    # It would be 70 instead of 4.
    assert evidence[1] < evidence[0] + 3
