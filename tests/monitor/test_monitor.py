"""Days, stores, checks and refits of a map, on worlds whose changes are known."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank.maps import LevelTerm, SmoothTerm
from calibrank.monitor import Day, Store, check, refit, window_of
from calibrank.monitor.day import bounded_log_odds
from calibrank.monitor.series import DaySums
from tests.monitor.worlds import date_of, make_day, make_map


@pytest.fixture(scope="module")
def fitted() -> cr.CalibrationMap:
    return make_map()


def days_of(fitted: cr.CalibrationMap, count: int, change: int, **changed: float) -> list[Day]:
    rng = np.random.default_rng(0)
    days = []
    for day in range(count):
        options = changed if day >= change else {}
        days.append(make_day(fitted, day, rng, **options))
    return days


def test_parts_of_a_day_add_up_in_any_split_and_order(fitted: cr.CalibrationMap) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=500)
    labels = rng.integers(2, size=500)
    users = rng.integers(50, size=500)
    weights = rng.gamma(2, size=500)
    parts = []
    for part in (slice(0, 100), slice(100, None)):
        options = {"users": users[part], "weights": weights[part], "date": "2026-01-01"}
        parts.append(Day.of(fitted, scores[part], labels[part], **options))
    whole = Day.of(fitted, scores, labels, users=users, weights=weights, date="2026-01-01")
    for merged in (parts[0] + parts[1], parts[1] + parts[0]):
        assert merged.sums == pytest.approx(whole.sums)
        for name in ("variances", "cumulants"):
            both = [getattr(DaySums.of(fitted, day), name) for day in (merged, whole)]
            assert both[0] == pytest.approx(both[1])
        assert merged.labelled.positive == pytest.approx(whole.labelled.positive)
        assert merged.rows == 500
    residuals = weights * (labels - fitted.predict(scores))
    assert whole.sums[:, 0].sum() == pytest.approx(residuals.sum())
    assert whole.sums[:, 1].sum() == pytest.approx(residuals @ fitted.log_odds(scores))


def test_a_file_is_small_and_reads_back(fitted: cr.CalibrationMap, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=200_000)
    labels = rng.integers(2, size=200_000)
    day = Day.of(fitted, scores, labels, date="2026-01-01")
    path = tmp_path / "day.npz"
    day.save(path)
    assert path.stat().st_size < 400_000
    again = Day.load(path)
    assert repr(again) == repr(day) == "Day(2026-01-01, 200,000 scores, 200,000 labels)"
    assert np.array_equal(again.sums, day.sums)
    assert np.array_equal(again.labelled.positive, day.labelled.positive)
    content = bytearray(path.read_bytes())
    content[5_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        cr.DataError, match=r"day.npz must be a day that calibrank saved, got .* Delete"
    ):
        Day.load(path)


def test_stores_of_hosts_merge_by_copying(fitted: cr.CalibrationMap, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    stores = []
    for host in ("one", "two"):
        store = Store(tmp_path / host)
        for day in range(2):
            store.add(make_day(fitted, day, rng, 100))
        stores.append(store)
    shutil.copytree(tmp_path / "two", tmp_path / "one", dirs_exist_ok=True)
    merged = stores[0].days()
    assert [(day.date, day.rows) for day in merged] == [(date_of(0), 200), (date_of(1), 200)]
    assert stores[0].days("another map") == []
    assert check(fitted, stores[0]).days[1].labels == 200
    names = [file.name for file in (tmp_path / "one").iterdir()]
    assert len(names) == 4
    assert all(name.endswith(".day.npz") for name in names)


def test_a_window_has_the_last_days(fitted: cr.CalibrationMap) -> None:
    days = days_of(fitted, 10, 10)
    last = window_of(days, 3)
    assert last.sums == pytest.approx(window_of(days[-3:]).sums)
    assert last.rows == 900


def test_nothing_is_reported_where_nothing_changed(fitted: cr.CalibrationMap) -> None:
    status = check(fitted, days_of(fitted, 60, 60))
    assert not status.alarm
    headline = "No change of calibration in 18,000 labels over 60 days"
    assert status.headline == f"{headline}: 31.4% predicted, 31.5% observed."
    last = status.days[-1]
    assert last.level.low < 0 < last.level.high
    assert last.slope.low < 1 < last.slope.high


def test_level_and_slope_are_told_apart(fitted: cr.CalibrationMap) -> None:
    level = check(fitted, days_of(fitted, 50, 20, level=-0.8))
    (change,) = level.changes
    assert change == level.change
    assert (change.kind, change.from_start, change.until) == ("level", False, None)
    assert date_of(19) <= change.date <= date_of(21)
    assert date_of(20) <= change.alarm < date_of(26)
    assert change.level.value == pytest.approx(-0.8, abs=0.1)
    days = days_of(fitted, 60, 20, slope=0.6)
    slope = check(fitted, days).change
    assert slope.kind == "slope"
    assert slope.slope.value == pytest.approx(0.6, abs=0.1)
    assert slope.highest.observed < slope.highest.predicted
    assert "of the fifth with the highest probabilities, 6" in slope.sentence


def test_the_headline_has_the_rates_since_the_change(fitted: cr.CalibrationMap) -> None:
    days = days_of(fitted, 50, 20, level=-0.8)
    status = check(fitted, days)
    (change,) = status.changes
    since = window_of([day for day in days if day.date >= change.date])
    labels = since.labelled
    assert change.rates.observed == pytest.approx(labels.positive.sum() / labels.rows)
    assert change.rates.predicted == pytest.approx(
        fitted.predict(labels.scores) @ labels.total / labels.rows
    )
    expected = (
        "Calibration has changed: 31% predicted, 20% observed since 21 January 2026 "
        "(alarm on 22 January 2026)."
    )
    assert status.headline == change.sentence == expected
    assert status.to_dict()["changes"][0]["rates"] == change.rates._asdict()


def test_a_recent_change_is_dated_and_not_diluted_by_the_days_before(
    fitted: cr.CalibrationMap,
) -> None:
    level = check(fitted, days_of(fitted, 42, 40, level=-0.8))
    assert level.change.date == date_of(40)
    assert level.change.level.value == pytest.approx(-0.8, abs=0.2)
    assert level.days[-1].level.value > -0.2


def test_a_map_that_was_off_from_the_start_has_not_changed(fitted: cr.CalibrationMap) -> None:
    status = check(fitted, days_of(fitted, 60, 0, level=-0.4))
    (change,) = status.changes
    assert change.from_start
    assert change.date == date_of(0)
    assert status.headline == "The map has been off since the start: 31% predicted, 25% observed."


def test_all_changes_are_found_one_after_the_other(fitted: cr.CalibrationMap) -> None:
    """A map that is a little off, a drop of the rate by a third, and a rise above the map."""
    rng = np.random.default_rng(0)
    levels = [-0.08] * 20 + [-0.6] * 40 + [0.2] * 40
    days = [make_day(fitted, day, rng, level=level) for day, level in enumerate(levels)]
    status = check(fitted, days)
    assert [change.date for change in status.changes] == [date_of(20), date_of(60)]
    assert [change.until for change in status.changes] == [date_of(59), None]
    found = [change.level.value for change in status.changes]
    assert found == pytest.approx([-0.6, 0.2], abs=0.1)
    assert "from 21 January 2026 until 1 March 2026" in status.headline
    # The evidence starts again after each alarm.
    evidence = [day.level_evidence for day in status.days]
    assert max(evidence[70:]) < status.threshold


def test_a_change_ends_the_time_in_which_a_map_was_off_from_the_start(
    fitted: cr.CalibrationMap,
) -> None:
    rng = np.random.default_rng(0)
    levels = [-0.5] * 40 + [-1.2] * 30
    days = [make_day(fitted, day, rng, level=level) for day, level in enumerate(levels)]
    start, change = check(fitted, days).changes
    assert (start.from_start, change.from_start) == (True, False)
    assert change.date in {date_of(40), date_of(41)}
    assert start.until < change.date
    assert "The map was off from the start: 31% predicted, 23% observed until " in start.sentence


def test_days_without_labels_and_missing_days_are_allowed(fitted: cr.CalibrationMap) -> None:
    rng = np.random.default_rng(0)
    before = [make_day(fitted, age, rng) for age in (0, *range(330, 349))]
    unlabelled = Day.of(fitted, rng.normal(size=300), date=date_of(349))
    after = [make_day(fitted, age, rng, level=-0.8) for age in range(350, 380)]
    status = check(fitted, [*before, unlabelled, *after])
    assert status.change.date == date_of(350)
    assert status.change.level.value == pytest.approx(-0.8, abs=0.1)
    assert status.days[20].level_evidence == status.days[19].level_evidence


def test_a_large_change_of_level_is_one_change(fitted: cr.CalibrationMap) -> None:
    (change,) = check(fitted, days_of(fitted, 60, 2, level=-2.0)).changes
    assert change.kind == "level"


def test_days_without_labels_have_scores_only(fitted: cr.CalibrationMap) -> None:
    scores = np.random.default_rng(4).normal(size=5_000)
    old = Day.of(fitted, scores, date="2026-01-01")
    status = check(fitted, [old, Day.of(fitted, scores + 2, date="2026-01-02")], window=1)
    assert status.headline.startswith("No labels yet")
    assert status.moved is not None


def test_a_refit_is_right_again_and_knows_its_predecessor(
    fitted: cr.CalibrationMap, tmp_path: Path
) -> None:
    days = days_of(fitted, 60, 20, level=-0.8)
    new = refit(fitted, window_of(days, 28))
    scores = np.linspace(-2, 2, 9)
    assert new.log_odds(scores) == pytest.approx(fitted.log_odds(scores) - 0.8, abs=0.25)
    new.save(tmp_path / "new.json")
    record = cr.load(tmp_path / "new.json").record
    assert record.previous_map == fitted.digest
    assert record.date == date_of(59)
    with pytest.raises(cr.DataError, match="a window to refit on must hold labels, got none"):
        refit(fitted, Day.of(fitted, scores, date="2026-01-01"))


def test_a_step_without_positives_has_the_log_odds_of_half_a_positive() -> None:
    """With -15, unchanged maps of 300 labels had a slope that was off in most years."""
    scores = np.arange(100.0)
    labels = scores >= 40
    labels[50:60] = False
    fitted = cr.Isotonic().fit(scores, labels)
    found = bounded_log_odds(fitted, fitted.predict(np.array([10.0, 55.0, 90.0])))
    assert found[0] == pytest.approx(-np.log(2 * 40 + 1), rel=0.02)
    assert found[1] == pytest.approx(fitted.log_odds(np.array([55.0]))[0])
    assert found[2] == pytest.approx(np.log(2 * 40 + 1), rel=0.02)


COUNTRIES = ("NL", "DE", "BE", "FR", "ES", "IT")


def grouped_map(fitted: cr.CalibrationMap) -> cr.CalibrationMap:
    keys = tuple((name,) for name in COUNTRIES)
    intercepts = (0.5, 0.0, 0.0, 0.0, 0.0, 0.0)
    numbers = [intercepts, (1.0,) * 6, (0.1,) * 6, (10,) * 6]
    term = LevelTerm(("country",), keys, *numbers, spreads=(0.1,))
    return replace(fitted, terms=(term,))


def test_a_map_by_segment_is_monitored_by_its_log_odds(fitted: cr.CalibrationMap) -> None:
    grouped = grouped_map(fitted)
    rng = np.random.default_rng(7)
    days = []
    for day in range(40):
        scores = rng.normal(size=300)
        columns = {"country": np.where(rng.random(300) < 0.5, "NL", "DE")}
        truth = grouped.log_odds(scores, columns)
        # From day 20 on, all segments move.
        truth = truth - 0.8 * (day >= 20)
        labels = rng.random(300) < 1 / (1 + np.exp(-truth))
        days.append(Day.of(grouped, scores, labels, date=date_of(day), columns=columns))
    assert not check(grouped, days[:20]).alarm
    status = check(grouped, days)
    assert date_of(20) <= status.change.alarm <= date_of(22)
    assert status.change.kind == "level"
    # Segments change with the map, which the headline says once.
    assert {change.segment for change in status.changes} == {None, ("NL",), ("DE",)}
    assert status.headline.count("has changed") == 1
    # Rows are pooled by log odds, of which the day keeps their probability.
    assert status.days[0].predicted == pytest.approx(days[0].sums[:, 2].sum() / 300)


def test_a_change_of_one_segment_is_found(fitted: cr.CalibrationMap) -> None:
    grouped = grouped_map(fitted)
    rng = np.random.default_rng(8)
    days = []
    for day in range(60):
        scores = rng.normal(size=600)
        country = rng.choice(COUNTRIES, 600)
        truth = grouped.log_odds(scores, {"country": country})
        truth = truth - 0.9 * ((day >= 30) & (country == "NL"))
        labels = rng.random(600) < 1 / (1 + np.exp(-truth))
        columns = {"country": country}
        days.append(Day.of(grouped, scores, labels, date=date_of(day), columns=columns))
    assert not check(grouped, days[:30]).alarm
    found = [change for change in check(grouped, days).changes if change.segment is not None]
    assert [change.segment for change in found] == [("NL",)]
    assert date_of(29) <= found[0].date <= date_of(31)
    assert found[0].rates.predicted > found[0].rates.observed + 0.1
    assert found[0].sentence.startswith("In NL: Calibration has changed: ")


def test_the_scale_of_weights_changes_nothing_about_segments(fitted: cr.CalibrationMap) -> None:
    grouped = grouped_map(fitted)
    found = []
    for scale in (0.1, 1.0, 10.0):
        rng = np.random.default_rng(10)
        days = []
        for day in range(40):
            scores = rng.normal(size=300)
            columns = {"country": rng.choice(COUNTRIES, 300)}
            weights = scale * rng.uniform(0.5, 1.5, 300)
            truth = grouped.log_odds(scores, columns)
            truth = truth - 1.5 * ((day >= 20) & (columns["country"] == "NL"))
            labels = rng.random(300) < 1 / (1 + np.exp(-truth))
            day_of = Day.of(
                grouped, scores, labels, weights=weights, date=date_of(day), columns=columns
            )
            days.append(day_of)
        changes = check(grouped, days).changes
        found.append([(each.segment, each.date, each.alarm) for each in changes if each.segment])
    assert [segment for segment, *_ in found[1]] == [("NL",)]
    assert found[0] == found[1] == found[2]


def test_a_change_of_one_level_is_found_beside_other_terms(fitted: cr.CalibrationMap) -> None:
    smooth = SmoothTerm("age", (-2.0, 0.0, 2.0), (-1.0, 0.0, 1.0), ())
    both = replace(fitted, terms=(*grouped_map(fitted).terms, smooth))
    rng = np.random.default_rng(9)
    days = []
    for day in range(40):
        scores = rng.normal(size=600)
        columns = {"country": rng.choice(COUNTRIES[:3], 600), "age": rng.normal(size=600)}
        truth = both.log_odds(scores, columns)
        truth = truth - 1.2 * ((day >= 20) & (columns["country"] == "DE"))
        labels = rng.random(600) < 1 / (1 + np.exp(-truth))
        days.append(Day.of(both, scores, labels, date=date_of(day), columns=columns))
    assert not check(both, days[:20]).alarm
    found = [change.segment for change in check(both, days).changes if change.segment]
    assert found == [("DE",)]


def test_a_map_by_segment_needs_its_columns(fitted: cr.CalibrationMap) -> None:
    with pytest.raises(cr.DataError, match="columns must have country, which this map needs"):
        Day.of(grouped_map(fitted), [1.0], date="2026-01-01")


def test_parts_of_a_day_in_a_list_are_one_day(fitted: cr.CalibrationMap) -> None:
    rng = np.random.default_rng(11)
    days = [make_day(fitted, day, rng, 50) for day in (0, 1, 1, 2)]
    merged = [days[0], days[1] + days[2], days[3]]
    assert check(fitted, days) == check(fitted, merged)


def test_days_of_another_map_are_not_mixed(fitted: cr.CalibrationMap) -> None:
    other = make_map(1)
    day = make_day(fitted, 0, np.random.default_rng(6))
    with pytest.raises(cr.DataError, match=r"days must be of the map with digest .*, got none"):
        check(other, [day])
    with pytest.raises(cr.DataError, match="days to merge must be of one map"):
        _ = day + make_day(other, 0, np.random.default_rng(6))
    with pytest.raises(cr.DataError, match=r"date must be a date such as 2026-01-31, got '1.2.26'"):
        Day.of(fitted, [1.0], date="1.2.26")


def test_scores_of_another_model_are_said_to_be_others(fitted: cr.CalibrationMap) -> None:
    same = days_of(fitted, 3, 3)
    assert check(fitted, same).moved is None
    moved = check(fitted, days_of(fitted, 3, 0, move=2.0)).moved
    assert moved.startswith("the scores do not look like those of the map's fit")
    # Only those of the window count.
    assert check(fitted, [*days_of(fitted, 1, 0, move=2.0), *same[1:]], window=2).moved is None


def test_scores_are_compared_with_those_of_the_fit_where_a_map_has_terms() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=4_000)
    columns = {"country": rng.choice(COUNTRIES, 4_000)}
    labels = (rng.random(4_000) < 1 / (1 + np.exp(-scores))).astype(float)
    fitted = (cr.Platt() + cr.Level("country")).fit(scores, labels, columns)
    for move in (0.0, 2.0):
        day = Day.of(fitted, scores + move, labels, date=date_of(0), columns=columns)
        assert (check(fitted, [day]).moved is not None) == (move > 0)


def test_another_query_set_has_another_rate_from_the_start(fitted: cr.CalibrationMap) -> None:
    status = check(fitted, days_of(fitted, 10, 0, level=-0.8))
    assert status.changes[0].from_start
    assert status.headline.startswith("The map has been off since the start: ")
