"""`calibrank fit`: the same maps as the library, from tables in any layout."""

import json
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.cli import fit as fit_command
from calibrank.cli.options import as_typed
from calibrank.data.score_world import World
from calibrank.propensity import Popularity
from calibrank.registry import CALIBRATORS
from tests.cli.conftest import Call
from tests.cli.running import one_line


def test_fit_gives_the_same_map_as_the_library(
    call: Call, folder: Path, tmp_path: Path, world: World
) -> None:
    out = tmp_path / "map.json"
    options = ["--propensity", "w", "--method", "gaussian"]
    code, text, _ = call("fit", folder / "log.parquet", *options, "-o", out)
    assert code == 0
    assert "Gaussian fitted on 40,000 rows with ips evidence" in one_line(text)
    evidence = cr.ips(world.labels, world.propensity)
    expected = cr.Gaussian().fit(world.scores, evidence).predict(world.scores)
    assert cr.load(out).predict(world.scores) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("table", ["log.parquet", "log.csv", "days", "days/*/*.parquet"])
def test_propensities_are_estimated_from_popularity_in_any_layout(
    call: Call, folder: Path, tmp_path: Path, world: World, table: str
) -> None:
    out = tmp_path / "map.json"
    options = ["--item", "item_id", "--method", "gaussian", "--json"]
    code, text, error = call("fit", folder / table, *options, "-o", out)
    assert code == 0, error
    propensity = Popularity().fit(world.interactions()).predict(world.users, world.items)
    expected = cr.Gaussian().fit(world.scores, cr.ips(world.labels, propensity))
    result = json.loads(text)
    assert result["curve"]["intercept"] == pytest.approx(expected.curve.intercept, rel=1e-9)
    assert result["record"]["rows"] == 40_000
    assert result["out"] == str(out)


