"""`calibrank compare`: all methods, cross-validated over users."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrank.cli.options import as_typed
from calibrank.registry import CALIBRATORS
from tests.cli.conftest import Call
from tests.cli.running import one_line


def test_every_method_is_compared_and_the_lowest_log_loss_is_marked(
    call: Call, folder: Path
) -> None:
    arguments = ["compare", folder / "log.parquet", "--propensity", "w"]
    results = json.loads(call(*arguments, "--json")[1])["methods"]
    assert list(results) == [as_typed(name) for name in CALIBRATORS]
    assert results["gaussian"]["LogLoss"] < results["minmax"]["LogLoss"]
    assert {"ConstantLogLoss", "CalibrationSlope", "CalibrationIntercept"} <= set(
        results["gaussian"]
    )
    for values in results.values():
        constant = values["LogLoss"] + values["LogLossGain"]
        assert constant == pytest.approx(results["platt"]["ConstantLogLoss"])
    best = min(results, key=lambda name: results[name]["LogLoss"])
    code, text, error = call(*arguments)
    assert code == 0, error
    assert "5-fold cross-validation by user (user_id), ips evidence" in text
    assert text.count("(best)") == 1
    assert f"{best} (best)" in text
    constant = results["platt"]["ConstantLogLoss"]
    assert f"Log loss of the best constant (the base rate): {constant:.4f};" in one_line(text)
    assert "Worse than this constant: " in one_line(text)
    worse = one_line(text).split("Worse than this constant: ")[1].split(".")[0].split(", ")
    assert worse == [name for name, values in results.items() if values["LogLossGain"] < 0]


def test_more_folds_than_users_are_refused(call: Call, tmp_path: Path) -> None:
    columns = {"score": [0.1, 0.2, 0.3], "label": [0, 1, 0], "user": ["a", "b", "c"]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    code, _, error = call("compare", tmp_path / "t.parquet", "--log", "impressions")
    assert code == 3
    assert "enough users for 5 folds" in one_line(error)


def test_no_method_is_best_by_a_negative_log_loss(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(600) < 0.5).astype(int)
    # Positives of weight 5 on half of the rows: the mean weighted label is 2.5.
    columns = {"score": labels + rng.random(600), "label": labels, "propensity": np.full(600, 0.2)}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    code, text, error = call("compare", tmp_path / "log.parquet", "--propensity", "propensity")
    assert (code, text) == (4, "")
    assert "the log loss must be 0 or more" in error


def test_too_few_users_for_the_folds_are_refused(call: Call, tmp_path: Path) -> None:
    columns = {"score": [0.1, 0.2, 0.3, 0.4], "label": [0, 1, 0, 1], "user": [1, 1, 2, 2]}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    code, _, error = call("compare", tmp_path / "log.parquet", "--log", "impressions")
    assert code == 3
    assert "must have enough users for 5 folds, got an empty fold. Add rows of more" in error
