"""`calibrank evaluate`: the library's metrics, with intervals, from a table."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pac
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.data.score_world import World
from calibrank.metrics import (
    MCE,
    NDCG,
    CalibrationIntercept,
    CalibrationInTheLarge,
    CalibrationSlope,
    ConstantLogLoss,
    LogLossGain,
)
from tests.cli.conftest import Call
from tests.cli.running import one_line


def test_metrics_are_those_of_the_library(
    call: Call, folder: Path, tmp_path: Path, world: World
) -> None:
    map_file = tmp_path / "map.json"
    call("fit", folder / "log.parquet", "--propensity", "w", "-o", map_file)
    code, text, error = call("evaluate", folder / "test.parquet", "--map", map_file, "--json")
    assert code == 0, error
    result = json.loads(text)
    assert result["users"] == "userID"
    assert result["not_computed"] == []
    test = world.redraw(9)
    probabilities = cr.load(map_file).predict(test.scores)
    for metric in (
        cr.LogLoss(),
        cr.ECE(),
        MCE(),
        cr.Brier(),
        NDCG(5),
        cr.ECE() @ 5,
        CalibrationInTheLarge(),
        ConstantLogLoss(),
        LogLossGain(),
        CalibrationSlope(),
        CalibrationIntercept(),
        cr.SmoothECE(),
    ):
        expected = metric(probabilities, test.preferences, test.users)
        assert result["metrics"][metric.name]["value"] == pytest.approx(expected, rel=1e-9)
    p_value = cr.calibration_test(probabilities, test.preferences, users=test.users).p_value
    assert result["calibration_test"]["p_value"] == pytest.approx(p_value, abs=0.02)
    # Resampling draws other users, so the width agrees only roughly.
    expected = cr.bootstrap(cr.LogLoss(), probabilities, test.preferences, test.users)
    found = result["metrics"]["LogLoss"]
    width = expected.high - expected.low
    assert found["high"] - found["low"] == pytest.approx(width, rel=0.25)


def test_the_table_of_metrics_names_the_users_that_are_resampled(
    call: Call, folder: Path, tmp_path: Path
) -> None:
    call("fit", folder / "log.parquet", "--propensity", "w", "-o", tmp_path / "map.json")
    code, text, _ = call("evaluate", folder / "test.parquet", "--map", tmp_path / "map.json")
    assert code == 0
    assert "40,000 rows; 95% bootstrap intervals over users (userID)" in text
    assert "█ observed rate, ┃ predicted probability" in text
    assert "Not computed" not in text
    assert "Test of calibration: p = " in text


def test_rates_and_caveats_come_first(call: Call, folder: Path, tmp_path: Path) -> None:
    call("fit", folder / "log.parquet", "--propensity", "w", "-o", tmp_path / "map.json")
    own = "The map was probably fitted on these rows"
    for name, is_own in {"log": True, "test": False}.items():
        table = folder / f"{name}.parquet"
        _, text, _ = call("evaluate", table, "--map", tmp_path / "map.json")
        labels = pq.read_table(table)["label"].to_pylist()
        rate = f"{100 * sum(labels) / len(labels):.3g}% observed. Labels are used as they are: rig"
        assert rate in one_line(text)[:120]
        assert (own in one_line(text)) == is_own


def test_labels_that_anchored_the_map_are_pointed_out(call: Call, tmp_path: Path) -> None:
    """The whole of them, a part, and not others or a table in which they are few."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    labels = rng.random(4_000) < 1 / (1 + np.exp(1 - scores))
    first = cr.Platt().fit(scores[2_000:], labels[2_000:])
    cr.anchor(first, scores[:300], labels[:300]).save(tmp_path / "map.json")
    again = "The map was anchored on these labels, or on most of them."
    rows = {
        "all": range(300),
        "part": range(50, 200),
        "others": range(300, 600),
        "more": range(900),
    }
    for name, chosen in rows.items():
        table = tmp_path / f"{name}.parquet"
        picked = np.array(chosen)
        pq.write_table(pa.table({"score": scores[picked], "label": labels[picked]}), table)
        _, text, _ = call("evaluate", table, "--map", tmp_path / "map.json")
        assert (again in one_line(text)) == (name in ("all", "part"))
        page = tmp_path / f"{name}.html"
        _, text, _ = call("report", table, "--map", tmp_path / "map.json", "-o", page)
        assert one_line(text).startswith(again) == (name in ("all", "part"))
        assert (again in page.read_text(encoding="utf-8")) == (name in ("all", "part"))


