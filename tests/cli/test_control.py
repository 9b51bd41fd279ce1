"""`calibrank control`: the threshold of the library, from a table."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import calibrank as cr
from tests.cli.conftest import Call
from tests.cli.running import one_line
from tests.test_decisions import draw


def test_the_command_finds_the_threshold_of_the_library(call: Call, tmp_path: Path) -> None:
    scores, labels, codes = draw(400, np.random.default_rng(6))
    table = {"user_id": codes, "score": scores, "label": labels, "shown": np.full(len(codes), 0.5)}
    pq.write_table(pa.table(table), tmp_path / "random.parquet")
    fitted = cr.Platt().fit(scores, labels)
    fitted.save(tmp_path / "map.json")
    command = ["control", tmp_path / "random.parquet", "--map", tmp_path / "map.json"]
    expected = cr.control(fitted.predict(scores), labels, codes, unwanted=0.35, longest=5)
    options = ["--unwanted", "0.35", "--longest", "5"]
    code, text, error = call(*command, *options, "--json")
    assert code == 0, error
    assert json.loads(text)["threshold"] == expected.threshold
    weighted = json.loads(call(*command, *options, "--propensity", "shown", "--json")[1])
    assert weighted["threshold"] == expected.threshold
    assert "with 95% confidence" in one_line(call(*command, *options)[1])


def test_the_command_takes_probabilities(call: Call, tmp_path: Path) -> None:
    values, labels, codes = draw(400, np.random.default_rng(7))
    table = {"user_id": codes, "probability": values, "label": labels}
    pq.write_table(pa.table(table), tmp_path / "random.parquet")
    result = call("control", tmp_path / "random.parquet", "--unwanted", "0.35", "--json")
    expected = cr.control(values, labels, codes, unwanted=0.35)
    assert json.loads(result[1])["threshold"] == expected.threshold


def test_the_command_refuses_a_map_by_segment(call: Call, tmp_path: Path) -> None:
    scores, labels, codes = draw(50, np.random.default_rng(8))
    table = {"user_id": codes, "score": scores, "label": labels}
    pq.write_table(pa.table(table), tmp_path / "random.parquet")
    country = {"country": np.where(codes % 2, "DE", "NL")}
    cr.Segments("country").fit(scores, labels, country).save(tmp_path / "map.json")
    command = ["control", tmp_path / "random.parquet", "--map", tmp_path / "map.json"]
    code, _, error = call(*command)
    assert code == 3
    assert "--map must be a map without segments" in one_line(error)