def test_a_map_may_be_saved_in_a_new_folder(call: Call, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "map.json"
    assert call("fit", folder / "log.parquet", "--log", "impressions", "-o", out)[0] == 0
    assert cr.load(out).record.rows == 40_000


@pytest.mark.parametrize("ids", [[1, 2, 3], ["a", "b", "c"]])
@pytest.mark.parametrize("command", ["fit", "diagnose"])
def test_popularity_requires_a_positive(
    call: Call, tmp_path: Path, command: str, ids: list[Any]
) -> None:
    table = pa.table({"score": [0.1, 0.2, 0.3], "label": [0, 0, 0], "item": ids})
    pq.write_table(table, tmp_path / "t.parquet")
    out = ["-o", tmp_path / "map.json"] if command == "fit" else []
    code, _, error = call(command, tmp_path / "t.parquet", "--item", "item", *out)
    assert code == 3
    assert "labels must hold a positive" in one_line(error)
    assert "got none." in one_line(error)


def test_a_table_of_positives_alone_has_no_fit(call: Call, folder: Path, tmp_path: Path) -> None:
    rows = pq.read_table(folder / "log.parquet")
    likes = rows.set_column(3, "label", pa.array(np.ones(len(rows))))
    pq.write_table(likes, tmp_path / "likes.parquet")
    options = ["--item", "item_id", "-o", tmp_path / "map.json"]
    code, _, error = call("fit", tmp_path / "likes.parquet", *options)
    assert code == 4
    assert "got only positives" in error


def test_items_are_the_same_in_whatever_type_files_store_them(call: Call, tmp_path: Path) -> None:
    """Integers close together or far apart, beyond 2^63, or as text in some of the files."""
    rng = np.random.default_rng(0)
    items = rng.integers(0, 40, 4_000)
    scores = rng.normal(size=4_000)
    labels = (rng.random(4_000) < 0.3 * (items + 1) / 40).astype(np.int8)
    far = items.astype(np.uint64) * np.uint64(10**12)
    huge = np.where(items == 0, np.uint64(2**64 - 1), items.astype(np.uint64))
    texts = items.astype(str)
    layouts = {
        "two integer types": (items.astype(np.int32), items),
        "far apart": (far, far),
        "beyond 2^63": (huge, huge),
        "huge and text": (huge, texts),
        "integer and text": (items, texts),
    }
    maps = {}
    for name, columns in layouts.items():
        folder = tmp_path / name
        folder.mkdir()
        for part, column in enumerate(columns):
            rows = slice(part * 2_000, part * 2_000 + 2_000)
            table = {"score": scores[rows], "label": labels[rows], "item": pa.array(column[rows])}
            pq.write_table(pa.table(table), folder / f"{part}.parquet")
        out = folder / "map.json"
        code, text, error = call("fit", folder, "--item", "item", "--json", "-o", out)
        assert code == 0, error
        maps[name] = json.dumps(json.loads(text)["curve"])
    # Its two files name item 0 differently, so it is two items there.
    del maps["huge and text"]
    assert len(set(maps.values())) == 1


def test_small_integer_weights_do_not_overflow(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few enough positives to keep that each of them stands for several.
    monkeypatch.setattr("calibrank.tabular.aggregate._MOST_POSITIVES", 100)
    rng = np.random.default_rng(0)
    columns = {
        "score": rng.normal(size=3_000),
        "label": rng.integers(0, 2, 3_000),
        "item": rng.integers(0, 9, 3_000),
    }
    out = tmp_path / "map.json"
    found = []
    for kind in (np.uint8, np.float64):
        weights = np.full(3_000, 200, dtype=kind)
        pq.write_table(pa.table({**columns, "weight": weights}), tmp_path / "t.parquet")
        options = ["--item", "item", "--weight", "weight", "-o", out]
        code, _, error = call("fit", tmp_path / "t.parquet", *options)
        assert code == 0, error
        found.append(cr.load(out).record.sensitivity)
    assert found[0] is not None
    assert found[0] == found[1]


def test_scores_that_fall_give_a_warning_of_one_line(call: Call, tmp_path: Path) -> None:
    scores = np.arange(40.0)
    labels = (np.arange(40) % 7 < 3 * (np.arange(40) < 20)).astype(int)
    pq.write_table(pa.table({"score": scores, "label": labels}), tmp_path / "t.parquet")
    options = ["--log", "impressions", "--method", "gaussian", "-o", tmp_path / "m.json"]
    code, _, error = call("fit", tmp_path / "t.parquet", *options)
    assert code == 0
    assert error.startswith("calibrank: the fitted Gaussian map hardly rises.")
    assert error.count("\n") == 1


def test_the_number_of_threads_does_not_change_the_map(
    call: Call, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "groups.parquet"
    columns = {"score": world.scores, "label": world.labels, "item": world.items}
    pq.write_table(pa.table(columns), path, row_group_size=1_000)
    maps = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CALIBRANK_THREADS", threads)
        assert call("fit", path, "--item", "item", "-o", tmp_path / "map.json")[0] == 0
        maps.append(cr.load(tmp_path / "map.json"))
    grid = np.linspace(world.scores.min(), world.scores.max(), 50)
    assert maps[1].predict(grid) == pytest.approx(maps[0].predict(grid), rel=1e-12)


def test_rows_of_zero_weight_change_nothing(call: Call, folder: Path, tmp_path: Path) -> None:
    table = pq.read_table(folder / "test.parquet")
    (tmp_path / "t").mkdir()
    for name, weight, start in (("a", 1.0, 0), ("b", 0.0, 5_000)):
        weighted = table.append_column("weight", pa.array([weight] * table.num_rows))
        pq.write_table(weighted.slice(start, 5_000), tmp_path / "t" / f"{name}.parquet")
    map_file = tmp_path / "m.json"
    weighted = [tmp_path / "t", "--weight", "weight"]
    assert call("fit", *weighted, "--log", "impressions", "-o", map_file)[0] == 0
    both = json.loads(call("evaluate", *weighted, "--map", map_file, "--json")[1])
    alone = [tmp_path / "t" / "a.parquet", "--map", map_file]
    one = json.loads(call("evaluate", *alone, "--json")[1])
    for metric in ("LogLoss", "NDCG@5", "Recall@5", "ECE@5"):
        expected = one["metrics"][metric]["value"]
        assert both["metrics"][metric]["value"] == pytest.approx(expected)


def test_step_methods_pool_nothing_but_ties_in_tables(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=100_000)
    labels = (rng.random(100_000) < expit(scores - 2)).astype(int)
    pq.write_table(pa.table({"score": scores, "label": labels}), tmp_path / "log.parquet")
    out = tmp_path / "map.json"
    options = ["--log", "impressions", "--method", "isotonic", "-o", out]
    assert call("fit", tmp_path / "log.parquet", *options)[0] == 0
    fitted = cr.load(out)
    assert fitted.record.exact
    assert fitted.curve == cr.Isotonic().fit(scores, labels).curve


LOGS = {
    "naive": ["--log", "impressions"],
    "ips": ["--propensity", "w"],
    "impressions": ["--log", "policy", "--propensity", "w"],
}


@pytest.mark.filterwarnings("ignore::calibrank.errors.FlatMapWarning")  # Temperature cannot fit
@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("method", CALIBRATORS)
def test_every_method_and_log_fits_as_the_library_does(
    call: Call, folder: Path, tmp_path: Path, world: World, method: str, kind: str
) -> None:
    out = tmp_path / "map.json"
    options = ["--method", as_typed(method), *LOGS[kind]]
    code, _, error = call("fit", folder / "log.parquet", *options, "-o", out)
    assert code == 0, error
    propensity = () if kind == "naive" else (world.propensity,)
    evidence = getattr(cr, kind)(world.labels, *propensity)
    expected = CALIBRATORS[method].fit(world.scores, evidence).predict(world.scores)
    fitted = cr.load(out)
    assert fitted.predict(world.scores) == pytest.approx(expected, abs=1e-9)
    assert fitted.record.evidence == kind
    # Only a policy's own probabilities determine the base rate up to sampling error.
    assert (fitted.record.base_rate_range is not None) == (kind == "impressions")
    code, text, _ = call("inspect", out)
    assert code == 0
    assert f"{method} calibration map" in text
    assert f"40,000 rows, {kind} evidence" in text


def test_the_caveat_comes_first(call: Call, folder: Path, tmp_path: Path) -> None:
    fit = ["fit", folder / "log.parquet", "-o", tmp_path / "map.json"]
    _, text, _ = call(*fit, "--item", "item_id")
    assert text.startswith("Probabilities that a pair is liked, at a level that is not known.\n")
    # No interval that is narrow because it takes the level for granted.
    assert "range: the level is not known" in text
    assert "95% interval" not in text
    middle = next(line for line in text.splitlines() if line.startswith("median"))
    low, high = cr.load(tmp_path / "map.json").band(float(middle.split()[1]))
    ends = [float(each.rstrip("%")) / 100 for each in middle.split()[-3::2]]
    assert ends == pytest.approx([low, high], abs=0.01)
    _, text, _ = call(*fit, "--log", "impressions")
    level = "at the level of the labels"
    assert text.startswith(f"Probabilities that a pair is liked, {level} (untested).\nBase")
    assert f"95% interval, {level}" in text


@pytest.mark.parametrize("method", ["auto", "isotonic", "histogram", "spline"])
def test_reversed_scores_are_not_saved_in_silence(call: Call, tmp_path: Path, method: str) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    labels = (rng.random(4_000) < expit(-2 * scores)).astype(int)
    pq.write_table(pa.table({"score": scores, "label": labels}), tmp_path / "t.parquet")
    options = ["--log", "impressions", "--method", method, "-o", tmp_path / "m.json"]
    code, _, error = call("fit", tmp_path / "t.parquet", *options)
    assert code == 0, error
    assert "hardly rises" in error
    assert "negate them" in error
    # Of scores that rise, nothing is said.
    pq.write_table(pa.table({"score": -scores, "label": labels}), tmp_path / "t.parquet")
    assert "hardly rises" not in call("fit", tmp_path / "t.parquet", *options)[2]


def test_fit_and_diagnose_give_the_same_range(call: Call, folder: Path, tmp_path: Path) -> None:
    options = [folder / "log.parquet", "--item", "item_id", "--json"]
    fitted = json.loads(call("fit", *options, "-o", tmp_path / "map.json")[1])
    found = json.loads(call("diagnose", *options)[1])["sensitivity"]
    known = fitted["record"]["sensitivity"]
    assert (found["low_rate"], found["high_rate"]) == (known["low_rate"], known["high_rate"])
    assert found["alternatives"] == known["alternatives"]


def test_progress_without_a_terminal_is_a_line_now_and_then(
    call: Call, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = ["fit", folder / "log.parquet", "--item", "item_id", "-o", tmp_path / "map.json"]
    assert "so far" not in call(*fit)[2]

    def slowly(function: Callable[..., Any], *, is_reading: bool) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            if is_reading:
                table, progress = arguments[0], arguments[3]
                progress(table.size // 2)
            sleep(0.3)
            return function(*arguments)

        return called

    monkeypatch.setattr("calibrank.cli.console.SECONDS_PER_LINE", 0.1)
    for name, expected in [
        ("aggregate", "fit: 0 seconds so far. Reading: 50%\n"),
        ("attach_sensitivity", "fit: 0 seconds so far.\n"),
    ]:
        with monkeypatch.context() as patched:
            slow = slowly(getattr(fit_command, name), is_reading=name == "aggregate")
            patched.setattr(fit_command, name, slow)
            assert expected in call(*fit)[2]


def test_a_choice_between_columns_is_said(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "log.csv"
    rows = [f"{score},{score % 3 == 0:d},{score % 2}" for score in range(60)]
    table.write_text("\n".join(["score,liked,clicked", *rows]))
    given = ["fit", table, "--log", "impressions", "--method", "platt", "-o", tmp_path / "m.json"]
    _, _, error = call(*given)
    assert "The label is column 'liked', not 'clicked': --label names another." in one_line(error)
    _, _, error = call(*given, "--label", "clicked")
    assert "The label is column" not in error
