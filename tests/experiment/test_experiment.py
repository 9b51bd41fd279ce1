"""Reproductions: checked specs, cells that are saved atomically, tables, figures and statistics."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy import stats

from calibrank.data import simulate
from calibrank.errors import DataError
from calibrank.experiment import runner
from calibrank.experiment.cell import Cell, run_cell
from calibrank.experiment.published import Published
from calibrank.experiment.results import Spread
from calibrank.experiment.spec import Spec, choose, configured, find_folder, load_specs
from calibrank.metrics import LogLoss
from calibrank.models import Training
from tests.cli.running import one_line, run_here

REPRODUCE = Path(__file__).parents[2] / "reproduce" / "aaai22"
SMALL = """
title = "small"
why = "a test"
splits = ["released", "random"]
models = ["BPR", "LightGCN"]
methods = ["Sigmoid", "Isotonic", "Histogram", "Platt", "Gaussian", "Gamma"]
losses = ["naive", "ips"]
why_negatives = "a test"
sweep = [5]
estimators = ["uniform", "naive_bayes", "known"]
[negatives.default]
ips = 10
[negatives.synthetic]
naive = 4
ips = 10
[method_settings.synthetic.Histogram]
bins = 3
"""


def where(rows, **equal):
    for name, value in equal.items():
        rows = rows.filter(pc.equal(rows[name], value))
    return rows


def values_of(rows, **equal):
    """The values of some rows, ordered by seed."""
    return np.array(where(rows, **equal).sort_by("seed")["value"].to_pylist())


def write_folder(folder, content):
    folder.mkdir()
    (folder / "protocol.toml").write_text(content)
    (folder / "published.csv").write_text((REPRODUCE / "published.csv").read_text())
    return folder


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("reproduce") / "small", SMALL)


def command(*arguments):
    return [sys.executable, "-W", "error", "-m", "calibrank", "reproduce", *map(str, arguments)]


def grid_of(folder, out, seeds=2, models=None):
    """The grid that `calibrank reproduce` runs with two epochs."""
    chosen = choose(load_specs(folder), None, models)
    return runner.Grid("synthetic", None, chosen, seeds, Training(2), out / "synthetic")


@pytest.fixture(scope="module")
def finished(specs, tmp_path_factory):
    """The output folder of a small run, and what it printed."""
    out = tmp_path_factory.mktemp("out")
    options = ("--seeds", 2, "--epochs", 2, "--out", out, "--jobs", 2, "--json")
    code, printed, error = run_here("reproduce", specs, *options)
    assert code == 0, error
    return out / "synthetic", json.loads(printed)


class InThisProcess:
    """A process pool that runs everything here, where `run_cell` is patched."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def submit(self, function, *arguments):
        future = Future()
        try:
            future.set_result(function(*arguments))
        except DataError as error:
            future.set_exception(error)
        return future


@pytest.fixture
def in_this_process(monkeypatch):
    """Run cells in this process, which has loaded torch."""
    monkeypatch.setattr(runner, "ProcessPoolExecutor", InThisProcess)


# ---- runs ----


def test_a_small_run_writes_rows_tables_and_figures(finished):
    out, printed = finished
    assert printed["failed"] == {}
    rows = pq.read_table(out / "rows.parquet")
    assert rows.num_rows == printed["rows"]
    assert rows.schema.names == runner.SCHEMA.names
    assert rows["provenance"][0].as_py().startswith("calibrank ")
    assert (out.parent / "summary.md").read_text().startswith("# All datasets")
    tables = (out / "tables.md").read_text()
    for title in ("Table 1", "Table 3", "Table 4", "Table 5", "by split and loss"):
        assert title in tables
    expected = {f"{name}.png" for name in ("figure1", "figure3", "figure5", "negatives")}
    assert {path.name for path in (out / "figures" / "protocol").iterdir()} == expected


def test_rows_equal_those_of_a_cell_run_by_hand(finished, specs):
    out, _ = finished
    saved = pq.read_table(out / "rows.parquet")
    cell = Cell("synthetic", "random", "BPR", 1)
    again = run_cell(cell, simulate(), load_specs(specs), Training(2))
    key = {
        "method": "Gaussian",
        "loss": "ips",
        "propensity": "popularity",
        "negatives": 10,
        "metric": "LogLoss",
    }
    (value,) = values_of(pa.Table.from_pylist(again.rows), **key)
    found = values_of(saved, seed=1, split="random", model="BPR", **key)
    # A worker process may add floats up in another order.
    assert found.tolist() == pytest.approx([value], rel=1e-6)


