"""Logs of impressions on the command line: declared or recorded, never inferred."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.propensity import Exposure
from calibrank.tables import Interactions
from calibrank.tabular.columns import Roles, roles_of
from tests.cli.conftest import Call
from tests.cli.running import one_line


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Impressions of 200 users and 60 items with latent tastes: shown by popularity."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=(200, 1)) @ rng.normal(size=(1, 60)) + rng.normal(size=60)
    shown = rng.random((200, 60)) < rng.uniform(0.1, 0.8, 60)
    liked = rng.random((200, 60)) < 1 / (1 + np.exp(1 - 1.5 * score))
    users, items = np.nonzero(shown)
    path = tmp_path_factory.mktemp("impressions") / "log.parquet"
    columns = {
        "user_id": users,
        "item_id": items,
        "score": score[shown],
        "label": liked[shown].astype(np.int8),
    }
    pq.write_table(pa.table(columns), path)
    return path


def expected_map(log: Path) -> cr.CalibrationMap:
    table = pq.read_table(log)
    users, items = table["user_id"].to_numpy(), table["item_id"].to_numpy()
    labels = table["label"].to_numpy().astype(float)
    propensity = Exposure().fit(Interactions(users, items, labels)).predict(users, items)
    return cr.Gaussian().fit(table["score"].to_numpy(), cr.impressions(labels, propensity))


def test_fit_weights_a_declared_log_by_exposure(log: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "map.json"
    ids = ("--item", "item_id", "--user", "user_id")
    code, text, error = call(
        "fit", log, "--log", "impressions", *ids, "--method", "gaussian", "-o", out
    )
    assert code == 0, error
    assert "exposure estimated from the impressions of 60 items" in error
    assert "Effective number of impressions" in text
    fitted = cr.load(out)
    assert fitted.record.evidence == "impressions"
    assert fitted.parameters == pytest.approx(expected_map(log).parameters)
    options = ("--negatives-kept", 0.02, "--method", "gaussian", "-o", tmp_path / "other.json")
    assert call("fit", log, *ids[:2], *options)[0] == 0
    assert cr.load(tmp_path / "other.json").record.evidence == "ips"


def test_a_recorded_log_counts_as_declared(log: Path, tmp_path: Path, call: Call) -> None:
    table = pq.read_table(log)
    users, items = table["user_id"].to_numpy(), table["item_id"].to_numpy()
    propensity = Exposure().fit(Interactions(users, items)).predict(users, items)
    written = table.append_column("exposure", pa.array(propensity))
    roles = Roles({name: name for name in written.column_names}, "calibrank train", "impressions")
    recorded = tmp_path / "recorded.parquet"
    pq.write_table(written.replace_schema_metadata(roles.metadata()), recorded)
    out = tmp_path / "map.json"
    code, _, error = call("fit", recorded, "--method", "gaussian", "-o", out)
    assert code == 0
    assert "Reading the table as a log of impressions (recorded by calibrank train)" in error
    assert "Using exposure column 'exposure'" in error
    assert cr.load(out).parameters == pytest.approx(expected_map(log).parameters)
    options = ("--log", "interactions", "--item", "item_id", "--negatives-kept", 0.02)
    code, _, error = call("fit", recorded, *options, "--method", "gaussian", "-o", out)
    assert (code, cr.load(out).record.evidence) == (0, "ips")
    assert "impressions" not in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--log", "policy"), "must have the logged probabilities of showing each pair"),
        (("--log", "policy", "--propensity", "score", "--item", "item_id"), "must not both be"),
        (("--log", "interactions"), "a log of interactions must have propensities"),
        ((), "If every row was shown, and label 0 means not liked, give --log impressions"),
    ],
)
def test_contradictory_declarations_are_refused(
    log: Path, tmp_path: Path, call: Call, options: tuple[str, ...], message: str
) -> None:
    code, _, error = call("fit", log, *options, "-o", tmp_path / "map.json")
    assert code == 2
    assert message in one_line(error)


def test_diagnose_explains_both_readings(log: Path, call: Call) -> None:
    ids = ("--item", "item_id", "--user", "user_id")
    code, text, error = call("diagnose", log, "--log", "impressions", *ids)
    assert code == 0, error
    assert "does not depend on whether it is liked" in one_line(text)
    assert "declare --log interactions: the" in one_line(text)
    # The same table, declared otherwise: nothing is inferred from its values.
    code, text, error = call("diagnose", log, "--item", "item_id", "--json")
    assert code == 0, error
    found = {each["subject"]: each["message"] for each in json.loads(text)["findings"]}
    labels = pq.read_table(log)["label"].to_numpy()
    assert found["log"].startswith("Read as a log of interactions: label 0 means unobserved")
    assert (
        f"declare --log impressions: the base rate is then that of the log, {labels.mean():.2%}"
        in (found["log"])
    )
    code, text, error = call("diagnose", log, "--log", "impressions", *ids)
    assert code == 0, error
    assert "effective number" in one_line(text)


@pytest.mark.parametrize("command", ["compare", "report"])
def test_other_commands_take_the_declaration(
    log: Path, tmp_path: Path, call: Call, command: str
) -> None:
    ids = ("--item", "item_id", "--user", "user_id")
    extra: tuple[object, ...] = ("--json",)
    if command == "report":
        fitted = tmp_path / "map.json"
        assert call("fit", log, "--log", "impressions", *ids, "-o", fitted)[0] == 0
        extra = ("--map", fitted, "-o", tmp_path / "report.html")
    code, text, error = call(command, log, "--log", "impressions", *ids, *extra)
    assert code == 0, error
    if command == "compare":
        assert json.loads(text)["evidence"] == "impressions"


def test_train_holds_out_dislikes_and_records_them(log: Path, tmp_path: Path, call: Call) -> None:
    pytest.importorskip("torch")
    model = tmp_path / "model"
    options = ("--log", "impressions", "--epochs", 5, "--dim", 4, "-o", model)
    code, text, error = call("train", log, *options)
    assert code == 0, error
    assert f"{model}/impressions.parquet" in text.replace("\n", "")
    shown = pq.read_table(model / "impressions.parquet")
    assert roles_of(shown.schema).log == "impressions"
    assert roles_of(shown.schema).column("exposure") == "exposure"
    whole = pq.read_table(log)["label"].to_numpy().mean()
    assert shown["label"].to_numpy().mean() == pytest.approx(whole, abs=0.05)
    # The other table stays as it was: likes and sampled pairs.
    pairs = pq.read_table(model / "calibration.parquet")
    likes = shown["label"].to_numpy().sum()
    assert pairs["label"].to_numpy().sum() == likes
    assert roles_of(pairs.schema).log is None
    scores = tmp_path / "scores.parquet"
    assert call("score", model, model / "impressions.parquet", "-o", scores)[0] == 0
    code, text, error = call("fit", scores, "-o", tmp_path / "map.json")
    assert code == 0, error
    assert cr.load(tmp_path / "map.json").record.evidence == "impressions"
    assert call("train", log, "--epochs", 5, "--dim", 4, "-o", tmp_path / "likes")[0] == 0
    assert not (tmp_path / "likes" / "impressions.parquet").exists()
