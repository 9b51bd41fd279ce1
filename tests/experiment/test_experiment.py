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
import pyarrow.parquet as pq
import pytest
from scipy import stats

from calibrank.data import simulate
from calibrank.errors import DataError
from calibrank.experiment import runner
from calibrank.experiment.cell import Cell, run_cell
from calibrank.experiment.published import Published
from calibrank.experiment.scored import Scored
from calibrank.experiment.spec import Spec, choose, find_folder, load_specs
from calibrank.experiment.statistics import Results, Spread, paired_p
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
[negatives]
default = 10
[negatives.synthetic]
naive = 4
ips = 10
[method_settings.synthetic.Histogram]
bins = 3
"""


def values_of(results, **equal):
    """The values of some rows, ordered by seed."""
    return np.array(results.where(**equal).table.sort_by("seed")["value"].to_pylist())


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
    for row in ("improvement", "paired test"):
        assert row in tables
    names = ("figure1_paper", "figure1_plain", "figure2", "figure3", "figure4", "figure5")
    expected = {f"{name}.png" for name in (*names, "negatives")}
    expected |= {f"{name}.svg" for name in (*names, "negatives")}
    assert {path.name for path in (out / "figures" / "protocol").iterdir()} == expected


def test_rows_equal_those_of_a_cell_run_by_hand(finished, specs):
    out, _ = finished
    saved = Results(pq.read_table(out / "rows.parquet"))
    cell = Cell("synthetic", "random", "BPR", 1, 0)
    again = run_cell(cell, simulate(), load_specs(specs), Training(2))
    key = {
        "method": "Gaussian",
        "loss": "ips",
        "propensity": "popularity",
        "negatives": 10,
        "metric": "LogLoss",
    }
    (value,) = values_of(Results(pa.Table.from_pylist(again.rows)), **key)
    found = values_of(saved, seed=1, split="random", model="BPR", **key)
    # A worker process may add floats up in another order.
    assert found.tolist() == pytest.approx([value], rel=1e-6)


def test_every_propensity_estimator_has_rows(finished):
    out, _ = finished
    rows = Results(pq.read_table(out / "rows.parquet"))
    for name in ("popularity", "uniform", "naive_bayes", "known"):
        assert len(values_of(rows, propensity=name, method="Gaussian", metric="ECE"))


def test_each_loss_has_its_own_number_of_negatives(finished):
    out, _ = finished
    rows = Results(pq.read_table(out / "rows.parquet")).where(split="random", metric="ECE")
    for loss, count in {"naive": 4, "ips": 10, "none": 10}.items():
        assert rows.where(loss=loss).distinct("negatives") == [count]
    released = Results(pq.read_table(out / "rows.parquet")).where(split="released", metric="ECE")
    assert set(released.where(loss="naive", method="Gaussian").distinct("negatives")) == {4, 5}


def test_the_uniform_estimator_is_the_naive_loss(finished):
    out, _ = finished
    rows = Results(pq.read_table(out / "rows.parquet"))
    key = {"split": "released", "method": "Gaussian", "metric": "ECE", "negatives": 5}
    uniform = values_of(rows, **key, loss="ips", propensity="uniform")
    naive = values_of(rows, **key, loss="naive", propensity="popularity")
    assert uniform.tolist() == naive.tolist()


def test_every_cell_has_one_value_per_seed(finished):
    out, _ = finished
    rows = pq.read_table(out / "rows.parquet")
    columns = [name for name in rows.column_names if name not in ("value", "note", "provenance")]
    assert rows.group_by(columns).aggregate([]).num_rows == rows.num_rows


def test_saved_scores_load_unchanged(finished, tmp_path):
    out, _ = finished
    scored = Scored.load(out / "cells" / "synthetic-released-BPR-0.npz")
    scored.save(tmp_path / "copy.npz")
    again = Scored.load(tmp_path / "copy.npz")
    np.testing.assert_array_equal(scored.test_scores, again.test_scores)
    assert list(scored.calibration) == list(again.calibration) == ["naive", "ips"]
    for loss, pairs in scored.calibration.items():
        np.testing.assert_array_equal(pairs.pairs.items, again.calibration[loss].pairs.items)
        np.testing.assert_array_equal(pairs.propensity, again.calibration[loss].propensity)
    assert scored.test.n_items == again.test.n_items == 200


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
        run_cell(Cell("log", "random", "BPR", 0, 0), without_test, load_specs(specs), Training(1))


def test_an_unknown_or_missing_dataset_is_an_error_of_one_line(tmp_path):
    code, _, error = run_here("reproduce", "--dataset", "netflix", "--out", tmp_path)
    assert code == 3
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
        ("sweep = [5]", "swep = [5]", "must hold only .*, got key 'swep'"),
        ('"Platt"', '"Plat"', "methods must be among .*, got 'Plat'"),
        ('"BPR"', '"BRP"', "models must be among BPR, NCF, CML, UBPR, LightGCN, got 'BRP'"),
        ('"released"', '"relesed"', "splits must be among random, released, .*, got 'relesed'"),
        ('"naive", "ips"', '"uerm"', "losses must be among naive, ips, .*, got 'uerm'"),
        ('"known"', '"own"', "estimators must be among .*known, got 'own'"),
        ("default = 10", "coat = 10", "negatives must have a default"),
        ('title = "small"', "", "must be a complete spec.*title"),
        ("[negatives]", "[negatives", "must be TOML"),
        ("[negatives]", "[epochs.coat]\nCML = 3\n[negatives]", "epochs must be among .*'CML'"),
        ("naive = 4", "nave = 4", "negatives of synthetic must be among naive, ips, got 'nave'"),
        (
            "naive = 4",
            "",
            "negatives of synthetic must be given for every loss, got none for naive",
        ),
        ("naive = 4", "naive = 0.5", "negatives must be a table of whole numbers.* got .*0.5"),
        ("default = 10", "default = -1", "negatives must be a table of whole numbers.* got .*-1"),
        ("bins = 3", "bans = 3", "method_settings must be those of Histogram, got bans"),
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
        assert (spec.epochs, spec.settings) == ({}, {})
    variants = load_specs(REPRODUCE / "variants")
    assert {spec.epochs_for("coat", "BPR") for spec in variants} == {0, 7}
    assert {spec.epochs_for("yahoo_r3", "BPR") for spec in variants} == {0}
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
    cell = Cell("coat", "released", "CML", 3, 0, (("margin", 0.5),))
    model, training = cell.configured(Training(9))
    assert (model.margin, training) == (0.5, Training(9))
    slower = Cell("coat", "released", "BPR", 3, 2, (("learning_rate", 0.1),))
    assert slower.configured(Training(9))[1] == Training(2, learning_rate=0.1)
    assert re.fullmatch(r"coat-released-CML-[0-9a-f]{8}-3", cell.key)
    wider = Cell("coat", "released", "CML", 3, 0, (("margin", 1.5),))
    assert wider.key != cell.key
    variant = Spec.load(REPRODUCE / "variants" / "margin_0.5.toml")
    assert variant.settings_for("coat", "CML") == cell.settings
    with pytest.raises(DataError, match="settings must be those of BPR, got margin"):
        Cell("coat", "released", "BPR", 3, 0, (("margin", 0.5),)).configured(Training())


def test_no_value_of_a_spec_becomes_part_of_a_path():
    cell = Cell("coat", "released", "BPR", 0, 0, (("dim", "/../../x"), ("/..", 1)))
    assert Path(cell.key).name == cell.key


# ---- numbers ----


def test_the_published_numbers_are_complete():
    published = Published.load(REPRODUCE / "published.csv")
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
    covered = [Spread.of(rng.normal(size=10)).covers(rng.normal()) for _ in range(2_000)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_the_paired_test_is_that_of_scipy_and_undefined_for_equal_values():
    rng = np.random.default_rng(0)
    values = rng.normal(0.05, 0.01, 10)
    other = values + rng.normal(0.01, 0.005, 10)
    assert paired_p(values, other) == pytest.approx(stats.ttest_rel(values, other).pvalue)
    assert np.isnan(paired_p(values, values))


def test_results_are_selected_by_column():
    table = pa.table({"seed": [1, 0], "value": [2.0, 1.0], "metric": ["a", "a"]})
    assert Results(table).where(metric="a", seed=0).table["value"].to_pylist() == [1.0]
    assert not len(Results(table).where(metric="b").table)
    assert Results(table).distinct("metric") == ["a"]