def test_every_propensity_estimator_has_rows(finished):
    out, _ = finished
    rows = pq.read_table(out / "rows.parquet")
    for name in ("popularity", "uniform", "naive_bayes", "known"):
        assert len(values_of(rows, propensity=name, method="Gaussian", metric="ECE"))


def test_each_loss_has_its_own_number_of_negatives(finished):
    out, _ = finished
    rows = pq.read_table(out / "rows.parquet")
    for loss, count in {"naive": 4, "ips": 10, "none": 10}.items():
        found = where(rows, split="random", metric="ECE", loss=loss)
        assert set(found["negatives"].to_pylist()) == {count}
    swept = where(rows, split="released", metric="ECE", loss="naive", method="Gaussian")
    assert set(swept["negatives"].to_pylist()) == {4, 5}


def test_the_uniform_estimator_is_the_naive_loss(finished):
    out, _ = finished
    rows = pq.read_table(out / "rows.parquet")
    key = {"split": "released", "method": "Gaussian", "metric": "ECE", "negatives": 5}
    uniform = values_of(rows, **key, loss="ips", propensity="uniform")
    naive = values_of(rows, **key, loss="naive", propensity="popularity")
    assert uniform.tolist() == naive.tolist()


def test_every_cell_has_one_value_per_seed(finished):
    out, _ = finished
    rows = pq.read_table(out / "rows.parquet")
    columns = [name for name in rows.column_names if name not in ("value", "note", "provenance")]
    assert rows.group_by(columns).aggregate([]).num_rows == rows.num_rows


def test_saved_predictions_give_the_metrics_of_the_rows(finished):
    out, _ = finished
    saved = pq.read_table(out / "predictions" / "synthetic-released-BPR-0.parquet")
    rows = pq.read_table(out / "rows.parquet")
    key = {"split": "released", "model": "BPR", "method": "Platt", "metric": "LogLoss", "seed": 0}
    for loss, count in {"naive": 4, "ips": 10}.items():
        found = values_of(rows, **key, loss=loss, negatives=count, propensity="popularity")
        labels = saved["label"].to_numpy()
        again = LogLoss()(saved[f"Platt {loss}"].to_numpy(), labels)
        assert found.tolist() == pytest.approx([again])


@pytest.mark.usefixtures("in_this_process")
def test_a_rerun_computes_only_what_is_missing(finished, specs):
    out, _ = finished
    files = sorted((out / "cells").glob("*.parquet"))
    before = {file: file.stat().st_mtime_ns for file in files}
    files[0].unlink()
    assert runner.run_grid(grid_of(specs, out.parent), 1, lambda *_: None) == {}
    changed = [file for file in files if file.stat().st_mtime_ns != before[file]]
    assert changed == [files[0]]


@pytest.mark.usefixtures("in_this_process")
def test_a_changed_spec_is_run_again(finished, tmp_path):
    out, _ = finished
    content = SMALL.replace("naive = 4\nips = 10", "naive = 6\nips = 6")
    content = content.replace('"random"]', '"random"]\nclip = 0.2')
    changed = write_folder(tmp_path / "changed", content)
    grid = grid_of(changed, out.parent, seeds=1, models=["BPR"])
    assert runner.run_grid(grid, 1, lambda *_: None) == {}
    assert set(runner.collect(grid)["negatives"].to_pylist()) == {0, 5, 6}


def kill_with_children(child):
    """End a process of its own session, and its workers, without a chance to clean up."""
    if sys.platform == "win32":
        tree = ["taskkill", "/F", "/T", "/PID", str(child.pid)]
        subprocess.run(tree, check=True, capture_output=True)
    else:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@pytest.mark.usefixtures("in_this_process")
