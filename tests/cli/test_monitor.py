"""`calibrank monitor`: days from tables, the check, the page and the refit."""

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.monitor import Day, Store, check
from tests.cli.conftest import Call
from tests.monitor.worlds import date_of, make_map
from tests.report.examples import data_of


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    make_map().save(tmp_path / "map.json")
    return tmp_path / "map.json"


def write_day(path: Path, fitted: cr.CalibrationMap, seed: int, level: float = 0.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=400)
    p = 1 / (1 + np.exp(-fitted.log_odds(scores) - level))
    users = [f"u{user}" for user in rng.integers(100, size=400)]
    labels = (rng.random(400) < p).astype(int)
    table = pa.table({"user_id": users, "score": scores, "label": labels})
    pq.write_table(table, path)
    return table


def test_a_changed_map_is_found_shown_and_refitted(
    call: Call, tmp_path: Path, map_file: Path
) -> None:
    fitted = cr.load(map_file)
    store = tmp_path / "days"
    for day in range(9):
        table = tmp_path / "day.parquet"
        content = write_day(table, fitted, day, level=0.0 if day < 5 else -1.0)
        options = ["--map", map_file, "--add", table, "--date", date_of(day), "--json"]
        code, text, error = call("monitor", store, *options)
        assert code == 0, error
    status = json.loads(text)
    assert status["alarm"]
    (change,) = status["changes"]
    assert (change["date"], change["kind"]) == (date_of(5), "level")
    assert date_of(5) <= change["alarm"] <= date_of(7)
    # The same as from arrays.
    users = content["user_id"].to_pylist()
    scores = content["score"].to_numpy()
    expected = Day.of(fitted, scores, content["label"].to_numpy(), users=users, date=date_of(8))
    assert Store(store).days()[-1].sums == pytest.approx(expected.sums)
    page = tmp_path / "monitor.html"
    new = tmp_path / "new.json"
    code, text, error = call(
        "monitor", store, "--map", map_file, "-o", page, "--refit", new, "--window", "4"
    )
    assert code == 0, error
    assert "Calibration has changed: 3" in text
    assert "observed since 6 January 2026 (alarm on" in text
    assert "predicted" in text
    record = cr.load(new).record
    assert record.previous_map == fitted.digest
    assert record.rows == 4 * 400
    code, _, error = call("monitor", store, *options)
    assert code == 3
    assert f"must be new to the store, got a table that is stored under {date_of(8)}" in error
    assert len(list(store.iterdir())) == 9
    data = data_of(page.read_text(encoding="utf-8"))
    assert [day["labels"] for day in data["days"]] == [400] * 9
    assert data["map_digest"] == fitted.digest


def test_a_table_without_labels_counts_for_the_scores(
    call: Call, tmp_path: Path, map_file: Path
) -> None:
    table = tmp_path / "day.parquet"
    content = write_day(table, cr.load(map_file), 0)
    pq.write_table(content.drop(["label"]), table)
    options = ["--map", map_file, "--add", table, "--date", "2026-01-31"]
    code, text, error = call("monitor", tmp_path / "days", *options)
    assert code == 0, error
    assert "No labels yet: only the scores can be compared." in text


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("rule", ["error", "skip"])
def test_missing_labels_are_not_known_yet_and_may_come_later(
    call: Call, tmp_path: Path, map_file: Path, suffix: str, rule: str
) -> None:
    complete = write_day(tmp_path / "complete.parquet", cr.load(map_file), 0)
    labels = pa.array([*complete["label"].to_pylist()[:150], *[None] * 250])
    partly = complete.set_column(2, "label", labels)
    table = tmp_path / f"partly.{suffix}"
    write = pq.write_table if suffix == "parquet" else pc.write_csv
    write(partly, table)
    command = ["monitor", tmp_path / "days", "--map", map_file, "--date", "2026-01-31", "--json"]
    code, text, error = call(*command, "--add", table, "--on-bad-rows", rule)
    assert code == 0, error
    assert "250 of 400 rows have no label: they count for the scores only." in error
    (day,) = json.loads(text)["days"]
    assert (day["rows"], day["labels"]) == (400, 150)
    code, text, error = call(*command, "--add", tmp_path / "complete.parquet")
    assert code == 0, error
    (day,) = json.loads(text)["days"]
    assert (day["rows"], day["labels"]) == (400, 400)


def test_a_label_that_is_no_label_is_an_error_beside_missing_ones(
    call: Call, tmp_path: Path, map_file: Path
) -> None:
    content = write_day(tmp_path / "day.parquet", cr.load(map_file), 0)
    labels = pa.array([None, 0.0, 0.5, *[1.0] * 397])
    pq.write_table(content.set_column(2, "label", labels), tmp_path / "day.parquet")
    add = ["--add", tmp_path / "day.parquet", "--date", "2026-01-31"]
    code, _, error = call("monitor", tmp_path / "days", "--map", map_file, *add)
    assert code == 3
    assert "row 2: label must be 0 or 1, got 0.5" in error


