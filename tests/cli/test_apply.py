"""`calibrank apply`: a new column, written atomically, and only where it is missing."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.data.score_world import World
from tests.cli.conftest import Call
from tests.cli.running import one_line


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_apply_adds_the_maps_probabilities(
    call: Call, folder: Path, tmp_path: Path, world: World, name: str
) -> None:
    map_file = tmp_path / "map.json"
    out = tmp_path / f"out-{name}"
    call("fit", folder / "log.parquet", "--propensity", "w", "-o", map_file)
    code, text, _ = call("apply", map_file, folder / name, "-o", out)
    assert code == 0
    assert "40,000 rows with the new column 'probability'" in one_line(text)
    table = pq.read_table(out) if name.endswith("parquet") else pc.read_csv(out)
    assert table.column_names == ["user_id", "item_id", "score", "label", "w", "probability"]
    expected = cr.load(map_file).predict(world.scores)
    np.testing.assert_allclose(table["probability"].to_numpy(), expected, rtol=1e-12)


def test_a_rerun_on_a_folder_writes_only_missing_files(
    call: Call, folder: Path, tmp_path: Path, world: World
) -> None:
    map_file = tmp_path / "map.json"
    out = tmp_path / "out"
    fit = ["fit", folder / "days", "--item", "item_id", "-o", map_file]
    apply = ["apply", map_file, folder / "days", "-o", out, "--to", "p", "--json"]
    call(*fit)
    assert json.loads(call(*apply)[1])["rows"] == 40_000
    written = sorted(out.rglob("*.parquet"))
    names = [file.relative_to(out).as_posix() for file in written]
    assert names == [f"day={day}/rows.parquet" for day in range(3)]
    columns = [pq.read_table(file, partitioning=None).select(["p"]) for file in written]
    probabilities = pa.concat_tables(columns)["p"].to_numpy()
    expected = cr.load(map_file).predict(world.scores)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-12)
    written[1].unlink()
    again = json.loads(call(*apply)[1])
    assert (again["rows"], again["already_done"]) == (14_000, 2)
    assert "Already up to date" in call(*apply[:-1])[1]
    call(*fit, "--method", "platt")
    assert json.loads(call(*apply)[1])["already_done"] == 0


@pytest.mark.filterwarnings("always::calibrank.errors.ScoreShiftWarning")
def test_scores_unlike_those_of_the_fit_give_a_warning(call: Call, tmp_path: Path) -> None:
    rows = np.arange(3_000)
    columns = {"score": rows / 1_000, "shifted": rows / 1_000 + 2, "label": rows * rows % 7 % 2}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table, map_file = tmp_path / "t.parquet", tmp_path / "map.json"
    fitted = cr.Platt().fit(columns["score"], columns["label"])
    record = replace(fitted.record, model_name="two towers", date="2026-01-31")
    replace(fitted, record=record).save(map_file)
    assert "two towers" in call("inspect", map_file)[1]
    apply = ("apply", map_file, table, "-o")
    evaluate = ("evaluate", table, "--map", map_file)
    assert "look like" not in call(*apply, tmp_path / "a.parquet")[2] + call(*evaluate)[2]
    expected = "do not look like those of the map's fit (two towers, 2026-01-31)"
    for command in ((*apply, tmp_path / "b.parquet"), evaluate):
        code, _, error = call(*command, "--score", "shifted")
        assert code == 0
        assert expected in error


def test_another_score_column_or_rule_is_written_again(call: Call, tmp_path: Path) -> None:
    columns = {
        "score": [0.1, 0.9, 0.4, 0.6],
        "other": [3.0, 1.0, 2.0, float("nan")],
        "label": [0, 1, 1, 0],
    }
    table = tmp_path / "t.parquet"
    map_file = tmp_path / "map.json"
    pq.write_table(pa.table(columns), table)
    call("fit", table, "--log", "impressions", "-o", map_file)
    arguments = ["apply", map_file, table, "-o", tmp_path / "o.parquet", "--json"]
    assert json.loads(call(*arguments)[1])["rows"] == 4
    assert json.loads(call(*arguments)[1])["already_done"] == 1
    other = json.loads(call(*arguments, "--score", "other", "--on-bad-rows", "skip")[1])
    assert (other["already_done"], other["rows"], other["skipped"]) == (0, 3, {"score": 1})


def test_outputs_have_the_file_mode_of_the_umask(call: Call, folder: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        call("fit", folder / "log.parquet", "--log", "impressions", "-o", tmp_path / "map.json")
        call("apply", tmp_path / "map.json", folder / "log.parquet", "-o", tmp_path / "o.parquet")
    finally:
        os.umask(before)
    for name in ("map.json", "o.parquet"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o644


def test_a_csv_column_may_start_with_empty_cells(call: Call, tmp_path: Path) -> None:
    rows = [f"{n % 97},{n % 3 % 2}," for n in range(120_000)]
    table = tmp_path / "[t] late.csv"  # brackets in a name are not a glob
    table.write_text("\n".join(["score,label,note", *rows, "5,1,x"]) + "\n")
    map_file = tmp_path / "m.json"
    out = tmp_path / "o.csv"
    assert (
        call("fit", table, "--log", "impressions", "--method", "isotonic", "-o", map_file)[0] == 0
    )
    assert call("apply", map_file, table, "-o", out)[0] == 0
    assert len(out.read_text().splitlines()) == 120_002


def test_apply_refuses_to_overwrite_its_input(call: Call, folder: Path, tmp_path: Path) -> None:
    map_file = tmp_path / "map.json"
    table = folder / "log.parquet"
    call("fit", table, "--log", "impressions", "-o", map_file)
    code, _, error = call("apply", map_file, table, "-o", table)
    assert code == 3
    assert "must not be the input" in one_line(error)


def test_an_interrupted_run_leaves_no_partial_file(
    call: Call, folder: Path, tmp_path: Path
) -> None:
    map_file = tmp_path / "map.json"
    call("fit", folder / "log.parquet", "--log", "impressions", "-o", map_file)
    big = tmp_path / "big.parquet"
    table = pq.read_table(folder / "log.parquet", columns=["score"])
    pq.write_table(pa.concat_tables([table] * 100), big)
    out = tmp_path / "out.parquet"
    command = [sys.executable, "-m", "calibrank", "apply", map_file, big, "-o", out]
    killed = 0
    for delay in (0.0, 0.1, 0.3):
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        _wait_for_partial_file(process, tmp_path)
        time.sleep(delay)
        process.kill()
        if process.wait() != 0:
            killed += 1
            assert not out.exists() or pq.read_metadata(out).num_rows == 4_000_000
    assert killed
    code, _, error = call("apply", map_file, big, "-o", out)
    assert code == 0, error
    assert pq.read_metadata(out).num_rows == 4_000_000
    assert not list(tmp_path.glob(".out.parquet.*"))


def _wait_for_partial_file(process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if list(folder.glob(".out.parquet.*")):
            return
        time.sleep(0.005)
