"""`calibrank train` and `calibrank score`: four commands from raw interactions to calibrated probabilities."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrank.scorers import SavedModel


def run(*arguments):
    command = [sys.executable, "-W", "error", "-m", "calibrank", *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "150"}
    )
    return result.returncode, result.stdout, result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Positives of people and things with tastes, under names."""
    path = tmp_path_factory.mktemp("log")
    rng = np.random.default_rng(0)
    people, things = rng.standard_normal((120, 3)), rng.standard_normal((80, 3))
    liked = people @ things.T + rng.standard_normal((120, 80)) > 2.2
    users, items = np.nonzero(liked)
    pq.write_table(
        pa.table({"user_id": [f"u{u}" for u in users], "item_id": items + 1000}),
        path / "log.parquet",
    )
    return path


QUICK = ("--epochs", 20, "--dim", 8)


def test_train_score_fit_apply(folder):
    code, said, errors = run(
        "train", folder / "log.parquet", "--model", "bpr", "-o", folder / "model", *QUICK
    )
    assert (code, errors) == (0, "")
    assert "calibrank fit scores.parquet --propensity propensity" in said
    pairs = pq.read_table(folder / "model" / "calibration.parquet")
    assert pairs.schema.names[:4] == ["user", "item", "label", "propensity"]
    assert (
        run(
            "score",
            folder / "model",
            folder / "model" / "calibration.parquet",
            "-o",
            folder / "s.parquet",
        )[0]
        == 0
    )
    assert (
        run("fit", folder / "s.parquet", "--propensity", "propensity", "-o", folder / "map.json")[0]
        == 0
    )
    assert (
        run("apply", folder / "map.json", folder / "s.parquet", "-o", folder / "p.parquet")[0] == 0
    )
    done = pq.read_table(folder / "p.parquet")
    model = SavedModel.load(folder / "model")
    users, items = (
        model.users.rows("users", done["user"].to_pylist()),
        model.items.rows("items", done["item"].to_pylist()),
    )
    np.testing.assert_array_equal(model.scorer.score(users, items), done["score"].to_numpy())
    probability, label = done["probability"].to_numpy(), done["label"].to_numpy()
    assert probability[label == 1].mean() > probability[label == 0].mean()
    assert not (folder / "model" / "checkpoint.safetensors").exists()


def test_score_says_which_pair_is_unknown(folder):
    run("train", folder / "log.parquet", "-o", folder / "small", "--epochs", 1, "--dim", 2)
    pq.write_table(
        pa.table({"user": ["u1", "u2", "nobody"], "item": [1001, 5, 1002]}),
        folder / "pairs.parquet",
    )
    code, _, errors = run(
        "score", folder / "small", folder / "pairs.parquet", "-o", folder / "x.parquet"
    )
    assert code == 3
    assert "pairs.parquet, row 2: user must be known to the model, got nobody" in errors
    assert not (folder / "x.parquet").exists()
    code, said, errors = run(
        "score",
        folder / "small",
        folder / "pairs.parquet",
        "-o",
        folder / "x.parquet",
        "--on-bad-rows",
        "skip",
    )
    assert code == 0
    assert "left out 1 rows with a bad user" in errors
    assert "left out 1 rows with a bad item" in errors
    assert pq.read_table(folder / "x.parquet").num_rows == 1
    pq.write_table(
        pa.table({"user": ["u1", "nobody"], "item": [1001, 1002]}), folder / "one.parquet"
    )
    run(
        "score",
        folder / "small",
        folder / "one.parquet",
        "-o",
        folder / "y.parquet",
        "--on-bad-rows",
        "skip",
    )
    assert pq.read_table(folder / "y.parquet")["user"].to_pylist() == ["u1"]
    assert "1 rows" in said


OFTEN_SAVED = """
from dataclasses import replace
import calibrank.models as m
T = m.Training
m.Training = lambda *a, **k: replace(T(*a, **k), checkpoint_every=0)
from calibrank.cli.app import main
main()
"""


def test_a_killed_training_goes_on(folder):
    def command(out):
        return [
            "train",
            folder / "log.parquet",
            "--model",
            "ubpr",
            "-o",
            folder / out,
            "--epochs",
            400,
            "--dim",
            64,
            "--batch",
            32,
            "--patience",
            400,
        ]

    start = [sys.executable, "-c", OFTEN_SAVED, *map(str, command("killed"))]
    child = subprocess.Popen(start, stderr=subprocess.DEVNULL)
    while not (folder / "killed" / "checkpoint.safetensors").exists():
        time.sleep(0.05)
        assert child.poll() is None
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not (folder / "killed" / "model.json").exists()
    for out in ("killed", "whole"):
        assert run(*command(out), "--json")[0] == 0
    killed, whole = (SavedModel.load(folder / out).digest for out in ("killed", "whole"))
    assert killed == whole


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", "yahoo_r3"], 3, "Yahoo! licenses R3"),
        (["train", "LOG", "--device", "cuda"], 3, "device cuda must be available"),
        (["train", "LOG", "--split", "time"], 3, "must have times to split by"),
        (["train", "nowhere.parquet"], 3, "must be a table"),
        (["score", "nowhere", "LOG"], 3, "must be a saved model"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(folder, tmp_path, arguments, code, words):
    arguments = [str(folder / "log.parquet") if part == "LOG" else part for part in arguments]
    returned, _, errors = run(*arguments, "-o", tmp_path / "out.parquet")
    assert returned == code
    assert words in errors
    assert "Traceback" not in errors


def test_json_for_machines(folder, tmp_path):
    code, said, _ = run(
        "train", folder / "log.parquet", "-o", tmp_path / "m", "--negatives", 5, "--json", *QUICK
    )
    told = json.loads(said)
    assert code == 0
    assert told["negative_weight"] is None
    assert (
        pq.read_table(tmp_path / "m" / "calibration.parquet").num_rows == told["calibration_rows"]
    )
