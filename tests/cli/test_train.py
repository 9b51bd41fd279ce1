"""`calibrank train` and `calibrank score`: from raw interactions to calibrated probabilities."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrank.scorers import SavedModel
from calibrank.tabular.columns import roles_of
from tests.cli.conftest import Call
from tests.cli.running import one_line, run_here

QUICK = ("--epochs", 20, "--dim", 8)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Positives of 120 users and 80 items with latent tastes; users have names, not numbers."""
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    rng = np.random.default_rng(0)
    tastes = rng.standard_normal((120, 3))
    qualities = rng.standard_normal((80, 3))
    liked = tastes @ qualities.T + rng.standard_normal((120, 80)) > 2.2
    users, items = np.nonzero(liked)
    columns = {"user_id": [f"u{user}" for user in users], "item_id": items + 1000}
    pq.write_table(pa.table(columns), path)
    return path


def test_four_commands_lead_from_interactions_to_probabilities(log: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    pairs = model / "calibration.parquet"
    scores = tmp_path / "scores.parquet"
    map_file = tmp_path / "map.json"
    calibrated = tmp_path / "calibrated.parquet"
    code, text, error = run_here("train", log, "--model", "bpr", "-o", model, *QUICK)
    assert (code, error) == (0, "")
    assert "calibrank fit scores.parquet -o map.json" in text
    assert pq.read_schema(pairs).names[:4] == ["user", "item", "label", "relative_propensity"]
    assert not (model / "checkpoint.npz").exists()
    assert run_here("score", model, pairs, "-o", scores)[0] == 0
    assert run_here("fit", scores, "-o", map_file)[0] == 0
    assert run_here("apply", map_file, scores, "-o", calibrated)[0] == 0
    table = pq.read_table(calibrated)
    trained = SavedModel.load(model)
    users = trained.users.rows("users", table["user"].to_pylist())
    items = trained.items.rows("items", table["item"].to_pylist())
    np.testing.assert_array_equal(trained.scorer.score(users, items), table["score"].to_numpy())
    probability = table["probability"].to_numpy()
    label = table["label"].to_numpy()
    assert probability[label == 1].mean() > probability[label == 0].mean()


@pytest.fixture(scope="module")
def model(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained once, for tests that read it."""
    path = tmp_path_factory.mktemp("trained") / "model"
    assert run_here("train", log, "-o", path, *QUICK)[0] == 0
    return path


def test_the_recipe_needs_no_options_and_uses_the_weights(
    call: Call, model: Path, tmp_path: Path
) -> None:
    scores = tmp_path / "scores.parquet"
    # So few users and items have few pairs; other weights stand for a sample of many more.
    pairs = pq.read_table(model / "calibration.parquet")
    weights = np.where(pairs["label"].to_numpy() == 1, 1.0, 3.0)
    weighted = tmp_path / "weighted.parquet"
    metadata = {**pairs.schema.metadata, **_with_role(pairs.schema, "weight")}
    names = [name for name in pairs.column_names if name != "weight"]
    columns = pairs.select(names).append_column("weight", pa.array(weights))
    pq.write_table(columns.replace_schema_metadata(metadata), weighted)
    assert call("score", model, weighted, "-o", scores)[0] == 0

    by_record = _fit(call, scores, tmp_path / "record.json")
    assert by_record[1].splitlines() == [
        "Using propensity column 'relative_propensity' (recorded by calibrank score)",
        "Using weight column 'weight' (recorded by calibrank score)",
    ]
    named = ["--propensity", "relative_propensity", "--weight", "weight"]
    by_option = _fit(call, scores, tmp_path / "option.json", *named)
    assert by_option[1] == ""
    assert by_record[0] == by_option[0]
    unrecorded = tmp_path / "unrecorded.parquet"
    pq.write_table(pq.read_table(scores).replace_schema_metadata(None), unrecorded)
    without = _fit(
        call, unrecorded, tmp_path / "without.json", "--propensity", "relative_propensity"
    )
    assert without[0]["curve"] != by_record[0]["curve"]
    assert "Column 'weight' is not used." in without[1]


def _with_role(schema: pa.Schema, name: str) -> dict[bytes, bytes]:
    return roles_of(schema).added("calibrank train", **{name: name}).metadata()


def _fit(call: Call, scores: Path, out: Path, *options: str) -> tuple[dict[str, Any], str]:
    code, text, error = call("fit", scores, *options, "-o", out, "--json")
    assert code == 0, error
    fitted = json.loads(text)
    del fitted["out"]
    return fitted, error


def test_unknown_users_and_items_are_named_or_skipped(
    call: Call, model: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.parquet"
    out = tmp_path / "scores.parquet"
    pq.write_table(pa.table({"user": ["u1", "u2", "nobody"], "item": [1001, 5, 1002]}), pairs)
    code, _, error = call("score", model, pairs, "-o", out)
    assert code == 3
    assert "pairs.parquet, row 2: user must be known to the model, got nobody" in error
    assert not out.exists()
    code, text, error = call("score", model, pairs, "-o", out, "--on-bad-rows", "skip")
    assert code == 0
    assert "skipped 1 rows with an invalid user" in error
    assert "skipped 1 rows with an invalid item" in error
    assert "1 rows with the new column 'score'" in one_line(text)
    assert pq.read_table(out)["user"].to_pylist() == ["u1"]


# Saves a checkpoint after every epoch instead of every few minutes, and ends after the third as if
# it were killed: at once, with nothing cleaned up.
KILLED_AFTER_THREE_EPOCHS = """
import os
from dataclasses import replace
import calibrank.models as m
from calibrank.models.checkpoints import Checkpoint
T = m.Training
m.Training = lambda *a, **k: replace(T(*a, **k), checkpoint_every=0)
saved = Checkpoint.save
calls = []
def save(self, *state):
    saved(self, *state)
    calls.append(state)
    if len(calls) == 3:
        os._exit(9)
Checkpoint.save = save
from calibrank.cli.app import main
main()
"""


def test_an_interrupted_training_resumes_to_the_same_model(
    call: Call, log: Path, tmp_path: Path
) -> None:
    settings = ["--epochs", 12, "--dim", 8]
    train = ["train", log, "--model", "ubpr", *settings, "-o"]
    killed = tmp_path / "killed"
    whole = tmp_path / "whole"
    command = [sys.executable, "-c", KILLED_AFTER_THREE_EPOCHS, *map(str, train), str(killed)]
    ended = subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
    assert ended.returncode == 9
    assert (killed / "checkpoint.npz").exists()
    assert not (killed / "model.npz").exists()
    assert call(*train, killed, "--json")[0] == 0
    assert call(*train, whole, "--json")[0] == 0
    assert SavedModel.load(killed).digest == SavedModel.load(whole).digest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "yahoo_r3"], "Yahoo! licenses R3"),
        (["train", "LOG", "--device", "cuda"], "device cuda must be available"),
        (["train", "LOG", "--split", "time"], "must have times to split by"),
        (["train", "nowhere.parquet"], "must be a table"),
        (["score", "nowhere", "LOG"], "must be a saved model"),
    ],
)
def test_impossible_requests_are_one_line_and_exit_code_3(
    call: Call, log: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    arguments = [str(log) if part == "LOG" else part for part in arguments]
    code, _, error = call(*arguments, "-o", tmp_path / "out.parquet")
    assert code == 3
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("split", ["random", "released"])
def test_every_split_without_times_can_be_chosen(
    call: Call, log: Path, tmp_path: Path, split: str
) -> None:
    settings = ["--split", split, "--epochs", 1, "--dim", 2, "--negatives", 5]
    code, text, error = call("train", log, "-o", tmp_path / "m", *settings, "--json")
    assert code == 0, error
    result = json.loads(text)
    assert result["split"] == split
    assert result["negative_weight"] is None
    rows = pq.read_table(tmp_path / "m" / "calibration.parquet").num_rows
    assert rows == result["calibration_rows"]
    assert rows % 6 == 0  # each positive with its five negatives


def test_a_limit_of_file_sizes_ends_in_one_line_and_leaves_nothing(
    log: Path, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    out = tmp_path / "model"
    command = [sys.executable, "-m", "calibrank", "train", log, "--epochs", "2", "-o", out]
    ended = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert ended.returncode == 3
    assert "the output must fit on the disk" in ended.stderr.splitlines()[-1]
    assert not out.exists()