def test_a_killed_run_keeps_its_finished_cells(specs, tmp_path):
    arguments = (specs, "--seeds", 2, "--epochs", 2, "--model", "BPR", "--out", tmp_path)
    child = subprocess.Popen(
        command(*arguments, "--jobs", 1),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    cells = tmp_path / "synthetic" / "cells"
    while not list(cells.glob("*.parquet")):
        time.sleep(0.05)
        assert child.poll() is None
    # The workers are killed too.
    kill_with_children(child)
    finished = {file: file.stat().st_mtime_ns for file in cells.glob("*.parquet")}
    for file in finished:
        assert pq.read_table(file).num_rows
    assert runner.run_grid(grid_of(specs, tmp_path, models=["BPR"]), 1, lambda *_: None) == {}
    assert {file: file.stat().st_mtime_ns for file in finished} == finished
    assert len(list(cells.glob("*.parquet"))) == 4


@pytest.mark.usefixtures("in_this_process")
def test_a_failed_cell_is_reported_and_the_others_are_saved(specs, tmp_path, monkeypatch):
    def fails_for_bpr(cell, *arguments):
        if cell.model == "BPR":
            raise DataError("no such luck")
        return run_cell(cell, *arguments)

    monkeypatch.setattr(runner, "run_cell", fails_for_bpr)
    chosen = choose(load_specs(specs), None, None)
    grid = runner.Grid("synthetic", None, chosen, 1, Training(1), tmp_path)
    reported = []
    failed = runner.run_grid(grid, 1, lambda cell, error: reported.append((cell.model, error)))
    assert {cell.model for cell in failed} == {"BPR"}
    assert set(failed.values()) == {"DataError: no such luck."}
    assert sorted(model for model, error in reported if error) == ["BPR", "BPR"]
    assert sorted(model for model, error in reported if not error) == ["LightGCN", "LightGCN"]
    assert len(list((tmp_path / "failed").iterdir())) == 2
    assert set(runner.collect(grid)["model"].to_pylist()) == {"LightGCN"}
    monkeypatch.setattr(runner, "run_cell", run_cell)
    assert runner.run_grid(grid, 1, lambda *_: None) == {}
    assert not list((tmp_path / "failed").iterdir())


def test_a_dataset_without_a_test_set_is_refused(specs):
    dataset = simulate()
    without_test = type(dataset)("log", dataset.train, None, dataset.users, dataset.items)
    with pytest.raises(DataError, match="log must have a test set of random exposures, got none"):
        run_cell(Cell("log", "random", "BPR", 0), without_test, load_specs(specs), Training(1))


def test_an_unknown_or_missing_dataset_is_an_error_of_one_line(tmp_path):
    code, _, error = run_here("reproduce", "--dataset", "netflix", "--out", tmp_path)
    assert code == 2
    message = "must be one of synthetic, coat, yahoo_r3, kuairec, kuairand, got 'netflix'"
    assert message in one_line(error)
    code, _, error = run_here("reproduce", "--dataset", "yahoo_r3", "--out", tmp_path)
    assert code == 3
    assert "Yahoo! licenses R3" in one_line(error)
    assert error.count("\n") == 1


# ---- specs ----


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sweep = [5]", "swep = [5]", "must hold only .*, got field 'swep'"),
        ('"Platt"', '"Plat"', "methods must be among .*, got 'Plat'"),
        ('"BPR"', '"BRP"', "models must be among BPR, NCF, CML, UBPR, LightGCN, got 'BRP'"),
        ('"released"', '"relesed"', "splits must be among random, released, .*, got 'relesed'"),
        ('"naive", "ips"', '"uerm"', "losses must be among naive, ips, .*, got 'uerm'"),
        ('"known"', '"own"', "estimators must be among .*known, got 'own'"),
        ("negatives.default", "negatives.coat", "negatives must have a default"),
        ("negatives.default", "negatives.goat", "negatives must be among .*, got 'goat'"),
        ('title = "small"', "", "must hold 'title'"),
        ("[negatives.default]", "[negatives", "must be TOML"),
        ("bins = 3", "bins = 3\n[settings.coat.CML]", "settings must be among .*'CML'"),
        ("bins = 3", "bins = 3\n[settings.goat]", "settings must be among .*'goat'"),
        (
            "bins = 3",
            "bins = 3\n[settings.coat.BPR]\nepochs = 0.5",
            "settings, coat, BPR, epochs must be a whole number.* got 0.5",
        ),
        (
            "bins = 3",
            "bins = 3\n[settings.coat.BPR]\ndim = 0",
            "settings, coat, BPR: dim must be a whole number, 1 or more, got 0",
        ),
        (
            "bins = 3",
            "bins = 3\n[settings.coat.BPR]\nmargin = 1",
            "settings, coat, BPR must hold only dim, got field 'margin'",
        ),
        ("naive = 4", "nave = 4", "negatives of synthetic must be among naive, ips, got 'nave'"),
        ("naive = 4\nips = 10\n", "", "negatives of synthetic must name a loss, got none"),
        ("naive = 4", "naive = 0.5", "negatives, synthetic, naive must be a whole number.* 0.5"),
        ("naive = 4", "naive = -1", "negatives, synthetic, naive must be a whole number.* -1"),
        ("naive = 4", "naive = 2000000", "negatives of synthetic, naive must be .*1,000,000"),
        ("bins = 3", "bans = 3", "Histogram must hold only bins, got field 'bans'"),
        ("bins = 3", 'bins = "3"', "Histogram, bins must be a whole number"),
        ("bins = 3", "bins = 0", "synthetic, Histogram: bins must be a whole number, 1"),
        ("Histogram]\nbins", "BBQ]\nbins", "method_settings must be among .*, got 'BBQ'"),
    ],
)
def test_a_spec_with_a_mistake_is_refused(tmp_path, old, new, message):
    path = tmp_path / "mistake.toml"
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(DataError, match=message):
        Spec.load(path)


