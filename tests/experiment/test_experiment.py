"""Reproductions: specs that are checked, cells that land whole, numbers that can be traced."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrank.data.toy_dataset import simulate
from calibrank.errors import DataError
from calibrank.experiment.cell import Cell, run_cell
from calibrank.experiment.spec import choose, find_folder, load_specs, read_spec
from calibrank.experiment.statistics import Results, Spread, paired_p
from calibrank.experiment.tables import Published
from calibrank.models import Training

REPRODUCE = Path(__file__).parents[2] / "reproduce" / "aaai22"
SMALL = """
title = "small"
why = "a test"
splits = ["released", "random"]
models = ["BPR", "LightGCN"]
methods = ["Sigmoid", "Isotonic", "Platt", "Gaussian", "Gamma"]
losses = ["naive", "ips"]
why_negatives = "a test"
sweep = [5]
estimators = ["uniform", "naive_bayes", "own"]
[negatives]
default = 10
"""


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce") / "small"
    folder.mkdir()
    (folder / "protocol.toml").write_text(SMALL)
    (folder / "published.csv").write_text((REPRODUCE / "published.csv").read_text())
    return folder


def run(*arguments, check=True):
    command = [sys.executable, "-W", "error", "-m", "calibrank", "reproduce", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check)


@pytest.fixture(scope="module")
def done(specs, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    said = run(specs, "--seeds", 2, "--epochs", 2, "--out", out, "--jobs", 2, "--json")
    return out / "synthetic", json.loads(said.stdout)


def test_a_small_run_leaves_rows_tables_and_figures(done):
    out, said = done
    assert said["failed"] == {}
    rows = pq.read_table(out / "rows.parquet")
    assert rows.num_rows == said["rows"]
    assert {
        "dataset",
        "model",
        "method",
        "loss",
        "split",
        "negatives",
        "seed",
        "metric",
        "value",
        "provenance",
    } <= set(rows.schema.names)
    assert rows["provenance"][0].as_py().startswith("calibrank ")
    words = (out / "tables.md").read_text()
    for part in (
        "Table 1",
        "Table 3",
        "Table 4",
        "Table 5",
        "improvement",
        "paired test",
        "by split and loss",
    ):
        assert part in words
    figures = {path.name for path in (out / "figures" / "protocol").iterdir()}
    expected = {
        "figure1_paper",
        "figure1_plain",
        "figure2",
        "figure3",
        "figure4",
        "figure5",
        "negatives",
    }
    assert {f"{name}.{ending}" for name in expected for ending in ("png", "svg")} == figures


def test_rows_are_what_a_cell_measures_by_hand(done, specs):
    out, _ = done
    rows = Results(pq.read_table(out / "rows.parquet")).where(seed=1, split="random", model="BPR")
    cell = Cell("synthetic", "random", "BPR", 1, 0)
    again = run_cell(cell, simulate(), load_specs(specs), Training(2))
    key = {
        "method": "Gaussian",
        "loss": "ips",
        "propensity": "popularity",
        "negatives": 10,
        "metric": "LogLoss",
    }
    (value,) = [
        row["value"]
        for row in again.rows
        if all(row[name] == wanted for name, wanted in key.items())
    ]
    # A worker process may add up floats with another number of threads.
    assert rows.values(**key).tolist() == pytest.approx([value], rel=1e-6)


def test_a_rerun_does_only_what_is_missing(done, specs):
    out, _ = done
    files = sorted((out / "cells").glob("*.parquet"))
    before = {file: file.stat().st_mtime_ns for file in files}
    files[0].unlink()
    run(specs, "--seeds", 2, "--epochs", 2, "--out", out.parent)
    changed = [file for file in files if file.stat().st_mtime_ns != before[file]]
    assert changed == [files[0]]


def test_a_changed_spec_is_run_again(done, tmp_path):
    out, _ = done
    other = tmp_path / "other"
    other.mkdir()
    (other / "protocol.toml").write_text(
        SMALL.replace("default = 10", "default = 4").replace('"random"]', '"random"]\nclip = 0.2')
    )
    (other / "published.csv").write_text((REPRODUCE / "published.csv").read_text())
    run(other, "--seeds", 1, "--epochs", 2, "--out", out.parent, "--model", "BPR")
    assert set(pq.read_table(out / "rows.parquet")["negatives"].to_pylist()) == {0, 4, 5}


def test_a_killed_run_loses_nothing_that_landed(specs, tmp_path):
    command = [
        sys.executable,
        "-m",
        "calibrank",
        "reproduce",
        str(specs),
        "--seeds",
        "2",
        "--epochs",
        "2",
        "--jobs",
        "1",
        "--model",
        "BPR",
        "--out",
        str(tmp_path),
    ]
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    cells = tmp_path / "synthetic" / "cells"
    while not list(cells.glob("*.parquet")):
        time.sleep(0.05)
        assert child.poll() is None
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    landed = {file: file.stat().st_mtime_ns for file in cells.glob("*.parquet")}
    for file in landed:
        assert pq.read_table(file).num_rows
    run(specs, "--seeds", 2, "--epochs", 2, "--out", tmp_path, "--model", "BPR")
    assert {file: file.stat().st_mtime_ns for file in landed} == landed
    assert len(list(cells.glob("*.parquet"))) == 4


def test_a_cell_that_fails_is_told_and_the_rest_land(specs, tmp_path, monkeypatch):
    """A dataset whose random test has no positive: every judgement of it fails."""
    from calibrank.experiment import runner

    def broken(cell, *_):
        if cell.model == "BPR":
            raise DataError("no such luck")
        return run_cell(cell, *_)

    monkeypatch.setattr(runner, "run_cell", broken)
    grid = runner.Grid(
        "synthetic", None, choose(load_specs(specs), None, None), 1, Training(1), tmp_path
    )

    class Here:
        """Runs in this process, where the break is."""

        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def submit(self, work, *arguments):
            from concurrent.futures import Future

            future = Future()
            try:
                future.set_result(work(*arguments))
            except DataError as error:
                future.set_exception(error)
            return future

    monkeypatch.setattr(runner, "ProcessPoolExecutor", Here)
    told = []
    failed = runner.run_grid(grid, 1, lambda cell, error: told.append((cell.model, error is None)))
    assert {cell.model for cell in failed} == {"BPR"}
    assert sorted(told) == [("BPR", False), ("BPR", False), ("LightGCN", True), ("LightGCN", True)]
    assert set(failed.values()) == {"DataError: no such luck"}
    assert len(list((tmp_path / "failed").iterdir())) == 2
    assert set(runner.collect(grid)["model"].to_pylist()) == {"LightGCN"}
    monkeypatch.setattr(runner, "run_cell", run_cell)
    assert runner.run_grid(grid, 1, lambda *_: None) == {}
    assert not list((tmp_path / "failed").iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("sweep = [5]", "swep = [5]"), "must hold only .*, got key 'swep'"),
        (('"Platt"', '"Plat"'), "methods must be among .*, got 'Plat'"),
        (('"released"', '"relesed"'), "splits must be among released, random, got 'relesed'"),
        (('"naive", "ips"', '"uerm"'), "losses must be among naive, positive_ips, ips, got 'uerm'"),
        (("default = 10", "coat = 10"), "negatives must have a default"),
        (('title = "small"', ""), "must be a whole spec.*title"),
        (("[negatives]", "[negatives"), "must be TOML"),
    ],
)
def test_a_spec_with_a_slip_is_refused(tmp_path, change, words):
    path = tmp_path / "slip.toml"
    path.write_text(SMALL.replace(*change))
    with pytest.raises(DataError, match=words):
        read_spec(path)


def test_our_specs_are_sound():
    specs = load_specs(REPRODUCE)
    assert [spec.name for spec in specs] == ["honest", "released", "trained"]
    assert find_folder("aaai22").samefile(REPRODUCE)
    released = specs[1]
    assert (released.negatives_for("coat"), released.negatives_for("yahoo_r3")) == (21, 57)
    assert released.epochs_for("coat", "BPR") == 7
    assert released.epochs_for("yahoo_r3", "BPR") == 0
    with pytest.raises(DataError, match="must be a folder of specs"):
        find_folder("icml99")
    with pytest.raises(DataError, match="must be among honest, released, trained, got 'x'"):
        choose(specs, ["x"], None)


def test_wrong_choices_are_said_in_a_line(tmp_path):
    answer = run("aaai22", "--dataset", "netflix", "--out", tmp_path, check=False)
    assert answer.returncode == 3
    assert "must be one of synthetic, coat, yahoo_r3, kuairec, kuairand, got 'netflix'" in " ".join(
        answer.stderr.split()
    )
    answer = run("aaai22", "--dataset", "yahoo_r3", "--out", tmp_path, check=False)
    assert answer.returncode == 3
    assert "Yahoo! licenses R3" in answer.stderr


def test_the_published_numbers_are_all_there():
    published = Published.read(REPRODUCE / "published.csv")
    assert len(published.values) == 450
    assert published.find("ECE", "Gaussian", "ips", "coat", "BPR") == 0.0393
    assert published.find("ECE", "Histogram", "naive", "yahoo_r3", "BPR") is not None
    assert published.find("NDCG@5", "", "", "coat", "CML") == 0.5142


def test_statistics():
    from scipy import stats

    rng = np.random.default_rng(0)
    values = rng.normal(0.05, 0.01, 10)
    spread = Spread.of(values)
    low, high = stats.t.interval(0.95, 9, values.mean(), stats.sem(values))
    assert (spread.mean - spread.half, spread.mean + spread.half) == pytest.approx((low, high))
    more = [np.mean([Spread.of(rng.normal(size=10)).covers(rng.normal()) for _ in range(2_000)])]
    assert more[0] == pytest.approx(
        0.95, abs=0.015
    )  # one more run falls within reach 19 times in 20
    assert np.isnan(Spread.of(values[:1]).half)
    other = values + rng.normal(0.01, 0.005, 10)
    assert paired_p(values, other) == pytest.approx(stats.ttest_rel(values, other).pvalue)
    assert np.isnan(paired_p(values, values))
    table = pa.table({"seed": [1, 0], "value": [2.0, 1.0], "metric": ["a", "a"]})
    assert Results(table).values(metric="a").tolist() == [1.0, 2.0]
    assert Results(table).spread(metric="b") is None


def test_the_simulated_dataset_is_what_it_says():
    dataset = simulate(200, 100, 30, seed=1)
    assert dataset.propensity.shape == (200, 100)
    seen = np.bincount(dataset.train.items, minlength=100)
    assert np.corrcoef(seen, dataset.propensity[0])[0, 1] > 0.5
    shown = np.bincount(dataset.test.items, minlength=100)
    assert abs(np.corrcoef(shown, dataset.propensity[0])[0, 1]) < 0.3
    np.testing.assert_array_equal(
        simulate(20, 10, 5, seed=3).train.items, simulate(20, 10, 5, seed=3).train.items
    )
    with pytest.raises(DataError, match="shown must be 1 to the 10 items"):
        simulate(20, 10, 11)


def test_a_models_settings_may_be_changed_by_a_spec():
    cell = Cell("coat", "released", "CML", 3, 0, (("margin", 0.5),))
    assert cell.recipe().margin == 0.5
    assert cell.key == "coat-released-CML-margin0.5-3"
    assert (
        next(spec for spec in load_specs(REPRODUCE) if spec.name == "released").settings_for(
            "coat", "CML"
        )
        == cell.settings
    )
    with pytest.raises(DataError, match="settings must be those of BPR, got margin"):
        Cell("coat", "released", "BPR", 3, 0, (("margin", 0.5),)).recipe()