def test_a_probability_column_is_evaluated_as_it_is(call: Call, tmp_path: Path) -> None:
    columns = {"probability": [0.2, 0.7, 0.4], "label": [False, True, True]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    code, text, _ = call("evaluate", tmp_path / "t.parquet")
    assert code == 0
    assert "rows, treated as independent" in text
    assert "Not computed (no user column): ECE@5, NDCG@5, Recall@5" in text
    brier = ((0.2 - 0) ** 2 + (0.7 - 1) ** 2 + (0.4 - 1) ** 2) / 3
    assert f"{brier:.4f}" in text


def test_values_outside_0_and_1_are_not_probabilities(call: Call, tmp_path: Path) -> None:
    pq.write_table(pa.table({"probability": [0.2, 1.7], "label": [0, 1]}), tmp_path / "t.parquet")
    code, _, error = call("evaluate", tmp_path / "t.parquet")
    assert code == 3
    assert "row 1: probability must lie in [0, 1], got 1.7" in one_line(error)


def test_ids_may_be_categories_but_not_missing(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    map_file = tmp_path / "map.json"
    users = pa.array(["a", "b", "c", "a", "b", "c"]).dictionary_encode()
    columns = {
        "score": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        "label": [0, 1, 0, 1, 0, 0],
        "user": users,
        "item": users,
    }
    pq.write_table(pa.table(columns), table)
    assert call("fit", table, "--item", "item", "--method", "isotonic", "-o", map_file)[0] == 0
    assert call("evaluate", table, "--map", map_file)[0] == 0
    columns["user"] = pa.array(["a", None, "c", "a", "b", "c"])
    pq.write_table(pa.table(columns), table)
    code, _, error = call("evaluate", table, "--map", map_file)
    assert code == 3
    assert "row 1: user must be an id, got none" in one_line(error)
    code, _, error = call("evaluate", table, "--map", map_file, "--on-bad-rows", "skip")
    assert code == 0
    assert "skipped 1 rows with an invalid user" in error


def test_probabilities_that_a_constant_beats_are_reported(call: Call, tmp_path: Path) -> None:
    columns = {"probability": [0.2, 0.7, 0.4], "label": [1, 0, 0]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    code, text, _ = call("evaluate", tmp_path / "t.parquet")
    assert code == 0
    gain = LogLossGain()(columns["probability"], columns["label"])
    expected = "Worse than a constant: predicting the base rate for every row would have"
    assert f"{expected} a log loss lower by {-gain:.4f}." in one_line(text)
    columns["label"] = [0, 1, 0]
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert "Worse than a constant" not in call("evaluate", tmp_path / "t.parquet")[1]


def test_segments_are_evaluated_as_tables_of_their_own(
    call: Call, folder: Path, tmp_path: Path
) -> None:
    table = pq.read_table(folder / "test.parquet")
    rows = table.num_rows
    countries = [("NL", "DE", None)[min(row % 7, 2)] for row in range(rows)]
    table = table.append_column("country", pa.array(countries))
    pq.write_table(table, tmp_path / "test.parquet")
    dutch = table.filter(pac.equal(table["country"], "NL")).drop(["country"])
    pq.write_table(dutch, tmp_path / "dutch.parquet")
    call("fit", folder / "log.parquet", "--propensity", "w", "-o", tmp_path / "map.json")
    options = ["--map", tmp_path / "map.json", "--json"]
    code, text, error = call(
        "evaluate", tmp_path / "test.parquet", *options, "--segment", "country"
    )
    assert code == 0, error
    segments = json.loads(text)["segments"]["country"]
    assert set(segments) == {"NL", "DE", "(missing)"}
    assert sum(segment["rows"] for segment in segments.values()) == rows
    alone = json.loads(call("evaluate", tmp_path / "dutch.parquet", *options)[1])
    for name, estimate in segments["NL"]["metrics"].items():
        # A segment has fewer clusters of users, from which the debiased ECE estimates its noise.
        tolerance = 0.1 if name == "DebiasedECE" else 1e-9
        assert estimate["value"] == pytest.approx(alone["metrics"][name]["value"], rel=tolerance)
    text = call("evaluate", tmp_path / "test.parquet", *options[:2], "--segment", "country")[1]
    assert "By country" in text


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("prediction", "segment column 'prediction' must have at most 100 values"),
        ("country", "must have the segment column 'country', got"),
    ],
)
def test_unsuitable_segments_are_refused(
    call: Call, folder: Path, tmp_path: Path, column: str, message: str
) -> None:
    call("fit", folder / "log.parquet", "--propensity", "w", "-o", tmp_path / "map.json")
    options = ["--map", tmp_path / "map.json", "--segment", column]
    code, _, error = call("evaluate", folder / "test.parquet", *options)
    assert code == 3
    assert message in error


def test_a_segment_of_one_class_has_the_metrics_that_exist(call: Call, tmp_path: Path) -> None:
    columns = {
        "probability": [0.1, 0.2, 0.3, 0.4] * 5,
        "label": [0, 1, 1, 0] * 4 + [0] * 4,
        "day": ["a"] * 16 + ["b"] * 4,
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    code, text, error = call("evaluate", tmp_path / "t.parquet", "--segment", "day", "--json")
    assert code == 0, error
    assert json.loads(text)["segments"]["day"]["b"]["metrics"]["LogLoss"]["value"] > 0