def test_the_specs_of_the_repository_are_valid():
    specs = load_specs(REPRODUCE)
    assert [spec.name for spec in specs] == ["honest", "released"]
    assert find_folder("aaai22").samefile(REPRODUCE)
    honest, released = specs
    assert honest.negatives_for("coat", "ips") == 0
    assert released.negatives_for("yahoo_r3", "ips") == 57
    # A table may ask for a loss that a spec does not have.
    variant = Spec.load(REPRODUCE / "variants" / "epochs.toml")
    assert variant.negatives_for("coat", "naive") == 21
    assert released.calibrator_for("coat", "Histogram").bins == 15
    assert released.calibrator_for("yahoo_r3", "Histogram").bins == 50
    # Nothing of the headline is chosen by its result: no training lengths, no margins.
    for spec in specs:
        assert spec.settings == {}
    assert variant.settings_for("coat", "BPR") == (("epochs", 7),)
    assert variant.settings_for("yahoo_r3", "BPR") == ()
    with pytest.raises(DataError, match="must be a folder of specs"):
        find_folder("icml99")


def test_specs_and_models_can_be_chosen_by_name():
    specs = load_specs(REPRODUCE)
    (chosen,) = choose(specs, ["honest"], ["CML", "BPR"])
    assert (chosen.name, chosen.models) == ("honest", ("BPR", "CML"))
    assert choose(specs, None, None) == tuple(specs)
    with pytest.raises(DataError, match="must be among honest, released, got 'x'"):
        choose(specs, ["x"], None)
    with pytest.raises(DataError, match="must be among BPR, NCF, CML, UBPR, LightGCN, got 'x'"):
        choose(specs, None, ["x"])


def test_a_spec_can_change_the_settings_of_a_model():
    variant = Spec.load(REPRODUCE / "variants" / "margin_0.5.toml")
    settings = variant.settings_for("coat", "CML")
    model, training = configured("CML", dict(settings), Training(9))
    assert (model.margin, training) == (0.5, Training(9))
    slower = configured("BPR", {"epochs": 2, "learning_rate": 0.1}, Training(9))[1]
    assert slower == Training(2, learning_rate=0.1)
    cell = Cell("coat", "released", "CML", 3, settings)
    assert re.fullmatch(r"coat-released-CML-[0-9a-f]{8}-3", cell.key)
    assert Cell("coat", "released", "CML", 3, (("margin", 1.5),)).key != cell.key


def test_no_value_of_a_spec_becomes_part_of_a_path():
    cell = Cell("coat", "released", "BPR", 0, (("dim", "/../../x"), ("/..", 1)))
    assert Path(cell.key).name == cell.key


# ---- numbers ----


def test_the_published_numbers_are_complete():
    published = Published.beside(REPRODUCE)
    assert len(published.values) == 450
    assert published.find("ECE", "Gaussian", "ips", "coat", "BPR") == 0.0393
    assert published.find("ECE", "Histogram", "naive", "yahoo_r3", "BPR") is not None
    assert published.find("NDCG@5", "", "", "coat", "CML") == 0.5142


def test_intervals_over_seeds_are_those_of_student():
    rng = np.random.default_rng(0)
    values = rng.normal(0.05, 0.01, 10)
    spread = Spread.of(values)
    interval = stats.t.interval(0.95, 9, values.mean(), stats.sem(values))
    assert (spread.mean - spread.half, spread.mean + spread.half) == pytest.approx(interval)
    assert np.isnan(Spread.of(values[:1]).half)
    spreads = [Spread.of(rng.normal(size=10)) for _ in range(2_000)]
    covered = [abs(rng.normal() - each.mean) <= each.prediction_half for each in spreads]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)
