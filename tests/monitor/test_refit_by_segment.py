"""Refits of maps by segment from the days of a store."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import calibrank as cr
import calibrank.monitor.day as monitored_day
from calibrank._internal.npz import read_arrays, write_arrays
from calibrank.monitor import Day, Store, refit, window_of
from tests.monitor.worlds import date_of

COUNTRIES = np.array(["BE", "DE", "NL", "FR"])
LEVELS = np.array([-2.0, -1.0, 0.0, 1.0])


class Rows(NamedTuple):
    scores: np.ndarray
    labels: np.ndarray
    columns: dict[str, np.ndarray]


def rows_of(seed: int, levels: np.ndarray = LEVELS, count: int = 2_000) -> Rows:
    rng = np.random.default_rng(seed)
    country = rng.integers(len(levels), size=count)
    scores = rng.normal(size=count)
    log_odds = scores + levels[country]
    labels = (rng.random(count) < 1 / (1 + np.exp(-log_odds))).astype(float)
    return Rows(scores, labels, {"country": COUNTRIES[country]})


def fitted_map(*, slopes: bool = True) -> cr.CalibrationMap:
    # The last country is not known yet.
    return (cr.Platt() + cr.Level("country", slopes=slopes)).fit(*rows_of(0, LEVELS[:3]))


def day_of(fitted: cr.CalibrationMap, rows: Rows, day: int) -> Day:
    return Day.of(fitted, rows.scores, rows.labels, date=date_of(day), columns=rows.columns)


def labels_by_level(day: Day) -> int:
    return day.by_segment[0].by_segment[2].sum()


def joined(parts: list[Rows]) -> Rows:
    columns = {"country": np.concatenate([part.columns["country"] for part in parts])}
    scores = np.concatenate([part.scores for part in parts])
    return Rows(scores, np.concatenate([part.labels for part in parts]), columns)


def probabilities(fitted: cr.CalibrationMap) -> np.ndarray:
    scores = np.repeat([-1.0, 0.0, 1.0], len(COUNTRIES))
    return fitted.predict(scores, {"country": np.tile(COUNTRIES, 3)})


def test_a_refit_is_the_fit_to_the_rows_of_the_window(tmp_path: Path) -> None:
    fitted = fitted_map()
    parts = [rows_of(seed, LEVELS[::-1]) for seed in (1, 2, 3)]
    store = Store(tmp_path)
    for day, rows in enumerate(parts):
        store.add(day_of(fitted, rows, day))
    new = refit(fitted, window_of(store.days(), 2))
    expected = (cr.Platt() + cr.Level("country")).fit(*joined(parts[1:]))
    assert probabilities(new) == pytest.approx(probabilities(expected), abs=0.002)
    assert new.terms[0].rows == expected.terms[0].rows
    assert new.record.previous_map == fitted.digest
    assert new.record.date == date_of(2)
    assert new.record.rows == 4_000
    assert cr.load(saved(new, tmp_path)) == new


def saved(fitted: cr.CalibrationMap, folder: Path) -> Path:
    fitted.save(folder / "new.json")
    return folder / "new.json"


def test_days_without_labels_change_nothing() -> None:
    fitted = fitted_map()
    rows = rows_of(1)
    labelled = day_of(fitted, rows, 1)
    scores = Day.of(fitted, rows.scores, date=date_of(2), columns=rows.columns)
    new = refit(fitted, scores + labelled)
    assert probabilities(new) == pytest.approx(probabilities(refit(fitted, labelled)))


def test_slopes_and_the_method_are_those_of_the_old_map_unless_given() -> None:
    fitted = fitted_map(slopes=False)
    day = day_of(fitted, rows_of(1), 1)
    new = refit(fitted, day)
    assert new.record.recipe == fitted.record.recipe == "Platt() + Level('country', slopes=False)"
    assert set(new.terms[0].slopes) == {1.0}


def test_too_many_segments_are_not_kept_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = fitted_map()
    monkeypatch.setattr(monitored_day, "MOST_SEGMENTS", 3)
    known = day_of(fitted, rows_of(1, LEVELS[:3]), 1)
    assert labels_by_level(known) == 2_000
    more = day_of(fitted, rows_of(2), 2)
    assert labels_by_level(more) == 0
    with pytest.raises(cr.DataError, match=r"got those of 2,000 of 4,000 labels: .*Fit again to"):
        refit(fitted, known + more)
    with pytest.raises(cr.DataError, match="got those of 0 of 2,000 labels"):
        refit(fitted, replace(known, by_segment=()))


def test_a_damaged_part_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "day.npz"
    day_of(fitted_map(), rows_of(1), 1).save(path)
    assert labels_by_level(Day.load(path)) == 2_000
    arrays = read_arrays(path, 2**30)
    write_arrays(path, {**arrays, "by_segment_places": arrays["by_segment_places"] * -1})
    with pytest.raises(cr.DataError, match="places are out of range or order"):
        Day.load(path)
