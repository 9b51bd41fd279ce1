"""The command line, as a person or a script uses it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.cli import app
from calibrank.cli.console import Method
from calibrank.data.score_world import World, make_world
from calibrank.propensity import Popularity


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(40_000, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, world: World) -> Path:
    """A log in one file, in three files and in CSV, and a test set with true preferences."""
    path = tmp_path_factory.mktemp("tables")
    table = pa.table(
        {
            "user_id": world.users,
            "item_id": [f"item {item}" for item in world.items],
            "score": world.scores,
            "label": world.labels.astype("int8"),
            "w": world.propensity,
        }
    )
    pq.write_table(table, path / "log.parquet")
    pc.write_csv(table, path / "log.csv")
    for part in range(3):
        (path / "parts" / f"day={part}").mkdir(parents=True)
        pq.write_table(
            table.slice(part * 14_000, 14_000), path / "parts" / f"day={part}" / "rows.parquet"
        )
    test = world.redraw(9)
    shown = pa.table({"userID": test.users, "prediction": test.scores, "label": test.preferences})
    pq.write_table(shown, path / "test.parquet")
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    """Run in a process of its own."""
    command = [sys.executable, "-W", "error", "-m", "calibrank", *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "150"}
    )
    return result.returncode, result.stdout, result.stderr


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def inner(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["calibrank", *map(str, arguments)])
        code = 0
        with warnings.catch_warnings():  # puts back the way warnings are shown
            warnings.simplefilter("default", cr.FlatMapWarning)
            try:
                app.main()
            except SystemExit as stop:
                code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return inner


def test_fit_is_the_librarys_fit(call: Any, folder: Path, tmp_path: Path, world: World) -> None:
    out = tmp_path / "map.json"
    code, text, _ = call("fit", folder / "log.parquet", "--propensity", "w", "-o", out)
    assert code == 0
    assert "Gaussian fitted on 40,000 rows by ips evidence" in re.sub(r"\s+", " ", text)
    assert cr.load(out).predict(world.scores) == pytest.approx(
        cr.Gaussian()
        .fit(world.scores, cr.ips(world.labels, world.propensity))
        .predict(world.scores),
        abs=1e-9,
    )


@pytest.mark.parametrize("table", ["log.parquet", "log.csv", "parts", "parts/*/*.parquet"])
def test_popularity_in_one_pass_over_any_layout(
    call: Any, folder: Path, tmp_path: Path, world: World, table: str
) -> None:
    code, text, error = call(
        "fit", folder / table, "--item", "item_id", "-o", tmp_path / "map.json", "--json"
    )
    assert code == 0, error
    propensity = Popularity().fit(world.interactions()).predict(world.users, world.items)
    expected = cr.Gaussian().fit(world.scores, cr.ips(world.labels, propensity))
    result = json.loads(text)
    assert result["map"]["intercept"] == pytest.approx(expected.intercept, rel=1e-9)
    assert result["record"]["rows"] == 40_000
    assert result["out"] == str(tmp_path / "map.json")


@pytest.mark.parametrize("method", ["platt", "isotonic", "bbq", "minmax", "gammagaussian"])
def test_every_method_and_loss(call: Any, folder: Path, tmp_path: Path, method: str) -> None:
    for loss in ("naive", "positive-ips"):
        arguments = [
            "fit",
            folder / "log.parquet",
            "--propensity",
            "w",
            "--method",
            method,
            "--loss",
            loss,
        ]
        code, _, error = call(*arguments, "-o", tmp_path / "map.json")
        assert code == 0, error
        code, text, _ = call("inspect", tmp_path / "map.json")
        assert code == 0
        assert cr.load(tmp_path / "map.json").method in text


def test_apply_adds_a_column(call: Any, folder: Path, tmp_path: Path, world: World) -> None:
    call("fit", folder / "log.parquet", "--propensity", "w", "-o", tmp_path / "map.json")
    fitted = cr.load(tmp_path / "map.json")
    for name in ("log.parquet", "log.csv"):
        out = tmp_path / f"out-{name}"
        assert call("apply", tmp_path / "map.json", folder / name, "-o", out)[0] == 0
        table = pq.read_table(out) if name.endswith("parquet") else pc.read_csv(out)
        assert table.column_names == ["user_id", "item_id", "score", "label", "w", "probability"]
        np.testing.assert_allclose(
            table["probability"].to_numpy(), fitted.predict(world.scores), rtol=1e-12
        )


def test_apply_to_a_folder_resumes(call: Any, folder: Path, tmp_path: Path, world: World) -> None:
    call("fit", folder / "parts", "--item", "item_id", "-o", tmp_path / "map.json")
    out = tmp_path / "out"
    arguments = ["apply", tmp_path / "map.json", folder / "parts", "-o", out, "--to", "p", "--json"]
    assert json.loads(call(*arguments)[1])["rows"] == 40_000
    written = sorted(out.rglob("*.parquet"))
    assert [file.relative_to(out).as_posix() for file in written] == [
        f"day={n}/rows.parquet" for n in range(3)
    ]
    table = pa.concat_tables(
        [pq.read_table(file, partitioning=None).select(["p"]) for file in written]
    )
    np.testing.assert_allclose(
        table["p"].to_numpy(), cr.load(tmp_path / "map.json").predict(world.scores), rtol=1e-12
    )
    written[1].unlink()
    again = json.loads(call(*arguments)[1])
    assert (again["rows"], again["already_done"]) == (14_000, 2)
    call(
        "fit",
        folder / "parts",
        "--item",
        "item_id",
        "--method",
        "platt",
        "-o",
        tmp_path / "map.json",
    )
    assert json.loads(call(*arguments)[1])["already_done"] == 0


def test_evaluate_is_the_librarys_metrics(
    call: Any, folder: Path, tmp_path: Path, world: World
) -> None:
    call("fit", folder / "log.parquet", "--propensity", "w", "-o", tmp_path / "map.json")
    code, text, error = call(
        "evaluate", folder / "test.parquet", "--map", tmp_path / "map.json", "--json"
    )
    assert code == 0, error
    result = json.loads(text)
    test = world.redraw(9)
    p = cr.load(tmp_path / "map.json").predict(test.scores)
    assert result["users"] == "userID"
    for metric in (
        cr.LogLoss(),
        cr.ECE(),
        cr.MCE(),
        cr.Brier(),
        cr.NDCG(5),
        cr.TopN(cr.ECE(), 5),
        cr.CalibrationInTheLarge(),
    ):
        assert result["metrics"][metric.name]["value"] == pytest.approx(
            metric(p, test.preferences, test.users), rel=1e-9
        )
    ours = cr.bootstrap(cr.LogLoss(), p, test.preferences, test.users)
    theirs = result["metrics"]["LogLoss"]
    assert theirs["high"] - theirs["low"] == pytest.approx(ours.high - ours.low, rel=0.25)


def test_evaluate_a_probability_column_and_without_users(call: Any, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"probability": [0.2, 0.7, 0.4], "label": [False, True, True]}),
        tmp_path / "t.parquet",
    )
    code, text, _ = call("evaluate", tmp_path / "t.parquet")
    assert code == 0
    assert "rows, taken as independent" in text
    assert "Left out, no user column" in text


def test_evaluate_refuses_what_is_no_probability(call: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"probability": [0.2, 1.7], "label": [0, 1]}), tmp_path / "t.parquet")
    code, _, error = call("evaluate", tmp_path / "t.parquet")
    assert code == 3
    assert "row 1: probability must lie in [0, 1], got 1.7" in error.replace("\n", " ")


def test_ids_may_be_categories_but_not_missing(call: Any, tmp_path: Path) -> None:
    labels, scores = [0, 1, 0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    users = pa.array(["a", "b", "c", "a", "b", "c"]).dictionary_encode()
    columns = {"score": scores, "label": labels, "user": users, "item": users, "w": [0.9] * 6}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    map_file = tmp_path / "map.json"
    assert (
        call(
            "fit", tmp_path / "t.parquet", "--item", "item", "--method", "isotonic", "-o", map_file
        )[0]
        == 0
    )
    assert call("evaluate", tmp_path / "t.parquet", "--map", map_file)[0] == 0
    code, _, error = call("compare", tmp_path / "t.parquet", "--loss", "naive", "--folds", "50")
    assert (code, "enough users for 50 folds" in error) == (3, True)
    columns["user"] = pa.array(["a", None, "c", "a", "b", "c"])
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    code, _, error = call("evaluate", tmp_path / "t.parquet", "--map", map_file)
    assert (code, "row 1: user must be an id, got none" in error) == (3, True)
    code, _, error = call(
        "evaluate", tmp_path / "t.parquet", "--map", map_file, "--on-bad-rows", "skip"
    )
    assert (code, "left out 1 rows with a bad user" in error) == (0, True)


def test_compare_ranks_by_log_loss_and_keeps_users_together(call: Any, folder: Path) -> None:
    code, text, error = call("compare", folder / "log.parquet", "--propensity", "w")
    assert code == 0, error
    assert "cross-validated by user (user_id)" in text
    assert text.count("(best)") == 1
    results = json.loads(call("compare", folder / "log.parquet", "--propensity", "w", "--json")[1])[
        "methods"
    ]
    assert results["gaussian"]["LogLoss"] < results["minmax"]["LogLoss"]
    assert set(results) == {method.value for method in Method}


def test_apply_is_done_only_for_the_same_question(call: Any, tmp_path: Path) -> None:
    table = pa.table(
        {
            "score": [0.1, 0.9, 0.4, 0.6],
            "other": [3.0, 1.0, 2.0, float("nan")],
            "label": [0, 1, 1, 0],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    call("fit", tmp_path / "t.parquet", "--loss", "naive", "-o", tmp_path / "new" / "map.json")
    arguments = [
        "apply",
        tmp_path / "new" / "map.json",
        tmp_path / "t.parquet",
        "-o",
        tmp_path / "o.parquet",
        "--json",
    ]
    assert json.loads(call(*arguments)[1])["rows"] == 4
    assert json.loads(call(*arguments)[1])["already_done"] == 1
    other = json.loads(call(*arguments, "--score", "other", "--on-bad-rows", "skip")[1])
    assert (other["already_done"], other["rows"], other["skipped"]) == (0, 3, {"score": 1})


def test_outputs_have_the_mode_that_the_umask_asks_for(
    call: Any, folder: Path, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        call("fit", folder / "log.parquet", "--loss", "naive", "-o", tmp_path / "map.json")
        call("apply", tmp_path / "map.json", folder / "log.parquet", "-o", tmp_path / "o.parquet")
    finally:
        os.umask(before)
    for name in ("map.json", "o.parquet"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o644


def test_a_file_without_a_column_is_named(call: Any, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"score": [0.1, 0.2], "label": [0, 1]}), tmp_path / "t" / "a.parquet")
    pq.write_table(pa.table({"score": [0.1]}), tmp_path / "t" / "b.parquet")
    code, _, error = call("fit", tmp_path / "t", "--loss", "naive", "-o", tmp_path / "m.json")
    assert (code, "b.parquet must have a column 'label'" in error) == (3, True)


def test_a_csv_column_may_start_empty(call: Any, tmp_path: Path) -> None:
    rows = ["score,label,note", *(f"{n % 97},{n % 3 % 2}," for n in range(120_000)), "5,1,x"]
    (tmp_path / "[t] late.csv").write_text("\n".join(rows) + "\n")
    map_file, table, out = tmp_path / "m.json", tmp_path / "[t] late.csv", tmp_path / "o.csv"
    assert call("fit", table, "--loss", "naive", "--method", "isotonic", "-o", map_file)[0] == 0
    assert call("apply", map_file, table, "-o", out)[0] == 0
    assert len(out.read_text().splitlines()) == 120_002


def test_a_file_of_no_weight_is_nothing_and_weights_reach_the_lists(
    call: Any, folder: Path, tmp_path: Path
) -> None:
    table = pq.read_table(folder / "test.parquet")
    (tmp_path / "t").mkdir()
    for name, weight in (("a", 1.0), ("b", 0.0)):
        weighted = table.append_column("weight", pa.array([weight] * table.num_rows))
        pq.write_table(
            weighted.slice(0 if weight else 5_000, 5_000), tmp_path / "t" / f"{name}.parquet"
        )
    arguments = [tmp_path / "t", "--weight", "weight"]
    assert call("fit", *arguments, "--loss", "naive", "-o", tmp_path / "m.json")[0] == 0
    both = json.loads(call("evaluate", *arguments, "--map", tmp_path / "m.json", "--json")[1])[
        "metrics"
    ]
    one = json.loads(
        call("evaluate", tmp_path / "t" / "a.parquet", "--map", tmp_path / "m.json", "--json")[1]
    )["metrics"]
    for metric in ("LogLoss", "NDCG@5", "Recall@5", "ECE of top 5"):
        assert both[metric]["value"] == pytest.approx(one[metric]["value"])


@pytest.mark.parametrize("ids", [[1, 2, 3], ["a", "b", "c"]])
@pytest.mark.parametrize("command", ["fit", "diagnose"])
def test_a_table_without_a_positive_tells_no_popularity(
    call: Any, tmp_path: Path, command: str, ids: list[Any]
) -> None:
    table = pa.table({"score": [0.1, 0.2, 0.3], "label": [0, 0, 0], "item": ids})
    pq.write_table(table, tmp_path / "t.parquet")
    out = ["-o", tmp_path / "map.json"] if command == "fit" else []
    code, _, said = call(command, tmp_path / "t.parquet", "--item", "item", *out)
    assert code == 3
    assert (
        "labels must hold a positive with nonzero weight to estimate popularity, got none."
        in " ".join(said.split())
    )


def test_items_are_the_same_however_files_write_them(call: Any, tmp_path: Path) -> None:
    """Whole numbers near or far apart, beyond 2^63, or as text in some of the files."""
    rng = np.random.default_rng(0)
    items, scores = rng.integers(0, 40, 4_000), rng.normal(size=4_000)
    labels = (rng.random(4_000) < 0.3 * (items + 1) / 40).astype(np.int8)
    far = items.astype(np.uint64) * np.uint64(10**12)
    huge = np.where(items == 0, np.uint64(2**64 - 1), items.astype(np.uint64))
    texts = items.astype(str)
    answers = set()
    for kind, (first, second) in enumerate(
        [(items.astype(np.int32), items), (far, far), (huge, huge), (huge, texts), (items, texts)]
    ):
        folder = tmp_path / str(kind)
        folder.mkdir()
        for part, column in enumerate((first, second)):
            rows = slice(part * 2_000, part * 2_000 + 2_000)
            table = pa.table(
                {"score": scores[rows], "label": labels[rows], "item": pa.array(column[rows])}
            )
            pq.write_table(table, folder / f"{part}.parquet")
        code, said, error = call(
            "fit", folder, "--item", "item", "--json", "-o", folder / "map.json"
        )
        assert code == 0, error
        if kind != 3:  # there item 0 is called by two names
            answers.add(json.dumps(json.loads(said)["map"]))
    assert len(answers) == 1


def test_small_whole_weights_do_not_overflow(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrank.tabular._fold._MOST_POSITIVES", 100)
    rng = np.random.default_rng(0)
    columns = {
        "score": rng.normal(size=3_000),
        "label": rng.integers(0, 2, 3_000),
        "item": rng.integers(0, 9, 3_000),
    }
    doubts = []
    for kind in (np.uint8, np.float64):
        pq.write_table(
            pa.table({**columns, "weight": np.full(3_000, 200, dtype=kind)}), tmp_path / "t.parquet"
        )
        out = tmp_path / "map.json"
        code, _, error = call(
            "fit", tmp_path / "t.parquet", "--item", "item", "--weight", "weight", "-o", out
        )
        assert code == 0, error
        doubts.append(cr.load(out).record.sensitivity)
    assert doubts[0] == doubts[1]


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_the_first_mistake_is_the_one_that_is_told(call: Any, tmp_path: Path, command: str) -> None:
    column = "score" if command == "fit" else "probability"
    pq.write_table(pa.table({column: [np.nan, 0.2], "label": [0, 1]}), tmp_path / "0.parquet")
    (tmp_path / "1.parquet").write_bytes(b"not a table")
    more = ["--loss", "naive", "-o", tmp_path / "map.json"] if command == "fit" else []
    code, _, said = call(command, tmp_path, *more)
    assert code == 3
    assert f"row 0: {column} must" in " ".join(said.split())


def test_reversed_scores_are_said_in_one_line(call: Any, tmp_path: Path) -> None:
    scores, labels = np.arange(40.0), (np.arange(40) % 7 < 3 * (np.arange(40) < 20)).astype(int)
    pq.write_table(pa.table({"score": scores, "label": labels}), tmp_path / "t.parquet")
    code, _, error = call(
        "fit", tmp_path / "t.parquet", "--loss", "naive", "-o", tmp_path / "m.json"
    )
    assert code == 0
    assert error.startswith("calibrank: the fitted Gaussian map hardly rises.")


def bad_table(path: Path) -> Path:
    scores = [0.1, float("nan"), 0.5, 0.9, 0.3, float("inf"), 0.2, 0.8]
    labels = [0, 1, 0, 1, 3, 0, None, 0]
    pq.write_table(pa.table({"score": scores, "label": pa.array(labels, pa.int8())}), path)
    return path


def test_bad_rows_stop_with_file_row_and_value(call: Any, tmp_path: Path) -> None:
    table = bad_table(tmp_path / "bad.parquet")
    code, _, error = call("fit", table, "--loss", "naive", "-o", tmp_path / "map.json")
    assert code == 3
    assert "bad.parquet, row 1: score must be finite and within +-1e30, got nan" in error.replace(
        "\n", ""
    )
    assert "--on-bad-rows skip" in error
    assert not (tmp_path / "map.json").exists()


def test_bad_rows_can_be_left_out_but_never_silently(call: Any, tmp_path: Path) -> None:
    table = bad_table(tmp_path / "bad.parquet")
    arguments = [
        "fit",
        table,
        "--loss",
        "naive",
        "--method",
        "isotonic",
        "-o",
        tmp_path / "map.json",
    ]
    code, _, error = call(*arguments, "--on-bad-rows", "skip")
    assert code == 0
    assert "left out 2 rows with a bad score" in error
    assert "left out 2 rows with a bad label" in error
    assert cr.load(tmp_path / "map.json").record.rows == 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "nowhere.parquet"], 3, "nowhere.parquet must be a table"),
        (["fit", "log.txt", "--loss", "naive"], 3, "log.txt must end in .parquet"),
        (["fit", "log.parquet"], 2, "--loss ips must have propensities"),
        (
            ["fit", "log.parquet", "--score", "x", "--loss", "naive"],
            3,
            "must have a score column (x), got 'user_id'",
        ),
        (["fit", "log.parquet", "--item", "x"], 3, "must have an item column (x)"),
        (
            ["apply", "nomap.json", "log.parquet", "-o", "o.parquet"],
            3,
            "nomap.json must be a saved map, got no such file",
        ),
        (["inspect", "log.csv"], 3, "log.csv must be JSON"),
        (["fit", "separable.csv", "--loss", "naive"], 4, "no finite best fit exists"),
        (
            ["fit", "broken.parquet", "--loss", "naive"],
            3,
            "broken.parquet must be readable as parquet",
        ),
        (["fit", "log.parquet", "--method", "magic"], 2, "Invalid value for '--method'"),
    ],
)
def test_failures_have_their_own_exit_code_and_one_clean_line(
    call: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    Path("log.txt").write_text("x")
    Path("broken.parquet").write_bytes(b"PAR1 nonsense")
    Path("separable.csv").write_text("score,label\n1,0\n2,0\n3,1\n4,1\n")
    got, _, error = call(*arguments)
    assert got == code
    assert message in re.sub(r"\s+", " ", error.replace("│", " "))
    assert "Traceback" not in error


def test_apply_refuses_to_overwrite_its_input(call: Any, folder: Path, tmp_path: Path) -> None:
    call("fit", folder / "log.parquet", "--loss", "naive", "-o", tmp_path / "map.json")
    code, _, error = call(
        "apply", tmp_path / "map.json", folder / "log.parquet", "-o", folder / "log.parquet"
    )
    assert code == 3
    assert "must not be the table itself" in error.replace("\n", " ")


def test_killed_at_any_moment_nothing_partial_is_left_under_the_name(
    folder: Path, tmp_path: Path
) -> None:
    run("fit", folder / "log.parquet", "--loss", "naive", "-o", tmp_path / "map.json")
    big = tmp_path / "big.parquet"
    table = pq.read_table(folder / "log.parquet", columns=["score"])
    pq.write_table(pa.concat_tables([table] * 100), big)
    out = tmp_path / "out.parquet"
    command = [
        sys.executable,
        "-m",
        "calibrank",
        "apply",
        str(tmp_path / "map.json"),
        str(big),
        "-o",
        str(out),
    ]
    killed = 0
    for delay in (0.0, 0.1, 0.3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while (
            not list(tmp_path.glob(".out.parquet.*"))
            and process.poll() is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.returncode == -signal.SIGKILL:
            killed += 1
            assert not out.exists() or pq.read_metadata(out).num_rows == 4_000_000
    assert killed
    code, _, error = run("apply", tmp_path / "map.json", big, "-o", out)
    assert code == 0, error
    assert pq.read_metadata(out).num_rows == 4_000_000
    assert not list(tmp_path.glob(".out.parquet.*"))


def test_help_has_an_example_for_each_command(call: Any) -> None:
    for command in ("fit", "apply", "evaluate", "compare", "inspect", "demo"):
        code, text, _ = call(command, "--help")
        assert code == 0
        assert f"Example: calibrank {command}" in re.sub(r"\s+", " ", text)


def test_outputs_never_take_an_inputs_place(call: Any, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "log.parquet"
    table.write_bytes((folder / "log.parquet").read_bytes())
    before = table.read_bytes()
    for out in (table, tmp_path):
        code, _, said = call("fit", table, "--item", "item_id", "-o", out)
        assert code == 3
        assert "must not be" in said or "must be a file to write" in said
    assert call("fit", table, "--item", "item_id", "-o", tmp_path / "map.json")[0] == 0
    assert (
        call("export", tmp_path / "map.json", "--to", "json", "-o", tmp_path / "map.json")[0] == 3
    )
    assert call("report", table, "-o", table)[0] == 3
    assert table.read_bytes() == before
    assert call("fit", table, "--item", "item_id", "-o", table / "map.json")[0] == 3


def test_likes_alone_are_told_as_that(call: Any, folder: Path, tmp_path: Path) -> None:
    rows = pq.read_table(folder / "log.parquet")
    pq.write_table(
        rows.set_column(3, "label", pa.array(np.ones(len(rows)))), tmp_path / "likes.parquet"
    )
    code, _, said = call(
        "fit", tmp_path / "likes.parquet", "--item", "item_id", "-o", tmp_path / "map.json"
    )
    assert code == 4
    assert "got only positives" in said


def test_a_loss_below_zero_wins_nothing(call: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(600) < 0.5).astype(int)
    columns = {"score": labels + rng.random(600), "label": labels, "propensity": np.full(600, 0.2)}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    code, shown, _ = call("compare", tmp_path / "log.parquet", "--propensity", "propensity")
    assert code == 0
    assert "(best)" not in shown
    assert "A loss below 0 is no loss" in shown


def test_lanes_change_nothing_and_the_first_bad_row_is_named(
    call: Any, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, maps = tmp_path / "groups.parquet", []
    columns = {"score": world.scores.copy(), "label": world.labels, "item": world.items}
    pq.write_table(pa.table(columns), path, row_group_size=1_000)
    for lanes in ("1", "3"):
        monkeypatch.setenv("CALIBRANK_THREADS", lanes)
        assert call("fit", path, "--item", "item", "-o", tmp_path / "map.json")[0] == 0
        maps.append(cr.load(tmp_path / "map.json"))
    grid = np.linspace(world.scores.min(), world.scores.max(), 50)
    assert maps[1].predict(grid) == pytest.approx(maps[0].predict(grid), rel=1e-12)
    columns["score"][[31_005, 12_003]] = np.nan
    pq.write_table(pa.table(columns), path, row_group_size=1_000)
    assert (
        "row 12003: score must be finite"
        in call("fit", path, "--item", "item", "-o", tmp_path / "x.json")[2]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--item", "item_id", "--propensity", "w"],
            "--propensity and --item must not both be given",
        ),
        (
            ["--item", "item_id", "--base-rate", "1.5"],
            "--base-rate must lie between 0 and 1, got 1.5",
        ),
        (
            ["--item", "item_id", "--negatives-kept", "0"],
            "--negatives-kept must lie in (0, 1], got 0.0",
        ),
        (
            ["--loss", "impressions"],
            "--loss impressions must have the logging policy's propensities",
        ),
        ([], "--loss ips must have propensities"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(
    call: Any, folder: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    code, _, error = call("fit", folder / "log.parquet", *options, "-o", tmp_path / "map.json")
    assert (code, message in error) == (2, True)
    assert not (tmp_path / "map.json").exists()
