"""The rows of a table count once, however and however often it is added."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank.monitor import Day, Store
from tests.monitor.worlds import date_of, make_day, make_map

REFUSED = r"a day to add must be new to the store, got a table that is stored under 2026-01-01"


@pytest.fixture(scope="module")
def fitted() -> cr.CalibrationMap:
    return make_map()


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(size=500), rng.integers(2, size=500)


def test_a_store_knows_the_tables_that_it_holds(fitted: cr.CalibrationMap, tmp_path: Path) -> None:
    store = Store(tmp_path / "days")
    day = make_day(fitted, 0, np.random.default_rng(3), 100)
    store.add(day)
    for copy in (day, replace(day, date=date_of(1))):
        with pytest.raises(cr.DataError, match=REFUSED):
            store.with_day(copy)
    other = make_day(fitted, 0, np.random.default_rng(4), 100)
    assert store.with_day(other)[0].rows == 200


def test_rows_in_another_order_are_the_same_table(
    fitted: cr.CalibrationMap, tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    scores, labels = rows
    store = Store(tmp_path)
    store.add(Day.of(fitted, scores, labels, date=date_of(0)))
    order = np.random.default_rng(0).permutation(500)
    again = Day.of(fitted, scores[order], labels[order], date=date_of(0))
    with pytest.raises(cr.DataError, match=REFUSED):
        store.with_day(again)
    # The same scores with one other label are another table, on another date.
    labels = np.where(np.arange(500) == 7, 1 - labels, labels)
    assert len(store.with_day(Day.of(fitted, scores, labels, date=date_of(1)))) == 2


def test_two_processes_that_add_one_table_write_one_file(
    fitted: cr.CalibrationMap, tmp_path: Path
) -> None:
    day = make_day(fitted, 0, np.random.default_rng(3), 100)
    for _ in range(2):
        Store(tmp_path / "days").add(day)
    (file,) = (tmp_path / "days").iterdir()
    assert file.name.startswith("2026-01-01-000000000100-")


def test_a_copied_file_counts_once_and_is_reported(
    fitted: cr.CalibrationMap, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    store.add(make_day(fitted, 0, np.random.default_rng(3), 100))
    (file,) = tmp_path.iterdir()
    shutil.copy(file, tmp_path / "backup.day.npz")
    with pytest.warns(cr.CalibrankWarning, match=r"backup.day.npz and .* must be of different"):
        (day,) = store.days()
    assert day.rows == 100


@pytest.mark.parametrize("name", ["0.day.npz", "backup.day.npz"])
def test_labels_that_come_later_replace_those_that_were_there(
    fitted: cr.CalibrationMap, tmp_path: Path, rows: tuple[np.ndarray, np.ndarray], name: str
) -> None:
    scores, labels = rows
    store = Store(tmp_path)
    store.add(Day.of(fitted, scores, date=date_of(0)))
    (file,) = tmp_path.iterdir()
    some = Day.of(fitted, scores[:200], labels[:200], date=date_of(0))
    some += Day.of(fitted, scores[200:], date=date_of(0))
    complete = Day.of(fitted, scores, labels, date=date_of(0))
    for day in (some, complete):
        (expected,) = store.with_day(day)
        store.add(day)
        (found,) = store.days()
        assert (found.rows, found.labels) == (500, day.labels) == (expected.rows, expected.labels)
    with pytest.raises(cr.DataError, match=f"{REFUSED} with 500 labels"):
        store.with_day(some)
    # Whatever the files are called.
    file.rename(tmp_path / name)
    assert repr(store.days()) == "[Day(2026-01-01, 500 scores, 500 labels)]"


def test_small_tables_that_agree_by_chance_all_count(
    fitted: cr.CalibrationMap, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    for date in (0, 0, 1):
        day = Day.of(fitted, [0.5, 1.0], [0, 1], date=date_of(date))
        store.add(day)
    assert [each.rows for each in store.days()] == [4, 2]
    # On its own date it is refused: a command that is run again would count it twice.
    with pytest.raises(cr.DataError, match="must be new to the store"):
        store.with_day(day)
    assert len(store.with_day(replace(day, date=date_of(2)))) == 3


def test_later_labels_of_a_few_scores_are_refused_until_the_older_ones_are_deleted(
    fitted: cr.CalibrationMap, tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    """Ratings of 1 to 5 do not show whether rows are the same, so both would have counted."""
    labels = rows[1]
    scores = np.arange(500) % 5.0
    store = Store(tmp_path)
    some = Day.of(fitted, scores[:200], labels[:200], date=date_of(0))
    store.add(some + Day.of(fitted, scores[200:], date=date_of(0)))
    complete = Day.of(fitted, scores, labels, date=date_of(0))
    with pytest.raises(cr.DataError, match=f"{REFUSED} with 200 labels"):
        store.with_day(complete)
    for file in tmp_path.iterdir():
        file.unlink()
    assert store.with_day(complete)[0].labels == 500


def test_a_labelled_table_under_two_dates_counts_once(
    fitted: cr.CalibrationMap, tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    """Two writers who look before they write may both find that the table is new."""
    scores, labels = rows
    store = Store(tmp_path)
    days = [Day.of(fitted, scores, labels, date=date_of(date)) for date in (0, 1)]
    for day in days:
        store.with_day(day)
    for day in days:
        store.add(day)
    with pytest.warns(cr.CalibrankWarning, match="got the same rows twice"):
        (found,) = store.days()
    assert found.labels == 500
    # Scores without labels may be those of the same items every day.
    other = Store(tmp_path / "other")
    for date in (0, 1):
        other.add(Day.of(fitted, scores, date=date_of(date)))
    assert len(other.days()) == 2