@pytest.mark.parametrize("rule", ["rating >= 4", "liked != 'no'"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_labels_are_declared_by_a_rule(
    call: Call, tmp_path: Path, map_file: Path, rule: str, suffix: str
) -> None:
    content = write_day(tmp_path / "plain.parquet", cr.load(map_file), 0)
    known = content["label"].to_pylist()[:300]
    rating = [5 if label else 2 for label in known] + [None] * 100
    liked = ["yes" if label else "no" for label in known] + [None] * 100
    labels = pa.array([*known, *[None] * 100])
    plain = content.set_column(2, "label", labels)
    declared = content.drop_columns("label").append_column("rating", pa.array(rating))
    declared = declared.append_column("liked", pa.array(liked))
    write = pq.write_table if suffix == "parquet" else pc.write_csv
    found = []
    for name, table, label in [("plain", plain, "label"), ("declared", declared, rule)]:
        path = tmp_path / f"{name}.{suffix}"
        write(table, path)
        add = ["--add", path, "--date", "2026-01-31", "--label", label, "--json"]
        code, text, error = call("monitor", tmp_path / name, "--map", map_file, *add)
        assert code == 0, error
        found.append(json.loads(text)["days"])
    assert found[0] == found[1]
    assert found[0][0]["labels"] == 300
    add[-2] = "rating / rating"
    code, _, error = call("monitor", tmp_path / "days", "--map", map_file, *add)
    assert code == 2
    assert "--label 'rating / rating' must be 0 or 1 for each row" in error


def test_segments_that_are_off_are_printed_beside_the_whole_map(call: Call, tmp_path: Path) -> None:
    """A change of all countries, of which the largest recovers: the mean hides the others."""
    rng = np.random.default_rng(0)

    def rows(size: int, factors: dict[str, float]) -> dict[str, Any]:
        scores = rng.normal(size=size)
        country = rng.choice(["US", "DE", "NL"], size, p=[0.6, 0.2, 0.2])
        factor = np.array([factors.get(each, 1.0) for each in country])
        labels = rng.random(size) < factor / (1 + np.exp(1 - scores))
        return {"score": scores, "country": country, "label": labels.astype(int)}

    sample = rows(20_000, {})
    model = cr.Platt() + cr.Level("country")
    model.fit(sample["score"], sample["label"], sample).save(tmp_path / "map.json")
    monitor = ["monitor", tmp_path / "days", "--map", tmp_path / "map.json"]
    for day in range(1, 25):
        low = {} if day < 9 else dict.fromkeys(("US", "DE", "NL"), 0.5)
        content = rows(600, low if day < 17 else {**low, "US": 1.2})
        pq.write_table(pa.table(content), tmp_path / "day.parquet")
        add = ["--add", tmp_path / "day.parquet", "--date", f"2026-01-{day:02}"]
        code, text, error = call(*monitor, *add)
        assert code == 0, error
    assert text.startswith("Calibration has changed:")
    (line,) = [line for line in text.splitlines() if "DE" in line]
    predicted, observed = [float(cell.rstrip("%")) for cell in line.split() if "%" in cell]
    assert observed < 0.6 * predicted
    assert "2026-01-09" in line


def test_an_alarm_can_be_an_exit_code(call: Call, tmp_path: Path, map_file: Path) -> None:
    codes = []
    for day, level in enumerate((0.0, 0.0, -2.0, -2.0)):
        table = tmp_path / "day.parquet"
        write_day(table, cr.load(map_file), day, level)
        options = ["--add", table, "--date", date_of(day), "--fail-on-alarm", "--json"]
        code, text, _ = call("monitor", tmp_path / "days", "--map", map_file, *options)
        assert json.loads(text)["alarm"] == (code == 7)
        codes.append(code)
    assert (codes[0], codes[-1]) == (0, 7)
    assert call("monitor", tmp_path / "days", "--map", map_file)[0] == 0


def test_a_date_in_the_future_is_refused(call: Call, tmp_path: Path, map_file: Path) -> None:
    write_day(tmp_path / "day.parquet", cr.load(map_file), 0)
    add = ["--add", tmp_path / "day.parquet", "--date", "2962-01-02"]
    code, _, error = call("monitor", tmp_path / "days", "--map", map_file, *add)
    assert code == 2
    assert "--date must not be later than tomorrow (UTC)" in error
    assert not (tmp_path / "days").exists()


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_command_that_fails_adds_no_day(
    call: Call, tmp_path: Path, map_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = write_day(tmp_path / "day.parquet", cr.load(map_file), 0)
    pq.write_table(content.drop(["label"]), tmp_path / "unlabelled.parquet")
    command = ["monitor", tmp_path / "days", "--map", map_file, "--date", "2026-01-31"]
    refit = ["--refit", tmp_path / "new.json"]
    code, _, error = call(*command, "--add", tmp_path / "unlabelled.parquet", *refit)
    assert code == 3
    assert "must hold labels, got none" in error
    assert not (tmp_path / "days").exists()
    monkeypatch.setattr("calibrank.cli.monitor.write_all_atomic", full_disk)
    page = ["-o", tmp_path / "page.html"]
    code, _, error = call(*command, "--add", tmp_path / "day.parquet", *page)
    assert code == 3
    assert not (tmp_path / "days").exists()


def test_the_columns_of_a_map_are_read_from_the_table(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=4_000)
    columns = {
        "age": rng.normal(size=4_000),
        "country": np.where(rng.random(4_000) < 0.5, "DE", "NL"),
    }
    truth = scores + columns["age"] - 2 * (columns["country"] == "NL")
    labels = (rng.random(4_000) < 1 / (1 + np.exp(-truth))).astype(int)
    fitted = (cr.Platt() + cr.Smooth("age") + cr.Level("country")).fit(scores, labels, columns)
    fitted.save(tmp_path / "map.json")
    pq.write_table(
        pa.table({"score": scores, "label": labels, **columns}), tmp_path / "day.parquet"
    )
    options = ["--map", tmp_path / "map.json", "--add", tmp_path / "day.parquet", "--json"]
    code, text, error = call("monitor", tmp_path / "days", *options, "--date", "2026-01-31")
    assert code == 0, error
    status = json.loads(text)
    assert not status["alarm"]
    assert status["days"][0]["predicted"] == pytest.approx(labels.mean(), abs=0.01)
    # The same as from arrays: rows are clustered by their number.
    expected = Day.of(fitted, scores, labels, date="2026-01-31", columns=columns)
    found = Store(tmp_path / "days").days()[0]
    assert found.sums.sum(axis=0) == pytest.approx(expected.sums.sum(axis=0))
    code, _, error = call(
        "monitor",
        tmp_path / "days",
        "--map",
        tmp_path / "map.json",
        "--refit",
        tmp_path / "new.json",
    )
    assert code == 3
    assert "Smooth must not go with refit: the store of days keeps sums" in error


def test_a_map_by_segment_is_refitted_from_the_store(tmp_path: Path, call: Call) -> None:
    rng = np.random.default_rng(3)
    levels = {"DE": 0.0, "NL": -2.0}
    tables = []
    for day in range(3):
        # Between the first table and the others, the countries trade places.
        sign = 1 if day == 0 else -1
        country = rng.choice(["DE", "NL"], 4_000)
        scores = rng.normal(size=4_000)
        level = -1 + sign * np.array([levels[each] + 1 for each in country])
        labels = (rng.random(4_000) < 1 / (1 + np.exp(-scores - level))).astype(int)
        tables.append(pa.table({"score": scores, "label": labels, "country": country}))
        pq.write_table(tables[-1], tmp_path / f"day{day}.parquet")
    old, new = tmp_path / "map.json", tmp_path / "new.json"
    options = ["--segment", "country", "--log", "impressions", "--method", "platt", "-o", old]
    code, _, error = call("fit", tmp_path / "day0.parquet", *options)
    assert code == 0, error
    for day in (1, 2):
        add = ["--add", tmp_path / f"day{day}.parquet", "--date", f"2026-01-0{day}"]
        code, _, error = call("monitor", tmp_path / "days", "--map", old, *add)
        assert code == 0, error
    code, _, error = call("monitor", tmp_path / "days", "--map", old, "--refit", new)
    assert code == 0, error
    refitted = cr.load(new)
    assert refitted.record.previous_map == cr.load(old).digest
    found = refitted.predict([0.0, 0.0], {"country": ["DE", "NL"]})
    assert found == pytest.approx([1 / (1 + np.exp(2)), 0.5], abs=0.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--add", "day.parquet"], "--add must go with --date"),
        ([], "must be a folder of days, got no such folder"),
    ],
)
def test_wrong_usage_is_one_line(
    call: Call, tmp_path: Path, map_file: Path, options: list[str], message: str
) -> None:
    code, _, error = call("monitor", tmp_path / "days", "--map", map_file, *options)
    assert code in (2, 3)
    assert message in error


def test_absurd_windows_are_refused(call: Call, tmp_path: Path, map_file: Path) -> None:
    code, _, error = call("monitor", tmp_path / "days", "--map", map_file, "--window", "9" * 20)
    assert code == 2
    assert "--window must be in the range" in error
    with pytest.raises(cr.DataError, match="window must be a whole number, 1 to 100,000"):
        check(cr.load(map_file), Store(tmp_path), window=10**20)


def test_a_day_is_not_overwritten_by_a_page(call: Call, tmp_path: Path, map_file: Path) -> None:
    write_day(tmp_path / "day.parquet", cr.load(map_file), 0)
    add = ("--add", tmp_path / "day.parquet", "--date", "2026-01-05")
    assert call("monitor", tmp_path / "days", "--map", map_file, *add)[0] == 0
    (day,) = (tmp_path / "days").iterdir()
    before = day.read_bytes()
    for option in ("--out", "--refit"):
        code, _, error = call("monitor", tmp_path / "days", "--map", map_file, option, day)
        assert code == 3
        assert "it would be overwritten" in error
    assert day.read_bytes() == before
