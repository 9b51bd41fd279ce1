"""Tables with invalid rows or files: the first one is named, or all are skipped and counted."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.data.score_world import World
from tests.cli.conftest import Call
from tests.cli.running import one_line


@pytest.fixture
def invalid(tmp_path: Path) -> Path:
    """Eight rows, of which two have an invalid score and two an invalid label."""
    path = tmp_path / "invalid.parquet"
    scores = [0.1, float("nan"), 0.5, 0.9, 0.3, float("inf"), 0.2, 0.8]
    labels = pa.array([0, 1, 0, 1, None, 0, None, 0], pa.int8())
    pq.write_table(pa.table({"score": scores, "label": labels}), path)
    return path


def test_the_first_invalid_row_is_named_and_nothing_is_written(
    call: Call, tmp_path: Path, invalid: Path
) -> None:
    code, _, error = call("fit", invalid, "--log", "impressions", "-o", tmp_path / "map.json")
    assert code == 3
    assert f"{invalid}, row 1: score must be finite and within +-1e30, got nan" in one_line(error)
    assert "--on-bad-rows skip" in error
    assert not (tmp_path / "map.json").exists()


def test_skipped_rows_are_counted(call: Call, tmp_path: Path, invalid: Path) -> None:
    options = ["--log", "impressions", "--method", "isotonic", "--on-bad-rows", "skip"]
    code, _, error = call("fit", invalid, *options, "-o", tmp_path / "map.json")
    assert code == 0
    assert "skipped 2 rows with an invalid score" in error
    assert "skipped 2 rows with an invalid label" in error
    assert cr.load(tmp_path / "map.json").record.rows == 4


def test_ratings_are_never_skipped_as_labels(call: Call, tmp_path: Path) -> None:
    table = pa.table({"score": [0.1, 0.2, 0.3, 0.4], "label": [1, 5, 3, 1]})
    pq.write_table(table, tmp_path / "ratings.parquet")
    options = ["--log", "impressions", "--on-bad-rows", "skip", "-o", tmp_path / "map.json"]
    code, _, error = call("fit", tmp_path / "ratings.parquet", *options)
    assert code == 3
    assert "label must be 0 or 1, or missing to be skipped, got 5" in error


def test_the_first_invalid_row_is_the_first_in_the_table(
    call: Call, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIBRANK_THREADS", "3")
    path = tmp_path / "groups.parquet"
    scores = world.scores.copy()
    scores[[31_005, 12_003]] = np.nan
    columns = {"score": scores, "label": world.labels, "item": world.items}
    pq.write_table(pa.table(columns), path, row_group_size=1_000)
    code, _, error = call("fit", path, "--item", "item", "-o", tmp_path / "x.json")
    assert code == 3
    assert "row 12003: score must be finite" in error


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_an_invalid_row_is_reported_before_a_later_unreadable_file(
    call: Call, tmp_path: Path, command: str
) -> None:
    column = "score" if command == "fit" else "probability"
    pq.write_table(pa.table({column: [np.nan, 0.2], "label": [0, 1]}), tmp_path / "0.parquet")
    (tmp_path / "1.parquet").write_bytes(b"not a table")
    options = ["--log", "impressions", "-o", tmp_path / "map.json"] if command == "fit" else []
    code, _, error = call(command, tmp_path, *options)
    assert code == 3
    rule = "be finite" if command == "fit" else "lie in [0, 1]"
    assert f"0.parquet, row 0: {column} must {rule}" in one_line(error)


def test_a_file_without_a_column_is_named(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"score": [0.1, 0.2], "label": [0, 1]}), folder / "a.parquet")
    pq.write_table(pa.table({"score": [0.1]}), folder / "b.parquet")
    code, _, error = call("fit", folder, "--log", "impressions", "-o", tmp_path / "m.json")
    assert code == 3
    assert "b.parquet must have the column 'label'" in one_line(error)
